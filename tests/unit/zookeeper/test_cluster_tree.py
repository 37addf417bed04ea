"""One read of everything, damaged and half-made things included."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import cluster_tree
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.cluster_tree import read_cluster_tree, read_evidence
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znode_access import SHOWN

STATE = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":2,"isr":[1]}'


HIDDEN = ((31, "digest", "kafka:nobody-knows"),)


@pytest.fixture
def model() -> ZooKeeperModel:
    return ZooKeeperModel()


@pytest.fixture
async def zk(world: World, model: ZooKeeperModel) -> AsyncIterator[KafkaZkClient]:
    server = await ZooKeeperServer(world, model).start()
    client = ZooKeeperClient(f"127.0.0.1:{server.port}", world=world, session_timeout_s=10)
    await client.start(5)
    yield KafkaZkClient(client)
    await client.close()
    server.stop()


async def fill(zk: KafkaZkClient, znodes: dict[str, bytes]) -> None:
    for path, data in znodes.items():
        await zk.client.ensure_path(path.rpartition("/")[0] or "/")
        await zk.client.create(path, data)


async def test_a_zookeeper_without_kafka_is_an_empty_tree(zk: KafkaZkClient) -> None:
    tree = await read_cluster_tree(zk)
    assert (tree.holder, tree.controller_epoch, tree.live, tree.topics, tree.partitions) == (
        None,
        0,
        frozenset(),
        {},
        [],
    )
    assert tree.bad == []


async def test_what_is_whole_is_decoded_and_what_is_damaged_is_named(
    zk: KafkaZkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_tree, "PARTITIONS_AT_ONCE", 2)
    await fill(
        zk,
        {
            "/controller": b"nobody",
            "/controller_epoch": b"3",
            "/brokers/ids/1": b"?",
            "/brokers/topics/a": b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}',
            "/brokers/topics/a/partitions/0/state": STATE,
            "/brokers/topics/a/partitions/1/state": b"{",
            "/brokers/topics/a/partitions/9/state": STATE,
            "/brokers/topics/b": b"[",
            "/brokers/topics/c": b'{"version":1,"partitions":{"0":[1]}}',
            "/brokers/topics/c/partitions/0/state": STATE,
            "/config/topics/gone": b'{"version":1,"config":{"x":"y"}}',
            "/admin/delete_topics/a": b"",
            "/admin/reassign_partitions": b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2]}]}',
            "/admin/preferred_replica_election": b"}",
        },
    )
    read: list[tuple[str, int, int]] = []
    tree = await read_cluster_tree(zk, lambda *args: read.append(args))
    assert read == [("partitions", 3, 4), ("partitions", 4, 4)]
    leadership = LeaderAndIsr(1, 2, (1,), 3, 0)
    one = ReplicaAssignment((1,))
    assert [tuple(partition) for partition in tree.partitions] == [
        (TopicPartition("a", 0), one, leadership),
        (TopicPartition("a", 1), one, None),
        (TopicPartition("a", 2), one, None),
        (TopicPartition("c", 0), one, leadership),
    ]
    assert tree.without_state == {TopicPartition("a", 2)}
    assert tree.live == tree.unreadable_brokers == {1}
    assert tree.znodes_below == {"a": ["0", "1", "9"], "c": ["0"]}
    assert tree.topic_configs == {"gone": {"x": "y"}}
    assert tree.deletions == ["a"]
    assert tree.reassignment == {TopicPartition("a", 0): (2,)}
    assert {bad.path for bad in tree.bad} == {
        "/controller",
        "/brokers/ids/1",
        "/brokers/topics/a/partitions/1/state",
        "/brokers/topics/b",
        "/admin/preferred_replica_election",
    }


@pytest.mark.parametrize("damage", [b"xyz", b"2147483647", b"-1", b"", b"9" * 5000])
async def test_a_damaged_epoch_is_named_and_the_rest_is_read(zk: KafkaZkClient, damage: bytes) -> None:
    await fill(zk, {"/controller_epoch": damage, "/brokers/topics/a": b'{"version":1,"partitions":{"0":[1]}}'})
    tree = await read_cluster_tree(zk)
    assert [bad.path for bad in tree.bad] == ["/controller_epoch"]
    assert tree.controller_epoch == 0
    assert list(tree.topics) == ["a"]


async def test_only_a_brokers_own_name_registers_it(zk: KafkaZkClient) -> None:
    names = ["007", "9" * 5000, "\u0667", "x"]
    await fill(zk, {f"/brokers/ids/{name}": b"{}" for name in [*names, "8"]})
    tree = await read_cluster_tree(zk)
    assert tree.live == {8}
    assert {bad.path for bad in tree.bad} == {f"/brokers/ids/{name}" for name in [*names, "8"]}


async def test_what_we_may_not_read_is_named_and_the_rest_is_read(zk: KafkaZkClient, model: ZooKeeperModel) -> None:
    paths = [
        "/admin/delete_topics",
        "/admin/preferred_replica_election",
        "/admin/reassign_partitions",
        "/aiocontroller_debts",
        "/aiocontroller_ids",
        "/brokers/topics/a/partitions",
        "/brokers/topics/a/partitions/0/state",
        "/brokers/topics/b",
        "/config/brokers",
        "/config/topics",
        "/isr_change_notification",
        "/migration",
    ]
    topic = b'{"version":1,"partitions":{"0":[1]}}'
    await fill(zk, {"/brokers/topics/a": topic, "/brokers/topics/b": topic, "/brokers/topics/c": topic})
    for path in paths:
        await zk.client.ensure_path(path)
    for path in paths:
        model.tree.nodes[path].acl = HIDDEN
    tree = await read_cluster_tree(zk)
    assert sorted(bad.path for bad in tree.bad) == paths
    assert {bad.expected for bad in tree.bad} == {SHOWN}
    assert list(tree.topics) == ["a", "c"]
    assert tree.without_state == {TopicPartition("c", 0)}
    [evidence] = await read_evidence(zk, ["/migration"])
    assert evidence.value == "/migration: ZooKeeper answered NO_AUTH (-102)"


@pytest.mark.parametrize("path", ["/controller", "/controller_epoch", "/brokers/ids", "/brokers/topics"])
async def test_without_these_nothing_can_be_said(zk: KafkaZkClient, model: ZooKeeperModel, path: str) -> None:
    await zk.client.ensure_path(path)
    model.tree.nodes[path].acl = HIDDEN
    with pytest.raises(exc.NoAuth) as raised:
        await read_cluster_tree(zk)
    assert raised.value.__notes__ == [f"{path}: ZooKeeper answered NO_AUTH (-102)"]


async def test_evidence_is_what_the_znodes_hold(zk: KafkaZkClient) -> None:
    await fill(zk, {"/controller_epoch": b"3\n4"})
    there, missing = await read_evidence(zk, ["/controller_epoch", "/controller"])
    assert there.zxid > 0
    assert "3" in there.value
    assert "\n" not in there.value
    assert missing == ("/controller", 0, "no such znode")
