"""Bronze of Kafka's logs without Spark: parses records in plain Python as ``log_reader`` does.

Both take regexes and patterns from ``kafka_logs``; ``tests/integration/analytics/test_engines.py`` compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from aiocontroller.analytics import schema
from aiocontroller.analytics.framing import LIKE_A_RECORD, OF_KAFKA
from aiocontroller.analytics.kafka_logs import PATTERNS, SELF, Pattern, as_python, slot_of, whole
from aiocontroller.analytics.log_reader import API_NAMES, CONTINUATION, EVENT_NAMES, MOST_DETAIL, UNKNOWN_LAYOUT
from aiocontroller.analytics.source_files import SourceFile

_WHITE: Final = " \t\r\n"
_ESCAPED: Final = (('\\"', '"'), ("\\t", "\t"), ("\\u003c", "<"), ("\\u003e", ">"), ("\\u0026", "&"))
_DOCKERS_TAIL: Final = re.compile(r'(?:\\n)?","(?:stream|time|attrs)":.*$')
_OFFSET: Final = re.compile(r"^([+-]\d\d):?(\d\d)$", re.ASCII)
_LIKE_A_RECORD, _OF_KAFKA = (re.compile(regex, re.ASCII) for regex in (LIKE_A_RECORD, OF_KAFKA))
_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)
_BROKER_EPOCH: Final = re.compile(r"brokerEpoch=-?\d+", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class _Compiled(NamedTuple):
    needle: str
    match: Callable[[str], re.Match[str] | None]
    always: dict[str, str]
    groups: tuple[tuple[str, tuple[str, ...]], ...]


def _slots(regex: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    groups: dict[str, list[str]] = {}
    for name in re.findall(r"\(\?<(\w+)>", regex):
        groups.setdefault(slot_of(name), []).append(name)
    return tuple((slot, tuple(names)) for slot, names in groups.items())


def _compiled(pattern: Pattern) -> _Compiled:
    match = re.compile(as_python(whole(pattern.regex)), re.ASCII).match
    always = {"kind": pattern.kind, **pattern.always}
    return _Compiled(pattern.needle, match, always, _slots(pattern.regex))


_PATTERNS: Final = tuple(map(_compiled, PATTERNS))
_ANY_DIGIT: Final = bytes.maketrans(b"123456789", b"0" * 9)
assert not any(re.search(r"\d", pattern.needle) for pattern in PATTERNS), "``_pattern_of`` sees no digits"
_HEADER_GROUPS: Final = (
    "date", "time", "fraction", "zone", "rest", "epochA", "epochD", "nodeA", "nodeB", "nodeC", "nodeD"
)  # fmt: skip


class LogParser:
    """Parses the records of one file."""

    def __init__(self, file: SourceFile) -> None:
        assert file.framing is not None, file.name
        self._file = file
        self._framing = file.framing
        self._header = re.compile(as_python(file.framing.header), re.ASCII)
        self.origin: Final = {
            "source": file.source, "cluster": file.cluster, "process": file.process, "start_us": file.start_us,
            "file": file.name, "joined": False,
        }  # fmt: skip
        """The columns that are the same in all records."""

    def records(self, texts: Sequence[str] | Iterator[str]) -> Iterator[tuple[dict[str, Any], str, str | None]]:
        """Yield (``schema.EVENTS_BRONZE`` without nulls and ``origin``, the record's text, the reason if it is
        rejected)."""
        for position, value in enumerate(texts, self._file.first_position):
            text = value.rstrip(_WHITE)
            if text:
                yield self._record(position, text)

    def _record(self, position: int, text: str) -> tuple[dict[str, Any], str, str | None]:
        found = self._header.match(text)
        when = utc = epoch = rest = None
        speaker = self._file.node
        row: dict[str, str] = {}
        if found is not None:
            date, time, fraction, zone, rest, epoch_a, epoch_d, *nodes = found.group(*_HEADER_GROUPS)
            row = _row(self._first_line(rest)) if rest else {}
            epoch = _int(epoch_a or epoch_d)
            node = _int(next(filter(None, nodes), None))
            speaker = speaker if node is None else node
            day = f"20{date}" if date else self._file.date
            if day is not None:
                when = f"{day} {time}.{fraction}" if fraction else f"{day} {time}"
                utc = _utc(day, time, fraction or "", zone or self._file.time_zone)
        made: dict[str, Any] = {"seq": position, "node": speaker, "ts": utc, "epoch": epoch}
        if when is not None:
            made["reference"] = f"{self._file.name}:{when.replace('.', ',')}"
        self._say(made, row, speaker, found is not None)
        if made.get("detail") is None and row.get("kind") in (None, "failed"):
            made["detail"] = (rest or text)[:MOST_DETAIL]
        return made, text, self._why_rejected(text, found is not None, when, utc)

    def _say(self, made: dict[str, Any], row: dict[str, str], speaker: int | None, has_header: bool) -> None:
        kind = row.get("kind", "other") if has_header else CONTINUATION
        for name, text in row.items():
            turn = _TURNS.get(name)
            if turn is not None:
                made[name] = turn(text)
        made["kind"] = kind
        for name in ("broker", "leader"):
            if row.get(name) == SELF:
                made[name] = speaker
        if made.get("controller_epoch") is None and kind == "partition":
            made["controller_epoch"] = made["epoch"]
        if made.get("partitions") is not None:
            made["partitions"] += _int(row.get("more_partitions")) or 0
        if "duration_ms" in row:
            duration_ms = _int(row["duration_ms"], 63)
            made["duration_us"] = None if duration_ms is None else duration_ms * 1000

    def _first_line(self, rest: str) -> str:
        line = rest.partition("\n")[0]
        if self._framing.docker:
            line = _DOCKERS_TAIL.sub("", line)
            for escaped, plain in _ESCAPED:
                line = line.replace(escaped, plain)
        return line

    def _why_rejected(self, text: str, has_header: bool, when: str | None, utc: int | None) -> str | None:
        if not has_header:
            if self._framing.separator is not None:
                return "no time where a record of this file begins"
            return UNKNOWN_LAYOUT if _LIKE_A_RECORD.match(text) and _OF_KAFKA.search(text) else None
        if when is None:
            return "no date in the line, its file's name or the manifest"
        return "its time is invalid" if utc is None else None


def _joined(found: re.Match[str], names: Sequence[str]) -> str:
    if len(names) == 1:
        return found[names[0]] or ""
    return "".join(found[name] or "" for name in names)


def _row(message: str) -> dict[str, str]:
    """Return the row of the first pattern whose needle is in the message; empty if it does not match."""
    pattern = _pattern_of(message.encode().translate(_ANY_DIGIT))
    found = None if pattern is None else pattern.match(message)
    if pattern is None or found is None:
        return {}
    row = dict(pattern.always)
    for slot, names in pattern.groups:
        if text := _joined(found, names):
            row[slot] = row.get(slot, "") + text
    return row


@lru_cache(maxsize=10_000)
def _pattern_of(shape: bytes) -> _Compiled | None:
    """Return the pattern for a message with all digits replaced by 0: most messages differ from an earlier one only in
    digits."""
    message = shape.decode()
    return next((pattern for pattern in _PATTERNS if pattern.needle in message), None)


def _int(text: str | None, bits: int = 31) -> int | None:
    """Return None if the text is not a number, or needs more bits."""
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -(1 << bits) <= number < 1 << bits else None


def _ints(text: str) -> list[int | None]:
    """Return the brokers of ``1,2``, ``1, 2`` or ``BrokerState(brokerId=1, brokerEpoch=5), …``."""
    return [_int(number) for number in _NUMBER.findall(_BROKER_EPOCH.sub("", text))]


def _turn_of(field: schema.Field) -> Callable[[str], Any]:
    if field.name == "event":
        return lambda text: EVENT_NAMES.get(text, text)
    if field.name == "api":
        return lambda text: API_NAMES.get(text, text)
    if field.name == "recovery_state":
        return {"RECOVERING": 1, "RECOVERED": 0}.get
    if field.dataType == schema.INTS:
        return _ints
    if field.dataType in (schema.INT, schema.LONG):
        return lambda text: _int(text, 63 if field.dataType == schema.LONG and field.name != "partitions" else 31)
    return lambda text: text


_TURNS: Final = {field.name: _turn_of(field) for field in schema.JOURNAL if field.name not in ("kind", "duration_us")}


def _utc(day: str, time: str, fraction: str, zone: str) -> int | None:
    """Return microseconds since 1970; for an ambiguous local time, the earlier one."""
    minute_us, second = _minute_us(day, time[:5], zone), int(time[6:])
    if minute_us is None or second > 59:
        return None
    return minute_us + second * 1_000_000 + int(fraction[:6].ljust(6, "0"))


@lru_cache(maxsize=4096)
def _minute_us(day: str, time: str, zone: str) -> int | None:
    try:
        year, month, date = map(int, day.split("-"))
        hour, minute = map(int, time.split(":"))
        local = datetime(year, month, date, hour, minute)  # noqa: DTZ001
        # A skipped hour is interpreted with the offset before it, as in Java.
        return (local.replace(tzinfo=_zone(zone)) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


@lru_cache
def _zone(name: str) -> Any:
    offset = _OFFSET.match(name)
    if offset is not None:
        sign = -1 if name[0] == "-" else 1
        hours, minutes = int(offset[1][1:]), int(offset[2])
        if hours > 18 or minutes > 59:
            raise ValueError(name)
        return timezone(sign * timedelta(hours=hours, minutes=minutes))
    return UTC if name in ("Z", "UTC") else ZoneInfo(name)
