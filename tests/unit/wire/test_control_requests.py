"""What our encoders write is read back by the broker's side, for every version; so is what kio reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.ids import NO_TOPIC_ID, Broker, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import NO_ISR, PartitionTable
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.control_requests import (
    LeaderAndIsrPartition,
    StopReplicaPartition,
    TopicStates,
    UpdateMetadataPartition,
    decode_leader_and_isr_request,
    decode_stop_replica_request,
    decode_update_metadata_request,
)
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.leader_and_isr import decode_leader_and_isr_response, encode_leader_and_isr
from aiocontroller.wire.stop_replica import decode_stop_replica_response, encode_stop_replica
from aiocontroller.wire.update_metadata import decode_update_metadata_response, encode_update_metadata
from tests.unit.wire.generated import brokers, tables, versions

HEAD: dict[str, Any] = {"controller_id": 9, "controller_epoch": 3, "broker_epoch": 11}


def flat(topics: list[TopicStates]) -> list[tuple[str, Any]]:
    return [(topic.topic, partition) for topic in topics for partition in topic.partitions]


def assert_every_cut_is_a_frame_error(decode: Any, version: int, body: bytes) -> None:
    for cut in range(len(body)):
        with pytest.raises(FrameError, match=rf"version {version} re(quest|sponse), byte"):
            decode(version, body[:cut])
    with pytest.raises(FrameError, match="found 1 bytes more"):
        decode(version, body + b"\0")


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_leader_and_isr_comes_back(version: int, data: st.DataObject) -> None:
    table, pids = data.draw(tables())
    pids = [pid for pid in pids if table.isr_of[pid] != NO_ISR]
    new = frozenset(pids[::2])
    live = [(1, "host", 9092)]
    body = encode_leader_and_isr(version, **HEAD, table=table, pids=pids, new=new, live_leaders=live)
    got = decode_leader_and_isr_request(version, body)
    assert (got.controller_id, got.controller_epoch, got.is_kraft_controller) == (9, 3, False)
    assert got.broker_epoch == (11 if version >= 2 else -1)
    assert got.live_leaders == tuple(live)
    expected = []
    for pid in pids:
        held, replicas = table.leadership(pid), table.assignment(pid)
        assert held is not None
        row = LeaderAndIsrPartition(
            table.index_of[pid],
            held.controller_epoch,
            held.leader,
            held.leader_epoch,
            held.isr,
            held.partition_epoch,
            replicas.replicas,
            replicas.adding if version >= 3 else (),
            replicas.removing if version >= 3 else (),
            version >= 1 and pid in new,
            held.recovery_state if version >= 6 else 0,
        )
        expected.append((table.topic(pid).name, row))
    assert sorted(flat(got.topics)) == sorted(expected)
    ids = {table.topic(pid).name: table.topic(pid).id if version >= 5 else NO_TOPIC_ID for pid in pids}
    assert {topic.topic: topic.topic_id for topic in got.topics} == ids
    if len(body) < 500:
        assert_every_cut_is_a_frame_error(decode_leader_and_isr_request, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_update_metadata_comes_back(version: int, data: st.DataObject) -> None:
    table, pids = data.draw(tables())
    live_brokers = data.draw(brokers(version))
    body = encode_update_metadata(version, **HEAD, table=table, pids=pids, live_brokers=live_brokers, live={1, 2})
    got = decode_update_metadata_request(version, body)
    assert (got.controller_id, got.controller_epoch, got.is_kraft_controller) == (9, 3, False)
    assert got.broker_epoch == (11 if version >= 5 else -1)
    assert got.live_brokers == tuple(
        Broker(b.id, -1, b.endpoints, b.rack if version >= 2 else None) for b in live_brokers
    )
    expected = []
    for pid in pids:
        held, replicas, topic = table.leadership(pid), table.replicas(pid), table.topic(pid)
        if held is None:
            continue
        row = UpdateMetadataPartition(
            table.index_of[pid],
            held.controller_epoch,
            -2 if topic.deleting else held.leader,
            0 if topic.deleting else held.leader_epoch,
            held.isr,
            0 if topic.deleting else held.partition_epoch,
            replicas,
            tuple(r for r in replicas if r not in (1, 2)) if version >= 4 else (),
        )
        expected.append((topic.name, row))
    assert sorted(flat(got.topics)) == sorted(expected)
    if len(body) < 500:
        assert_every_cut_is_a_frame_error(decode_update_metadata_request, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_stop_replica_comes_back(version: int, data: st.DataObject) -> None:
    table, pids = data.draw(tables())
    partitions = [(pid, data.draw(st.integers(-2, 5)), data.draw(st.booleans())) for pid in pids]
    got: list[tuple[str, StopReplicaPartition]] = []
    for body in encode_stop_replica(version, **HEAD, table=table, partitions=partitions):
        request = decode_stop_replica_request(version, body)
        assert request.broker_epoch == (11 if version >= 1 else -1)
        got += flat(request.topics)
        assert_every_cut_is_a_frame_error(decode_stop_replica_request, version, body)
    expected = [
        (table.topic(pid).name, StopReplicaPartition(table.index_of[pid], epoch if version >= 3 else -1, delete))
        for pid, epoch, delete in partitions
    ]
    assert sorted(got) == sorted(expected)


def test_shapes_that_change_in_the_middle_of_a_topic() -> None:
    table, pids = PartitionTable(), []
    topic = table.add_topic("t")
    for number, n in enumerate([3, 3, 3, 1, 3, 3, 200, 200, 3, 0, 2, 2]):
        pid = table.add_partition(topic, number, ReplicaAssignment(tuple(range(n))))
        table.set_leadership(pid, LeaderAndIsr(0, 0, tuple(range(n)), 1, 0))
        pids.append(pid)
    body = encode_update_metadata(8, **HEAD, table=table, pids=pids, live_brokers=(), live=range(200))
    (states,) = decode_update_metadata_request(8, body).topics
    assert [len(p.replicas) for p in states.partitions] == [3, 3, 3, 1, 3, 3, 200, 200, 3, 0, 2, 2]


def test_tagged_fields_on_a_partition_are_stepped_over() -> None:
    """A later Kafka may add some."""
    table = PartitionTable()
    pids = [table.add_partition(table.add_topic(name), 0, ReplicaAssignment((1,))) for name in "ab"]
    for pid in pids:
        table.set_leadership(pid, LeaderAndIsr(1, 0, (1,), 1, 0))
    body = encode_update_metadata(8, **HEAD, table=table, pids=pids, live_brokers=(), live=(1,))
    end_of_first_partition = body.index(b"\x02b") - 2
    tagged = body[:end_of_first_partition] + b"\x01\x05\x02hi" + body[end_of_first_partition + 1 :]
    assert decode_update_metadata_request(8, tagged) == decode_update_metadata_request(8, body)


def test_an_unknown_security_protocol_is_named() -> None:
    body = encode_update_metadata(8, **HEAD, table=PartitionTable(), pids=(), live_brokers=(), live=())
    broker = b"\x02" + (7).to_bytes(4, "big") + b"\x02" + bytes(4) + b"\x02h\x02L\x00\x09\x00" + b"\x00\x00"
    with pytest.raises(FrameError, match="security protocol: found 9, expected one of"):
        decode_update_metadata_request(8, body[:-2] + broker + b"\x00")


# -- the answers -------------------------------------------------------------------------------------------------------

codes = st.sampled_from([0, 0, 0, 11, 56])


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0, 11]),
    st.dictionaries(st.binary(min_size=16, max_size=16), st.lists(st.tuples(st.integers(0, 9), codes)), max_size=3),
)
def test_leader_and_isr_answers(version: int, error_code: int, topics: dict[bytes, list[tuple[int, int]]]) -> None:
    names = {topic_id: topic_id.hex() for topic_id in topics}
    message = cold.response(
        ApiKey.LEADER_AND_ISR,
        version,
        error_code=error_code,
        topics=[
            {
                "topic_id": topic_id,
                "partition_errors": [{"partition_index": p, "error_code": code} for p, code in partitions],
            }
            for topic_id, partitions in topics.items()
        ],
        partition_errors=[
            {"topic_name": names[topic_id], "partition_index": p, "error_code": code}
            for topic_id, partitions in topics.items()
            for p, code in partitions
        ],
    )
    body = cold.encode_response(ApiKey.LEADER_AND_ISR, version, message)
    got = decode_leader_and_isr_response(version, body)
    assert got.error_code == error_code
    assert got.partitions == tuple(
        (topic_id if version >= 5 else names[topic_id], p, code)
        for topic_id, partitions in topics.items()
        for p, code in partitions
        if code
    )
    assert_every_cut_is_a_frame_error(decode_leader_and_isr_response, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "ü" * 70]), st.integers(0, 9), codes), max_size=4))
def test_stop_replica_answers(version: int, partitions: list[tuple[str, int, int]]) -> None:
    message = cold.response(
        ApiKey.STOP_REPLICA,
        version,
        error_code=0,
        partition_errors=[{"topic_name": t, "partition_index": p, "error_code": code} for t, p, code in partitions],
    )
    body = cold.encode_response(ApiKey.STOP_REPLICA, version, message)
    got = decode_stop_replica_response(version, body)
    assert (got.error_code, got.partitions) == (0, tuple(partitions))
    assert [tuple(f) for f in got.failed()] == [(t, p) for t, p, code in partitions if code]
    assert_every_cut_is_a_frame_error(decode_stop_replica_response, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_update_metadata_answers(version: int) -> None:
    body = cold.encode_response(
        ApiKey.UPDATE_METADATA, version, cold.response(ApiKey.UPDATE_METADATA, version, error_code=77)
    )
    assert decode_update_metadata_response(version, body) == 77
    assert_every_cut_is_a_frame_error(decode_update_metadata_response, version, body)
