"""Finds copies of a log that differ within: lines were changed, or are missing in one of them.

The files of one log follow each other in time.  If the times of two overlap, and both have the same records, they are
copies.  A record that both have is read once, and so is one that only one has: each stands as often as in the copy that
has it most often.  A record is a line with a time, and the lines without one that follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aiocontroller.analytics.copies import described_alike, likely_size
from aiocontroller.analytics.framing import time_in
from aiocontroller.analytics.reading import chunks
from aiocontroller.analytics.source_files import Lack, SourceFile
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Log:
    """A file, the time of its first record and that of its last one."""

    file: SourceFile
    first: str
    last: str

    def overlaps(self, other: Log) -> bool:
        """Return whether the times overlap; a last line may come again at once, in the next file."""
        return max(self.first, other.first) < min(self.last, other.last) and described_alike(self.file, other.file)


@dataclass
class _Compared:
    """The numbers of records that both files have, and that only one has although the times of both include it."""

    common: int = 0
    of_first: int = 0
    of_second: int = 0
    left: bool = False
    """Whether only the second file has any."""


def read_once(
    spark: SparkSession, logs: Sequence[Log], folder: Callable[[], Path]
) -> tuple[list[SourceFile], list[tuple[str, str]], list[Lack]]:
    """Return the files to read, (copy, original) of those of which nothing is left to read, and what they show.

    Of two copies, what only the shorter one has is copied below ``folder()`` and read there.
    """
    read: list[Log] = []
    copies, lacks = [], []
    for log in sorted(logs, key=lambda each: (-likely_size(each.file), each.file.name)):
        for other in [each for each in read if each.overlaps(log)]:
            place = _new_file(folder())
            found = _compare(spark, other, log, place)
            if not found.common:
                continue
            lacks.append(_lack(other.file, log.file, found))
            if not found.left:
                copies.append((log.file.name, other.file.name))
                break
            log = replace(log, file=replace(log.file, path=f"file:{place}", size=place.stat().st_size))
        else:
            read.append(log)
    return [log.file for log in read], copies, lacks


def _compare(spark: SparkSession, first: Log, second: Log, place: Path) -> _Compared:
    """Compare the records, and write those that only ``second`` has to ``place``."""
    of_first: Counter[int] = Counter()
    begin, end = max(first.first, second.first), min(first.last, second.last)
    found = _Compared()
    for time, record in _records(spark, first.file):
        of_first[hash(record)] += 1
        found.of_first += time is not None and begin <= time <= end
    with place.open("wb") as rest:
        for time, record in _records(spark, second.file):
            if of_first[hash(record)] > 0:
                of_first[hash(record)] -= 1
                found.common += 1
                found.of_first -= time is not None and begin <= time <= end
            else:
                rest.write(record)
                found.left = True
                found.of_second += time is not None and begin <= time <= end
    return found


def _records(spark: SparkSession, file: SourceFile) -> Iterator[tuple[str | None, bytes]]:
    """Yield each record and its time; None for lines before the first time."""
    time, record = None, b""
    for line in _lines(spark, file):
        begins = time_in(line)
        if begins is not None and record:
            yield time, record
            record = b""
        time = begins or time
        record += line
    if record:
        yield time, record


def _lines(spark: SparkSession, file: SourceFile) -> Iterator[bytes]:
    rest = b""
    for data in chunks(spark, file.path):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest + b"\n"


def _new_file(folder: Path) -> Path:
    place = folder / f"copy-{len(list(folder.iterdir()))}"
    place.mkdir()
    return place / "log"


def _lack(first: SourceFile, second: SourceFile, found: _Compared) -> Lack:
    alone = sorted((file.name, count) for file, count in ((first, found.of_first), (second, found.of_second)) if count)
    differ = ", and ".join(f"only {name} has {plural(count, 'record')}" for name, count in alone)
    words = (
        f"{' and '.join(sorted((first.name, second.name)))} are copies of one log that differ: "
        f"{differ or 'their records stand in another order'}; the {found.common:,} that both have were read once"
    )
    # If each has records that the other lacks, lines were changed, and nobody knows which copy is right.
    return Lack(second.name, words, second.source, second.cluster, second.node, known=len(alone) < 2)
