"""Converts logs whose records are JSON objects, or whose times are milliseconds since 1970, to plain text.

The formats are log4j2's ``JsonLayout`` and ``JsonTemplateLayout`` (its own templates: ECS, Logstash, GELF, GCP,
JsonLayout), and patterns with ``%d{UNIX_MILLIS}``.  ``damage`` rewrites such files in log4j's default pattern, so both
engines need to know only one format.

Other lines stay as they are.  A line that begins like a record but is not one still starts a record, and is rejected
with a reason like any torn line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

JSON, MILLIS = "json", "epoch milliseconds"
LONGEST_RECORD: Final = 1 << 18
"""The maximum number of characters of an object that spans several lines."""
LINES_LOOKED_AT: Final = 200

_MILLIS: Final = re.compile(r"^(\[?(?:(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +\[?)?)(\d{13})(?=[\], ])")
_DATED: Final = re.compile(r"^.{0,40}?\d\d-\d\d-\d\d[ T]\d\d:\d\d", re.ASCII)
_LEVEL: Final = r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"
_OBJECT: Final = re.compile(rf'^(?:(?:(?!{_LEVEL}).){{0,200}}? )??(?=\{{\s*(?:"|$))')
"""An object, possibly after a container runtime's prefix.

After a level, it is part of a message, as in the state changes of Kafka 1.0 and older.
"""
_PLAIN: Final = re.compile(r"^\[\d{4}-\d\d-\d\d ", re.ASCII)
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)?$", re.ASCII)
_WITHOUT_ZONE: Final = re.compile(r"^\[\d{4}-\d\d-\d\d [\d:]+,\d+\]", re.ASCII | re.MULTILINE)
_CLOCK: Final = re.compile(r"(?<=\d\d-\d\d-\d\d[ T]\d\d):(?=\d\d:\d\d)", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SYSLOG: Final = {0: "FATAL", 1: "FATAL", 2: "FATAL", 3: "ERROR", 4: "WARN", 5: "INFO", 6: "INFO", 7: "DEBUG"}
"""GELF's levels."""

_TIMES: Final = ("instant", "timeMillis", "@timestamp", "timestamp")
_MESSAGES: Final = ("message", "short_message", "full_message")
_LEVELS: Final = ("level", "log.level", "severity")
_LOGGERS: Final = ("loggerName", "log.logger", "logger_name", "_logger", "logger")
_TRACES: Final = ("error.stack_trace", "stack_trace", "_exception", "exception", "thrown")
_TRACES_WITHIN: Final = ("stackTrace", "extendedStackTrace", "stacktrace", "stack_trace")


def layout_of(head: bytes) -> str | None:
    """Return ``JSON``, ``MILLIS``, or None for anything else."""
    lines = head.decode("utf-8", "replace").splitlines()[:LINES_LOOKED_AT]
    if any(_MILLIS.match(line) for line in lines) and not any(_DATED.match(line) for line in lines):
        return MILLIS
    others = [line for line in lines if not _PLAIN.match(line)]
    if any(_OBJECT.match(line) for line in others) and any(_PLAIN.match(text) for text in _plain_json(others)):
        return JSON
    return None


def plain(layout: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the same records as plain text, including the lines of stack traces; ``lines`` have no line ends."""
    return _plain_json(lines) if layout == JSON else (_MILLIS.sub(_with_moment, line) for line in lines)


def _with_moment(found: re.Match[str]) -> str:
    moment = _of_micros(int(found[2]) * 1000)
    return found[0] if moment is None else f"{found[1]}{moment}"


def has_zones(text: str) -> bool:
    """Return whether all times in the output of ``plain`` have zones."""
    return _WITHOUT_ZONE.search(text) is None


# -- JSON --------------------------------------------------------------------------------------------------------------


def _plain_json(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for line in lines:
        if held and line.startswith("{"):  # the previous object is torn
            yield from (f"[{torn}" for torn in held)
            held, size = [], 0
        if not held:
            found = _OBJECT.match(line)
            if found is None:
                if line.strip("[], \t\r"):  # skip the punctuation around the objects of a list
                    yield line
                continue
            line = line[found.end() :]
        held.append(line)
        size += len(line)
        # An object that spans several lines ends with a brace at the start of a line.
        if line.rstrip(", \t\r]").endswith("}") and (len(held) == 1 or line.startswith("}")):
            record = _parsed("\n".join(held))
            if record is not None:
                yield _text(record) or f"[{held[0]}"
                held, size = [], 0
                continue
        # An object that spans several lines begins with a brace alone; any other object without an end is torn.
        if size > LONGEST_RECORD or held[0].strip() != "{":
            yield from (f"[{torn}" for torn in held)
            held, size = [], 0
    yield from (f"[{torn}" for torn in held)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(record: dict[str, Any]) -> str | None:
    """Return the record in log4j's default pattern; None for an object that is not a log record."""
    within = record.get("log")
    if isinstance(within, str) and "stream" in record:  # Docker's wrapper around a record
        inner = _parsed(within)
        return None if inner is None else _text(inner)
    if isinstance(within, dict):  # ECS, nested
        record = {**{f"log.{name}": value for name, value in within.items()}, **record}
    moment = next((m for name in _TIMES if (m := _moment(record.get(name))) is not None), None)
    message = _first(record, _MESSAGES)
    if moment is None or message is None:
        return None
    level = _first(record, _LEVELS) or "INFO"
    logger = _first(record, _LOGGERS)
    head, *rest = [*message.splitlines(), *_trace(record)] or [""]
    opening = f"[{moment}] {level} {head}" + (f" ({logger})" if logger else "")
    # Only the first line may begin like a record, whatever names are in the others.
    return "\n".join([opening, *(_CLOCK.sub("h", f"\t{line}" if line.startswith("[") else line) for line in rest)])


def _first(record: dict[str, Any], names: Iterable[str]) -> str | None:
    for name in names:
        value = record.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return _SYSLOG.get(value, "INFO")
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            return str(value["name"])
    return None


def _trace(record: dict[str, Any]) -> list[str]:
    thrown = next((record[name] for name in _TRACES if record.get(name)), None)
    if thrown is None and isinstance(record.get("error"), dict):
        thrown = record["error"]
    if isinstance(thrown, str):
        return thrown.splitlines()
    if not isinstance(thrown, dict):
        return []
    whole = next((thrown[name] for name in _TRACES_WITHIN if isinstance(thrown.get(name), str)), None)
    if whole is not None:
        return str(whole).splitlines()
    named = [
        str(thrown[name]) for name in ("name", "exception_class", "message", "exception_message") if name in thrown
    ]
    return ": ".join(named).splitlines()


def _moment(value: Any) -> str | None:
    """Return date and time, with the zone if there is one."""
    if isinstance(value, dict):
        seconds, nanos = value.get("epochSecond"), value.get("nanoOfSecond", 0)
        if not isinstance(seconds, int) or not isinstance(nanos, int):
            return None
        return _of_micros(seconds * 1_000_000 + nanos // 1000)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        found = _ISO.match(value.strip())
        if found is None:
            return None
        day, time, fraction, zone = found.groups()
        return f"{day} {time},{(fraction or '0').ljust(3, '0')[:6]}{zone or ''}"
    seconds_or_ms = float(value)  # GELF has seconds with a fraction, the others milliseconds
    if not abs(seconds_or_ms) < 1e15:
        return None
    return _of_micros(round(value * (1000 if seconds_or_ms >= 1e11 else 1_000_000)))


def _of_micros(us: int) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
    fraction = f"{moment.microsecond:06}" if moment.microsecond % 1000 else f"{moment.microsecond // 1000:03}"
    return f"{moment:%Y-%m-%d %H:%M:%S},{fraction}Z"
