"""Repairs of what the audit has found."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from aiocontroller.controller import repairs
from aiocontroller.core import events as ev
from aiocontroller.core.audit import AuditFinding, DifferenceKind
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.state_settling import settle_partition_state
from aiocontroller.zookeeper.znode_json import BadZNode
from tests.unit.controller.pure_cluster import cluster, run
from tests.unit.controller.virtual_cluster import begin, stage, state, with_topic

T0 = TopicPartition("t", 0)


def test_a_state_that_cannot_be_read_when_it_is_to_be_repaired_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1, t=[[1]])
    damaged = BadZNode("/brokers/topics/t/partitions/0/state", "{", "JSON")
    before = it.znodes.states[T0]

    async def read(topics: Sequence[str], partitions: Sequence[int]) -> list[BadZNode]:
        return [damaged for _ in topics]

    monkeypatch.setattr(it.znodes, "get_topic_partition_states", read)
    run(repairs._states(it.shell, [AuditFinding(DifferenceKind.STATE, "t-0", "this", "that", "t", 0)]))
    assert damaged.path in it.shell.bad_paths()
    assert it.znodes.states[T0] == before


def test_a_leader_that_both_sides_hold_to_be_alive_is_replaced_at_once() -> None:
    it = cluster(2, t=[[1, 2]])
    table = it.shell.context.table
    dead = msgspec.structs.replace(it.znodes.states[T0], leader=1, isr=(1, 2))
    it.znodes.states[T0] = dead
    table.set_leadership(table.row("t", 0), dead)
    run(
        repairs.repair(
            it.shell, [AuditFinding(DifferenceKind.DEAD_LEADER, "t-0", "leader 1", "one that is registered", "t", 0)]
        )
    )
    assert it.znodes.states[T0].leader == it.views[2].hosted[T0].leader == 2


def test_an_assignment_that_nothing_can_be_moved_to_is_written_back() -> None:
    it = cluster(1, 2, t=[[1, 2], [2, 1]])
    topic = it.znodes.topics["t"]
    wrong = {**topic.partitions, 0: ReplicaAssignment((1, 9))}
    it.znodes.topics["t"] = msgspec.structs.replace(topic, partitions=wrong)
    run(repairs._assignments(it.shell, [AuditFinding(DifferenceKind.ASSIGNMENT, "t-0", "1 9", "1 2", "t", 0)]))
    assert it.znodes.topics["t"].partitions == topic.partitions
    assert it.shell.context.partitions_being_reassigned == {}


OTHER_ID = b"the present one."


def test_a_wrong_id_is_restored_together_with_the_assignments() -> None:
    """Between two writes, states would be of replicas that the znode does not name (seed 1795864320019)."""
    it = cluster(1, 2, t=[[1, 2], [2, 1]])
    ours = it.znodes.topics["t"]
    moved = {0: ReplicaAssignment((1,)), 2: ReplicaAssignment((2,))}
    it.znodes.topics["t"] = msgspec.structs.replace(ours, topic_id=OTHER_ID, partitions=moved)
    run(repairs.repair(it.shell, [AuditFinding(DifferenceKind.TOPIC_ID, "topic t", "another", "ours", "t")]))
    assert it.znodes.topics["t"].topic_id == ours.topic_id
    assert it.znodes.topics["t"].partitions == {**ours.partitions, 2: moved[2]}


def test_where_the_id_alone_is_lost_the_assignments_stay() -> None:
    """Tools older than Kafka 2.8 move replicas, and drop the id."""
    it = cluster(1, 2, t=[[1, 2]])
    ours = it.znodes.topics["t"]
    moved = {0: ReplicaAssignment((1,))}
    it.znodes.topics["t"] = msgspec.structs.replace(ours, topic_id=NO_TOPIC_ID, partitions=moved)
    run(repairs.repair(it.shell, [AuditFinding(DifferenceKind.TOPIC_ID, "topic t", "none", "ours", "t")]))
    assert (it.znodes.topics["t"].topic_id, it.znodes.topics["t"].partitions) == (ours.topic_id, moved)


@pytest.mark.parametrize("topic_id", [NO_TOPIC_ID, OTHER_ID])
def test_a_topic_is_the_same_without_its_id_also_if_its_leader_has_changed_the_isr_meanwhile(topic_id: bytes) -> None:
    """Leaders of old protocols write ISRs themselves, and notify the controller seconds later."""
    it = cluster(1, 2, t=[[1, 2]])
    it.shell.auditor.brokers_write = lambda: True
    ours = it.znodes.topics["t"]
    it.znodes.topics["t"] = msgspec.structs.replace(ours, topic_id=topic_id)
    it.znodes.states[T0] = msgspec.structs.replace(it.znodes.states[T0], isr=(1,), partition_epoch=1)
    run(repairs.repair(it.shell, [AuditFinding(DifferenceKind.TOPIC_ID, "topic t", "none", "ours", "t")]))
    assert it.znodes.topics["t"].topic_id == ours.topic_id
    assert it.views[2].hosted.keys() == {T0}, "no replica was deleted"


@pytest.mark.parametrize("seen, now, restored", [(OTHER_ID, OTHER_ID, True), (OTHER_ID, b"n" * 16, False)])
def test_nothing_is_restored_in_a_topic_made_anew_since_it_was_looked_at(
    seen: bytes, now: bytes, restored: bool
) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    ours = it.znodes.topics["t"]
    there = it.znodes.topics["t"] = msgspec.structs.replace(ours, topic_id=now, partitions={})
    run(repairs.restore_partitions(it.shell, ours, seen))
    assert (it.znodes.topics["t"] != there) is restored
    assert it.shell.auditor._is_urgent == (set() if restored else {"t"})


@pytest.mark.parametrize(
    "kind", [DifferenceKind.STATE, DifferenceKind.MISSING_STATE, DifferenceKind.ASSIGNMENT, DifferenceKind.PARTITIONS]
)
def test_what_was_found_of_a_topic_is_not_repaired_in_another_that_was_made_anew(kind: DifferenceKind) -> None:
    it = cluster(1, 2, t=[[1, 2]])
    anew = TopicAssignment("t", OTHER_ID, {0: ReplicaAssignment((2, 1))})
    it.znodes.topics["t"] = anew
    it.znodes.states.clear()
    if kind is not DifferenceKind.MISSING_STATE:
        it.znodes.states[T0] = LeaderAndIsr(2, 0, (2,), 0, 0)
    before = dict(it.znodes.states)
    run(repairs.repair(it.shell, [AuditFinding(kind, "t-0", "this", "that", "t", 0)]))
    assert (it.znodes.topics["t"], it.znodes.states) == (anew, before)
    assert it.shell.context.partitions_being_reassigned == {}


def test_what_is_left_of_a_topic_that_another_has_deleted_is_owed() -> None:
    """A topic of its name has been created since: a broker that comes back would take the old log for the new one's."""
    it = cluster(1, 2, t=[[1, 2]])
    earlier = it.znodes.topics["t"].topic_id
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    it.znodes.topics["t"] = TopicAssignment("t", b"the present one.", {0: ReplicaAssignment((1, 2))})
    it.znodes.states.clear()
    run(repairs.repair(it.shell, [AuditFinding(DifferenceKind.TOPIC_ID, "topic t", "another", "ours", "t")]))
    it.step()
    assert it.znodes.debts.held == {(2, "t"): ({0: earlier}, 0)}, "broker 1 has deleted its replica"
    assert it.shell.context.table.topic_by_name["t"].id == it.views[1].topic_ids[T0] == b"the present one."
    it.register(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert it.znodes.debts.held == {}
    assert it.views[2].topic_ids[T0] == b"the present one."


@virtual_time
async def test_a_repair_is_written_under_the_fence_only() -> None:
    async with stage() as it:
        await begin(it, 1)
        await with_topic(it, [1], 1)
        before = await state(it)
        assert before is not None
        _, fence = await it.zk.get_controller_epoch() or (0, 0)
        for wrong in (fence - 1, fence + 1):
            with pytest.raises(ControllerMovedError):
                await settle_partition_state(it.client, T0, before, 7, fence=wrong)
        assert await state(it) == before
        assert await settle_partition_state(it.client, T0, before, 7, fence=fence) == 8
