"""Bronze without Spark: ``journal_files`` reads journals, and plain Python in several processes reads logs and odd
lines."""

from __future__ import annotations

import codecs
import multiprocessing
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aiocontroller.analytics import schema
from aiocontroller.analytics.journal_files import DAY_US, Slice, arrow_schema, decode_slice, slices_of
from aiocontroller.analytics.reading import DamagedError, chunks, is_packed, unpacked_name
from aiocontroller.analytics.small.journal_lines import journal_line
from aiocontroller.analytics.small.log_lines import LogParser
from aiocontroller.analytics.source_files import SourceFile

ALONE_BELOW_BYTES: Final = 48 << 20
"""Size of journals up to which decoding in this process is faster than starting others."""
_LOGS_EFFORT: Final = 5
"""How many times longer a byte of a log takes than a byte of a journal."""
_SLICE_BYTES: Final = 16 << 20
"""Small enough for all processors to finish at about the same time."""
_ROWS: Final = 50_000
"""The number of a log's records held as objects at once."""
_LINES: Final = re.compile(r"\r\n|\r|\n")
_PIECE_BYTES: Final = 4 << 20

Rejected = dict[tuple[str, str, str, str], list[Any]]
"""(file, reason, source, cluster) -> [smallest line, count]"""


def write(files: Sequence[SourceFile], events: str, odd: str, quarantine: str) -> None:
    """Write the typed records of all files below ``events``, by day, and what was not understood below
    ``quarantine``."""
    with tempfile.TemporaryDirectory(prefix="aiocontroller-read-") as unpacked:
        files = [_unpacked(file, Path(unpacked, str(n))) for n, file in enumerate(files)]
        journals = [file for file in files if file.source == schema.JOURNAL_SOURCE]
        logs = sorted((file for file in files if file.source != schema.JOURNAL_SOURCE), key=lambda file: -file.size)
        effort = sum(file.size for file in journals) + _LOGS_EFFORT * sum(file.size for file in logs)
        work = partial(_read, events=events, odd=odd)
        parts = _each(work, [*enumerate(logs), *slices_of(journals, _SLICE_BYTES)], effort)
    rejected: Rejected = {}
    for part in (*parts, _odd_lines(odd, events)):
        for key, (line, count) in part.items():
            known = rejected.setdefault(key, [line, 0])
            known[0], known[1] = min(known[0], line), known[1] + count
    if rejected:
        rows = [
            {"line": line, "file": file, "reason": reason, "source": source, "cluster": cluster, "count": count}
            for (file, reason, source, cluster), (line, count) in sorted(rejected.items())
        ]
        os.makedirs(quarantine, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, arrow_schema(schema.QUARANTINE)), f"{quarantine}/part-0.parquet")


def _each(work: Callable[[Any], Any], pieces: Sequence[Any], effort: int) -> list[Any]:
    """Return the results of ``work``, done by all processors; small inputs are done by this process alone.

    This process takes part: it begins at once, while others need half a second to start.
    """
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if effort < ALONE_BELOW_BYTES or number == 1:
        return [work(piece) for piece in pieces]
    waiting, done = deque(enumerate(pieces)), dict[int, Any]()

    def take(do: Callable[[Any], Any]) -> None:
        while True:
            try:
                n, piece = waiting.popleft()
            except IndexError:
                return
            done[n] = do(piece)

    others = ProcessPoolExecutor(number - 1, multiprocessing.get_context("spawn"))
    with others, ThreadPoolExecutor(number - 1) as threads:
        theirs = [threads.submit(take, lambda piece: others.submit(work, piece).result()) for _ in range(number - 1)]
        try:
            take(work)
        finally:
            waiting.clear()  # after an error
        for each in theirs:
            each.result()
    return [done[n] for n in range(len(pieces))]


def _unpacked(file: SourceFile, folder: Path) -> SourceFile:
    if not is_packed(file.path):
        return file
    folder.mkdir()
    copy = folder / unpacked_name(file.path.rpartition("/")[2])
    with copy.open("wb") as out:
        try:
            for data in _chunks(file.path):
                out.write(data)
        except DamagedError:
            pass  # ``damage`` has reported it
    return replace(file, path=f"file:{copy}", size=copy.stat().st_size)


def _chunks(path: str) -> Iterator[bytes]:
    return chunks(None, path)  # type: ignore[arg-type]


def _odd_lines(odd: str, events: str) -> Rejected:
    rejected: Rejected = {}
    if not os.path.isdir(odd):
        return rejected
    rows = []
    for number, path in enumerate(sorted(Path(odd).glob("*.parquet"))):
        for line in pq.read_table(path).to_pylist():
            origin = {name: line[name] for name in ("file", "source", "cluster", "process", "start_us")}
            for fields, text, reason in journal_line(line["value"]):
                if reason is None:
                    rows.append({**origin, **fields})
                else:
                    _reject(rejected, origin, text, reason)
        _write_rows(rows, events, f"odd-{number:05d}")
        rows = []
    return rejected


@cache
def _leave_pandas_out() -> None:
    """Save a quarter of a second in each process: at its first array, pyarrow imports pandas to recognize its objects.

    There are none here.  If this import fails, pyarrow tries again where it needs pandas.
    """

    class Hidden:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "pandas":
                raise ImportError(name)

    hidden: Any = Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(hidden)


def _read(piece: Slice | tuple[int, SourceFile], events: str, odd: str) -> Rejected:
    _leave_pandas_out()
    if isinstance(piece, Slice):
        decode_slice(piece, events, odd)
        return {}
    return _write_log(*piece, events)


def _write_log(number: int, file: SourceFile, events: str) -> Rejected:
    rejected: Rejected = {}
    assert file.framing is not None
    rows: list[dict[str, Any]] = []
    part = 0
    parser = LogParser(file)
    for made, text, reason in parser.records(_texts(file.path, file.framing.separator)):
        if reason is None:
            rows.append(made)
        else:
            _reject(rejected, parser.origin, text, reason)
        if len(rows) >= _ROWS:
            _write_rows(rows, events, f"log-{number:05d}-{part:05d}", parser.origin)
            rows, part = [], part + 1
    _write_rows(rows, events, f"log-{number:05d}-{part:05d}", parser.origin)
    return rejected


def _texts(path: str, separator: str | None) -> Iterator[str]:
    """Yield a file's texts between line ends or separators; each character is examined once, however long a text is."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    end = "\r\n" if separator is None else separator
    begun: list[str] = []
    """Pieces of a text whose end has not been read."""
    half = ""
    """The last characters, which may be the first part of an end."""
    with open(re.sub("^/+", "/", path.removeprefix("file:")), "rb") as file:
        while data := file.read(_PIECE_BYTES):
            ready = half + decoder.decode(data)
            half = next((end[:n] for n in range(len(end) - 1, 0, -1) if ready.endswith(end[:n])), "")
            first, *others = _split(ready.removesuffix(half), separator)
            begun.append(first)
            for other in others:
                yield "".join(begun)
                begun = [other]
    first, *others = _split(half + decoder.decode(b"", final=True), separator)
    yield from ("".join([*begun, first]), *others)


def _split(text: str, separator: str | None) -> list[str]:
    return _LINES.split(text) if separator is None else text.split(separator)


def _reject(rejected: Rejected, origin: Mapping[str, Any], text: str, reason: str) -> None:
    line = text[: schema.SAMPLE_CHARACTERS].replace("\0", "␀")
    known = rejected.setdefault((origin["file"], reason, origin["source"], origin["cluster"]), [line, 0])
    known[0], known[1] = min(known[0], line), known[1] + 1


def _write_rows(
    rows: Sequence[dict[str, Any]], events: str, name: str, same_in_all: Mapping[str, Any] = MappingProxyType({})
) -> None:
    by_day: dict[int | None, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        kinds = by_day.setdefault(None if row["ts"] is None else row["ts"] // DAY_US, {})
        kinds.setdefault(row["kind"], []).append(row)
    for day, kinds in by_day.items():
        folder = f"{events}/day={'__HIVE_DEFAULT_PARTITION__' if day is None else np.datetime64(day, 'D')}"
        os.makedirs(folder, exist_ok=True)
        table = pa.Table.from_batches([_batch(same, same_in_all) for same in kinds.values()])
        draft = f"{folder}/_{name}.parquet"
        pq.write_table(table, draft, compression="zstd", store_schema=False)
        os.replace(draft, f"{folder}/{name}.parquet")


def _batch(same: Sequence[dict[str, Any]], same_in_all: Mapping[str, Any]) -> pa.RecordBatch:
    """Return rows of one kind, which leave the same columns empty, as a batch with the columns ``same_in_all``."""
    fields = arrow_schema(schema.EVENTS_BRONZE)
    filled = set().union(*same)
    columns = [
        pa.array([row.get(field.name) for row in same], field.type)
        if field.name in filled
        else pa.repeat(pa.scalar(same_in_all.get(field.name), field.type), len(same))
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=fields)
