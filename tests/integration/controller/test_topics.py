"""Topics appear, grow, lose their znodes or cannot be read."""

from __future__ import annotations

import base64
import logging
from typing import Any

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.ids import NO_TOPIC_ID, TopicAssignment
from aiocontroller.core.states import PartitionState
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, held, idle, journal_of, until


async def assignment(cluster: Cluster, topic: str) -> TopicAssignment:
    (found,) = (await cluster.zk.get_topic_assignments([topic], watch=False)).found
    return found


async def write(cluster: Cluster, topic: str, **content: Any) -> None:
    await cluster.client.set_data(f"/brokers/topics/{topic}", msgspec.json.encode(content))


def led(service: Service, topic: str, partition: int = 0) -> int:
    table = service.shell.context.table
    row = table.row(topic, partition)
    return table.leader[row] if row >= 0 else -2


async def test_partitions_are_added(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    before = await assignment(cluster, "t")
    grown = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    await write(
        cluster, "t", version=3, topic_id=base64_id(before.topic_id), partitions={str(p): r for p, r in grown.items()}
    )
    states = await cluster.until_leaders("t", [1, 2, 3])
    assert [s.leader_epoch for s in states] == [0, 0, 0]
    await idle(service)
    requests = cluster.brokers[1].of(ApiKey.LEADER_AND_ISR)
    sent = [(p.partition_index, p.is_new) for r in requests for t in r.topic_states for p in t.partition_states]
    assert sent == [(2, True)], "partitions that were there are not touched"


def base64_id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


async def test_changed_replicas_of_a_known_partition_are_ignored(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    found = await assignment(cluster, "t")
    await write(cluster, "t", version=3, topic_id=base64_id(found.topic_id), partitions={"0": [3], "1": [3]})
    await cluster.until_leaders("t", [1, 3])
    table = service.shell.context.table
    assert table.replicas(table.row("t", 0)) == (1, 2)


async def test_topic_without_id_gets_one_and_keeps_it(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    given = (await assignment(cluster, "t")).topic_id
    assert given != NO_TOPIC_ID
    assert (given[6] >> 4, given[8] >> 6) == (4, 2), "a random UUID"
    data = msgspec.json.decode(await cluster.client.get_data("/brokers/topics/t"))
    assert data["version"] == 3
    assert data["topic_id"] == base64_id(given)
    await idle(service)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    successor = await cluster.add_controller()
    await until(lambda: led(successor, "t") == 1)
    assert (await assignment(cluster, "t")).topic_id == given
    assert successor.shell.context.table.topic_by_name["t"].id == given
    await until(lambda: cluster.brokers[1].of(ApiKey.LEADER_AND_ISR))
    topic_ids = {bytes(t.topic_id.bytes) for r in cluster.brokers[1].of(ApiKey.LEADER_AND_ISR) for t in r.topic_states}
    assert topic_ids == {given}


async def test_topic_with_an_id_is_left_as_it_is(cluster: Cluster) -> None:
    await cluster.add_controller()
    await cluster.create_topic_with_id("t", {0: [1]}, bytes(range(1, 17)))
    await cluster.until_leaders("t", [1])
    found = await assignment(cluster, "t")
    assert (found.topic_id, found.version) == (bytes(range(1, 17)), 0)


async def test_older_protocol_gives_no_ids(cluster: Cluster) -> None:
    await cluster.add_controller(inter_broker_protocol_version="2.7")
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    assert (await assignment(cluster, "t")).topic_id == NO_TOPIC_ID


async def test_removed_topic_znode_is_a_topic_less(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("a", {0: [1]})
    await cluster.create_topic("b", {0: [2]})
    await cluster.until_leaders("a", [1])
    await cluster.until_leaders("b", [2])
    await idle(service)
    await cluster.client.delete_recursive("/brokers/topics/a")
    await until(lambda: list(service.shell.context.table.topic_by_name) == ["b"])
    assert service.shell.context.table.leadership_count == 1
    await cluster.create_topic("a", {0: [2]})
    await cluster.until_leaders("a", [2])


async def test_many_topics_at_once_and_one_event_for_them(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    for i in range(50):
        await cluster.create_topic(f"t{i}", {0: [1 + i % 3]})
    await until(lambda: service.shell.context.table.leadership_count == 50)


async def test_topic_without_a_live_replica_waits_for_one(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [7, 8]})
    await until(lambda: service.shell.context.table.count_by_state[PartitionState.NewPartition] == 1)
    assert service.controller.status()["offline_partitions"] == 0, "as Kafka counts: it never had a leader"
    assert await cluster.leaders("t", 1) == [None]
    await cluster.add_broker(8)
    state = await cluster.until_state("t", 8, (8,))
    assert state.leader_epoch == 0


async def test_unreadable_topic_is_left_out_and_comes_in_when_repaired(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    service = await cluster.add_controller()
    await cluster.active()
    with caplog.at_level(logging.ERROR):
        await cluster.client.create("/brokers/topics/broken", data=b'{"version": 1, "partitions": {"0": "one"}}')
        await cluster.create_topic("fine", {0: [1]})
        await cluster.until_leaders("fine", [1])
        await until(lambda: service.shell.counts.bad_znodes.value >= 1)
    assert any("Ignoring the znode /brokers/topics/broken: found" in r.getMessage() for r in caplog.records)
    await write(cluster, "broken", version=1, partitions={"0": [2]})
    await cluster.until_leaders("broken", [2])


async def test_unreadable_topic_is_named_once_until_it_changes_or_is_gone(cluster: Cluster) -> None:
    """It is not named again at every change of any topic."""
    service = await cluster.add_controller()
    await cluster.active()
    path, count = "/brokers/topics/broken", service.shell.counts.bad_znodes

    async def changes(name: str) -> None:
        for number in range(3):
            await cluster.create_topic(f"{name}{number}", {0: [1]})
            await cluster.until_leaders(f"{name}{number}", [1])
        await idle(service)

    await cluster.client.create(path, data=b"damaged")
    await changes("a")
    assert count.value == 1
    await cluster.client.set_data(path, b"otherwise")
    await changes("b")
    assert count.value == 2
    await cluster.client.delete(path)
    await changes("c")
    await cluster.client.create(path, data=b"otherwise")
    await changes("d")
    assert count.value == 3
    assert len(journal_of(service).of_kind("bad_znode")) == 3


async def test_topic_that_is_unreadable_at_failover_comes_in_when_repaired(cluster: Cluster) -> None:
    await cluster.client.create("/brokers/topics/broken", data=b"\x00")
    await cluster.create_topic("fine", {0: [1]})
    service = await cluster.add_controller()
    await cluster.until_leaders("fine", [1])
    assert service.shell.counts.bad_znodes.value == 1
    await write(cluster, "broken", version=1, partitions={"0": [2]})
    await cluster.until_leaders("broken", [2])


async def test_known_topic_whose_znode_becomes_unreadable_goes_on(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.client.set_data("/brokers/topics/t", b"[]")
    await until(lambda: service.shell.counts.bad_znodes.value == 1)
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))


async def test_unreadable_state_is_left_out_and_heals(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    states = await cluster.until_leaders("t", [1, 1])
    await idle(service)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    path = "/brokers/topics/t/partitions/0/state"
    good = await cluster.client.get_data(path)
    await cluster.client.set_data(path, b"not json")
    with caplog.at_level(logging.ERROR):
        successor = await cluster.add_controller()
        await until(lambda: led(successor, "t", 1) == 1)
        await idle(successor)
    assert any(f"Ignoring the znode {path}: found" in r.getMessage() for r in caplog.records)
    assert successor.shell.counts.bad_znodes.value >= 1
    assert await cluster.client.get_data(path) == b"not json", "no data is overwritten"
    await cluster.client.set_data(path, good)
    await cluster.kill_broker(1)
    state = await cluster.until_state("t", 2, (2,), 0)
    assert state.leader_epoch > states[0].leader_epoch
    await cluster.until_state("t", 2, (2,), 1)


async def test_topic_deleted_before_the_controller_has_read_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of an earlier deletion finds the request for a topic whose TopicChange still waits."""
    service = await cluster.add_controller()
    await cluster.create_topic("first", {0: [1]})
    await cluster.until_leaders("first", [1])
    await idle(service)
    entered, release = held(monkeypatch, ev.BrokerChange)
    await cluster.kill_broker(3)
    await entered.wait()
    await cluster.client.create("/admin/delete_topics/first")
    await until(lambda: len(service.queue) == 1)
    await cluster.create_topic("second", {0: [2]})
    await until(lambda: len(service.queue) == 2)
    await cluster.client.create("/admin/delete_topics/second")
    release.set()

    async def all_gone() -> bool:
        topics = await cluster.zk.get_all_topics_in_cluster(watch=False)
        return not topics and not await cluster.zk.get_topic_deletions(watch=False)

    await until(all_gone, "both topics are deleted, and the requests for it")


async def test_topic_deleted_whose_partition_never_had_a_leader_and_is_to_move(cluster: Cluster) -> None:
    """The deletion waits for the reassignment, and that for a leader: it gets one, although its topic is to be deleted.

    The first ISR has all live replicas, so the reassignment is complete with it, and no broker has to ask for anything.
    """
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [7]})
    await until(lambda: "t" in service.shell.context.table.topic_by_name)
    move = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [8]}]}
    await cluster.client.create("/admin/reassign_partitions", data=msgspec.json.encode(move))
    await until(lambda: service.shell.context.partitions_being_reassigned)
    await cluster.client.create("/admin/delete_topics/t")
    await until(lambda: service.shell.context.topics_to_be_deleted)
    await idle(service)
    await cluster.add_broker(8)

    async def gone() -> bool:
        return not await cluster.zk.get_all_topics_in_cluster(watch=False)

    async def forgotten() -> bool:
        return await cluster.zk.get_partition_reassignment(watch=False) is None

    await until(gone, "the topic is deleted")
    await until(forgotten, "its reassignment is forgotten")


async def test_topic_id_that_an_old_tool_drops_comes_back(cluster: Cluster) -> None:
    """KAFKA-14190: the brokers' logs hold the id, so the topic must not get another one."""
    await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    (given,) = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found
    await cluster.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1],"1":[2]}}')
    await cluster.until_leaders("t", [1, 2])
    (found,) = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found
    assert found.topic_id == given.topic_id
