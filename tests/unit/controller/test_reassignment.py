"""Reassignments by whole handlers; ``tests/unit/core/test_reassignment_phases.py`` has their steps."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.controller.leadership_writes import TOPIC_REPLACED
from aiocontroller.controller.reassignment import drop_non_replicas
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from tests.unit.controller.pure_cluster import PureCluster, cluster, run
from tests.unit.controller.virtual_cluster import (
    Stage,
    ask,
    begin,
    stage,
    with_topic,
)

T0 = TopicPartition("t", 0)


def stopped(broker: RecordingBroker) -> list[bool]:
    """The delete flag of each StopReplica."""
    return [
        p.delete_partition for r in broker.of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states
    ]


async def dropped_after(it: Stage, service: Service, target: tuple[int, ...] | None) -> None:
    await with_topic(it, [1, 2], 1)
    await ask(service, ev.ApiPartitionReassignment, targets={T0: (3, 2)})
    await it.sleep(1)
    assert stopped(it.brokers[3]) == []
    await ask(service, ev.ApiPartitionReassignment, targets={T0: target})
    await it.sleep(1)
    assert True in stopped(it.brokers[3])
    assert [stopped(it.brokers[n]) for n in (1, 2)] == [[], []]


def test_a_non_replica_in_an_isr_raises_the_leader_epoch_once() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    table = it.shell.context.table
    before = it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(before, isr=(1, 3, 2))
    table.set_leadership(table.row("t", 0), it.znodes.states[T0])
    run(drop_non_replicas(it.shell, {table.row("t", 0): [3]}))
    after = it.znodes.states[T0]
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((1, 2), before.leader_epoch + 1, 1)


def test_a_reassignment_makes_no_topic_ineligible_that_is_not_to_be_deleted() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.reassignment = {T0: (1, 3)}
    it.queue.append(ev.ZkPartitionReassignment())
    it.step()
    assert 0 in it.shell.context.partitions_being_reassigned
    assert it.shell.context.topics_ineligible_for_deletion == {}


@virtual_time
async def test_a_cancel_stops_and_deletes_the_replica_that_it_drops() -> None:
    async with stage() as it:
        await dropped_after(it, await begin(it, 3), None)


@virtual_time
async def test_an_override_stops_and_deletes_the_replica_that_it_drops() -> None:
    async with stage() as it:
        await dropped_after(it, await begin(it, 4), (4, 2))


@pytest.mark.parametrize("target", [(1, 2), (2, 3)])
def test_no_reassignment_is_said_to_be_done_in_a_topic_that_was_made_anew(target: tuple[int, ...]) -> None:
    """The earlier topic has its replicas there already, or has to move (seed 1795864319314)."""
    it = cluster(1, 2, 3, t=[[1, 2]])
    anew = it.znodes.topics["t"] = TopicAssignment("t", b"another topic's.", {0: ReplicaAssignment((3,))})
    answer = it.ask(ev.ApiPartitionReassignment, targets={T0: target})
    assert answer == {T0: (KafkaErrorCode.UNKNOWN_SERVER_ERROR, TOPIC_REPLACED)}
    assert it.znodes.topics["t"] == anew
    assert it.shell.context.partitions_being_reassigned == {}
    assert it.shell.auditor._is_urgent == {"t"}


# -- what ZooKeeper refuses, and what nobody else would go on with -----------------------------------------------------

STATE = paths.topic_partition_state("t", 0)
AGAIN = "uncommitted reassignments"


def move(it: PureCluster, target: tuple[int, ...] | None) -> KafkaErrorCode:
    code: KafkaErrorCode = it.ask(ev.ApiPartitionReassignment, targets={T0: target})[T0][0]
    return code


def catch_up(it: PureCluster, *isr: int) -> None:
    """The leader asks for this ISR."""
    state = it.znodes.states[T0]
    change = AlterPartition(*T0, state.leader_epoch, isr, state.partition_epoch, 0)
    epoch = it.znodes.brokers[state.leader].epoch
    it.ask(ev.AlterPartitionReceived, broker=state.leader, broker_epoch=epoch, version=1, partitions=(change,))


def brokers_change(it: PureCluster, *, gone: tuple[int, ...] = (), new: tuple[int, ...] = ()) -> None:
    for broker in gone:
        it.unregister(broker)
    for broker in new:
        it.register(broker)
    it.queue.append(ev.BrokerChange())
    it.step()


def told(it: PureCluster, broker: int) -> tuple[int, ...] | None:
    """The replicas of t-0 that the broker has heard of last."""
    known = it.views[broker].hosted.get(T0)
    return None if known is None else tuple(known.replicas)


def ended(it: PureCluster, replicas: tuple[int, ...]) -> None:
    """Memory, ZooKeeper and brokers agree that t-0 has these replicas, and nothing is left to do."""
    table = it.shell.context.table
    assert it.znodes.topics["t"].partitions[0] == table.assignment(0) == ReplicaAssignment(replicas)
    assert it.shell.context.partitions_being_reassigned == {}
    assert {b for b, view in it.views.items() if T0 in view.hosted} == set(replicas)
    assert it.znodes.debts.held == {}
    if it.queue.scheduled(AGAIN):
        before = dict(it.znodes.states)
        it.due(AGAIN)
        assert not it.queue.scheduled(AGAIN)
        assert it.znodes.states == before
    assert violations(it.shell.context) == []


@pytest.mark.parametrize("failover", [False, True])
def test_a_move_that_no_replica_could_be_told_of_begins_once_zookeeper_allows_it(failover: bool) -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.refused = {STATE}
    assert move(it, (1, 3)) is KafkaErrorCode.NONE
    assert violations(it.shell.context) == []
    if failover:
        it.failover()
    it.due(AGAIN)
    assert told(it, 1) == (1, 2), "it would not heed an epoch that it knows"
    it.znodes.refused.clear()
    it.due(AGAIN)
    assert {told(it, broker) for broker in (1, 2, 3)} == {(1, 3, 2)}
    catch_up(it, 1, 2, 3)
    ended(it, (1, 3))


def test_a_move_that_could_not_be_told_of_may_be_taken_back() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.refused = {STATE}
    move(it, (1, 3))
    it.znodes.refused.clear()
    assert move(it, None) is KafkaErrorCode.NONE
    it.due(AGAIN)
    ended(it, (1, 2))


def test_a_replica_that_hears_of_its_move_from_an_election_only_is_a_replica() -> None:
    """Its broker would otherwise hear nothing of the partition when it restarts."""
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.refused = {STATE}
    move(it, (2, 3))
    it.znodes.refused.clear()
    brokers_change(it, gone=(1,))
    catch_up(it, 2, 3)
    brokers_change(it, new=(1,))
    ended(it, (2, 3))
    before = it.views[3].epoch
    it.views[3].hosted.clear()
    brokers_change(it, new=(3,))
    assert it.views[3].epoch > before
    assert told(it, 3) == (2, 3)


@pytest.mark.parametrize("target", [(2, 3), (3,)])
def test_a_move_ends_once_zookeeper_allows_its_isr(target: tuple[int, ...]) -> None:
    """Nothing else would resume it: all replicas are in sync."""
    it = cluster(1, 2, 3, t=[[1, 2]])
    move(it, target)
    it.znodes.refused = {STATE}
    state = it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(state, isr=(1, 2, 3), partition_epoch=state.partition_epoch + 1)
    it.znodes.isr_changes = [T0]
    it.queue.append(ev.IsrChangeNotification())
    it.step()
    assert 0 in it.shell.context.partitions_being_reassigned
    assert violations(it.shell.context) == []
    it.due(AGAIN)
    it.znodes.refused.clear()
    it.due(AGAIN)
    ended(it, target)


def test_a_move_ends_when_an_election_makes_its_target_the_isr() -> None:
    """The leader has no more replicas to take into the ISR, so it asks for nothing."""
    it = cluster(1, 2, 3, t=[[1]])
    it.znodes.configs["t"] = {"unclean.leader.election.enable": "true"}
    move(it, (3,))
    brokers_change(it, gone=(1,))
    assert it.znodes.states[T0].isr == (3,)
    assert it.shell.context.partitions_being_reassigned == {}
    brokers_change(it, new=(1,))
    ended(it, (3,))


def test_a_broker_that_is_none_of_the_replicas_becomes_one_by_a_move() -> None:
    it = cluster(1, 2, 3, t=[[1, 2]])
    it.znodes.topics["t"] = msgspec.structs.replace(it.znodes.topics["t"], partitions={0: ReplicaAssignment((2,))})
    it.unregister(2)
    it.failover()
    it.step()
    assert it.znodes.states[T0].leader == 1, "no replica could lead in its place"
    assert move(it, (1,)) is KafkaErrorCode.NONE
    brokers_change(it, new=(2,))
    ended(it, (1,))
    it.views[1].hosted.clear()
    brokers_change(it, new=(1,))
    assert told(it, 1) == (1,)
