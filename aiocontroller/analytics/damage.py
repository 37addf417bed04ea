"""Scans the files once before Spark reads them: for damage in packed files, and in logs for cluster ids and for records
that begin differently from those in the head."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiocontroller.analytics.framing import LIKE_A_RECORD, precedes_message
from aiocontroller.analytics.layouts import plain
from aiocontroller.analytics.reading import (
    DamagedError,
    as_glob,
    chunks,
    is_local,
    is_packed,
    last_byte,
    unpacked_name,
    whole_lines,
)
from aiocontroller.analytics.schema import JOURNAL_SOURCE
from aiocontroller.analytics.source_files import Looked, SourceFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUT_OFF = "its last line has no newline, so more may have followed"
_CLUSTER_ID = re.compile(rb"Cluster ID = ([\w-]{1,64})(?![\w-])(?=.)", re.DOTALL)
"""Every broker since 0.10.1 logs it at startup.  One more byte is required, since the id may continue in the next
piece."""
_LONGEST_BYTES = 1000
"""The most from the beginning of a line to the end of a cluster's id in it; they may span two pieces."""
_FOR_SPARK = (".gz", ".bz2")


def looked_through(spark: SparkSession, files: Sequence[SourceFile], temporary: Callable[[], Path]) -> list[Looked]:
    """Scan every file; Spark scans the plain logs that are not on this machine."""
    remote = [file for file in files if _is_plain_log(file) and not is_local(file.path)]
    ids = _ids_of_remote(spark, remote) if remote else {}
    others = _with_others(spark, remote)
    return [
        _whole(
            Looked(_line_by_line(file, file.path in others), ids.get(file.path, frozenset())),
            last_byte(spark, file.path),
        )
        if file in remote
        else look_through(spark, file, temporary)
        for file in files
    ]


def _is_plain_log(file: SourceFile) -> bool:
    return file.source != JOURNAL_SOURCE and file.layout is None and not is_packed(file.path)


def _ids_of_remote(spark: SparkSession, files: Sequence[SourceFile]) -> dict[str, frozenset[str]]:
    """Return the cluster ids in files of Hadoop's file systems, by path."""
    from pyspark.sql import functions

    lines = spark.read.text([as_glob(file.path) for file in files])
    named = lines.where(lines.value.contains("Cluster ID = ")).select(
        "_metadata.file_path", functions.substring("value", 1, _LONGEST_BYTES)
    )
    found: dict[str, set[str]] = {}
    for path, line in named.collect():
        found.setdefault(unquote(path), set()).update(_finder_of_ids()(f"{line}\n".encode()))
    return {file.path: frozenset(found.get(file.path, ())) for file in files}


def _with_others(spark: SparkSession, files: Sequence[SourceFile]) -> set[str]:
    """Return the paths of files on Hadoop file systems with records that begin differently from those in the head."""
    by_beginning: dict[str, list[SourceFile]] = {}
    for file in files:
        if file.framing is not None and file.framing.separator is not None:
            by_beginning.setdefault(file.framing.separator[1:], []).append(file)
    found: set[str] = set()
    for beginning, group in by_beginning.items():
        lines = spark.read.text([as_glob(file.path) for file in group])
        other = lines.where(~lines.value.startswith(beginning) & lines.value.rlike(f"^{LIKE_A_RECORD}"))
        found |= {unquote(path) for (path,) in other.select("_metadata.file_path").distinct().collect()}
    return found


def _line_by_line(file: SourceFile, has_others: bool) -> SourceFile:
    return replace(file, framing=file.framing.line_by_line()) if has_others and file.framing is not None else file


def look_through(spark: SparkSession, file: SourceFile, temporary: Callable[[], Path]) -> Looked:
    """Scan a file.

    A file that is damaged, or packed in a format that Spark cannot read, is unpacked below ``temporary()`` as far as
    possible.
    """
    packed = is_packed(file.path)
    is_log = file.source != JOURNAL_SOURCE
    if not packed and file.layout is None and not is_log:
        return Looked(file)
    ids: set[str] = set()
    find_ids = _finder_of_ids()
    has_others = False
    differs = file.framing.finder_of_others() if file.framing is not None else lambda _: False
    read = 0
    problem = lost = ""
    last = b""
    try:
        for data in chunks(spark, file.path):
            read += len(data)
            last = data[-1:]
            if is_log and file.layout is None:
                ids |= find_ids(data)
                has_others = differs(data)
    except DamagedError as error:
        problem = str(error)
    if problem and not read:
        return Looked(file, problem=problem)
    if problem:
        how = "unpacked" if packed else "read"
        lost = f"damaged: {read:,} bytes of it could be {how}, the rest is not read: {problem}"
    if file.layout is not None:
        file = _made_plain(spark, file, file.layout, temporary())
        for data in chunks(spark, file.path):
            ids |= find_ids(data)
            has_others = differs(data)
    elif problem or (packed and not file.path.endswith(_FOR_SPARK)):
        file = _unpacked(spark, file, temporary())
    file = _line_by_line(file, has_others)
    if lost:
        file = replace(file, remarks=(*file.remarks, lost))
    looked = Looked(file, frozenset(ids), lost=lost)
    return looked if problem or not is_log else _whole(looked, last)


def _finder_of_ids() -> Callable[[bytes], set[str]]:
    """Return a function that takes a file's pieces in order, and returns the cluster ids in messages of their own: a
    group's name may look like one."""
    before = b"\n"

    def find(piece: bytes) -> set[str]:
        nonlocal before
        text = before + piece
        before = text[-_LONGEST_BYTES:]
        found = set()
        for id_ in _CLUSTER_ID.finditer(text):
            newline = text.rfind(b"\n", 0, id_.start())
            if newline >= 0 and precedes_message(text[newline + 1 : id_.start()].decode("utf-8", "replace")):
                found.add(id_[1].decode())
        return found

    return find


def _whole(looked: Looked, last: bytes) -> Looked:
    """Add whether the last line ends with a newline; ``last`` is the last byte."""
    if last in (b"\n", b"\r", b""):
        return looked
    remarks = (*looked.file.remarks, f"cut off: {CUT_OFF}")
    return replace(looked, file=replace(looked.file, remarks=remarks), cut_off=True)


def _unpacked(spark: SparkSession, file: SourceFile, folder: Path) -> SourceFile:
    copy = _copy_of(file, folder)
    return replace(file, path=f"file:{copy}", size=whole_lines(spark, file.path, copy))


def _made_plain(spark: SparkSession, file: SourceFile, layout: str, folder: Path) -> SourceFile:
    copy = _copy_of(file, folder)
    with copy.open("w", encoding="utf-8", newline="") as out:
        for text in plain(layout, _lines(spark, file.path)):
            out.write(f"{text}\n")
    return replace(file, path=f"file:{copy}", size=copy.stat().st_size)


def _lines(spark: SparkSession, path: str) -> Iterator[str]:
    """Yield the lines without line ends, as far as the file can be unpacked."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    left = ""
    with suppress(DamagedError):
        for data in chunks(spark, path):
            *whole, left = (left + decoder.decode(data)).split("\n")
            yield from (line.removesuffix("\r") for line in whole)
    if left:
        yield left


def _copy_of(file: SourceFile, folder: Path) -> Path:
    place = folder / str(len(list(folder.iterdir())))
    place.mkdir()
    return place / unpacked_name(file.path.rpartition("/")[2])
