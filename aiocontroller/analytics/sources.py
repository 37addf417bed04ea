"""Finds the input files, determines their kinds, and decides which of them to read.

The kind of a file follows from its name and its head (a manifest may override it).  Copies are left out: a file that is
the beginning of a longer one of the same kind adds nothing.  Lines that two logs have in common are read once
(``overlaps``).  Spark skips the names of journal segments in progress; on request, a copy up to the last complete line
is read in their place.  The same applies to files that Spark cannot unpack, and to damaged packed files, whose intact
part is read.  A file that cannot be read is reported, and the others are read without it.
"""

from __future__ import annotations

import atexit
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiocontroller.analytics.cluster_ids import with_clusters
from aiocontroller.analytics.copies import without_copies
from aiocontroller.analytics.damage import looked_through
from aiocontroller.analytics.dataframes import SPARK, engine
from aiocontroller.analytics.framing import framing_of, is_of_kafka, node_of
from aiocontroller.analytics.lacks import JOURNAL_NAME, lacks_of, source_by_name
from aiocontroller.analytics.layouts import has_zones, layout_of, plain
from aiocontroller.analytics.listing import files_below
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.overlaps import without_overlaps
from aiocontroller.analytics.reading import DamagedError, head, is_local, is_utf8, local_name, readable, whole_lines
from aiocontroller.analytics.schema import JOURNAL_SOURCE, SERVER_LOG
from aiocontroller.analytics.source_files import ZONELESS, Found, SourceFile
from aiocontroller.core.errors import BadInputError
from aiocontroller.data_folder import LOCK_FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "file:"
_PARQUET = b"PAR1"
_DATE_IN_NAME = re.compile(r"(20\d\d-\d\d-\d\d)")
"""log4j's daily and hourly files have their day in the name."""
_JOURNAL_LINE = re.compile(rb'\{"v":\d+,"seq":\d+,')


def find_files(
    spark: SparkSession, paths: Sequence[str], *, in_progress: bool = False, manifest: Manifest | None = None
) -> Found:
    """Find everything below ``paths`` (files, folders, globs; local or of any Hadoop file system) that can be read.

    Raises ``BadInputError`` if a path does not exist, no file is a journal or a Kafka log, or a glob of the manifest
    matches no file.
    """
    manifest = manifest or Manifest()
    listed = _with_distinct_names([file for path in paths for file in _list(spark, path)])
    nameable, unreadable = _nameable(listed)
    heads, damaged = _heads(spark, nameable)
    unreadable += damaged
    known, unknown, open_ones = [], [], []
    for file in {file.path: file for file in listed if file.path in heads}.values():
        if _is_in_progress(file):
            open_ones.append(file.name)
            if not (in_progress and is_local(file.path)):
                continue
        recognised = _recognise(file, heads[file.path], manifest.about(file.name, file.path))
        if recognised is not None:
            known.append(recognised)
        elif file.size and not _is_lock(file, heads[file.path]):
            unknown.append(file.name)
    if manifest.unused:
        raise BadInputError(f"manifest: no file name matches {', '.join(manifest.unused)}; {listed[0].name} is one")
    temporary = _temporary_folder()
    looked_at = looked_through(spark, known, temporary)
    for file, seen in zip(known, looked_at, strict=True):
        heads[seen.file.path] = heads[file.path]
    unreadable += [(seen.file.name, seen.problem) for seen in looked_at if seen.problem]
    readable = with_clusters([seen for seen in looked_at if not seen.problem])
    files, copies = without_copies(spark, readable, heads)
    files, within, differing = without_overlaps(spark, files, temporary)
    copies += within
    lacks = (*lacks_of(listed, files, looked_at, unreadable, unknown, open_ones, manifest), *differing)
    if not files and not open_ones:
        raise BadInputError(_nothing_found(paths, listed, unknown, unreadable))
    files = [_snapshot(spark, file, temporary()) if _is_in_progress(file) else file for file in files]
    read = {file.path for file in files}
    in_place = tuple(file for file in listed if file.path in read)
    return Found(tuple(files), tuple(copies), tuple(unknown), tuple(open_ones), tuple(unreadable), lacks, in_place)


def refuse_replaced(found: Found) -> None:
    """Raise BadInputError for a local file that was rotated or deleted after it was listed.

    Its lines may be in a file that was not listed, or lost.  A file that has grown is no problem.
    """
    for file in found.in_place:
        if not is_local(file.path):
            continue
        try:
            size = Path(local_name(file.path)).stat().st_size
        except FileNotFoundError:
            size = -1
        if size < file.size:
            what = "was deleted or renamed" if size < 0 else "became shorter"
            raise BadInputError(f"{file.name}: it {what} while being read, as by log rotation: run the command again")


def _nameable(files: Sequence[SourceFile]) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """Return the files that the engine can open, and (name, reason) of the others."""
    if engine() != SPARK:
        return list(files), []
    why = "its path is not UTF-8, which Spark needs; DuckDB can read it (--engine duckdb)"
    other = [file for file in files if not is_utf8(file.path)]
    return [file for file in files if file not in other], [(file.name, why) for file in other]


def _heads(spark: SparkSession, files: Sequence[SourceFile]) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the beginning of each file by its path, and (name, reason) of those that cannot be read."""
    heads: dict[str, bytes] = {}
    unreadable = [(file.name, file.problem) for file in files if file.problem]
    for file in files:
        if file.problem:
            continue
        try:
            heads[file.path] = head(spark, file.path)
        except DamagedError as error:
            unreadable.append((file.name, str(error)))
    return heads, unreadable


def _temporary_folder() -> Callable[[], Path]:
    """Return a function that creates a folder at the first call; the folder is deleted when the process ends."""

    @cache
    def folder() -> Path:
        made = Path(tempfile.mkdtemp(prefix="aiocontroller-read-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made

    return folder


def _with_distinct_names(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Distinguish files of the same name (as for ``logs/*/server.log``) by their folders."""
    paths: dict[str, set[str]] = {}
    for file in files:
        paths.setdefault(file.name, set()).add(file.path)
    above = {name: posixpath.commonpath(same) for name, same in paths.items() if len(same) > 1}
    return [replace(f, name=readable(f.path[len(above[f.name]) + 1 :])) if f.name in above else f for f in files]


def _nothing_found(
    paths: Sequence[str],
    listed: Sequence[SourceFile],
    unknown: Sequence[str],
    unreadable: Sequence[tuple[str, str]],
) -> str:
    where = ", ".join(map(readable, paths))
    if unreadable:
        name, why = unreadable[0]
        return f"no file in {where} can be read; {name}, for example: {why}"
    if not listed:
        return f"no files in {where}"
    if not unknown:
        return f"only empty files in {where}"
    return (
        f"nothing in {where} is a journal, or a controller.log, state-change.log or server.log of Kafka: "
        f"{len(unknown)} other files, {unknown[0]} for example"
    )


def _is_in_progress(file: SourceFile) -> bool:
    return file.name.rpartition("/")[2].startswith("_journal-")


def _is_lock(file: SourceFile, head: bytes) -> bool:
    """Return whether the file is the lock of a running controller, or of another run of ours."""
    return file.name.rpartition("/")[2] == LOCK_FILE and head.strip().isdigit()


def _recognise(file: SourceFile, head: bytes, about: dict[str, Any]) -> SourceFile | None:
    file = replace(file, cluster=about.get("cluster", file.cluster))
    name = file.name.rpartition("/")[2]
    named = JOURNAL_NAME.fullmatch(name)
    if named is not None:
        node, _, start, _, _ = named.groups()
        return replace(file, source=JOURNAL_SOURCE, process=f"{node}-{start}", start_us=int(start))
    if _JOURNAL_LINE.match(head):
        return replace(file, source=JOURNAL_SOURCE, process=file.name)
    return _recognise_log(file, name, head, about)


def _recognise_log(file: SourceFile, name: str, head: bytes, about: dict[str, Any]) -> SourceFile | None:
    if head.startswith(_PARQUET):  # its texts may be lines of logs
        return None
    layout = layout_of(head)
    if layout is not None:
        head = "\n".join(plain(layout, head.decode("utf-8", "replace").splitlines())).encode()
    framing = framing_of(head)
    if framing is None or not (is_of_kafka(head) or "source" in about):
        return None
    source = source_by_name(name) or SERVER_LOG
    node = about.get("broker", node_of(head))
    dated = _DATE_IN_NAME.search(name)
    remarks = []
    if "time_zone" not in about and (layout is None or not has_zones(head.decode())):
        remarks.append(ZONELESS)
    if node is None:
        remarks.append("the broker that wrote it is unknown")
    return replace(
        file,
        source=about.get("source", source),
        process=file.name,
        node=node,
        time_zone=about.get("time_zone", "UTC"),
        date=about.get("date", dated.group(1) if dated else None),
        version=about.get("version"),
        framing=framing,
        layout=layout,
        remarks=tuple(remarks),
    )


def _snapshot(spark: SparkSession, file: SourceFile, folder: Path) -> SourceFile:
    """Copy a file in progress up to its last complete line, under a name that Spark does not skip."""
    copy = folder / file.name.rpartition("/")[2].removeprefix("_")
    return replace(file, path=_FILE + str(copy), size=whole_lines(spark, file.path, copy))


def _list(spark: SparkSession, path: str) -> Iterator[SourceFile]:
    if not is_local(path):
        yield from _list_hadoop(spark, path)
        return
    top = Path(local_name(path))
    tops = [top] if top.exists() else sorted(top.parent.glob(top.name)) if top.name else []
    if not tops:
        raise BadInputError(f"no such file or folder: {readable(path)}")
    for one in tops:
        files, failed = files_below(one) if one.is_dir() else ([one] if one.is_file() else [], [])
        for file in files:
            about = file.stat()
            yield SourceFile(_path(file), _name(file, one), about.st_size, about.st_mtime_ns // 1000)
        for file, why in failed:
            yield SourceFile(_path(file), _name(file, one), 0, 0, problem=why)


def _path(file: Path) -> str:
    return f"{_FILE}{file.absolute()}"


def _name(file: Path, top: Path) -> str:
    return readable(file.name if file == top else str(file.relative_to(top)))


def _list_hadoop(spark: SparkSession, path: str) -> Iterator[SourceFile]:
    jvm: Any = spark.sparkContext._jvm
    pattern = jvm.org.apache.hadoop.fs.Path(path)
    system = pattern.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    tops = system.globStatus(pattern)
    if not tops:
        raise BadInputError(f"no such file or folder: {readable(path)}")
    for top in tops:
        root = top.getPath().toString()
        files = system.listFiles(top.getPath(), True)
        while files.hasNext():
            file = files.next()
            whole = file.getPath().toString()
            name = whole[len(root) :].lstrip("/") or file.getPath().getName()
            yield SourceFile(whole, name, int(file.getLen()), int(file.getModificationTime()) * 1000)
