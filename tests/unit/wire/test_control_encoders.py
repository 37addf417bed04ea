"""LeaderAndIsr, UpdateMetadata, StopReplica: byte for byte what kio writes, for every version."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import NO_ISR, PartitionTable
from aiocontroller.wire.apis import ApiKey, UnsupportedApiError
from aiocontroller.wire.leader_and_isr import EncodedValues, LeaderAndIsrEncoder, encode_leader_and_isr
from aiocontroller.wire.stop_replica import StopReplicaPartition, encode_stop_replica
from aiocontroller.wire.update_metadata import SECURITY_PROTOCOLS, UpdateMetadataEncoder, encode_update_metadata
from tests.unit.wire.generated import brokers, epochs, hosts, int32, int64, kio_bytes, tables, versions


def grouped(table: PartitionTable, rows: Sequence[int]) -> dict[int, list[int]]:
    """The dumb twin of the encoders' gathering."""
    topics: dict[int, list[int]] = {}
    for row in rows:
        topics.setdefault(table.topic_of[row], []).append(row)
    return topics


def topic_fields(table: PartitionTable, topic: int) -> dict[str, Any]:
    known = table.topics[topic]
    assert known is not None
    topic_id = uuid.UUID(bytes=known.id)
    return {"topic_name": known.name, "name": known.name, "topic_id": topic_id}


def states(table: PartitionTable, rows: Sequence[int], fields: Any) -> dict[str, Any]:
    """Both forms, grouped and flat; each version takes the one that it has."""
    topics = grouped(table, rows)
    return {
        "topic_states": [
            {**topic_fields(table, topic), "partition_states": [fields(row) for row in members]}
            for topic, members in topics.items()
        ],
        "ungrouped_partition_states": [
            {**topic_fields(table, topic), **fields(row)} for topic, members in topics.items() for row in members
        ],
    }


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_leader_and_isr_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    rows = [row for row in rows if table.isr_of[row] != NO_ISR]
    new = {row for row in rows if data.draw(st.integers(0, 3)) == 0}
    leaders = sorted({table.leader[row] for row in rows})
    live = data.draw(st.lists(st.tuples(st.integers(0, 2**31 - 1), hosts, int32), max_size=3))
    live += [(b, "h", 1) for b in leaders if data.draw(st.booleans())]
    controller_id, controller_epoch, broker_epoch = data.draw(int32), data.draw(epochs), data.draw(int64)

    def fields(row: int) -> dict[str, Any]:
        assignment = table.assignment(row)
        return {
            "partition_index": table.index_of[row],
            "controller_epoch": table.controller_epoch[row],
            "leader": table.leader[row],
            "leader_epoch": table.leader_epoch[row],
            "isr": table.isr(row),
            "partition_epoch": table.partition_epoch[row],
            "replicas": assignment.replicas,
            "adding_replicas": assignment.adding,
            "removing_replicas": assignment.removing,
            "is_new": row in new,
            "leader_recovery_state": table.recovery_state[row],
        }

    expected = kio_bytes(
        ApiKey.LEADER_AND_ISR,
        version,
        {
            "controller_id": controller_id,
            "is_k_raft_controller": False,
            "controller_epoch": controller_epoch,
            "broker_epoch": broker_epoch,
            "type_": 0,
            **states(table, rows, fields),
            "live_leaders": [{"broker_id": b, "host_name": h, "port": port} for b, h, port in live if b in leaders],
        },
    )
    common: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "table": table,
        "rows": rows,
        "new": new,
        "live_leaders": live,
    }
    assert encode_leader_and_isr(version, broker_epoch=broker_epoch, **common) == expected
    kept = EncodedValues(table)
    for _ in range(2):  # fills it, then uses it
        encoder = LeaderAndIsrEncoder(version, kept=kept, **common)
        assert encoder.body().for_broker(broker_epoch) == expected


def test_a_partition_without_leadership_cannot_be_sent() -> None:
    table = PartitionTable()
    row = table.add_partition(table.add_topic("t"), 0, ReplicaAssignment((1,)))
    with pytest.raises(AssertionError, match="without leadership"):
        encode_leader_and_isr(7, controller_id=1, controller_epoch=1, broker_epoch=1, table=table, rows=[row])


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


def live_broker_fields(broker: Broker) -> dict[str, Any]:
    first = broker.endpoints[0] if broker.endpoints else Endpoint("", "", 0)
    return {
        "id_": broker.id,
        "v0_host": first.host,
        "v0_port": first.port,
        "endpoints": [
            {
                "port": e.port,
                "host": e.host,
                "listener": e.listener,
                "security_protocol": SECURITY_PROTOCOLS[e.security_protocol],
            }
            for e in broker.endpoints
        ],
        "rack": broker.rack,
    }


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_update_metadata_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    live_brokers = data.draw(brokers(version))
    live = {b for b in range(10) if data.draw(st.integers(0, 3))} | set(range(10, 200))
    offline_dirs = {
        b: {row for row in rows if data.draw(st.integers(0, 3)) == 0} for b in range(3) if data.draw(st.booleans())
    }
    controller_id, controller_epoch, broker_epoch = data.draw(int32), data.draw(epochs), data.draw(int64)

    def fields(row: int) -> dict[str, Any]:
        deleting = table.topic(row).deleting
        replicas = table.replicas(row)
        return {
            "partition_index": table.index_of[row],
            "controller_epoch": table.controller_epoch[row],
            "leader": -2 if deleting else table.leader[row],
            "leader_epoch": 0 if deleting else table.leader_epoch[row],
            "isr": table.isr(row),
            "zk_version": 0 if deleting else table.partition_epoch[row],
            "replicas": replicas,
            "offline_replicas": tuple(r for r in replicas if r not in live or row in offline_dirs.get(r, ())),
        }

    expected = kio_bytes(
        ApiKey.UPDATE_METADATA,
        version,
        {
            "controller_id": controller_id,
            "is_k_raft_controller": False,
            "controller_epoch": controller_epoch,
            "broker_epoch": broker_epoch,
            **states(table, [p for p in rows if table.isr_of[p] != NO_ISR or table.topic(p).deleting], fields),
            "live_brokers": [live_broker_fields(b) for b in live_brokers],
        },
    )
    common: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "table": table,
        "rows": rows,
        "live_brokers": live_brokers,
        "live": live,
        "offline_dirs": offline_dirs,
    }
    assert encode_update_metadata(version, broker_epoch=broker_epoch, **common) == expected
    encoder = UpdateMetadataEncoder(version, **common)
    body = encoder.body()
    assert body.for_broker(broker_epoch) == expected
    assert b"".join(body.pieces_for_broker(broker_epoch)) == expected
    assert len(body) == len(expected)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_only_the_broker_epoch_differs_between_brokers(version: int) -> None:
    encoder = UpdateMetadataEncoder(
        version, controller_id=1, controller_epoch=2, table=PartitionTable(), rows=(), live_brokers=(), live=()
    )
    body = encoder.body()
    one, two = body.for_broker(1), body.for_broker(2)
    assert [n for n, (a, b) in enumerate(zip(one, two, strict=True)) if a != b] == (
        [] if version < 5 else [8 + 7 + (version >= 8)]
    )


def test_many_topics_and_partitions_cross_the_two_byte_lengths() -> None:
    table = PartitionTable()
    rows = []
    for t in range(200):
        topic = table.add_topic(f"topic-{t}")
        for p in range(1 if t else 300):
            row = table.add_partition(topic, p, ReplicaAssignment((1, 2)))
            table.set_leadership(row, LeaderAndIsr(1, 0, (1, 2), 1, 0))
            rows.append(row)
    arguments: dict[str, Any] = {
        "controller_id": 1,
        "controller_epoch": 1,
        "broker_epoch": 1,
        "table": table,
        "live_brokers": (),
        "live": {1, 2},
    }
    fields = {
        "controller_id": 1,
        "is_k_raft_controller": False,
        "controller_epoch": 1,
        "broker_epoch": 1,
        "live_brokers": (),
        **states(
            table,
            rows,
            lambda row: {
                "partition_index": table.index_of[row],
                "controller_epoch": 1,
                "leader": 1,
                "leader_epoch": 0,
                "isr": (1, 2),
                "zk_version": 0,
                "replicas": (1, 2),
                "offline_replicas": (),
            },
        ),
    }
    assert encode_update_metadata(8, rows=rows, **arguments) == kio_bytes(ApiKey.UPDATE_METADATA, 8, fields)


@pytest.mark.parametrize(
    "version, endpoint, complaint",
    [
        (0, Endpoint("SSL", "h", 1, "SSL"), "broker 7 .*version 0: found no PLAINTEXT endpoint"),
        (2, Endpoint("INTERNAL", "h", 1, "PLAINTEXT"), "broker 7 .*version 2: found listener INTERNAL"),
        (8, Endpoint("INTERNAL", "h", 1, "TELNET"), "broker 7, listener INTERNAL: found security protocol 'TELNET'"),
    ],
)
def test_a_broker_that_a_version_cannot_express(version: int, endpoint: Endpoint, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        UpdateMetadataEncoder(
            version,
            controller_id=1,
            controller_epoch=1,
            table=PartitionTable(),
            rows=(),
            live_brokers=[Broker(7, 1, (endpoint,))],
            live=(),
        )


# -- StopReplica -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_stop_replica_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    table, rows = data.draw(tables())
    partitions = [(row, data.draw(epochs), data.draw(st.booleans())) for row in rows]
    controller_id, controller_epoch, broker_epoch = data.draw(int32), data.draw(epochs), data.draw(int64)
    by_row = {row: (epoch, delete) for row, epoch, delete in partitions}

    def expected(chosen: Sequence[int], delete: bool) -> bytes:
        topics = grouped(table, chosen)
        return kio_bytes(
            ApiKey.STOP_REPLICA,
            version,
            {
                "controller_id": controller_id,
                "is_k_raft_controller": False,
                "controller_epoch": controller_epoch,
                "broker_epoch": broker_epoch,
                "delete_partitions": delete,
                "ungrouped_partitions": [
                    {**topic_fields(table, topic), "partition_index": table.index_of[row]}
                    for topic, members in topics.items()
                    for row in members
                ],
                "topics": [
                    {**topic_fields(table, topic), "partition_indexes": tuple(table.index_of[row] for row in members)}
                    for topic, members in topics.items()
                ],
                "topic_states": [
                    {
                        **topic_fields(table, topic),
                        "partition_states": [
                            {
                                "partition_index": table.index_of[row],
                                "leader_epoch": by_row[row][0],
                                "delete_partition": by_row[row][1],
                            }
                            for row in members
                        ],
                    }
                    for topic, members in topics.items()
                ],
            },
        )

    bodies = encode_stop_replica(
        version,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        partitions=[
            StopReplicaPartition(*table.topic_partition(row), epoch, delete) for row, epoch, delete in partitions
        ],
    )
    if version >= 3:
        assert bodies == [expected(rows, False)]
    else:
        by_flag = [(flag, [row for row in rows if by_row[row][1] == flag]) for flag in (True, False)]
        assert bodies == [expected(chosen, flag) for flag, chosen in by_flag if chosen]


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [-1, 8])
def test_an_unknown_version_is_named_with_its_api(version: int) -> None:
    with pytest.raises(UnsupportedApiError, match=rf"LEADER_AND_ISR\(4\) version {version}: expected 0 to 7"):
        LeaderAndIsrEncoder(version, controller_id=1, controller_epoch=1, table=PartitionTable(), rows=())
