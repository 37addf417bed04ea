"""Generated clusters, and kio as the other side, for the tests of this room."""

from __future__ import annotations

import dataclasses
import io
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.update_metadata import SECURITY_PROTOCOLS

Fields = Mapping[str, Any]


def entity(kind: type[Any], fields: Fields) -> Any:
    """A kio entity from nested mappings; fields that this version does not have are left out."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        nested = next((t for t in typing.get_args(hints[field.name]) if dataclasses.is_dataclass(t)), None)
        if field.name in fields:
            value = fields[field.name]
            values[field.name] = tuple(entity(nested, v) for v in value) if nested else value  # type: ignore[arg-type]
    return kind(**values)


def kio_bytes(api: ApiKey, version: int, fields: Fields, *, response: bool = False) -> bytes:
    kind = (load_response_schema if response else load_request_schema)(api, version)
    out = io.BytesIO()
    entity_writer(kind)(out, entity(kind, fields))
    return out.getvalue()


names = st.one_of(
    st.text("abcXYZ.-_019", min_size=1, max_size=20),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
    st.sampled_from(["n" * 126, "n" * 127, "n" * 128, "ü" * 100, "n" * 249, ""]),
)
int32 = st.integers(-(2**31), 2**31 - 1)
epochs = st.one_of(st.integers(0, 5), int32)
int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def assignments(draw: st.DrawFn) -> ReplicaAssignment:
    if draw(st.integers(0, 30)) == 0:
        return ReplicaAssignment(tuple(range(draw(st.sampled_from([126, 127, 128, 200])))))
    replicas = draw(st.lists(st.integers(0, 9), max_size=5, unique=True))
    adding = tuple(r for r in replicas if draw(st.integers(0, 5)) == 0)
    removing = tuple(r for r in replicas if draw(st.integers(0, 5)) == 0)
    return ReplicaAssignment(tuple(replicas), adding, removing)


@st.composite
def leaderships(draw: st.DrawFn, replicas: tuple[int, ...]) -> LeaderAndIsr:
    isr = tuple(r for r in replicas if draw(st.booleans())) if len(replicas) < 10 else replicas
    return LeaderAndIsr(
        draw(st.sampled_from([-1, *isr])), draw(epochs), isr, draw(epochs), draw(epochs), draw(st.integers(0, 1))
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[PartitionTable, list[int]]:
    """A table whose topics' rows are interleaved, some without leadership or being deleted, and rows in some order."""
    table = PartitionTable()
    topics = [
        table.add_topic(name, draw(st.binary(min_size=16, max_size=16)) if draw(st.booleans()) else bytes(16))
        for name in draw(st.lists(names, max_size=5, unique=True))
    ]
    if topics:
        for _ in range(draw(st.integers(0, 12))):
            topic = draw(st.sampled_from(topics))
            row = table.add_partition(topic, len(topic.rows), draw(assignments()))
            if draw(st.integers(0, 4)):
                table.set_leadership(row, draw(leaderships(table.replicas(row))))
    for topic in topics:
        if draw(st.integers(0, 4)) == 0:
            table.set_topic_deleting(topic, True)
    rows = list(table.rows())
    return table, draw(st.permutations(rows)) if draw(st.booleans()) else rows


hosts = st.sampled_from(["h", "127.0.0.1", "kafka-ü.example", "x" * 130])
protocols = st.sampled_from(list(SECURITY_PROTOCOLS))
endpoints = st.builds(Endpoint, st.sampled_from(["PLAINTEXT", "REPLICATION", "外"]), hosts, int32, protocols)
plain_endpoints = hosts.map(lambda host: Endpoint("PLAINTEXT", host, 9092, "PLAINTEXT"))


def brokers(version: int) -> st.SearchStrategy[list[Broker]]:
    if version == 0:
        own = st.tuples(plain_endpoints)
    elif version < 3:
        own = st.lists(st.builds(lambda host, p: Endpoint(p, host, 1, p), hosts, protocols), max_size=3).map(tuple)
    else:
        own = st.lists(endpoints, max_size=3).map(tuple)
    racks = st.one_of(st.none(), st.sampled_from(["", "eu-1a", "r" * 127]))
    return st.lists(st.builds(Broker, st.integers(0, 9), st.just(1), own, racks), max_size=4)


def versions(api: ApiKey) -> range:
    return range(SUPPORTED[api].min, SUPPORTED[api].max + 1)
