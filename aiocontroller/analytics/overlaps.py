"""Finds logs that have lines in common: copies made at different times of a log that goes on, or that was rotated while
it was copied.

If the end of one file is the beginning of another one, byte by byte, the first one is read only up to there, so each
line counts once.  A file that lies within another one is a copy.  Lines alone prove nothing, since a log may have the
same line twice in a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aiocontroller.analytics.copies import described_alike
from aiocontroller.analytics.differing_copies import Log, read_once
from aiocontroller.analytics.framing import time_in
from aiocontroller.analytics.reading import HEAD_BYTES, chunks, head, is_local, is_packed, local_name
from aiocontroller.analytics.schema import JOURNAL_SOURCE
from aiocontroller.analytics.source_files import Lack, SourceFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_PLACES = 100
"""The number of places of one line in a file that are compared."""


@dataclass(frozen=True)
class _Ends:
    """The first line of a file with a time, where it begins, its time, and that of the last line."""

    line: bytes
    begin: int
    first: str
    last: str


def without_overlaps(
    spark: SparkSession, files: Sequence[SourceFile], folder: Callable[[], Path]
) -> tuple[list[SourceFile], list[tuple[str, str]], list[Lack]]:
    """Return the files, (name, original) of those that lie within another one, and which copies differ.

    Of files whose end begins another one, the rest is copied below ``folder()`` and read there.
    """
    logs = [file for file in files if file.source != JOURNAL_SOURCE and file.node is not None]
    alike = [(one, two) for one in logs for two in logs if one is not two and described_alike(one, two)]
    wanted = {file.path: file for pair in alike for file in pair}
    ends = {path: found for path, file in wanted.items() if (found := _ends(spark, file)) is not None}
    common: dict[tuple[str, str], tuple[int, bool]] = {}
    for one, two in alike:
        if one.path in ends and two.path in ends and _may_overlap(ends[one.path], ends[two.path]):
            for place in _places(spark, one, ends[two.path].line):
                goes_on = _goes_on(spark, one, place, two, ends[two.path].begin)
                if goes_on is not None:
                    common[one.path, two.path] = place, goes_on
                    break
    names = {file.path: file.name for file in files}
    copies: dict[str, str] = {}
    for (whole, part), (_, goes_on) in sorted(common.items()):
        if not goes_on and whole not in copies:
            copies[part] = whole
    read = []
    for file in files:
        later = [
            (place, other)
            for (path, other), (place, _) in common.items()
            if path == file.path and not {path, other} & {*copies}
        ]
        if later:
            place, goes_on_in = min(later)
            begun = _cut(spark, file, place, names[goes_on_in], folder())
            read.append(begun)
            if place:
                ends[begun.path] = replace(ends[file.path], last=_last(_tail(spark, begun), ends[file.path].first))
        elif file.path not in copies:
            read.append(file)
    alone = [file for file in read if file.path not in ends]
    timed = [Log(file, ends[file.path].first, ends[file.path].last) for file in read if file.path in ends]
    once, differing, lacks = read_once(spark, timed, folder)
    within = [*((names[part], names[whole]) for part, whole in copies.items()), *differing]
    return sorted([*alone, *once], key=lambda file: file.name), sorted(within), lacks


def _may_overlap(one: _Ends, two: _Ends) -> bool:
    # A last line may come again at once, in the next file.
    return one.first <= two.first < one.last


def _ends(spark: SparkSession, file: SourceFile) -> _Ends | None:
    tail = _tail(spark, file)
    begin = 0
    for line in head(spark, file.path).split(b"\n")[:-1]:
        first = time_in(line)
        if first is not None:
            return _Ends(line + b"\n", begin, first, _last(tail, first))
        begin += len(line) + 1
    return None


def _last(tail: bytes, first: str) -> str:
    return next((found for each in reversed(tail.split(b"\n")) if (found := time_in(each)) is not None), first)


def _tail(spark: SparkSession, file: SourceFile) -> bytes:
    if is_local(file.path) and not is_packed(file.path):
        with open(local_name(file.path), "rb") as content:
            content.seek(max(0, file.size - HEAD_BYTES))
            return content.read(HEAD_BYTES)
    tail = b""
    for data in chunks(spark, file.path):
        tail = (tail + data)[-HEAD_BYTES:]
    return tail


def _places(spark: SparkSession, file: SourceFile, line: bytes) -> Iterator[int]:
    """Yield where the line stands in the file, if it begins a line there, in bytes."""
    before, begin, found = b"\n", -1, 0
    for data in chunks(spark, file.path):
        text = before + data
        at = text.find(b"\n" + line)
        while at >= 0 and found < _MOST_PLACES:
            yield begin + at + 1
            found += 1
            at = text.find(b"\n" + line, at + 1)
        before = text[-len(line) :]
        begin += len(text) - len(before)


def _goes_on(spark: SparkSession, one: SourceFile, place: int, two: SourceFile, begin: int) -> bool | None:
    """Return whether ``two`` goes on after the end of ``one``; None if they differ before either ends."""
    theirs = _from(spark, two, begin)
    other = b""
    for mine in _from(spark, one, place):
        while mine:
            other = other or next(theirs, b"")
            if not other:
                return False
            length = min(len(mine), len(other))
            if mine[:length] != other[:length]:
                return None
            mine, other = mine[length:], other[length:]
    return bool(other or next(theirs, b""))


def _from(spark: SparkSession, file: SourceFile, begin: int) -> Iterator[bytes]:
    for data in chunks(spark, file.path):
        if begin < len(data):
            yield data[begin:]
        begin = max(0, begin - len(data))


def _cut(spark: SparkSession, file: SourceFile, size: int, goes_on_in: str, folder: Path) -> SourceFile:
    place = folder / f"overlap-{len(list(folder.iterdir()))}"
    place.mkdir()
    copy = place / "log"
    left = size
    with copy.open("wb") as out:
        for data in chunks(spark, file.path):
            left -= out.write(data[:left])
            if not left:
                break
    remarks = tuple(each for each in file.remarks if not each.startswith("cut off: "))
    common = f"overlaps with {goes_on_in}, where its end is read"
    return replace(file, path=f"file:{copy}", size=size, remarks=(*remarks, common))
