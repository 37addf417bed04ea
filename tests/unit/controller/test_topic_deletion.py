"""Topic deletion: what it waits for, what it leaves owed, and what brokers' settings allow."""

from __future__ import annotations

import logging

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import ApiPartitionReassignment
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.pure_cluster import cluster
from tests.unit.controller.virtual_cluster import add_silent_broker, is_active, offline_topic, stage


@pytest.mark.parametrize("dead", [(), (2,), (1, 2)])
def test_a_replica_that_was_never_created_does_not_hold_up_the_deletion(dead: tuple[int, ...]) -> None:
    """A reassignment has added it, but the state could not be read, so that its epoch was not raised."""
    it = cluster(1, 2, t=[[1]])
    table = it.shell.context.table
    table.set_assignment(0, ReplicaAssignment((1, 2)))
    assert table.replica_state(0, 2) is ReplicaState.NonExistentReplica
    for broker in dead:
        it.unregister(broker)
    it.queue.append(ev.BrokerChange())
    it.step()
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert "t" not in table.topic_by_name
    assert it.znodes.deletions == {}
    assert {debt.broker for debt in it.shell.context.debts} == set(dead)


@pytest.mark.parametrize("writes", range(12))
def test_a_deletion_that_ends_anywhere_leaves_no_log_that_is_not_owed(writes: int) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    topic_id = it.shell.context.table.topic_by_name["t"].id
    it.znodes.crash_after = writes
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert "t" not in it.znodes.topics
    assert it.znodes.debts.held[2, "t"][0] == {0: topic_id}


def test_a_deletion_that_a_broker_refuses_ends_at_once_and_is_owed() -> None:
    it = cluster(1, 2, t=[[1, 2]])
    topic_id = it.shell.context.table.topic_by_name["t"].id
    it.views[2].refuses_to_delete = True
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    assert (it.znodes.topics, it.znodes.deletions) == ({}, {})
    assert it.znodes.debts.held[2, "t"][0] == {0: topic_id}


@pytest.mark.parametrize("marked", ["before", "active"])
@virtual_time
async def test_cluster_that_forbids_deletion_keeps_its_topics(marked: str) -> None:
    """Kafka's controller removes what asks for it."""
    async with stage() as it:
        await it.add_broker(1, delete_topic_enable="false")
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')
        if marked == "before":
            await it.create("/admin/delete_topics/t")
        service = await it.add_controller()
        assert is_active(service)
        if marked == "active":
            await it.create("/admin/delete_topics/t")

        async def removed() -> bool:
            return not await it.client.exists("/admin/delete_topics/t")

        for _ in range(50):
            if await removed():
                break
            await it.sleep(0.1)
        assert await removed()
        assert await it.client.exists("/brokers/topics/t")
        assert list(service.shell.context.table.topic_by_name) == ["t"]


@virtual_time
async def test_deletion_that_waits_is_dropped_when_brokers_forbid_it() -> None:
    """It waits for a reassignment.  In Kafka, the next controller drops it; here the controller stays the same."""
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker)
        service = await it.add_controller()
        for topic in ("t", "u"):
            await it.create(f"/brokers/topics/{topic}", b'{"version":1,"partitions":{"0":[1],"1":[3]}}')
        context = service.shell.context
        await it.until(lambda: context.table.count_by_state[PartitionState.OnlinePartition] == 4)
        moves = {TopicPartition("t", 0): (2,)}
        service.queue.append(ApiPartitionReassignment(targets=moves, reply=Reply(lambda _: None)))
        await it.until(lambda: context.partitions_being_reassigned)
        for topic in ("t", "u"):
            await it.create(f"/admin/delete_topics/{topic}")
        await it.until(lambda: list(context.topics_to_be_deleted) == ["t"])
        await it.kill_broker(3)  # leads t-1, which gets no other leader as long as it is to be deleted
        for broker in (1, 2):
            await it.restart_broker(broker, delete_topic_enable="false")
        await it.add_broker(3, delete_topic_enable="false")
        await it.sleep(10)
        assert not await it.client.exists("/admin/delete_topics/t")
        assert (context.topics_to_be_deleted, violations(context)) == ({}, [])
        service.queue.append(ApiPartitionReassignment(targets=dict.fromkeys(moves), reply=Reply(lambda _: None)))
        await it.sleep(10)
        assert await it.client.exists("/brokers/topics/t/partitions/0/state")
        assert [context.table.leader[row] for row in context.table.topic_by_name["t"].rows] == [1, 3]
        topics = [t for r in it.brokers[2].of(ApiKey.UPDATE_METADATA) for t in r.topic_states if t.topic_name == "t"]
        latest = {p.partition_index: p.leader for t in topics for p in t.partition_states}
        assert latest == {0: 1, 1: 3}


@pytest.mark.parametrize("allowed", ["true", "false"])
@virtual_time
async def test_deletion_waits_for_the_first_broker_which_may_forbid_it(
    allowed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All processes start at once: the controller is elected before a broker registers, and a request is there."""
    caplog.set_level(logging.INFO)
    async with stage() as it:
        await offline_topic(it)
        await it.create("/admin/delete_topics/t", b"")
        service = await it.add_controller()
        assert is_active(service)
        await it.sleep(600)
        assert await it.client.exists("/brokers/topics/t/partitions/0/state")
        assert await it.client.exists("/admin/delete_topics/t")
        assert "Audit" not in caplog.text
        assert caplog.text.count("No broker has reported its delete.topic.enable yet") == 1
        for broker in (1, 9):
            await it.add_broker(broker, delete_topic_enable=allowed)
        await it.sleep(20)
        assert not await it.client.exists("/admin/delete_topics/t")
        assert bool(await it.client.exists("/brokers/topics/t")) is (allowed == "false")


@virtual_time
async def test_deletion_waits_for_a_broker_that_answers_late() -> None:
    """Brokers register before their listeners are open, so the first question fails."""
    async with stage() as it:
        await offline_topic(it)
        await it.create("/admin/delete_topics/t", b"")
        service = await it.add_controller()
        assert is_active(service)
        broker = await add_silent_broker(it, 9, delete_topic_enable="false")
        await it.sleep(60)
        assert await it.client.exists("/admin/delete_topics/t")
        broker.unanswered.clear()
        await it.sleep(20)
        assert not await it.client.exists("/admin/delete_topics/t")
        assert await it.client.exists("/brokers/topics/t")


@virtual_time
async def test_deletion_that_the_operator_insists_on_waits_for_no_broker() -> None:
    async with stage() as it:
        await offline_topic(it)
        await it.create("/admin/delete_topics/t", b"")
        await it.add_controller(aiocontroller_keep_ours=("delete.topic.enable",))
        await it.sleep(20)
        assert not await it.client.exists("/brokers/topics/t")
