"""One journal record: the only schema of the journal, shared by the writer, the checkers and the pipeline.

Rules: ``v`` changes only when a field changes its meaning; fields are added, never renamed or reused; integers are
64 bits wide for every reader; a field that does not apply is absent, so a reader sees null (``omit_defaults``).
``kinds`` describes each kind, ``docs/journal.md`` the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

FORMAT_VERSION: Final = 1


class Record(msgspec.Struct, omit_defaults=True, gc=False):
    """Each process's records are in the order of (epoch, seq).  ``kinds`` says which kinds carry which fields."""

    v: int
    """Version of the format, 1."""
    seq: int
    """Number of the record in its process, from 1; a gap shows that records are missing."""
    epoch: int
    """Controller epoch under which the record was made; 0 before the first election."""
    node: int
    """The controller's id."""
    ts: int
    """Wall-clock time in microseconds since 1970; for people, never for ordering."""
    kind: str
    """The kind of record."""
    event: str | None = None
    """The class of an event, or what happened."""
    state: str | None = None
    """Kafka's ``ControllerState`` while the event was handled."""
    topic: str | None = None
    """Name of the topic."""
    partition: int | None = None
    """Number of the partition within its topic."""
    from_state: str | None = None
    """State of the partition's or replica's state machine before."""
    to_state: str | None = None
    """The state after."""
    replica: int | None = None
    """Broker id of a replica."""
    leader: int | None = None
    """Broker id of the leader; -1: none."""
    leader_epoch: int | None = None
    """Rises with each change of leadership."""
    isr: Sequence[int] | None = None
    """Broker ids of the in-sync replicas."""
    replicas: Sequence[int] | None = None
    """Broker ids of the assigned replicas, the preferred one first."""
    controller_epoch: int | None = None
    """Controller epoch in the state znode, or of the election."""
    partition_epoch: int | None = None
    """Version of the state znode."""
    recovery_state: int | None = None
    """Leader recovery state (KIP-704): 0 recovered, 1 recovering after an unclean election."""
    broker: int | None = None
    """Id of a broker."""
    broker_epoch: int | None = None
    """The broker's incarnation: czxid of its registration."""
    brokers: Sequence[int] | None = None
    """Ids of several brokers."""
    api: str | None = None
    """Kafka's name of a request."""
    api_version: int | None = None
    """Version of the request."""
    correlation_id: int | None = None
    """Number of the request on its connection."""
    path: str | None = None
    """Path of a znode."""
    partitions: int | None = None
    """Number of partitions."""
    count: int | None = None
    """Number of other things."""
    conflicts: int | None = None
    """Number of version conflicts."""
    bytes: int | None = None
    """Size in bytes."""
    code: int | None = None
    """Kafka's error code."""
    queue_us: int | None = None
    """Microseconds in the queue."""
    processing_us: int | None = None
    """Microseconds in the handler."""
    duration_us: int | None = None
    """Microseconds in all."""
    requested: str | None = None
    """Who asked for what, in words: principal and address of a client, or an operator's command."""
    detail: Any = None
    """Anything else, in words or as an object; not meant to be parsed."""


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
