"""Decodes journals into bronze's files without Spark's parser, if both are on disks that every worker can access.

Spark takes 11 µs of processor time per record, msgspec and Arrow about 2 (docs/pipeline.md).  So workers decode slices
of files and write bronze's Parquet themselves.  Lines that are not strictly complete records are put aside, and
``journal_reader.journal_records`` determines what they are.

A record of one kind has about a dozen of the journal's 38 fields.  ``_Shapes`` learns them from the first records, so
that the other columns cost nothing.

A slice's rows are grouped by kind in separate row groups, so that a reader of a few kinds skips the others.
"""

from __future__ import annotations

import gc
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache, partial, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import SparkSession
from aiocontroller.analytics.reading import is_local, is_packed, local_name
from aiocontroller.analytics.source_files import SourceFile

DAY_US: Final = 86_400_000_000
SLICE_BYTES: Final = 32 << 20
"""What a worker decodes at once, using about ten times as much memory."""
HERE_BELOW_BYTES: Final = 8 << 20
"""Input size up to which decoding in this process is faster than starting a worker."""
_PIECE_BYTES: Final = 2 << 20
_FEW_ROWS: Final = 4096
"""Kinds with fewer rows in a slice share a row group."""
_BEGINS: Final = b'{"v":'
_DISTINCT: Final = frozenset({"seq", "ts", "correlation_id", "queue_us", "processing_us", "duration_us"})
"""Numbers that hardly repeat, so that a dictionary would not pay: they are written as differences, which are small."""
ODD: Final = ("value", "file", "source", "cluster", "process", "start_us")
"""The columns of lines that are put aside, as ``journal_records`` takes them."""


_KINDS: Final = {field.name: field.dataType for field in schema.JOURNAL}
_NO_RECORD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Slice(NamedTuple):
    """The lines of a file that begin in the bytes ``begin`` to ``end``; ``number`` counts the slices of all files."""

    number: int
    path: str
    begin: int
    end: int
    file: str
    cluster: str
    process: str
    start_us: int | None


def suits(file: SourceFile, out: str) -> bool:
    """Return whether ``file`` can be decoded this way for tables below ``out``."""
    packed = is_packed(file.path)
    return file.source == schema.JOURNAL_SOURCE and not packed and is_local(file.path) and is_local(out)


def decode(spark: SparkSession, files: Sequence[SourceFile], events: str, odd: str) -> int:
    """Write the records of ``files`` below the folder ``events``, by day, and the lines put aside (``ODD``) below
    ``odd``.

    Returns the number of lines put aside.  The output of an earlier attempt must have been deleted.
    """
    slices = slices_of(files)
    work = partial(decode_slice, events=local_name(events), odd=local_name(odd))
    if sum(file.size for file in files) < HERE_BELOW_BYTES:
        return sum(map(work, slices))
    return int(spark.sparkContext.parallelize(slices, len(slices)).map(work).sum())


def slices_of(files: Sequence[SourceFile], slice_bytes: int = SLICE_BYTES) -> list[Slice]:
    """Return slices of at most ``slice_bytes`` bytes in the order of files, numbered from 0; none of empty files."""
    slices: list[Slice] = []
    for file in files:
        about = (file.name, file.cluster, file.process, file.start_us)
        for begin in range(0, file.size, slice_bytes):
            end = min(begin + slice_bytes, file.size)
            slices.append(Slice(len(slices), local_name(file.path), begin, end, *about))
    return slices


def decode_slice(piece: Slice, events: str, odd: str) -> int:
    """Write one slice's rows below ``events``, by day, and its other lines below ``odd``; returns their number."""
    by_day: dict[int, dict[str, list[pa.RecordBatch]]] = {}
    aside: list[str] = []
    collecting = gc.isenabled()
    gc.disable()  # otherwise the collector scans the lists of all records repeatedly
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
    """Yield complete lines, some megabytes at a time."""
    with open(piece.path, "rb") as file:
        at = piece.begin
        if at:  # the line of the byte before belongs to the previous slice
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < piece.end and (data := file.read(min(_PIECE_BYTES, piece.end - at))):
            if not data.endswith(b"\n"):
                data += file.readline()
            at += len(data)
            yield data


def _records(lines: bytes) -> tuple[list[Any], list[str]]:
    """Return the decoded complete records, and the other lines as text.

    A record contains no newline between ``}`` and ``{``.  So if each line begins and ends with these, and there are as
    many records as lines, each line is one record.
    """
    number = lines.count(b"\n")
    if lines.startswith(_BEGINS) and lines.endswith(b"}\n") and lines.count(b"}\n" + _BEGINS) == number - 1:
        try:
            records = _shapes().lines(lines)
        except _NO_RECORD:
            records = []
        if len(records) == number:
            return records, []
    return _records_one_by_one(lines)


def _records_one_by_one(lines: bytes) -> tuple[list[Any], list[str]]:
    decode = _shapes().one
    records: list[Any] = []
    others: list[str] = []
    for line in re.split(rb"\r\n|\r|\n", lines):  # as Spark does
        try:
            records.append(decode(line))
        except _NO_RECORD:
            if line.strip(b" "):
                others.append(line.decode("utf-8", "replace"))
    return records, others


_TYPES: Final[dict[str, Any]] = {"int": _Int, "bigint": _Long, "string": str, "array<int>": list[_Int]}


def _fields(names: Iterable[str]) -> list[Any]:
    """Return msgspec fields with the bounds of the journal's types; ``detail`` must be text already."""
    fields: list[Any] = []
    for name in names:
        kind = Literal[tuple(schema.JOURNAL_VERSIONS)] if name == "v" else _TYPES[_KINDS[name]]
        fields.append((name, kind) if name in schema.JOURNAL_REQUIRED else (name, kind | None, None))
    return fields


class _Shapes:
    """Decodes records into objects that have only the fields seen in records of their kind.

    The narrow decoder refuses a record of an unknown kind, or with another field.  The wide one, which has all fields,
    then decodes the lines, and the kind's shape grows.
    """

    def __init__(self) -> None:
        self._wide = msgspec.json.Decoder(msgspec.defstruct("JournalRecord", _fields(_KINDS), gc=False))
        self._seen: dict[str, set[str]] = {}
        self._narrow: msgspec.json.Decoder[Any] | None = None

    def one(self, line: bytes) -> Any:
        return self._wide.decode(line)

    def lines(self, lines: bytes) -> list[Any]:
        """Decode lines; raise one of ``_NO_RECORD`` if any is not a record."""
        if self._narrow is not None:
            try:
                return self._narrow.decode_lines(lines)
            except _NO_RECORD:
                pass
        records = self._wide.decode_lines(lines)
        self._learn(records)
        return records

    def _learn(self, records: Sequence[Any]) -> None:
        before = {kind: len(fields) for kind, fields in self._seen.items()}
        for kind, same in _by_kind(records):
            seen = self._seen.setdefault(kind, set())
            seen |= {name for name in _KINDS if any(getattr(record, name) is not None for record in same)}
        if before != {kind: len(fields) for kind, fields in self._seen.items()}:
            self._narrow = msgspec.json.Decoder(reduce(or_, map(_shape, self._seen, self._seen.values())))


def _shape(kind: str, names: Container[str]) -> Any:
    fields = _fields(name for name in _KINDS if name in names and name != "kind")
    return msgspec.defstruct("Record", fields, gc=False, tag_field="kind", tag=kind, forbid_unknown_fields=True)


_shapes: Final = cache(_Shapes)


def _by_kind(records: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Group records by kind and by class."""
    by_class: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        by_class[type(record)].append(record)
    found: list[tuple[str, list[Any]]] = []
    for shape, same in by_class.items():
        kind = shape.__struct_config__.tag
        if kind is not None:
            found.append((kind, same))
        else:
            wide: dict[str, list[Any]] = defaultdict(list)
            for record in same:
                wide[record.kind].append(record)
            found += wide.items()
    return found


# -- Arrow and Parquet -------------------------------------------------------------------------------------------------


def _batches(records: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """Yield a batch of ``schema.JOURNAL`` for each kind."""
    arrow = arrow_schema(schema.JOURNAL)
    for kind, same in _by_kind(records):
        values = zip(*map(msgspec.structs.astuple, same), strict=True)
        filled = dict(zip(same[0].__struct_fields__, values, strict=True))
        columns = []
        for field in arrow:
            if field.name == "kind":
                columns.append(pa.repeat(pa.scalar(kind, field.type), len(same)))
            elif field.name in filled:
                columns.append(pa.array(filled[field.name], field.type))
            else:
                columns.append(pa.nulls(len(same), field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


@cache
def arrow_schema(table: schema.Table) -> pa.Schema:
    """Return the Arrow schema that Spark would use."""
    kinds = {
        schema.INT: pa.int32(), schema.LONG: pa.int64(), schema.STRING: pa.string(), schema.BOOLEAN: pa.bool_(),
        schema.DOUBLE: pa.float64(), schema.INTS: pa.list_(pa.field("element", pa.int32())),
        schema.STRINGS: pa.list_(pa.field("element", pa.string())),
    }  # fmt: skip
    return pa.schema([(name, kinds[kind]) for name, kind in table])


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the days since 1970 with their rows."""
    days = batch["ts"].to_numpy() // DAY_US
    found = np.unique(days)
    for day in found:
        yield int(day), batch if len(found) == 1 else batch.filter(pa.array(days == day))


def _row_groups(piece: Slice, kinds: dict[str, list[pa.RecordBatch]]) -> Iterator[pa.Table]:
    """Yield row groups of ``schema.EVENTS_BRONZE``."""
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
    """Return the columns of ``schema.ORIGIN``, which are the same in each row."""
    constants = {
        "source": schema.JOURNAL_SOURCE,
        "cluster": piece.cluster,
        "process": piece.process,
        "start_us": piece.start_us,
        "file": piece.file,
        "joined": False,
    }
    return {
        field.name: pa.repeat(pa.scalar(constants.get(field.name), field.type), rows)
        for field in arrow_schema(schema.ORIGIN)
    }


def _write(path: str, row_groups: Iterable[pa.Table]) -> None:
    """Write a file atomically; a repeated task writes the same file again."""
    folder, _, name = path.rpartition("/")
    os.makedirs(folder, exist_ok=True)
    draft = f"{folder}/_{uuid.uuid4().hex}-{name}"
    writer = None
    for table in row_groups:
        if writer is None:
            repeating = [column for column in table.schema.names if column not in _DISTINCT]
            writer = pq.ParquetWriter(
                draft, table.schema, compression="lz4", use_dictionary=repeating, store_schema=False,
                column_encoding=dict.fromkeys(_DISTINCT, "DELTA_BINARY_PACKED"), write_statistics=["kind", "source"],
            )  # fmt: skip
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    assert writer is not None, path
    writer.close()
    os.replace(draft, path)
