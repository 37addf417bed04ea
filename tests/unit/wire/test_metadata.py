"""Metadata answers by hand are those that kio writes, in every version."""

from __future__ import annotations

import pytest

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.messages import MetadataBroker
from aiocontroller.wire.metadata import MetadataAsked, MetadataHead, MetadataTopicEncoder, encode_metadata

KEY = ApiKey.METADATA
ORDERS, GONE = bytes(range(16)), b"\x09" * 16
BROKERS = [MetadataBroker(1, "one", 9092, "rack"), MetadataBroker(2, "two", 9093)]


def cluster() -> PartitionTable:
    """Brokers 1 and 2 have the client's listener, 3 has another one, 4 is dead."""
    table = PartitionTable()
    topic = table.add_topic("orders", ORDERS)
    for partition, leader in enumerate((1, 3, 4, -1, 2)):
        row = table.add_partition(topic, partition, ReplicaAssignment((leader, 2) if leader > 2 else (1, 2)))
        table.set_leadership(row, LeaderAndIsr(leader, 7 + partition, (2,), 3, 0))
    table.add_partition(topic, 5, ReplicaAssignment((1,)))  # no broker has heard of it yet
    return table


def partition(version: int, index: int, replicas: tuple[int, ...], isr: tuple[int, ...], offline: tuple[int, ...]):  # type: ignore[no-untyped-def]
    nodes = (1, 2)
    leader = {0: 1, 4: 2}.get(index, -1)
    error = 0 if leader > 0 else 72 if index == 1 and version >= 6 else 5
    if version == 0:
        replicas, isr = tuple(r for r in replicas if r in nodes), tuple(r for r in isr if r in nodes)
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": 7 + index,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": offline,
    }


@pytest.mark.parametrize("version", range(13))
def test_answers_are_those_that_kio_writes(version: int) -> None:
    table = cluster()
    encoder = MetadataTopicEncoder(
        version, table, nodes=(1, 2), alive=(1, 2, 3), live=(1, 2, 3), offline_dirs={2: {0}, 3: set()}
    )
    topic = table.topic_by_name["orders"]
    led = encoder.led(topic)
    pieces = [
        encoder.begin(0, "orders", ORDERS, len(led), internal=False),
        encoder.partitions(led[:2]),
        encoder.partitions(led[2:]),
        encoder.finish(0b1010),
        encoder.error(29, "__consumer_offsets", internal=True),
        encoder.error(100, None, GONE),
    ]
    found = encode_metadata(version, MetadataHead(BROKERS, "abc", 1, 0b11), pieces, 3)
    expected = cold.response(
        KEY,
        version,
        brokers=[{"node_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in BROKERS],
        cluster_id="abc",
        controller_id=1,
        cluster_authorized_operations=0b11,
        topics=[
            {
                "name": "orders",
                "topic_id": ORDERS,
                "topic_authorized_operations": 0b1010,
                "partitions": [
                    partition(version, 0, (1, 2), (2,), (2,)),
                    partition(version, 1, (3, 2), (2,), ()),
                    partition(version, 2, (4, 2), (2,), (4,)),
                    partition(version, 3, (1, 2), (2,), ()),
                    partition(version, 4, (1, 2), (2,), ()),
                ],
            },
            {"error_code": 29, "name": "__consumer_offsets", "is_internal": True},
            {"error_code": 100, "name": None if version >= 12 else "", "topic_id": GONE},
        ],
    )
    assert cold.decode_response(KEY, version, found) == expected
    assert found == cold.encode_response(KEY, version, expected)


def test_version_0_says_so_when_it_leaves_out_a_replica() -> None:
    table = PartitionTable()
    row = table.add_partition(table.add_topic("t"), 0, ReplicaAssignment((1, 3)))
    table.set_leadership(row, LeaderAndIsr(1, 0, (1,), 3, 0))
    for version, error in ((0, 9), (1, 0)):
        encoder = MetadataTopicEncoder(version, table, nodes=(1,), alive=(1, 3), live=(1, 3), offline_dirs={})
        pieces = [encoder.begin(0, "t", bytes(16), 1, internal=False), encoder.partitions([row]), encoder.finish()]
        answer = cold.decode_response(KEY, version, encode_metadata(version, MetadataHead([], None, 1), pieces, 1))
        [found] = answer.topics[0].partitions
        assert (int(found.error_code), found.leader_id, found.replica_nodes) == (error, 1, (1,) if error else (1, 3))


@pytest.mark.parametrize("version", range(13))
def test_bytes_behind_a_request_are_overlooked(version: int) -> None:
    """librdkafka sends three."""
    asked = cold.request(KEY, version, topics=[{"name": "orders"}], allow_auto_topic_creation=False)
    reader = MetadataAsked(version, cold.encode_request(KEY, version, asked) + b"\0\0\0")
    assert reader.read(10)
    assert reader.topics == [("orders", bytes(16))]
