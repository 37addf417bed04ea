"""Topics administered by znodes on a real ZooKeeper, as Kafka's tools do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID, Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.replica_placement import assign_replicas_to_brokers
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient, PartitionDescription, TopicError, TopicToCreate
from aiocontroller.zookeeper.client import Create, SetData, ZooKeeperClient
from aiocontroller.zookeeper.errors import MaybeAppliedError
from aiocontroller.zookeeper.kafka_zk_client import BrokerInfo, KafkaZkClient, ZNodeChange

E = KafkaErrorCode
TOPIC_ID = bytes(range(16))


@pytest.fixture
async def zk(zk_connect: str, world: World) -> AsyncIterator[KafkaZkClient]:
    client = ZooKeeperClient(zk_connect, world=world, session_timeout_s=6.0)
    await client.start(10.0)
    yield KafkaZkClient(client)
    await client.close()


@pytest.fixture
def admin(zk: KafkaZkClient) -> AdminZkClient:
    """On an empty ZooKeeper: parents are made on the way."""
    return AdminZkClient(zk)


async def refused(code: KafkaErrorCode, call, says: str = "") -> None:
    with pytest.raises(TopicError) as caught:
        await call
    assert caught.value.code == code
    assert says in str(caught.value)


async def json_at(zk: KafkaZkClient, path: str) -> object:
    reads = await zk.client.get_many([path])
    assert reads.code == [0], path
    assert reads.data[0] is not None
    return json.loads(reads.data[0])


async def test_create_writes_what_kafka_writes(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1, 2), 1: (2, 1)}, TOPIC_ID, {"retention.ms": "5"})
    assert await json_at(zk, "/brokers/topics/t") == {
        "version": 3,
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {},
        "removing_replicas": {},
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
    }
    assert await json_at(zk, "/config/topics/t") == {"version": 1, "config": {"retention.ms": "5"}}
    assert await zk.get_all_config_changes() == []  # a new topic needs no notification
    assert await admin.list_topics() == ["t"]


async def test_create_without_an_id(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1,)})
    assert (await zk.get_topic_assignments(["t"])).found[0].topic_id == NO_TOPIC_ID
    assert await json_at(zk, "/config/topics/t") == {"version": 1, "config": {}}


async def test_create_with_placement(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    for broker_id in (3, 1, 2):
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id)
        await zk.register_broker(BrokerInfo(Broker(broker_id, 0, (endpoint,), f"rack-{broker_id}"), 1))
    brokers = await admin.get_broker_metadatas()
    assert brokers == [(1, "rack-1"), (2, "rack-2"), (3, "rack-3")]
    assert await admin.get_broker_metadatas(rack_aware=False) == [(1, None), (2, None), (3, None)]
    assignment = assign_replicas_to_brokers(brokers, 6, 2, start_index=0, start_shift=0)
    await admin.create_topic("t", assignment)
    found = (await zk.get_topic_assignments(["t"])).found[0]
    assert {n: r.replicas for n, r in found.partitions.items()} == assignment


async def test_what_cannot_be_created(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    one = {0: (1,)}
    await admin.create_topic("a.b", one)
    await admin.create_topic("gone", one)
    await admin.delete_topic("gone")
    before = await zk.client.all_children_number("/")
    await refused(E.TOPIC_ALREADY_EXISTS, admin.create_topic("a.b", one), "already exists")
    await refused(E.INVALID_TOPIC_EXCEPTION, admin.create_topic("a_b", one), "collides with existing topics: a.b")
    await refused(E.TOPIC_ALREADY_EXISTS, admin.create_topic("gone", one), "marked for deletion")
    await refused(E.INVALID_TOPIC_EXCEPTION, admin.create_topic("a/b", one))
    await refused(E.INVALID_PARTITIONS, admin.create_topic("t", {}))
    await refused(E.INVALID_REPLICA_ASSIGNMENT, admin.create_topic("t", {0: (1, 1)}))
    await refused(E.INVALID_REPLICA_ASSIGNMENT, admin.create_topic("t", {0: (1,), 1: (1, 2)}))
    await refused(E.INVALID_REPLICA_ASSIGNMENT, admin.create_topic("t", {1: (1,)}))
    await refused(E.INVALID_CONFIG, admin.create_topic("t", one, configs={"no.such": "1"}))
    assert await admin.check_create_topics([TopicToCreate("t", one)]) == {}
    assert await zk.client.all_children_number("/") == before


async def test_several_create_the_same_topic(admin: AdminZkClient) -> None:
    outcomes = await asyncio.gather(*(admin.create_topic("t", {0: (i,)}) for i in range(5)), return_exceptions=True)
    assert outcomes.count(None) == 1
    assert {o.code for o in outcomes if isinstance(o, TopicError)} == {E.TOPIC_ALREADY_EXISTS}


async def test_partitions_only_become_more(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1, 2)}, TOPIC_ID)
    await admin.add_partitions("t", {1: (2, 3), 2: (3, 1)})
    found = (await zk.get_topic_assignments(["t"])).found[0]
    assert [r.replicas for r in found.partitions.values()] == [(1, 2), (2, 3), (3, 1)]
    assert (found.topic_id, found.version) == (TOPIC_ID, 1)
    await refused(E.INVALID_PARTITIONS, admin.add_partitions("t", {2: (1, 2)}), "has 3 partitions")
    await refused(E.INVALID_PARTITIONS, admin.add_partitions("t", {}))
    await refused(E.INVALID_REPLICA_ASSIGNMENT, admin.add_partitions("t", {4: (1, 2)}), "consecutive 3-based")
    await refused(E.INVALID_REPLICA_ASSIGNMENT, admin.add_partitions("t", {3: (1,)}), "partition 0 has 2")
    await refused(E.UNKNOWN_TOPIC_OR_PARTITION, admin.add_partitions("u", {1: (1,)}))
    await refused(E.UNKNOWN_TOPIC_OR_PARTITION, admin.add_partitions("u/v", {1: (1,)}))


async def test_no_partitions_during_a_reassignment(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    data = b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{}}'
    await zk.create_paths(["/brokers/topics"])
    await zk.client.write_many([Create("/brokers/topics/t", data)], fence=None)
    await refused(E.REASSIGNMENT_IN_PROGRESS, admin.add_partitions("t", {1: (1, 2)}))


async def test_an_expansion_does_not_undo_another(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    """Kafka writes the topic whatever its version; here the second sees the first."""
    await admin.create_topic("t", {0: (1,)})
    outcomes = await asyncio.gather(
        *(admin.add_partitions("t", {1: (broker,)}) for broker in range(4)), return_exceptions=True
    )
    assert outcomes.count(None) == 1
    assert {o.code for o in outcomes if isinstance(o, TopicError)} == {E.INVALID_PARTITIONS}
    winner = outcomes.index(None)
    assert (await zk.get_topic_assignments(["t"])).found[0].partitions[1].replicas == (winner,)


async def test_delete_asks_the_controller(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1,)})
    heard: asyncio.Queue[tuple[ZNodeChange, str]] = asyncio.Queue()
    zk.on_change = lambda change, name: heard.put_nowait((change, name))
    assert await zk.get_topic_deletions() == []
    await admin.delete_topic("t")
    async with asyncio.timeout(5):
        assert await heard.get() == (ZNodeChange.TOPIC_DELETIONS, "")
    assert await zk.get_topic_deletions() == ["t"]
    await refused(E.TOPIC_ALREADY_EXISTS, admin.delete_topic("t"), "already marked")
    await refused(E.UNKNOWN_TOPIC_OR_PARTITION, admin.delete_topic("u"))


async def test_describe(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("b", {0: (1, 2), 1: (2, 1)}, TOPIC_ID, {"segment.ms": "9"})
    await admin.create_topic("a", {0: (1,)})
    await admin.delete_topic("a")
    _, fence = await zk.register_controller_and_increment_controller_epoch(1, 1)
    state = LeaderAndIsr(2, 0, (2,), 1, 0)
    assert (await zk.create_topic_partition_states(["b"], [1], [state], fence=fence)).ok
    found, bad = await admin.describe_topics()
    assert bad == []
    assert [(t.topic, t.marked_for_deletion, t.configs) for t in found] == [
        ("a", True, {}),
        ("b", False, {"segment.ms": "9"}),
    ]
    assert found[1].partitions == (
        PartitionDescription(0, ReplicaAssignment((1, 2)), None),
        PartitionDescription(1, ReplicaAssignment((2, 1)), state),
    )
    await zk.client.write_many(
        [
            SetData("/brokers/topics/b/partitions/1/state", b"?"),
            SetData("/brokers/topics/a", b"?"),
            SetData("/config/topics/b", b"?"),
        ],
        fence=None,
    )
    found, bad = await admin.describe_topics(["b", "a", "none"])
    assert [t.topic for t in found] == ["b"]
    assert [b.path for b in bad] == ["/brokers/topics/a", "/config/topics/b", "/brokers/topics/b/partitions/1/state"]


async def test_alter_configs(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1,)}, configs={"segment.ms": "9", "retention.ms": "5"})
    now = await admin.alter_topic_configs("t", {"retention.ms": None, "flush.ms": "3", "flush.messages": None})
    assert now == {"segment.ms": "9", "flush.ms": "3"}
    assert await zk.get_topic_configs(["t"]) == {"t": now}
    names = await zk.get_all_config_changes()
    assert await zk.get_entities_from_config_changes(names) == (["topics/t"], [])
    assert await json_at(zk, f"/config/changes/{names[0]}") == {"version": 2, "entity_path": "topics/t"}
    await refused(E.INVALID_CONFIG, admin.alter_topic_configs("t", {"flush.ms": "soon"}), "flush.ms is 'soon'")
    await refused(E.UNKNOWN_TOPIC_OR_PARTITION, admin.alter_topic_configs("u", {"flush.ms": "1"}))
    assert await zk.get_topic_configs(["t"]) == {"t": now}


async def test_other_entities(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.change_entity_configs("brokers", "<default>", {"unclean.leader.election.enable": "true"})
    assert await admin.get_entity_configs("brokers", "<default>") == {"unclean.leader.election.enable": "true"}
    assert await admin.get_entity_configs("brokers", "1") == {}
    await admin.change_entity_configs("users", "u/clients/c", {"producer_byte_rate": "1"})
    entities, _ = await zk.get_entities_from_config_changes(await zk.get_all_config_changes())
    assert entities == ["brokers/<default>", "users/u/clients/c"]
    await refused(E.INVALID_CONFIG, admin.change_entity_configs("planets", "x", {}))


async def test_damaged_configs_are_not_written_over_by_an_alteration(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1,)})
    await zk.client.write_many([SetData("/config/topics/t", b"{")], fence=None)
    await refused(E.INVALID_CONFIG, admin.alter_topic_configs("t", {"flush.ms": "1"}), "/config/topics/t is unreadable")


async def test_alterations_at_once_lose_nothing(zk: KafkaZkClient) -> None:
    """Each reads and writes the whole configuration; the last one must not win."""

    def setting(name: str):
        return lambda configs: {**configs, name: "1"}

    await asyncio.gather(*(AdminZkClient(zk).update_entity_configs("users", "u", setting(f"k{i}")) for i in range(12)))
    assert await AdminZkClient(zk).get_entity_configs("users", "u") == {f"k{i}": "1" for i in range(12)}
    assert len(await zk.get_all_config_changes(watch=False)) == 12


async def test_what_is_left_of_users_and_clients_goes(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    kept = (("users", "u"), ("users", "u/clients/c"), ("users", "v/clients/c"), ("ips", "1.2.3.4"), ("clients", "c"))
    for entity, name in kept:
        await admin.update_entity_configs(entity, name, lambda configs: {"a": "1"})
    assert await admin.get_all_user_client_configs() == {"u/clients/c": {"a": "1"}, "v/clients/c": {"a": "1"}}
    assert await admin.get_all_entity_configs("users") == {"u": {"a": "1"}, "v": {}}
    for entity, name in (("users", "v/clients/c"), ("users", "u"), ("ips", "1.2.3.4"), ("clients", "c")):
        await admin.update_entity_configs(entity, name, lambda configs: {})
    assert await admin.get_all_entity_configs("users") == {"u": {}}, "its client is still there"
    await admin.update_entity_configs("users", "u/clients/c", lambda configs: {})
    assert await admin.get_all_entity_configs("users") == {}
    assert await admin.get_all_entity_configs("ips") == {}
    await admin.update_entity_configs("users", "clients/clients/clients", lambda configs: {"a": "1"})
    await admin.update_entity_configs("users", "clients/clients/clients", lambda configs: {})
    assert await admin.get_all_entity_configs("users") == {}
    exists = await zk.client.exists_many([f"/config/{entity}" for entity in ("users", "clients", "ips")])
    assert list(exists.code) == [0, 0, 0]


async def test_lost_reply_to_a_config_write(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    multi = zk.client.multi

    async def lose(ops):
        zk.client.multi = multi
        await multi(ops)
        raise MaybeAppliedError("lost by the test")

    await zk.create_top_level_paths()
    zk.client.multi = lose
    await admin.create_topic("t", {0: (1,)}, configs={"flush.ms": "1"})
    assert await zk.get_topic_configs(["t"]) == {"t": {"flush.ms": "1"}}


async def test_configs_are_not_for_tools_under_kraft(zk: KafkaZkClient, admin: AdminZkClient) -> None:
    await admin.create_topic("t", {0: (1,)})
    kraft = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}'
    await zk.client.write_many([Create("/controller", kraft)], fence=None)
    with pytest.raises(ControllerMovedError, match="KRaft"):
        await admin.alter_topic_configs("t", {"flush.ms": "1"})


async def test_the_controllers_own_administration_is_fenced(zk: KafkaZkClient) -> None:
    _, fence = await zk.register_controller_and_increment_controller_epoch(1, 1)
    ours, stale = AdminZkClient(zk, fence=fence), AdminZkClient(zk, fence=fence + 1)
    await ours.create_topic("t", {0: (1,)})
    await ours.alter_topic_configs("t", {"flush.ms": "1"})
    for call in (
        stale.create_topic("u", {0: (1,)}),
        stale.add_partitions("t", {1: (1,)}),
        stale.delete_topic("t"),
        stale.alter_topic_configs("t", {"flush.ms": "2"}),
    ):
        with pytest.raises(ControllerMovedError):
            await call
    assert await ours.list_topics() == ["t"]
    assert await zk.get_topic_configs(["t", "u"]) == {"t": {"flush.ms": "1"}, "u": {}}
    assert await zk.get_topic_deletions() == []
