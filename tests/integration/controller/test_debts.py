"""Replicas that brokers still have to delete: recorded when a reassignment ends, deleted when brokers can do so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from aiocontroller.core import reassignment_phases as reassignments
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import CreatePartitions, ListPartitionReassignments
from aiocontroller.core.ids import (
    NO_TOPIC_ID,
    ReplicaAssignment,
    TopicPartition,
)
from aiocontroller.core.invariants import violations
from aiocontroller.core.request_content import NewPartitions
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.debts import DebtZNodes
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.owing import (
    another_controller,
    deleted_on,
    moved_from_a_silent_broker,
    owed,
    sent_of,
    topic_t,
    until_owed,
)
from tests.integration.controller.test_reassignment import T0, ask, assignment, catch_up, finished, reassign
from tests.integration.controller.test_topic_deletion import delete, gone


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with topic_t(world, zk_connect) as cluster:
        yield cluster


# -- reassignments end -------------------------------------------------------------------------------------------------


async def test_reassignment_ends_although_the_removed_broker_is_silent(cluster: Cluster) -> None:
    """Kafka's reassignment ends at once, too; but then nothing remembers the replica on that broker."""
    service = await moved_from_a_silent_broker(cluster)
    listed = await ask(service, lambda reply: ListPartitionReassignments(partitions=None, reply=reply))
    assert listed == {}
    assert await reassign(service, {T0: None}) == {
        T0: (KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    }
    grown = NewPartitions("t", 2, [[3]])
    results = await ask(
        service, lambda reply: CreatePartitions(topics=(grown,), timeout_ms=1, validate_only=True, reply=reply)
    )
    assert results["t"].error_code == KafkaErrorCode.NONE
    assert await owed(cluster) == {(1, "t"): [0]}


async def test_topic_can_be_deleted_although_the_removed_broker_is_silent(cluster: Cluster) -> None:
    await moved_from_a_silent_broker(cluster)
    await delete(cluster, "t")
    await gone(cluster, "t")
    assert await owed(cluster) == {(1, "t"): [0]}


async def test_topic_without_an_id_is_deleted_when_its_debts_are_paid(cluster: Cluster) -> None:
    """Otherwise the silent broker's replica could not be distinguished from that of the next topic of the same name."""
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.clear()
    await cluster.create_topic("old", {0: [1]})
    service = await cluster.add_controller(auto_leader_rebalance_enable=False, inter_broker_protocol_version="2.7")
    await cluster.until_leaders("old", [1])
    old = TopicPartition("old", 0)
    assert service.shell.context.table.topic_by_name["old"].id == NO_TOPIC_ID
    cluster.brokers[1].unanswered.add(ApiKey.STOP_REPLICA)
    await reassign(service, {old: (2,)})
    state = await cluster.state("old")
    await cluster.write_state("old", msgspec.structs.replace(state, isr=(1, 2)))
    await cluster.zk.propagate_isr_changes([old])
    await until_owed(cluster, {(1, "old"): [0]})
    await delete(cluster, "old")
    await until(lambda: "old" in service.shell.context.topics_to_be_deleted)
    await idle_but_for(cluster, service)
    assert "old" in await cluster.zk.get_all_topics_in_cluster(watch=False)
    cluster.brokers[1].unanswered.clear()
    await cluster.bounce_broker(1)
    await gone(cluster, "old")
    assert await owed(cluster) == {}


async def test_answer_pays(cluster: Cluster) -> None:
    service = await cluster.active()
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until_owed(cluster, {})
    await idle(service)
    assert len(service.shell.context.debts) == 0
    assert deleted_on(cluster.brokers[1]) == [("t", 0)]


async def test_removed_broker_that_is_away_deletes_when_it_returns(cluster: Cluster) -> None:
    """Kafka's reassignment ends, and the broker is never asked again."""
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2, 3]})
    await cluster.until_state("u", 1, (1, 2, 3))
    await cluster.kill_broker(2)
    await cluster.until_state("u", 1, (1, 3))
    await reassign(service, {TopicPartition("u", 0): (3,)})
    await cluster.until_state("u", 3, (3,))
    await until_owed(cluster, {(2, "u"): [0]})
    assert await assignment(cluster, "u") == ReplicaAssignment((3,))
    returned = await cluster.add_broker(2)
    await until(lambda: deleted_on(returned) == [("u", 0)])
    await until_owed(cluster, {})


async def test_broker_that_bounces_before_it_answers_is_asked_again(cluster: Cluster) -> None:
    await moved_from_a_silent_broker(cluster)
    await until(lambda: deleted_on(cluster.brokers[1]) == [("t", 0)])
    cluster.brokers[1].unanswered.clear()
    await cluster.bounce_broker(1)
    await until_owed(cluster, {})
    assert deleted_on(cluster.brokers[1]) == [("t", 0), ("t", 0)]


async def test_refusal_is_asked_again_after_a_while(cluster: Cluster) -> None:
    service = await cluster.active()
    cluster.brokers[1].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR, KafkaErrorCode.FENCED_LEADER_EPOCH]
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until_owed(cluster, {})
    stops = [p for r in cluster.brokers[1].of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states]
    epochs = [p.leader_epoch for p in stops]
    assert len(epochs) == 3
    assert epochs[0] == epochs[1] < epochs[2], "a broker that knows the epoch is asked in a higher one"


async def test_answer_that_leaves_a_partition_out_does_not_pay(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiocontroller.core.debt_changes.FIRST_RETRY_S", 0.05)
    service = await cluster.active()
    broker = cluster.brokers[1]
    broker.stop_replica_omits = 3
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until_owed(cluster, {})
    assert deleted_on(broker) == [("t", 0)] * 4
    assert service.shell.context.debt_attempts == {}


async def test_silent_broker_does_not_hold_up_what_waits_behind(cluster: Cluster) -> None:
    """It answers everything but StopReplica.  Kafka's sender would wait for that forever."""
    await another_controller(cluster)
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.clear()
    service = await cluster.add_controller(auto_leader_rebalance_enable=False, request_timeout_ms=300)
    await cluster.active()
    await moved_from_a_silent_broker(cluster)
    await cluster.create_topic("later", {0: [1]})
    await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "later"))
    assert await owed(cluster) == {(1, "t"): [0]}
    assert service.shell.context.debt_attempts == {1: 1}, "it is asked again after a while"


async def test_next_controller_goes_on(cluster: Cluster) -> None:
    await moved_from_a_silent_broker(cluster)
    cluster.brokers[1].unanswered.clear()
    cluster.brokers[1].take()
    await another_controller(cluster)
    await until_owed(cluster, {})
    assert deleted_on(cluster.brokers[1]) == [("t", 0)]


async def test_controller_that_ends_between_writing_and_sending(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The debt is in ZooKeeper with the assignment; the next controller sends what the first one could not."""
    service = await cluster.active()
    with monkeypatch.context() as patch:
        real = type(service.shell).send

        async def nothing_is_deleted(shell: Any, batch: Any) -> Any:
            batch._debts.clear()
            return await real(shell, batch)

        patch.setattr(type(service.shell), "send", nothing_is_deleted)
        await reassign(service, {T0: (2,)})
        await catch_up(cluster, service, (1, 2))
        await finished(cluster, service, (2,))
        assert deleted_on(cluster.brokers[1]) == []
        await cluster.stop_controller(service)
        cluster.services.remove(service)
    await cluster.add_controller(auto_leader_rebalance_enable=False)
    await until_owed(cluster, {})
    assert deleted_on(cluster.brokers[1]) == [("t", 0)]


# -- and delete nothing that is in use ------------------------------------------------------------------------


async def test_replica_that_is_moved_back_is_not_deleted(cluster: Cluster) -> None:
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    await cluster.kill_broker(2)
    await cluster.until_state("u", 1, (1,))
    u0 = TopicPartition("u", 0)
    await reassign(service, {u0: (1,)})
    await until_owed(cluster, {(2, "u"): [0]})
    data = b'{"version":1,"partitions":[{"topic":"u","partition":0,"replicas":[1,2]}]}'
    await cluster.client.create("/admin/reassign_partitions", data=data)
    await until_owed(cluster, {})
    assert (await assignment(cluster, "u")).replicas == (1, 2)
    returned = await cluster.add_broker(2)
    await until(lambda: "LEADER_AND_ISR" in sent_of(returned, "u"))
    await idle(service)
    assert deleted_on(returned) == []
    assert violations(service.shell.context) == []


async def test_replica_that_is_moved_back_while_its_broker_is_silent(cluster: Cluster) -> None:
    """The earlier StopReplica has an older leader epoch than the LeaderAndIsr that makes the broker a replica again."""
    service = await moved_from_a_silent_broker(cluster)
    await reassign(service, {T0: (2, 1)})
    assert await owed(cluster) == {}
    cluster.brokers[1].unanswered.clear()
    await cluster.bounce_broker(1)
    await until(lambda: sent_of(cluster.brokers[1], "t")[-1] == "LEADER_AND_ISR")
    await idle(service)
    (stop,) = [
        p for r in cluster.brokers[1].of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states
    ]
    sent = [p for r in cluster.brokers[1].of(ApiKey.LEADER_AND_ISR) for t in r.topic_states for p in t.partition_states]
    assert stop.leader_epoch < sent[-1].leader_epoch


async def test_late_answer_does_not_pay_for_a_later_debt(cluster: Cluster) -> None:
    """Moved away, back and away again: the first answer says nothing about what the broker has got since."""
    service = await moved_from_a_silent_broker(cluster)
    (first,) = service.shell.context.debts
    await reassign(service, {T0: (2, 1)})
    await reassign(service, {T0: None})
    (second,) = service.shell.context.debts
    assert second is not first
    assert await owed(cluster) == {(1, "t"): [0]}


async def test_debt_that_the_assignment_contradicts_is_given_up_at_the_failover(cluster: Cluster) -> None:
    """Another controller, or an operator, has made the broker a replica again."""
    await moved_from_a_silent_broker(cluster)
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    (found,) = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found
    _, fence = await cluster.zk.get_controller_epoch() or (0, 0)
    wider = msgspec.structs.replace(found, partitions={0: ReplicaAssignment((2, 1))})
    assert (await cluster.zk.set_topic_assignments([wider], fence=fence)).ok
    cluster.brokers[1].take()
    cluster.brokers[1].unanswered.clear()
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.active()
    await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "t"))
    await idle(service)
    assert await owed(cluster) == {}
    assert deleted_on(cluster.brokers[1]) == []


async def recreated(cluster: Cluster, topic_id: bytes) -> None:
    """The topic of the silent broker's debt is gone, and another topic of that name has a replica there."""
    await moved_from_a_silent_broker(cluster)
    await delete(cluster, "t")
    await gone(cluster, "t")
    cluster.brokers[1].take()
    await cluster.create_topic_with_id("t", {0: [1, 2]}, topic_id)


async def test_broker_hears_of_a_new_topic_when_it_has_paid_for_the_old_one(cluster: Cluster) -> None:
    await recreated(cluster, b"n" * 16)
    (service,) = cluster.services
    await cluster.until_state("t", 2, (2,))  # the preferred leader's disk may hold the earlier topic's records
    await idle_but_for(cluster, service)
    assert sent_of(cluster.brokers[1], "t") == []
    assert violations(service.shell.context) == []
    cluster.brokers[1].unanswered.clear()
    await cluster.bounce_broker(1)
    await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "t"))
    assert sent_of(cluster.brokers[1], "t")[0] == "STOP_REPLICA"
    await idle(service)
    assert sent_of(cluster.brokers[1], "t").count("STOP_REPLICA") == 1
    assert await owed(cluster) == {}
    await catch_up(cluster, service, (2, 1))
    assert violations(service.shell.context) == []


async def idle_but_for(cluster: Cluster, service: Service) -> None:
    """Wait until nothing is left to do except for the silent broker."""
    await until(lambda: not service.queue)
    for _ in range(10):
        await asyncio.sleep(0)


async def test_next_controller_holds_the_new_topic_back_as_well(cluster: Cluster) -> None:
    await recreated(cluster, b"n" * 16)
    await cluster.until_state("t", 2, (2,))
    service = await another_controller(cluster)
    await until(lambda: deleted_on(cluster.brokers[1]) == [("t", 0)])
    await idle_but_for(cluster, service)
    assert "LEADER_AND_ISR" not in sent_of(cluster.brokers[1], "t")
    cluster.brokers[1].unanswered.clear()
    await cluster.bounce_broker(1)
    await until(lambda: sent_of(cluster.brokers[1], "t")[-1] == "LEADER_AND_ISR")


async def overtaken(cluster: Cluster) -> None:
    """Broker 1 owes t-0 of an earlier topic, and another kind of controller has told it about the present topic."""
    await recreated(cluster, b"n" * 16)
    await cluster.until_state("t", 2, (2,))
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    epoch, fence = await cluster.zk.get_controller_epoch() or (0, 0)
    await cluster.zk.raise_controller_epoch(epoch + 1, fence=fence)
    cluster.brokers[1].take()
    cluster.brokers[1].unanswered.clear()


async def test_debt_is_given_up_after_a_term_of_another_kind_of_controller(cluster: Cluster) -> None:
    """It has sent the broker the new topic: a StopReplica, which has only names, would delete a live replica."""
    await overtaken(cluster)
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.active()
    await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "t"))
    await idle(service)
    assert deleted_on(cluster.brokers[1]) == []
    assert await owed(cluster) == {}


async def test_controller_that_ends_while_it_gives_up_what_is_overtaken(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had recorded that it maintains them: the next one took the debts for its own, and deleted a replica."""
    await overtaken(cluster)
    real, calls = DebtZNodes.write, []

    async def ends_first(self: DebtZNodes, changes: Any, *, fence: int) -> list[int]:
        calls.append(changes)
        if len(calls) == 1:
            raise RuntimeError("the end")
        return await real(self, changes, fence=fence)

    monkeypatch.setattr(DebtZNodes, "write", ends_first)
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await until(lambda: len(calls) > 1)
    await cluster.active()
    await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "t"))
    await idle(service)
    assert deleted_on(cluster.brokers[1]) == []
    assert await owed(cluster) == {}


async def test_overtaken_debt_that_zookeeper_keeps_is_never_asked_for(cluster: Cluster, zk_connect: str) -> None:
    await overtaken(cluster)
    client = KazooClient(zk_connect)
    await asyncio.to_thread(client.start)
    try:
        client.set_acls(paths.debts_of_broker(1), [make_acl("world", "anyone", read=True, admin=True)])
    finally:
        client.stop()
        client.close()
    for _ in range(2):
        service = await cluster.add_controller(auto_leader_rebalance_enable=False)
        await cluster.active()
        await until(lambda: "LEADER_AND_ISR" in sent_of(cluster.brokers[1], "t"))
        await idle(service)
        assert deleted_on(cluster.brokers[1]) == []
        assert len(service.shell.context.debts) == 0
        assert await owed(cluster) == {(1, "t"): [0]}
        await cluster.stop_controller(service)
        cluster.services.remove(service)
        cluster.brokers[1].take()


async def test_target_that_zookeeper_refused_is_written_once_it_allows_it(
    cluster: Cluster, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other event in the cluster would resume the reassignment."""
    monkeypatch.setattr(reassignments, "COMMIT_AGAIN_S", 0.5)
    service = await cluster.active()
    client = KazooClient(zk_connect)
    await asyncio.to_thread(client.start)
    try:
        client.ensure_path(paths.debts_of_broker(1))
        client.set_acls(paths.debts_of_broker(1), [make_acl("world", "anyone", read=True, admin=True)])
        await reassign(service, {T0: (2,)})
        await catch_up(cluster, service, (1, 2))
        await asyncio.sleep(2)
        assert await assignment(cluster) == ReplicaAssignment((2, 1), adding=(2,), removing=(1,))
        assert deleted_on(cluster.brokers[1]) == []
        client.set_acls(paths.debts_of_broker(1), [make_acl("world", "anyone", all=True)])
        await finished(cluster, service, (2,))
        await until(lambda: deleted_on(cluster.brokers[1]) == [("t", 0)])
    finally:
        client.stop()
        client.close()
