"""A snapshot's file: what it gives back, what never is in it, and what hashing hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.check.rules import all_hits
from aiocontroller.check.snapshot import NOT_SAVED, encode_snapshot, parse_snapshot
from aiocontroller.check.what_if import WhatIf
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, Endpoint, TopicPartition
from aiocontroller.zookeeper.cluster_tree import ClusterTree
from aiocontroller.zookeeper.debts import Owed
from aiocontroller.zookeeper.znode_access import SHOWN
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import ControllerZNode
from tests.unit.check.test_rules import CASES, Change, state, tree

AT_US = 1_700_000_000_000_000
KEY = b"k" * 32


def changed(**fields: object) -> ClusterTree:
    return msgspec.structs.replace(tree(), **fields)


def kinds(found: ClusterTree) -> Counter[str]:
    return Counter(hit.kind for hit in all_hits(found))


@pytest.mark.parametrize("change", [change for change, _ in CASES])
def test_plain_and_hashed_files_give_the_same_findings(change: Change) -> None:
    before = change(tree())
    plain, hashed = (parse_snapshot(encode_snapshot(before, AT_US, key), "x") for key in (None, KEY))
    assert (plain.hashed, hashed.hashed) == (False, True)
    assert kinds(plain.tree) == kinds(hashed.tree) == kinds(before)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"holder": None, "migration": None, "cluster_id": None, "controller_epoch": 0},
        {"reassignment": {TopicPartition("a", 0): (3,)}, "preferred_election": [TopicPartition("a", 1)]},
        {
            "deletions": ["a"],
            "isr_notifications": ["isr_change_0000000001"],
            "debts": [Owed(3, "a", {0: b"i" * 16}, 1)],
        },
        {"topic_configs": {"a": {"cleanup.policy": "compact"}, "gone": {}}, "known_controllers": frozenset()},
        {"znodes_below": {"a": ("0", "1", "7"), "b": ("0",)}, "unreadable_brokers": frozenset({9})},
        {"brokers": {1: Broker(1, 8, (Endpoint("L", "h", 9092, "SSL"),), "r", (("f", 1, 2),))}},
    ],
)
def test_a_plain_file_gives_the_tree_back(fields: dict[str, object]) -> None:
    read = parse_snapshot(encode_snapshot(changed(**fields), AT_US), "x")
    assert read.tree == changed(**fields)
    assert read.at == "2023-11-14T22:13:20+00:00"


@pytest.mark.parametrize("change", [state(), state(leader=2, recovery_state=1, isr=(2,))])
def test_states_are_given_back_and_so_is_their_absence(change: Change) -> None:
    assert parse_snapshot(encode_snapshot(change(tree()), AT_US), "x").tree == change(tree())
    unreadable = msgspec.structs.replace(change(tree()), without_state=frozenset())
    assert parse_snapshot(encode_snapshot(unreadable, AT_US), "x").tree == unreadable


def test_the_same_tree_and_key_give_the_same_bytes_and_other_keys_other_names() -> None:
    first = encode_snapshot(tree(), AT_US, KEY)
    assert first == encode_snapshot(tree(), AT_US, KEY)
    again = parse_snapshot(encode_snapshot(tree(), AT_US, b"other"), "x").tree
    assert set(again.topics).isdisjoint(parse_snapshot(first, "x").tree.topics)


SECRETS = ("hunter2", "s3cret", "swordfish", "jaas", "alice", "pw-of-store")


def revealing() -> ClusterTree:
    """Every place of a tree in which somebody may have written a secret."""
    return changed(
        holder=ControllerZNode(1, 1, 0, 0, software="swordfish", address="LISTENER://zebra-host:9090"),
        topic_configs={
            "orders-of-acme": {
                "retention.ms": "hunter2",
                "plugin.password": "s3cret",
                "min.insync.replicas": "2",
                "cleanup.policy": "compact",
            }
        },
        broker_configs={
            "<default>": {
                "ssl.keystore.password": "pw-of-store",
                "listener.name.a.sasl.jaas.config": "jaas hunter2",
                "listeners": "PLAINTEXT://zebra-host:1",
                "sasl.jaas.config": "jaas",
                "min.insync.replicas": "2",
                "log.retention.ms": "swordfish",
            },
            "1": {"ssl.truststore.location": "/home/alice", "background.threads": "3"},
            "alice": {"min.insync.replicas": "1"},
        },
        bad=[
            BadZNode("/brokers/topics/orders-of-acme", '{"password":"hunter2"}', "JSON; hunter2 - at `$.alice`"),
            BadZNode("/config/topics/orders-of-acme", "refused", SHOWN),
        ],
        debts=[Owed(3, "orders-of-acme", {0: b"i" * 16}, 1)],
        deletions=["orders-of-acme"],
        reassignment={TopicPartition("orders-of-acme", 0): (3,)},
        preferred_election=[TopicPartition("orders-of-acme", 0)],
        brokers={1: Broker(1, 1, (Endpoint("ACME", "zebra-host", 9092, "SSL"),), "zebra-rack", (("acme", 1, 2),))},
        cluster_id="zebra-cluster",
        isr_notifications=["isr_change_0000000001", "acme"],
        znodes_below={"a": ("0", "acme")},
    )


@pytest.mark.parametrize("key", [None, KEY])
def test_nothing_secret_is_in_it(key: bytes | None) -> None:
    data = encode_snapshot(revealing(), AT_US, key).decode()
    hidden: Iterable[str] = SECRETS if key else [word for word in SECRETS if word != "swordfish"]
    assert [word for word in hidden if word in data] == []
    found = parse_snapshot(data.encode(), "x").tree
    (topic,) = found.topic_configs.values()
    assert topic == {"retention.ms": NOT_SAVED, "min.insync.replicas": "2", "cleanup.policy": "compact"}
    assert found.broker_configs == {"<default>": {"min.insync.replicas": "2"}, "1": {"background.threads": "3"}}


def test_a_hashed_file_does_not_tell_whose_cluster_it_is() -> None:
    data = encode_snapshot(revealing(), AT_US, KEY).decode().lower()
    assert [word for word in ("acme", "zebra", "orders", "9092", "listener://") if word in data] == []


def test_hashing_keeps_internal_topics_and_says_the_same_of_every_partition() -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    topics = {**tree().topics, "__consumer_offsets": msgspec.structs.replace(tree().topics["a"], topic=internal.topic)}
    hashed = parse_snapshot(encode_snapshot(changed(topics=topics), AT_US, KEY), "x").tree
    assert "__consumer_offsets" in hashed.topics
    before, after = WhatIf(tree()), WhatIf(parse_snapshot(encode_snapshot(tree(), AT_US, KEY), "x").tree)
    for each in (before, after):
        each.kill((2,))
    assert sorted(before.leaderships().values()) == sorted(after.leaderships().values())


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda file: file | {"format": 2}, "format 2 instead of 1"),
        (
            lambda file: {key: value for key, value in file.items() if key != "topics"},
            "missing required field `topics`",
        ),
        (lambda file: file | {"users": {}}, "unknown field `users`"),
        (lambda file: _partition(file, replicas=[-1]), "expected `int` >= 0|Expected `int` >= 0"),
        (lambda file: _partition(file, partition=1), "a-1 twice"),
        (lambda file: _partition(file, state={"leader": -2}), "Expected `int` >= -1"),
        (lambda file: file | {"topics": {"a": {"id": "x", "partitions": []}}}, "topic_id 'x'"),
    ],
)
def test_what_is_no_snapshot_is_refused_by_name(change: object, problem: str) -> None:
    file = msgspec.json.decode(encode_snapshot(tree(), AT_US))
    with pytest.raises(BadInputError, match=f"^last-week: found .*({problem}).*, expected what aiocontroller check"):
        parse_snapshot(msgspec.json.encode(change(file)), "last-week")  # type: ignore[operator]


def _partition(file: dict[str, object], **fields: object) -> dict[str, object]:
    file["topics"]["a"]["partitions"][0] |= fields  # type: ignore[index]
    return file


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInputError):
        parse_snapshot(data, "x")
