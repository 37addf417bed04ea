"""Log lines: one for each message, whatever is logged; for programs a JSON object."""

from __future__ import annotations

import json
import logging
import sys

from aiocontroller.cli.log_lines import formatter


def record(message: str, *given: object, failed: bool = False) -> logging.LogRecord:
    error = None
    if failed:
        try:
            raise ValueError("a\nb")
        except ValueError:
            error = sys.exc_info()
    made = logging.LogRecord("aiocontroller.x", logging.WARNING, __file__, 1, message, given, error)
    made.created = 1_700_000_000.25
    return made


def test_a_line_is_an_object() -> None:
    line = formatter("json", 7).format(record("partition %s has no leader", "orders-0"))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "controller": 7,
        "logger": "aiocontroller.x",
        "message": "partition orders-0 has no leader",
    }


def test_several_lines_and_an_exception_stay_one_line() -> None:
    line = formatter("json", 7).format(record("a\n\x1b[31mb", failed=True))
    assert "\n" not in line
    assert "\x1b" not in line
    found = json.loads(line)
    assert found["message"] == "a\n\x1b[31mb"
    assert found["exception"].endswith("ValueError: a\nb")


def test_a_lone_surrogate_is_escaped() -> None:
    assert json.loads(formatter("json", 7).format(record("\udc80")))["message"] == "\\udc80"


def test_text_names_the_controller() -> None:
    assert formatter("text", 7).format(record("a")).endswith(" WARNING [7] a (aiocontroller.x)")


def test_in_text_a_message_is_one_line_and_an_exception_follows_it() -> None:
    logged = record("topic %s", "x\n2026-11-28 INFO [7] all is well\x1b[2J", failed=True)
    line, *traceback = formatter("text", 7).format(logged).splitlines()
    assert line.endswith(r"WARNING [7] topic x\n2026-11-28 INFO [7] all is well\x1b[2J (aiocontroller.x)")
    assert traceback[0].startswith("Traceback")
