"""Journals to bronze's files without Spark's parser, where both are on disks that every worker sees.

Spark takes 11 µs of a processor for a record, msgspec and Arrow about 3 (docs/pipeline.md).  So here workers
decode slices of files and write bronze's Parquet themselves.  What is no whole record by the strictest reading is not
judged here: such lines are put aside, for ``journal_reader.journal_records`` to find out what they are.

A slice's rows stand together by kind, in row groups of their own: who reads a few kinds skips the others.
"""

from __future__ import annotations

import gc
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from aiocontroller.analytics import schema
from aiocontroller.analytics.sources import SourceFile, is_local, local_name

DAY_US: Final = 86_400_000_000
SLICE_BYTES: Final = 32 << 20
"""What a worker decodes at once; it takes some ten times of that in memory."""
HERE_BELOW_BYTES: Final = 8 << 20
"""Of input: so much is decoded sooner than a worker has started."""
_PIECE_BYTES: Final = 2 << 20
_FEW_ROWS: Final = 4096
"""Kinds with fewer rows in a slice share a row group."""
_BEGINS: Final = b'{"v":'
_DISTINCT: Final = frozenset({"seq", "ts", "correlation_id", "queue_us", "processing_us", "duration_us"})
"""Columns whose values hardly repeat, so that a dictionary of them would be wasted work."""
ODD: Final = ("value", "file", "source", "cluster", "process", "start_us")
"""Lines put aside: what ``journal_records`` takes."""


_NO_RECORD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Slice(NamedTuple):
    """Lines of a file that begin in its bytes ``begin`` to ``end``; ``number`` is the slice's among all."""

    number: int
    path: str
    begin: int
    end: int
    file: str
    cluster: str
    process: str
    start_us: int | None


def suits(file: SourceFile, out: str) -> bool:
    """Whether ``file`` can go this way to tables below ``out``."""
    packed = file.path.endswith(".gz")
    return file.source == schema.JOURNAL_SOURCE and not packed and is_local(file.path) and is_local(out)


def decode(spark: SparkSession, files: Sequence[SourceFile], events: str, odd: str) -> int:
    """Write the records of ``files`` below the folder ``events``, by day, and the lines put aside (``ODD``) below
    ``odd``; returns their number.  What an earlier attempt may have left there must be gone."""
    slices: list[Slice] = []
    for file in files:
        about = (file.name, file.cluster, file.process, file.start_us)
        for begin in range(0, file.size, SLICE_BYTES):
            end = min(begin + SLICE_BYTES, file.size)
            slices.append(Slice(len(slices), local_name(file.path), begin, end, *about))
    work = partial(_decode_slice, events=local_name(events), odd=local_name(odd))
    if sum(file.size for file in files) < HERE_BELOW_BYTES:
        return sum(map(work, slices))
    return int(spark.sparkContext.parallelize(slices, len(slices)).map(work).sum())


def _decode_slice(piece: Slice, events: str, odd: str) -> int:
    by_day: dict[int, dict[str, list[pa.RecordBatch]]] = {}
    aside: list[str] = []
    collecting = gc.isenabled()
    gc.disable()  # or it goes over all the records' lists again and again
    try:
        for data in _whole_lines(piece):
            records, others = _records(data)
            aside += others
            for batch in _batches(records):
                for day, part in _by_day(batch):
                    by_day.setdefault(day, {}).setdefault(batch["kind"][0].as_py(), []).append(part)
    finally:
        if collecting:
            gc.enable()
    for day, kinds in by_day.items():
        _write(f"{events}/day={np.datetime64(day, 'D')}/part-{piece.number:05d}.parquet", _row_groups(piece, kinds))
    if aside:
        values = {"value": pa.array(aside), **_origin(piece, len(aside))}
        _write(f"{odd}/part-{piece.number:05d}.parquet", [pa.table({name: values[name] for name in ODD})])
    return len(aside)


# -- lines -------------------------------------------------------------------------------------------------------------


def _whole_lines(piece: Slice) -> Iterator[bytes]:
    """Some megabytes at a time."""
    with open(piece.path, "rb") as file:
        at = piece.begin
        if at:  # the line of the byte before belongs to the slice before
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < piece.end and (data := file.read(min(_PIECE_BYTES, piece.end - at))):
            if not data.endswith(b"\n"):
                data += file.readline()
            at += len(data)
            yield data


def _records(lines: bytes) -> tuple[list[Any], list[str]]:
    """Those that are whole records, decoded; the others as text.

    Between ``}`` and ``{`` no newline can stand within a record: where each line begins and ends with these, and there
    are as many records as lines, each line is one record.
    """
    number = lines.count(b"\n")
    if lines.startswith(_BEGINS) and lines.endswith(b"}\n") and lines.count(b"}\n" + _BEGINS) == number - 1:
        try:
            records = _decoder().decode_lines(lines)
        except _NO_RECORD:
            records = []
        if len(records) == number:
            return records, []
    return _records_one_by_one(lines)


def _records_one_by_one(lines: bytes) -> tuple[list[Any], list[str]]:
    decode = _decoder().decode
    records: list[Any] = []
    others: list[str] = []
    for line in re.split(rb"\r\n|\r|\n", lines):  # as Spark does
        try:
            records.append(decode(line))
        except _NO_RECORD:
            if line.strip(b" "):
                others.append(line.decode("utf-8", "replace"))
    return records, others


@cache
def _decoder() -> msgspec.json.Decoder[list[Any]]:
    """Of ``schema.JOURNAL``, as strict as the bounds of its types; ``detail`` must be text already."""
    types: dict[str, Any] = {"int": _Int, "bigint": _Long, "string": str, "array<int>": list[_Int]}
    fields: list[Any] = []
    for field in schema.JOURNAL:
        kind = types[field.dataType.simpleString()]
        if field.name == "v":
            kind = Literal[tuple(schema.JOURNAL_VERSIONS)]
        fields.append((field.name, kind) if field.name in schema.JOURNAL_REQUIRED else (field.name, kind | None, None))
    return msgspec.json.Decoder(msgspec.defstruct("JournalRecord", fields, gc=False))


# -- Arrow and Parquet -------------------------------------------------------------------------------------------------


def _batches(records: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """A batch of ``schema.JOURNAL`` for each kind."""
    by_kind: dict[str, list[Any]] = {}
    for record in records:
        by_kind.setdefault(record.kind, []).append(record)
    arrow = _arrow(schema.JOURNAL)
    for same in by_kind.values():
        columns = zip(*map(msgspec.structs.astuple, same), strict=True)
        nothing = (None,) * len(same)
        yield pa.RecordBatch.from_arrays(
            [
                pa.nulls(len(same), field.type) if column == nothing else pa.array(column, field.type)
                for field, column in zip(arrow, columns, strict=True)
            ],
            schema=arrow,
        )


@cache
def _arrow(table: StructType) -> pa.Schema:
    return to_arrow_schema(table)


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Days since 1970."""
    days = batch["ts"].to_numpy() // DAY_US
    found = np.unique(days)
    for day in found:
        yield int(day), batch if len(found) == 1 else batch.filter(pa.array(days == day))


def _row_groups(piece: Slice, kinds: dict[str, list[pa.RecordBatch]]) -> Iterator[pa.Table]:
    """Of ``schema.EVENTS_BRONZE``."""
    few: list[pa.RecordBatch] = []
    many: list[list[pa.RecordBatch]] = []
    for _, batches in sorted(kinds.items()):
        if sum(batch.num_rows for batch in batches) < _FEW_ROWS:
            few += batches
        else:
            many.append(batches)
    for batches in [*many, few] if few else many:
        table = pa.Table.from_batches(batches)
        for name, values in _origin(piece, table.num_rows).items():
            table = table.append_column(name, values)
        yield table


def _origin(piece: Slice, rows: int) -> dict[str, pa.Array]:
    """The columns of ``schema.ORIGIN``, the same in each row."""
    told = {
        "source": schema.JOURNAL_SOURCE,
        "cluster": piece.cluster,
        "process": piece.process,
        "start_us": piece.start_us,
        "file": piece.file,
        "joined": False,
    }
    return {field.name: pa.repeat(pa.scalar(told.get(field.name), field.type), rows) for field in _arrow(schema.ORIGIN)}


def _write(path: str, row_groups: Iterable[pa.Table]) -> None:
    """There whole, or not at all; the same again when a task is repeated."""
    folder, _, name = path.rpartition("/")
    os.makedirs(folder, exist_ok=True)
    draft = f"{folder}/_{uuid.uuid4().hex}-{name}"
    writer = None
    for table in row_groups:
        if writer is None:
            repeating = [column for column in table.schema.names if column not in _DISTINCT]
            writer = pq.ParquetWriter(
                draft, table.schema, compression="zstd", use_dictionary=repeating, write_statistics=["kind", "source"],
                store_schema=False,
            )  # fmt: skip
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    assert writer is not None, path
    writer.close()
    os.replace(draft, path)
