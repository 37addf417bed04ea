"""Reassignments by whole handlers; ``tests/unit/core/test_reassignment_phases.py`` has their steps."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.controller.leadership_writes import TOPIC_REPLACED
from aiocontroller.controller.reassignment import drop_non_replicas
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.pure_cluster import cluster, run
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
