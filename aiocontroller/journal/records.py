"""One journal record: the only schema of the journal, shared by the writer, the checkers and the pipeline.

Rules: ``v`` changes only when a field changes its meaning; fields are added, never renamed or reused; integers are
64 bits wide for every reader; a field that does not apply is absent, so a reader sees null (``omit_defaults``).
``docs/journal.md`` describes each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

FORMAT_VERSION: Final = 1


class Record(msgspec.Struct, omit_defaults=True, gc=False):
    """``seq`` counts a process's records from 1, so that a gap shows missing ones; ``ts`` is µs since 1970.

    Order of one node's history: (epoch, seq).  ``epoch`` is the controller epoch under which the record was made, 0
    before the first.  Fields ending in ``_us`` are microseconds, ``bytes`` bytes, ``partitions`` and ``count`` numbers.
    """

    v: int
    seq: int
    epoch: int
    node: int
    ts: int
    kind: str
    event: str | None = None
    state: str | None = None
    topic: str | None = None
    partition: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    replica: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    controller_epoch: int | None = None
    partition_epoch: int | None = None
    recovery_state: int | None = None
    broker: int | None = None
    broker_epoch: int | None = None
    brokers: Sequence[int] | None = None
    api: str | None = None
    api_version: int | None = None
    correlation_id: int | None = None
    path: str | None = None
    partitions: int | None = None
    count: int | None = None
    conflicts: int | None = None
    bytes: int | None = None
    code: int | None = None
    queue_us: int | None = None
    processing_us: int | None = None
    duration_us: int | None = None
    detail: Any = None


class PartitionColumns(NamedTuple):
    """Parallel columns of fields for many partitions' records; leadership is None if there is none."""

    topic: Sequence[str]
    partition: Sequence[int]
    from_state: Sequence[str | None]
    to_state: Sequence[str | None]
    leader: Sequence[int | None]
    leader_epoch: Sequence[int | None]
    isr: Sequence[Sequence[int] | None]
    replicas: Sequence[Sequence[int]]
    controller_epoch: Sequence[int | None]
    partition_epoch: Sequence[int | None]
    recovery_state: Sequence[int | None]


def partition_records(
    kind: str, columns: PartitionColumns, first_seq: int, epoch: int, node: int, ts: int, detail: str | None
) -> list[Record]:
    """One record per partition.  Fields are positional, in ``Record``'s order, since keywords would double the cost."""
    v = FORMAT_VERSION
    return [
        Record(
            v, seq, epoch, node, ts, kind, None, None, t, p, old, new, None, ld, le, isr, r, ce, pe, rs, detail=detail
        )
        for seq, t, p, old, new, ld, le, isr, r, ce, pe, rs in zip(count(first_seq), *columns, strict=False)
    ]


_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder = msgspec.json.Decoder(Record)


def encode_records(records: Sequence[Record]) -> bytes:
    """JSON lines, each ended by a newline, in the order given.  Never fails: a record that JSON cannot hold (a lone
    surrogate, a key that is no string) becomes one that says so, under its own ``seq``."""
    try:
        return _encoder.encode_lines(records)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return b"".join(_encode_doubtful(record) for record in records)


def _encode_doubtful(record: Record) -> bytes:
    try:
        return _encoder.encode(record) + b"\n"
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        stand_in = Record(record.v, record.seq, record.epoch, record.node, record.ts, "unencodable")
        stand_in.detail = ascii(f"{record.kind}: {error}: {record!r}")[:2000]
        return _encoder.encode(stand_in) + b"\n"


def decode_record(line: bytes | str) -> Record:
    """The inverse for one line; ``msgspec.DecodeError`` when it is torn or no record.  Unknown fields are ignored."""
    return _decoder.decode(line)
