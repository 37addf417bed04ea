"""The simulated broker's own readers and writers, against kio's, for every version."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiocontroller.core.ids import NO_EPOCH, NO_TOPIC_ID, Endpoint
from aiocontroller.lab.cluster import broker_requests, broker_responses, controller_requests
from aiocontroller.lab.cluster.broker_requests import IntArrays, LiveBroker, PartitionState, run_to_end
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import IsrChange, Partition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError


def some_ids(chance: random.Random, most: int = 4) -> tuple[int, ...]:
    many = chance.choice((0, 1, 2, 3, most, 200 if chance.random() < 0.05 else 3))
    return tuple(chance.randrange(1 << 31) for _ in range(many))


def some_state(chance: random.Random, partition: int) -> PartitionState:
    return PartitionState(
        partition,
        chance.randrange(1 << 31),
        chance.randrange(-2, 1 << 31),
        chance.randrange(1 << 31),
        some_ids(chance),
        chance.randrange(1 << 31),
        some_ids(chance),
        some_ids(chance),
        some_ids(chance),
        some_ids(chance),
        chance.random() < 0.5,
        chance.randrange(2),
    )


def some_topics(chance: random.Random) -> list[tuple[str, bytes, list[PartitionState]]]:
    return [
        (f"topic-{n}-{'x' * chance.randrange(150)}", chance.randbytes(16), [some_state(chance, p) for p in range(n)])
        for n in range(1, 4)
    ]


def flat_or_grouped(flat: bool, topics: list[tuple[str, bytes, list[Any]]], as_dict: Any) -> dict[str, Any]:
    if flat:
        return {
            "ungrouped_partition_states": [
                {"topic_name": name, **as_dict(state)} for name, _, states in topics for state in states
            ]
        }
    return {
        "topic_states": [
            {"topic_name": name, "topic_id": topic_id, "partition_states": [as_dict(state) for state in states]}
            for name, topic_id, states in topics
        ]
    }


def common(state: PartitionState) -> dict[str, Any]:
    return {
        "partition_index": state.partition,
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "replicas": state.replicas,
    }


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_is_read_as_kio_writes_it(version: int) -> None:
    chance = random.Random(version)
    topics = some_topics(chance)

    def as_dict(state: PartitionState) -> dict[str, Any]:
        return {
            **common(state),
            "partition_epoch": state.partition_epoch,
            "adding_replicas": state.adding,
            "removing_replicas": state.removing,
            "is_new": state.is_new,
            "leader_recovery_state": state.recovery_state,
        }

    entity = cold.request(
        ApiKey.LEADER_AND_ISR,
        version,
        controller_id=7,
        controller_epoch=8,
        broker_epoch=9,
        live_leaders=[{"broker_id": 1, "host_name": "h", "port": 9092}],
        **flat_or_grouped(version < 2, topics, as_dict),
    )
    body = cold.encode_request(ApiKey.LEADER_AND_ISR, version, entity)
    request = run_to_end(broker_requests.decode_leader_and_isr(version, body, IntArrays()))

    assert (request.controller_id, request.controller_epoch) == (7, 8)
    assert request.broker_epoch == (9 if version >= 2 else -1)
    assert request.live_leaders == [(1, "h", 9092)]
    expected = [
        (
            name,
            topic_id if version >= 5 else NO_TOPIC_ID,
            [
                state._replace(
                    offline=(),
                    adding=state.adding if version >= 3 else (),
                    removing=state.removing if version >= 3 else (),
                    is_new=state.is_new if version >= 1 else False,
                    recovery_state=state.recovery_state if version >= 6 else 0,
                )
                for state in states
            ],
        )
        for name, topic_id, states in topics
    ]
    assert [tuple(topic) for topic in request.topics] == expected
    cut_short_anywhere_is_a_frame_error(
        lambda body: broker_requests.decode_leader_and_isr(version, body, IntArrays()), body
    )


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_is_read_as_kio_writes_it(version: int) -> None:
    chance = random.Random(version)
    topics = some_topics(chance)
    endpoints = [{"port": 9092, "host": "h", "listener": "PLAINTEXT", "security_protocol": 0}]

    def as_dict(state: PartitionState) -> dict[str, Any]:
        return {**common(state), "zk_version": state.partition_epoch, "offline_replicas": state.offline}

    entity = cold.request(
        ApiKey.UPDATE_METADATA,
        version,
        controller_id=7,
        controller_epoch=8,
        broker_epoch=9,
        live_brokers=[{"id_": 3, "v0_host": "h", "v0_port": 9092, "endpoints": endpoints, "rack": "r"}],
        **flat_or_grouped(version < 5, topics, as_dict),
    )
    body = cold.encode_request(ApiKey.UPDATE_METADATA, version, entity)
    request = run_to_end(broker_requests.decode_update_metadata(version, body, IntArrays()))

    assert (request.controller_id, request.controller_epoch) == (7, 8)
    assert request.broker_epoch == (9 if version >= 5 else -1)
    rack = "r" if version >= 2 else None
    assert request.live_brokers == [LiveBroker(3, (Endpoint("PLAINTEXT", "h", 9092),), rack)]
    expected = [
        (
            name,
            topic_id if version >= 7 else NO_TOPIC_ID,
            [PartitionState(*state[:7], offline=state.offline if version >= 4 else ()) for state in states],
        )
        for name, topic_id, states in topics
    ]
    assert [tuple(topic) for topic in request.topics] == expected
    cut_short_anywhere_is_a_frame_error(
        lambda body: broker_requests.decode_update_metadata(version, body, IntArrays()), body
    )


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_is_read_as_kio_writes_it(version: int) -> None:
    fields: dict[str, Any]
    if version == 0:
        fields = {"ungrouped_partitions": [{"topic_name": "a", "partition_index": p} for p in (1, 2)]}
    elif version <= 2:
        fields = {"topics": [{"name": "a", "partition_indexes": (1, 2)}]}
    else:
        states = [
            {"partition_index": 1, "leader_epoch": 5, "delete_partition": True},
            {"partition_index": 2, "leader_epoch": -2, "delete_partition": False},
        ]
        fields = {"topic_states": [{"topic_name": "a", "partition_states": states}]}
    if version <= 2:
        fields["delete_partitions"] = True
    entity = cold.request(ApiKey.STOP_REPLICA, version, controller_id=7, controller_epoch=8, broker_epoch=9, **fields)
    body = cold.encode_request(ApiKey.STOP_REPLICA, version, entity)
    request = run_to_end(broker_requests.decode_stop_replica(version, body))
    assert request[:2] == (7, 8)
    assert request.broker_epoch == (9 if version >= 1 else -1)
    if version <= 2:
        assert request.partitions == [("a", 1, NO_EPOCH, True), ("a", 2, NO_EPOCH, True)]
    else:
        assert request.partitions == [("a", 1, 5, True), ("a", 2, -2, False)]
    cut_short_anywhere_is_a_frame_error(lambda body: broker_requests.decode_stop_replica(version, body), body)


def cut_short_anywhere_is_a_frame_error(decode: Any, body: bytes) -> None:
    for length in range(0, len(body), 1 + len(body) // 200):
        with pytest.raises(FrameError):
            run_to_end(decode(body[:length]))


@pytest.mark.parametrize("version", range(8))
def test_kio_reads_our_leader_and_isr_response(version: int) -> None:
    codes = {("a", b"A" * 16): [(0, 0), (1, 11)], ("b", b"B" * 16): [(5, 103)]}
    body = b"".join(broker_responses.encode_leader_and_isr_response(version, 0, codes))
    entity = cold.decode_response(ApiKey.LEADER_AND_ISR, version, body)
    if version >= 5:
        found = [
            (topic.topic_id.bytes, each.partition_index, int(each.error_code))
            for topic in entity.topics
            for each in topic.partition_errors
        ]
        assert found == [(b"A" * 16, 0, 0), (b"A" * 16, 1, 11), (b"B" * 16, 5, 103)]
    else:
        found = [(each.topic_name, each.partition_index, int(each.error_code)) for each in entity.partition_errors]
        assert found == [("a", 0, 0), ("a", 1, 11), ("b", 5, 103)]


@pytest.mark.parametrize("version", range(5))
def test_kio_reads_our_stop_replica_response(version: int) -> None:
    body = b"".join(broker_responses.encode_stop_replica_response(version, 0, [("a", 0, 0), ("a", 1, 74)]))
    entity = cold.decode_response(ApiKey.STOP_REPLICA, version, body)
    found = [(each.topic_name, each.partition_index, int(each.error_code)) for each in entity.partition_errors]
    assert found == [("a", 0, 0), ("a", 1, 74)]


@pytest.mark.parametrize("version", range(9))
def test_kio_reads_our_update_metadata_response(version: int) -> None:
    body = b"".join(broker_responses.encode_update_metadata_response(version, 77))
    assert int(cold.decode_response(ApiKey.UPDATE_METADATA, version, body).error_code) == 77


def cache_with_a_topic() -> MetadataCache:
    cache = MetadataCache()
    brokers = [LiveBroker(n, (Endpoint("PLAINTEXT", "h", 9090 + n),), "r" if n == 1 else None) for n in (1, 2)]
    states = [
        PartitionState(0, 1, 1, 5, (1, 2), 3, (1, 2, 3), offline=(3,)),
        PartitionState(1, 1, 3, 6, (3,), 4, (3, 1)),
    ]
    topics = [broker_requests.TopicStates("t", b"T" * 16, states)]
    run_to_end(cache.update(broker_requests.UpdateMetadataRequest(1, 1, -1, topics, brokers)))
    return cache


@pytest.mark.parametrize("version", range(13))
def test_kio_reads_our_metadata_response(version: int) -> None:
    query = broker_responses.MetadataQuery(version, None, "PLAINTEXT")
    body = b"".join(run_to_end(broker_responses.encode_metadata_response(query, cache_with_a_topic(), "cluster")))
    entity = cold.decode_response(ApiKey.METADATA, version, body)
    assert [(broker.node_id, broker.host, broker.port) for broker in entity.brokers] == [(1, "h", 9091), (2, "h", 9092)]
    (topic,) = entity.topics
    assert (int(topic.error_code), topic.name) == (0, "t")
    first, second = topic.partitions
    replicas = (1, 2, 3) if version else (1, 2)  # the oldest clients are answered only the brokers that they can see
    assert (first.leader_id, first.isr_nodes, first.replica_nodes) == (1, (1, 2), replicas)
    assert int(first.error_code) == (0 if version else broker_responses.REPLICA_NOT_AVAILABLE)
    assert (second.leader_id, int(second.error_code)) == (-1, broker_responses.LEADER_NOT_AVAILABLE)
    if version >= 1:
        assert entity.controller_id == 1
        assert entity.brokers[0].rack == "r"
    if version >= 5:
        assert first.offline_replicas == (3,)
    if version >= 7:
        assert first.leader_epoch == 5


@pytest.mark.parametrize("version", range(13))
def test_metadata_requests_ask_for_some_or_all(version: int) -> None:
    def read(topics: Any) -> list[tuple[str | None, bytes]] | None:
        body = cold.encode_request(ApiKey.METADATA, version, cold.request(ApiKey.METADATA, version, topics=topics))
        return broker_requests.decode_metadata_topics(version, body)

    assert read([{"name": "t"}]) == [("t", NO_TOPIC_ID)]
    if version == 0:
        assert read([]) is None
    else:
        assert read([]) == []
        assert read(None) is None


def test_metadata_answers_for_topics_that_are_not_there() -> None:
    query = broker_responses.MetadataQuery(12, [("no", NO_TOPIC_ID), (None, b"N" * 16), (None, b"T" * 16)], "PLAINTEXT")
    body = b"".join(run_to_end(broker_responses.encode_metadata_response(query, cache_with_a_topic(), None)))
    entity = cold.decode_response(ApiKey.METADATA, 12, body)
    assert [(int(topic.error_code), topic.name) for topic in entity.topics] == [(3, "no"), (100, None), (0, "t")]


@pytest.mark.parametrize("version", range(4))
def test_kio_reads_our_alter_partition_request_and_we_its_answer(version: int) -> None:
    partition = Partition("t", 4)
    partition.topic_id = b"T" * 16
    change = IsrChange(partition, 6, (1, 2), 9)
    body = controller_requests.encode_alter_partition(version, 1, 77, [change])
    entity = cold.decode_request(ApiKey.ALTER_PARTITION, version, body)
    assert (entity.broker_id, entity.broker_epoch) == (1, 77)
    (topic,) = entity.topics
    (asked,) = topic.partitions
    assert (asked.partition_index, asked.leader_epoch, asked.partition_epoch) == (4, 6, 9)
    if version >= 3:
        assert [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs] == [(1, -1), (2, -1)]
    else:
        assert asked.new_isr == (1, 2)
    name: dict[str, Any] = {"topic_id": b"T" * 16} if version >= 2 else {"topic_name": "t"}
    answer = {"partition_index": 4, "leader_id": 1, "leader_epoch": 6, "isr": (1, 2), "partition_epoch": 10}
    reply = cold.response(ApiKey.ALTER_PARTITION, version, topics=[{**name, "partitions": [answer]}])
    read = controller_requests.decode_alter_partition_response(
        version, cold.encode_response(ApiKey.ALTER_PARTITION, version, reply)
    )
    assert read.error_code == 0
    assert read.partitions == [(*name.values(), 4, 0, 1, 6, (1, 2), 10)]


def test_alter_partition_goes_by_name_when_a_topic_has_no_id() -> None:
    partition = Partition("t", 4)
    change = IsrChange(partition, 6, (1, 2), 9)
    assert controller_requests.alter_partition_version([change], 3, topic_ids=True) == 1
    partition.topic_id = b"T" * 16
    assert controller_requests.alter_partition_version([change], 3, topic_ids=True) == 3
    assert controller_requests.alter_partition_version([change], 2, topic_ids=True) == 2
    assert controller_requests.alter_partition_version([change], 3, topic_ids=False) == 1
    assert controller_requests.alter_partition_version([change], 0, topic_ids=True) == 0


@pytest.mark.parametrize("version", [1, 2, 3])
def test_controlled_shutdown_both_ways(version: int) -> None:
    asked = controller_requests.encode_controlled_shutdown(version, 2, 55)
    entity = cold.decode_request(ApiKey.CONTROLLED_SHUTDOWN, version, asked)
    assert (entity.broker_id, getattr(entity, "broker_epoch", 55)) == (2, 55)
    reply = cold.response(
        ApiKey.CONTROLLED_SHUTDOWN, version, remaining_partitions=[{"topic_name": "t", "partition_index": 1}]
    )
    body = cold.encode_response(ApiKey.CONTROLLED_SHUTDOWN, version, reply)
    assert controller_requests.decode_controlled_shutdown_response(version, body) == (0, [("t", 1)])
