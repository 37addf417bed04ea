"""The typed client on a real and on the modelled ZooKeeper: columns, notifications, requests of administrators."""

from __future__ import annotations

import asyncio
import random

import pytest

from aiocontroller.core.ids import (
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
)
from aiocontroller.zookeeper.client import Create, Delete, SetData
from aiocontroller.zookeeper.cluster_znodes import FeatureZNode, ProducerIdBlock
from aiocontroller.zookeeper.kafka_zk_client import BadZNode, KafkaZkClient, ZNodeChange
from aiocontroller.zookeeper.znodes import encode_partition_states
from tests.integration.zookeeper.typed import (
    BAD_VERSION,
    NO_NODE,
    NODE_EXISTS,
    TP,
    Changes,
    Connect,
    Lossy,
    exists,
    put,
    put_topic,
    topic,
)


class TestTopics:
    async def test_read(self, zk: KafkaZkClient) -> None:
        good = topic("a", (1, 2), (2, 1))
        await put_topic(zk, good)
        await put(zk, "/brokers/topics/bad", b'{"partitions":{"-5":[1]}}')
        await put(zk, "/brokers/topics/worse", b'{"partitions":{"0":[1,1]}}')
        assert await zk.get_all_topics_in_cluster() == ["a", "bad", "worse"]
        found = await zk.get_topic_assignments(["worse", "gone", "a", "bad"])
        assert found.found == [good]
        assert found.missing == ["gone"]
        assert [b.path for b in found.bad] == ["/brokers/topics/worse", "/brokers/topics/bad"]

    async def test_rewrite_expects_the_version(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("a", (1,)))
        await put_topic(zk, topic("b", (1,)))
        moved = TopicAssignment("a", bytes(16), {0: ReplicaAssignment((1, 2), (2,), (1,))}, 0)
        stale = TopicAssignment("b", bytes(16), {0: ReplicaAssignment((2,))}, 3)
        writes = await zk.set_topic_assignments([moved, stale], fence=fence)
        assert writes.code == [0, BAD_VERSION]
        assert writes.version[0] == 1
        found = (await zk.get_topic_assignments(["a", "b"])).found
        assert found[0].partitions == moved.partitions
        assert found[1] == topic("b", (1,))

    async def test_deletion_takes_everything_below(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("a", (1,)))
        await put_topic(zk, topic("ab", (1,)))
        states = [LeaderAndIsr(1, 0, (1,), 1, 0)] * 40
        assert (await zk.create_topic_partition_states(["a"] * 40, range(40), states, fence=fence)).ok
        await put(zk, "/config/topics/a", b'{"version":1,"config":{}}')
        await put(zk, "/admin/delete_topics/a")
        await zk.delete_topic_znodes(["a"], fence=fence)
        await zk.delete_topic_configs(["a", "never"], fence=fence)
        await zk.delete_topic_deletions(["a", "never"], fence=fence)
        await zk.delete_topic_znodes(["a"], fence=fence)  # again: gone is fine
        assert await zk.get_all_topics_in_cluster() == ["ab"]
        assert await zk.get_topic_deletions() == []
        assert not await exists(zk, "/config/topics/a")

    async def test_configs(self, zk: KafkaZkClient) -> None:
        await put(zk, "/config/topics/a", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
        await put(zk, "/config/topics/bad", b'{"config":5}')
        configs = await zk.get_topic_configs(["a", "none", "bad"])
        assert configs == {"a": {"unclean.leader.election.enable": "true"}, "none": {}}
        assert [b.path for b in configs.bad] == ["/config/topics/bad"]


class TestPartitionStates:
    async def test_create_read_set(self, zk: KafkaZkClient, fence: int) -> None:
        for name in ("a", "b"):
            await put_topic(zk, topic(name, (1, 2)))
        topics, partitions = ["a", "a", "b"], [0, 1, 0]
        states = [LeaderAndIsr(1, 0, (1, 2), 1, 0), LeaderAndIsr(2, 0, (2,), 1, 0, 1), LeaderAndIsr(-1, 0, (1,), 1, 0)]
        created = await zk.create_topic_partition_states(topics, partitions, states, fence=fence)
        assert (created.code, created.version) == ([0, 0, 0], [0, 0, 0])
        assert await zk.get_topic_partition_states([*topics, "b"], [*partitions, 9]) == [*states, None]
        next_states = [LeaderAndIsr(2, 1, (2,), 1, 0), LeaderAndIsr(1, 1, (1,), 1, 7), LeaderAndIsr(1, 1, (1,), 1, 0)]
        written = await zk.set_topic_partition_states(["a", "a", "c"], partitions, next_states, fence=fence)
        assert written.code == [0, BAD_VERSION, NO_NODE]
        assert written.version[0] == 1
        assert written.largest > sum(len(data) for data in encode_partition_states(next_states))
        first, second = await zk.get_topic_partition_states(["a", "a"], [0, 1])
        assert first == LeaderAndIsr(2, 1, (2,), 1, 1)
        assert second == states[1]

    async def test_create_meets_what_exists_and_what_is_gone(self, zk: KafkaZkClient, fence: int) -> None:
        for name in ("a", "b", "d"):
            await put_topic(zk, topic(name, (1,)))
        await put(zk, "/brokers/topics/b/partitions")
        await put(zk, "/brokers/topics/b/partitions/1")  # a parent without a state
        state = LeaderAndIsr(1, 0, (1,), 1, 0)
        assert (await zk.create_topic_partition_states(["a"], [0], [state], fence=fence)).ok
        other = LeaderAndIsr(2, 5, (2,), 1, 0)
        created = await zk.create_topic_partition_states(
            ["a", "a", "gone", "b", "b", "d"], [0, 1, 0, 0, 1, 0], [other] * 6, fence=fence
        )
        assert created.code == [NODE_EXISTS, 0, NO_NODE, 0, 0, 0]
        assert created.version == [-1, 0, -1, 0, 0, 0]
        assert await zk.get_topic_partition_states(["a"], [0]) == [state]

    async def test_many_with_conflicts_everywhere(self, zk: KafkaZkClient, fence: int) -> None:
        """Batches torn by parents that are there already must not lose their neighbours."""
        count = 900
        await put_topic(zk, topic("t", (1,)))
        await put(zk, "/brokers/topics/t/partitions")
        ops = [Create(f"/brokers/topics/t/partitions/{i}") for i in range(0, count, 7)]
        assert (await zk.client.write_many(ops, fence=None)).ok
        states = [LeaderAndIsr(i % 5, 0, (i % 5, 9), 1, 0) for i in range(count)]
        created = await zk.create_topic_partition_states(["t"] * count, range(count), states, fence=fence)
        assert created.code == [0] * count
        assert await zk.get_topic_partition_states(["t"] * count, range(count)) == states
        chance = random.Random(5)
        stale = [chance.random() < 0.1 for _ in range(count)]
        wanted = [LeaderAndIsr(3, 1, (3,), 1, 4 if old else 0) for old in stale]
        written = await zk.set_topic_partition_states(["t"] * count, range(count), wanted, fence=fence)
        assert written.code == [BAD_VERSION if old else 0 for old in stale]

    async def test_slices(self, zk: KafkaZkClient, fence: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aiocontroller.zookeeper.kafka_zk_client.SLICE", 7)
        await put_topic(zk, topic("t", (1,)))
        states = [LeaderAndIsr(i, 0, (i,), 1, 0) for i in range(30)]
        assert (await zk.create_topic_partition_states(["t"] * 30, range(30), states, fence=fence)).ok
        assert await zk.get_topic_partition_states(["t"] * 30, range(30)) == states
        written = await zk.set_topic_partition_states(["t"] * 30, range(30), states, fence=fence)
        assert written.version == [1] * 30

    async def test_damage_in_its_place(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("t", (1,)))
        state = LeaderAndIsr(1, 0, (1,), 1, 0)
        assert (await zk.create_topic_partition_states(["t"] * 3, range(3), [state] * 3, fence=fence)).ok
        await zk.client.write_many([SetData("/brokers/topics/t/partitions/1/state", b"\xff\x00", 0)], fence=None)
        await zk.client.write_many([Delete("/brokers/topics/t/partitions/2/state")], fence=None)
        found = await zk.get_topic_partition_states(["t"] * 3, range(3))
        assert found[0] == state
        assert isinstance(found[1], BadZNode)
        assert found[1].path == "/brokers/topics/t/partitions/1/state"
        assert found[2] is None


class TestNotifications:
    async def test_isr_changes(self, zk: KafkaZkClient, fence: int) -> None:
        changes = Changes(zk)
        assert await zk.get_all_isr_change_notifications() == []
        await zk.propagate_isr_changes([TP("t", 1), TP("t", 0)])
        assert await changes.next() == (ZNodeChange.ISR_CHANGE, "")
        await zk.propagate_isr_changes([TP("u", 0), TP("t", 1)])
        await put(zk, "/isr_change_notification/isr_change_9999999999", b"junk")
        names = await zk.get_all_isr_change_notifications()
        assert len(names) == 3
        partitions, bad = await zk.get_partitions_from_isr_change_notifications([*names, "isr_change_gone"])
        assert partitions == [TP("t", 1), TP("t", 0), TP("u", 0)]
        assert [b.path for b in bad] == ["/isr_change_notification/isr_change_9999999999"]
        await zk.delete_isr_change_notifications([*names, "isr_change_gone"], fence=fence)
        assert await zk.get_all_isr_change_notifications(watch=False) == []

    async def test_log_dir_events(self, zk: KafkaZkClient, fence: int) -> None:
        changes = Changes(zk)
        assert await zk.get_all_log_dir_event_notifications() == []
        for broker in (3, 1, 3):
            await zk.propagate_log_dir_event(broker)
        assert await changes.next() == (ZNodeChange.LOG_DIR_EVENT, "")
        await put(zk, "/log_dir_event_notification/log_dir_event_9999999999", b"{}")
        names = await zk.get_all_log_dir_event_notifications()
        brokers, bad = await zk.get_brokers_from_log_dir_event_notifications(names)
        assert brokers == [3, 1]
        assert len(bad) == 1
        await zk.delete_log_dir_event_notifications(names, fence=fence)
        assert await zk.get_all_log_dir_event_notifications(watch=False) == []

    async def test_config_changes(self, zk: KafkaZkClient) -> None:
        changes = Changes(zk)
        assert await zk.get_all_config_changes() == []
        await zk.create_config_change_notification("topics/t")
        assert await changes.next() == (ZNodeChange.CONFIG_CHANGES, "")
        await put(
            zk, "/config/changes/config_change_5", b'{"version":1,"entity_type":"clients","entity_name":"<default>"}'
        )
        await put(zk, "/config/changes/config_change_6", b"[]")
        names = await zk.get_all_config_changes()
        entities, bad = await zk.get_entities_from_config_changes(names)
        assert entities == ["topics/t", "clients/<default>"]
        assert len(bad) == 1

    async def test_notification_whose_reply_is_lost_is_sent_again(self, connect: Connect) -> None:
        zk = await connect()  # without top-level paths: they are made on the way
        Lossy(zk, applied=False)
        await zk.propagate_log_dir_event(3)
        assert len(await zk.get_all_log_dir_event_notifications()) == 1


class TestAdminRequests:
    async def test_reassignment(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_partition_reassignment() is None
        await zk.set_or_create_partition_reassignment({TP("t", 0): (1, 2), TP("u", 1): (3,)}, fence=fence)
        assert await zk.get_partition_reassignment() == {TP("t", 0): (1, 2), TP("u", 1): (3,)}
        await zk.set_or_create_partition_reassignment({TP("u", 1): (3,)}, fence=fence)
        assert await zk.get_partition_reassignment() == {TP("u", 1): (3,)}
        await zk.delete_partition_reassignment(fence=fence)
        await zk.delete_partition_reassignment(fence=fence)
        assert await zk.get_partition_reassignment() is None
        await put(zk, "/admin/reassign_partitions", b"{}")
        assert isinstance(await zk.get_partition_reassignment(), BadZNode)

    async def test_preferred_election(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_preferred_replica_election() is None
        await put(zk, "/admin/preferred_replica_election", b'{"partitions":[{"topic":"t","partition":3}]}')
        assert await zk.get_preferred_replica_election() == [TP("t", 3)]
        await zk.delete_preferred_replica_election(fence=fence)
        await put(zk, "/admin/preferred_replica_election", b'{"partitions":{}}')
        assert isinstance(await zk.get_preferred_replica_election(), BadZNode)


class TestCluster:
    async def test_cluster_id_is_the_first_proposed(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        assert await clients[0].get_cluster_id() is None
        found = await asyncio.gather(*(zk.create_or_get_cluster_id(f"id-{i}") for i, zk in enumerate(clients)))
        assert len(set(found)) == 1
        assert await clients[0].get_cluster_id() == found[0]

    async def test_top_level_paths_by_several_at_once(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        await asyncio.gather(*(zk.create_top_level_paths() for zk in clients))
        assert await clients[0].client.all_children_number("/") == 17

    async def test_producer_id_blocks_are_compare_and_set(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_latest_producer_id_block() == (None, 0)
        first = ProducerIdBlock(1, 0, 999)
        assert await zk.set_latest_producer_id_block(first, 0, fence=fence)
        assert not await zk.set_latest_producer_id_block(ProducerIdBlock(2, 0, 999), 0, fence=fence)
        assert await zk.get_latest_producer_id_block() == (first, 1)

    async def test_features(self, zk: KafkaZkClient) -> None:
        assert await zk.get_feature() == (None, -1)
        assert await zk.set_feature(FeatureZNode(2, 1, {}), -1)
        assert not await zk.set_feature(FeatureZNode(2, 0, {}), -1)
        assert await zk.get_feature() == (FeatureZNode(2, 1, {}), 0)
        assert await zk.set_feature(FeatureZNode(1, 0, {"f": 2}), 0)
        assert await zk.get_feature() == (FeatureZNode(1, 0, {"f": 2}), 1)

    async def test_migration(self, zk: KafkaZkClient) -> None:
        assert await zk.get_migration() is None
        await put(zk, "/migration", b"{}")
        assert isinstance(await zk.get_migration(), BadZNode)
