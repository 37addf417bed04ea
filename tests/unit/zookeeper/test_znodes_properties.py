"""What is written is read back, and no bytes whatever make a decoder raise."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.broker_starts import BrokerStarts, Incarnation
from aiocontroller.core.ids import (
    MAX_PARTITIONS_PER_TOPIC,
    Broker,
    Eligible,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper import cluster_znodes, znodes
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.znode_json import MAX_LEADER_EPOCH, topic_id_from_text, topic_id_to_text

ids = st.integers(0, 2**31 - 1)
id_tuples = st.lists(ids, unique=True, max_size=6).map(tuple)
replicas = st.lists(ids, unique=True, min_size=1, max_size=6).map(tuple)
partition_numbers = st.integers(0, MAX_PARTITIONS_PER_TOPIC - 1)
topic_names = st.text(st.sampled_from("aZ09._-"), min_size=1, max_size=20)
leader_epochs = st.integers(0, MAX_LEADER_EPOCH)
eligible = st.builds(
    Eligible,
    st.integers(0, 2**63 - 1),
    st.lists(st.tuples(ids, st.integers(0, 2**63 - 1)), min_size=1, max_size=3).map(tuple),
)
states = st.builds(
    LeaderAndIsr,
    st.integers(-1, 2**31 - 1),
    leader_epochs,
    id_tuples,
    ids,
    ids,
    st.sampled_from([0, 1]),
    st.none() | eligible,
)
topics = st.builds(
    TopicAssignment,
    topic_names,
    st.binary(min_size=16, max_size=16),
    st.dictionaries(partition_numbers, st.builds(ReplicaAssignment, replicas, id_tuples, id_tuples), max_size=8),
    ids,
)
hosts = st.one_of(st.just("::1"), st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,10}[a-z0-9])?", fullmatch=True))
endpoints = st.builds(
    Endpoint,
    st.from_regex(r"[A-Z_0-9]{1,8}", fullmatch=True),
    hosts,
    st.integers(-1, 65535),
    st.sampled_from(znodes.SECURITY_PROTOCOLS),
)
brokers = st.builds(
    Broker,
    ids,
    st.integers(0, 2**63 - 1),
    st.lists(endpoints, min_size=1, max_size=4, unique_by=lambda e: e.listener).map(tuple),
    st.none() | st.text(max_size=8),
    st.lists(
        st.tuples(st.text(max_size=5), st.integers(0, 9), st.integers(0, 9)), max_size=3, unique_by=lambda f: f[0]
    ).map(lambda features: tuple(sorted(features))),
)
damage = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["version", "partitions", "isr", "leader", "brokerid", "config", "0", "topic", "features"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)


patiently = settings(deadline=None)
"""A busy machine is no failure."""


@patiently
@given(st.lists(states, max_size=20))
def test_states(written):
    datas = znodes.encode_partition_states(written)
    count = len(written)
    read = znodes.decode_partition_states(
        ["t"] * count, [0] * count, datas, [s.partition_epoch for s in written]
    ).states()
    assert read == written
    for data, state in zip(datas, written, strict=True):
        assert znodes.decode_partition_state("/p", data, state.partition_epoch) == state
        assert json.loads(data).get("leader_recovery_state", 0) == state.recovery_state


@patiently
@given(topics)
def test_topics(written):
    assert znodes.decode_topic(written.topic, znodes.encode_topic(written), written.version) == written


@patiently
@given(brokers)
def test_brokers(written):
    data = znodes.encode_broker(znodes.BrokerInfo(written, 17))
    assert znodes.decode_broker(written.id, data, written.epoch) == written


@patiently
@given(st.dictionaries(st.builds(TopicPartition, topic_names, partition_numbers), id_tuples, max_size=8))
def test_reassignments_and_partitions(written):
    assert znodes.decode_reassignment(znodes.encode_reassignment(written)) == written
    assert znodes.decode_partitions("/p", znodes.encode_partitions(written)) == list(written)


@patiently
@given(st.binary(min_size=16, max_size=16))
def test_topic_ids(topic_id):
    assert len(topic_id_to_text(topic_id)) == 22
    assert topic_id_from_text(topic_id_to_text(topic_id)) == topic_id


@patiently
@given(damage)
def test_no_decoder_raises(data):
    znodes.decode_controller(data)
    znodes.decode_controller_epoch(data)
    znodes.decode_broker(1, data, 1)
    znodes.decode_topic("t", data)
    znodes.decode_partition_state("/p", data, 1)
    znodes.decode_partitions("/p", data)
    znodes.decode_reassignment(data)
    znodes.decode_log_dir_event("/p", data)
    cluster_znodes.decode_config("/p", data)
    cluster_znodes.decode_config_change("/p", data)
    cluster_znodes.decode_cluster_id(data)
    cluster_znodes.decode_producer_id_block(data)
    cluster_znodes.decode_feature(data)
    cluster_znodes.decode_migration(data)
    cluster_znodes.decode_delegation_token("/p", data)
    cluster_znodes.decode_acls("/p", data)
    cluster_znodes.decode_acl_change("/kafka-acl-changes/c", data)
    cluster_znodes.decode_acl_change("/kafka-acl-extended-changes/c", data)


incarnations = st.builds(
    Incarnation, *(st.integers(0, 2**63 - 1) for _ in range(2)), *(st.booleans() for _ in range(3))
)


@given(st.builds(BrokerStarts, ids, ids, ids, st.integers(1, 9), st.dictionaries(ids, incarnations, max_size=4)))
def test_broker_starts_are_read_back(starts: BrokerStarts) -> None:
    assert cluster_znodes.decode_broker_starts(cluster_znodes.encode_broker_starts(starts)) == starts


def test_broker_starts_of_ten_thousand_brokers_fit_into_a_znode() -> None:
    """However long the ensemble has lived."""
    zxid = 2**62
    brokers = {broker: Incarnation(zxid, zxid, gone=True, proven=True) for broker in range(10_000, 20_000)}
    assert len(cluster_znodes.encode_broker_starts(BrokerStarts(1, 1, 1, 1, brokers))) < MAX_DATA_BYTES


@given(damage)
def test_damaged_broker_starts_never_raise(data: bytes) -> None:
    cluster_znodes.decode_broker_starts(data)


def test_eligible_replicas_that_cannot_be_read_cost_no_leadership() -> None:
    state = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":3,"isr":[2],"eligible_leader_replicas":%b}'
    for field in (b"7", b"[]", b'{"config_zxid":1,"replicas":[]}', b'{"config_zxid":-1,"replicas":[[1,2]]}'):
        assert znodes.decode_partition_state("/s", state % field, 4) == LeaderAndIsr(2, 3, (2,), 1, 4)
    good = znodes.decode_partition_state("/s", state % b'{"config_zxid":1,"replicas":[[1,2]]}', 4)
    assert good == LeaderAndIsr(2, 3, (2,), 1, 4, 0, Eligible(1, ((1, 2),)))
