"""Which files there are, what each is, and which of them to read.

A file's kind is told by its name and its head (a manifest may say more).  Copies are left out: a file whose head is the
beginning of another, longer one of the same kind holds nothing that the other has not.  Journal segments that are being
written have names that Spark skips; on demand a copy up to their last whole line is read in their place.
"""

from __future__ import annotations

import atexit
import posixpath
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiocontroller.analytics.framing import Framing, framing_of, is_of_kafka, node_of
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.schema import CONTROLLER_LOG, JOURNAL_SOURCE, SERVER_LOG, STATE_CHANGE_LOG
from aiocontroller.core.errors import BadInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD_BYTES = 64 << 10
"""How much of a file is looked at to tell what it is, and whether it is a copy."""
BEGINNING_BYTES = 60
"""Only files that agree in these are compared; the first line's time stands in them."""
JOURNAL_NAME = re.compile(r"_?journal-(\d+)-(\d+)-(\d+)-(\d{6})\.jsonl(\.gz)?")
_FILE = "file:"
_DATE_IN_NAME = re.compile(r"(20\d\d-\d\d-\d\d)")
"""log4j's daily and hourly files bear their day."""
_OPEN = "not read: it is still being written (--in-progress reads such journals)"
_JOURNAL_LINE = re.compile(rb'\{"v":\d+,"seq":\d+,')


@dataclass(frozen=True)
class SourceFile:
    """One file.  ``path`` is Hadoop's name of it (nothing quoted), ``name`` what people are told: below what was asked
    for."""

    path: str
    name: str
    size: int
    modified_us: int
    source: str = ""
    """One of ``schema.SOURCES``; empty while unknown."""
    cluster: str = "default"
    process: str = ""
    start_us: int | None = None
    node: int | None = None
    """The broker that wrote a log, as far as manifest or head say so; its lines may know better."""
    time_zone: str = "UTC"
    date: str | None = None
    """The day of a log whose lines have a time only."""
    version: str | None = None
    framing: Framing | None = None
    remarks: tuple[str, ...] = ()
    """What had to be assumed, in words."""


@dataclass(frozen=True)
class Found:
    """``files`` to read; ``copies`` (name, of which) and ``unknown`` names that are not read, and files in progress."""

    files: tuple[SourceFile, ...]
    copies: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()

    def remarks(self) -> dict[str, list[str]]:
        """What was assumed of files, and why others were not read: words -> names."""
        said = [(remark, file.name) for file in self.files for remark in file.remarks]
        said += [(f"not read: a copy of {whole}", name) for name, whole in self.copies]
        said += [("not read: neither a journal nor a log of Kafka's", name) for name in self.unknown]
        read = {file.name for file in self.files}
        said += [(_OPEN, name) for name in self.in_progress if name not in read]
        return {words: sorted(name for w, name in said if w == words) for words in sorted({w for w, _ in said})}


def find_files(
    spark: SparkSession, paths: Sequence[str], *, in_progress: bool = False, manifest: Manifest | None = None
) -> Found:
    """Everything below ``paths`` (files, folders, globs; local or of any Hadoop file system) that can be read.

    Raises ``BadInputError`` when a path does not exist, nothing in all of them is a journal or a log of Kafka's, or a
    glob of the manifest fits no file.
    """
    manifest = manifest or Manifest()
    listed = _told_apart([file for path in paths for file in _list(spark, path)])
    heads = {file.path: _head(spark, file) for file in listed}
    known, unknown, open_ones = [], [], []
    for file in {file.path: file for file in listed}.values():
        if _is_in_progress(file):
            open_ones.append(file.name)
            if not (in_progress and is_local(file.path)):
                continue
        told = _recognise(file, heads[file.path], manifest.about(file.name, file.path))
        if told is not None:
            known.append(told)
        elif file.size:
            unknown.append(file.name)
    if manifest.unused:
        raise BadInputError(f"manifest: no file has a name like {', '.join(manifest.unused)}; {listed[0].name} is one")
    files, copies = _without_copies(known, heads)
    if not files and not open_ones:
        raise BadInputError(_nothing_found(paths, listed, unknown))
    if any(_is_in_progress(file) for file in files):
        folder = Path(tempfile.mkdtemp(prefix="aiocontroller-snapshot-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        files = [_snapshot(file, folder) if _is_in_progress(file) else file for file in files]
    return Found(tuple(files), tuple(copies), tuple(unknown), tuple(open_ones))


def _told_apart(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Files of the same name (``logs/*/server.log`` names each of them) are told apart by their folders."""
    paths: dict[str, set[str]] = {}
    for file in files:
        paths.setdefault(file.name, set()).add(file.path)
    above = {name: posixpath.commonpath(same) for name, same in paths.items() if len(same) > 1}
    return [replace(f, name=f.path[len(above[f.name]) + 1 :]) if f.name in above else f for f in files]


def _nothing_found(paths: Sequence[str], listed: Sequence[SourceFile], unknown: Sequence[str]) -> str:
    where = ", ".join(paths)
    if not listed:
        return f"no files in {where}"
    if not unknown:
        return f"only empty files in {where}"
    return (
        f"nothing in {where} is a journal, or a controller.log, state-change.log or server.log of Kafka's: "
        f"{len(unknown)} other files, {unknown[0]} for one"
    )


def _is_in_progress(file: SourceFile) -> bool:
    return file.name.rpartition("/")[2].startswith("_journal-")


def _recognise(file: SourceFile, head: bytes, told: dict[str, Any]) -> SourceFile | None:
    file = replace(file, cluster=told.get("cluster", file.cluster))
    name = file.name.rpartition("/")[2]
    named = JOURNAL_NAME.fullmatch(name)
    if named is not None:
        node, _, start, _, _ = named.groups()
        return replace(file, source=JOURNAL_SOURCE, process=f"{node}-{start}", start_us=int(start))
    if _JOURNAL_LINE.match(head):
        return replace(file, source=JOURNAL_SOURCE, process=file.name)
    return _recognise_log(file, name, head, told)


def _recognise_log(file: SourceFile, name: str, head: bytes, told: dict[str, Any]) -> SourceFile | None:
    framing = framing_of(head)
    if framing is None or not (is_of_kafka(head) or "source" in told):
        return None
    by_name = (("state-change", STATE_CHANGE_LOG), ("controller", CONTROLLER_LOG), ("server", SERVER_LOG))
    source = next((source for part, source in by_name if part in name), SERVER_LOG)
    node = told.get("broker", node_of(head))
    dated = _DATE_IN_NAME.search(name)
    remarks = []
    if "time_zone" not in told:
        remarks.append("times without a zone were taken as UTC")
    if node is None:
        remarks.append("which broker wrote it is not known")
    return replace(
        file,
        source=told.get("source", source),
        process=file.name,
        node=node,
        time_zone=told.get("time_zone", "UTC"),
        date=told.get("date", dated.group(1) if dated else None),
        version=told.get("version"),
        framing=framing,
        remarks=tuple(remarks),
    )


# -- copies ------------------------------------------------------------------------------------------------------------


def _without_copies(
    files: Sequence[SourceFile], heads: dict[str, bytes]
) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """The longest of those that begin alike, and (copy, of which)."""
    kept: list[SourceFile] = []
    copies: list[tuple[str, str]] = []
    by_beginning: dict[bytes, list[SourceFile]] = {}
    for file in sorted(files, key=lambda f: (-f.size, f.start_us is None, f.name)):
        head = heads[file.path]
        alike = by_beginning.setdefault(head[:BEGINNING_BYTES], [])
        whole = next((f for f in alike if heads[f.path].startswith(head) and _told_alike(f, file)), None)
        if head and whole is not None:
            copies.append((file.name, whole.name))
        else:
            kept.append(file)
            alike.append(file)
    return sorted(kept, key=lambda f: f.name), sorted(copies)


def _told_alike(a: SourceFile, b: SourceFile) -> bool:
    """Whether the same line would mean the same in both."""
    return (a.source, a.cluster, a.node, a.time_zone, a.date) == (b.source, b.cluster, b.node, b.time_zone, b.date)


def _snapshot(file: SourceFile, folder: Path) -> SourceFile:
    """A copy of a file in progress up to its last whole line, under a name that Spark does not skip."""
    data = Path(local_name(file.path)).read_bytes()
    copy = folder / file.name.rpartition("/")[2].removeprefix("_")
    copy.write_bytes(data[: data.rfind(b"\n") + 1])
    return replace(file, path=_FILE + str(copy), size=copy.stat().st_size)


# -- local disk and Hadoop's file systems ------------------------------------------------------------------------------


def is_local(path: str) -> bool:
    """Whether it is on a disk, and not on a file system of Hadoop's."""
    return path.startswith(_FILE) or "://" not in path


def local_name(path: str) -> str:
    """``file:///a``, ``file:/a`` and ``/a`` are the same file."""
    return re.sub("^/+", "/", path.removeprefix(_FILE)) if path.startswith(_FILE) else path


def _list(spark: SparkSession, path: str) -> Iterator[SourceFile]:
    if not is_local(path):
        yield from _list_hadoop(spark, path)
        return
    top = Path(local_name(path))
    tops = [top] if top.exists() else sorted(top.parent.glob(top.name)) if top.name else []
    if not tops:
        raise BadInputError(f"no such file or folder: {path}")
    for one in tops:
        for file in sorted(one.rglob("*")) if one.is_dir() else [one]:
            if file.is_file():
                found = file.stat()
                name = str(file.relative_to(one)) if one.is_dir() else file.name
                yield SourceFile(f"{_FILE}{file.absolute()}", name, found.st_size, found.st_mtime_ns // 1000)


def _list_hadoop(spark: SparkSession, path: str) -> Iterator[SourceFile]:
    jvm: Any = spark.sparkContext._jvm
    pattern = jvm.org.apache.hadoop.fs.Path(path)
    system = pattern.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    tops = system.globStatus(pattern)
    if not tops:
        raise BadInputError(f"no such file or folder: {path}")
    for top in tops:
        root = top.getPath().toString()
        files = system.listFiles(top.getPath(), True)
        while files.hasNext():
            file = files.next()
            whole = file.getPath().toString()
            name = whole[len(root) :].lstrip("/") or file.getPath().getName()
            yield SourceFile(whole, name, int(file.getLen()), int(file.getModificationTime()) * 1000)


def _head(spark: SparkSession, file: SourceFile) -> bytes:
    """The first ``HEAD_BYTES``, unpacked if need be."""
    if is_local(file.path):
        with open(local_name(file.path), "rb") as opened:
            head = opened.read(HEAD_BYTES)
    else:
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(file.path)
        stream = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).open(path)
        try:
            head = bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream, min(HEAD_BYTES, file.size)))
        finally:
            stream.close()
    return _unpacked(head) if file.name.endswith(".gz") else head


def _unpacked(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""
