r"""How the records of a log are delimited in its file, determined from the file's head.

A record begins with its time, possibly in a bracket or after the prefix that a container runtime adds to each line; the
lines of a stack trace have no time.  If all records begin alike (``\n[``, ``\n20``, ``\n{"log":"[``,
``\nkafka-1  | [``), Spark splits the file there, and a stack trace stays with its record.  If the lines begin
differently (CRI's own times, several containers in one file), they are read one by one.  So are those of a file whose
layout changes after its head; otherwise records of the other layout would be taken for stack traces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiocontroller.analytics.kafka_logs import BEFORE, HEADER, HEADER_WITHOUT_DATE, as_python

MOSTLY = 0.9
"""The share of records that must begin alike."""
LINES_LOOKED_AT = 500

_CRI = r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] "
_ANY_WRAPPER = rf"(?:{_CRI}|(?!{_CRI}).{{0,200}}?)"
"""(A stack trace after a runtime's own time is not a record.)"""
_DOCKER = '{"log":"'
_DATED, _DATELESS = (
    re.compile(rf"(?P<wrapper>{_ANY_WRAPPER})(?P<open>\[?)(?={as_python(header)})")
    for header in (HEADER, HEADER_WITHOUT_DATE)
)
_LEVEL = r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b"
_CLOCK = r"(?:\d\d:\d\d:\d\d|\d{12,14})"
LIKE_A_RECORD = (
    rf"(?:[^\n]{{0,60}}?{_CLOCK}[^\n]{{0,40}}?{_LEVEL}|[^\n]{{0,12}}?{_LEVEL}[^\n]{{0,40}}?{_CLOCK}"
    r'|\{[^\n]{0,400}?"(?:level|log\.level|severity)"\s*:)'
)
"""A time and a level at the start of a line, or a JSON object with a level; neither occurs in a stack trace."""
_LONGEST_BYTES = 600
"""More than ``LIKE_A_RECORD`` examines."""
_OF_OURS = re.compile(r"\(aiocontroller\.[\w.]+\)$")
OF_KAFKA = (
    r"\((?:kafka\.|org\.apache\.kafka)|state\.change\.logger|kafka\.(?:controller|server|cluster)"
    r"|\[(?:Controller|Broker|KafkaServer) id=\d|\[Partition \S+ broker=\d"
    r"| (?:Controller|Broker) \d+ (?:epoch \d+ )?\w+"
    r"|\[Controller \d+\]|\[Kafka Server \d+\]"
)
_OF_KAFKA = re.compile(OF_KAFKA)
_ONLY_BEFORE = re.compile(BEFORE)
_BROKER_ID = re.compile(rf'(?:{_CRI}|[\w.-]+ +\| |\{{"log":")?(?:\\t|\s)*broker\.id = (?P<nodeA>\d+)')
"""A broker's settings, which it logs when it starts."""
_NODES = ("nodeA", "nodeB", "nodeC", "nodeD")


@dataclass(frozen=True)
class Framing:
    """``separator`` None: the file is read line by line.  ``wrapper`` is a regex for what precedes the time."""

    separator: str | None
    wrapper: str = ""
    docker: bool = False
    """Each line is a JSON object with the escaped text."""
    dated: bool = True
    """The times have dates."""

    @property
    def header(self) -> str:
        """Return the regex for a whole record; Spark has removed the wrapper of all records but the first."""
        optional = "" if self.separator is None else "?"
        return f"(?s)^\ufeff?(?:{self.wrapper}){optional}{HEADER if self.dated else HEADER_WITHOUT_DATE}"

    def line_by_line(self) -> Framing:
        """Return the framing of the same file with records that begin differently."""
        return replace(self, separator=None, wrapper=_ANY_WRAPPER)

    def finder_of_others(self) -> Callable[[bytes], bool]:
        """Return a function that takes a file's pieces in order, and returns whether the pieces so far contain a record
        that begins differently."""
        if self.separator is None:
            return lambda _: False
        begins = re.escape(self.separator[1:]).encode()
        other = re.compile(rb"\n(?!" + begins + rb")" + LIKE_A_RECORD.encode())
        found, rest = False, b""

        def look(piece: bytes) -> bool:
            nonlocal found, rest
            if not found:
                text = rest + piece
                found = other.search(text) is not None
                begun = len(text) - max(text.rfind(b"\n"), 0)
                rest = text[-begun:] if begun < _LONGEST_BYTES else b""
            return found

        return look


def framing_of(head: bytes) -> Framing | None:
    """Return the framing, or None if no line begins with a time."""
    lines = _lines(head)
    found = [m for line in lines if (m := _DATED.match(line))]
    dated = bool(found)
    found = found or [m for line in lines if (m := _DATELESS.match(line))]
    if not found:
        return None
    docker = found[0]["wrapper"].startswith(_DOCKER)
    beginnings = Counter((m["wrapper"], m["open"] or m.string[m.end() :][:2]) for m in found)
    (wrapper, mark), times = beginnings.most_common(1)[0]
    if times < MOSTLY * len(found) or mark not in ("[", "20"):
        return Framing(None, _ANY_WRAPPER, docker, dated)
    return Framing(f"\n{wrapper}{mark}", re.escape(wrapper), docker, dated)


def is_of_kafka(head: bytes) -> bool:
    """Return whether Kafka's broker or controller wrote the file; our own log is similar, but its content is in the
    journal."""
    lines = _lines(head)
    return any(_OF_KAFKA.search(line) for line in lines) and not any(_OF_OURS.search(line) for line in lines)


def node_of(head: bytes) -> int | None:
    """Return the broker that wrote the file, or None if no line names it."""
    for line in _lines(head):
        found = _BROKER_ID.match(line) or _header_of(line)
        number = None if found is None else next(filter(None, map(found.groupdict().get, _NODES)), None)
        if number is not None:
            return int(number)
    return None


def precedes_message(text: str) -> bool:
    """Return whether a message begins after this beginning of a line: there is nothing that a client could choose."""
    header = _header_of(text)
    return header is not None and _ONLY_BEFORE.fullmatch(header["rest"]) is not None


def time_in(line: bytes) -> str | None:
    """Return the time at the beginning of a line, as it stands there, in a form that sorts; None if there is none."""
    header = _header_of(line.decode("utf-8", "replace"))
    if header is None:
        return None
    return f"{header['date']} {header['time']}.{(header['fraction'] or '').ljust(9, '0')}"


def _header_of(line: str) -> re.Match[str] | None:
    return _DATED.match(line) or _DATELESS.match(line)


def _lines(head: bytes) -> list[str]:
    return head.decode("utf-8", "replace").splitlines()[:LINES_LOOKED_AT]
