"""Tables, times and errors as people read them."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

from aiocontroller.cli.output import byte_count, iso_time, print_json, say, table, while_read
from aiocontroller.cli.root import COMMANDS, explain, root
from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cli.views import microseconds


def test_a_table_aligns_numbers_right_and_words_left() -> None:
    assert table(("id", "name", "isr"), [(1, "a", (1, 2)), (20, "long", None)]).splitlines() == [
        "id  name  isr",
        " 1  a     1,2",
        "20  long  -",
    ]
    assert table(("id", "name"), []) == "id  name"


@pytest.mark.parametrize("us,text", [(0, "0 µs"), (999, "999 µs"), (1000, "1.0 ms"), (2_500_000, "2.50 s")])
def test_durations_in_the_unit_that_reads_best(us: int, text: str) -> None:
    assert microseconds(us) == text


def test_times_and_numbers() -> None:
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_operating_errors_in_a_group_become_lines_and_bugs_stay_bugs() -> None:
    group = ExceptionGroup("tasks", [BadInputError("one"), ExceptionGroup("inner", [OSError("two")])])
    assert explain(group) == ["one", "two"]
    assert explain(ExceptionGroup("tasks", [BadInputError("one"), KeyError("bug")])) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_in_its_help_what_the_list_says(name: str) -> None:
    command = root.get_command(None, name)  # type: ignore[arg-type]  # needs none
    assert command is not None
    assert command.get_short_help_str(limit=200).rstrip(".") == COMMANDS[name][1].rstrip(".")


HOSTILE = "\x1b[2J\x07\u202e\x9b\x7f\u200b"


def test_a_cell_of_a_table_is_one_line_whatever_others_wrote() -> None:
    assert table(("rack", "replicas"), [(f"a\nb{HOSTILE}", ("x\ny", 2))]).splitlines() == [
        "rack                                 replicas",
        r"a\nb\x1b[2J\x07\u202e\x9b\x7f\u200b  x\ny,2",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_printable_and_the_same_in_every_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    value = {"rack": HOSTILE + "größer → Ω 😀"}
    print_json(value)
    text = written.getvalue().decode(encoding)
    assert text.rstrip("\n").isprintable()
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1.25e6, "1.2 MB"), (123e9, "123 GB"), (4_200e12, "4,200.0 TB")],
)
def test_bytes_are_shown_in_powers_of_1000(count: float, text: str) -> None:
    assert byte_count(count) == text


def test_what_nobody_reads_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        os.close(reader)
        for _ in range(2):  # nothing is left in a buffer, to fail later
            with while_read():
                say("one line")
        assert os.path.samestat(os.fstat(writer), os.stat(os.devnull))
