"""New, grown and deleted topics."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from aiocontroller.controller import topics
from aiocontroller.core import events as ev
from aiocontroller.core.ids import NO_TOPIC_ID, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.zookeeper.writes import Writes
from tests.unit.controller.pure_cluster import cluster, run


def test_partitions_added_to_a_topic_that_is_being_deleted_are_taken_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1, t=[[1]], u=[[1]])
    written: list[TopicAssignment] = []
    write = it.znodes.set_topic_assignments

    async def noting(assignments: Sequence[TopicAssignment], *, fence: int) -> Writes:
        written.extend(assignments)
        return await write(assignments, fence=fence)

    monkeypatch.setattr(it.znodes, "set_topic_assignments", noting)
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    for name in ("t", "u"):
        found = it.znodes.topics[name]
        grown = found.partitions | {1: ReplicaAssignment((1,))}
        it.znodes.topics[name] = msgspec.structs.replace(found, partitions=grown, version=found.version + 1)
        it.queue.append(ev.PartitionModifications(name))
    it.queue.append(ev.PartitionModifications("gone"))
    it.step()
    assert [(a.topic, list(a.partitions)) for a in written] == [("t", [0])]
    assert list(it.znodes.states) == [TopicPartition("u", 0), TopicPartition("u", 1)]


def test_another_topic_under_the_name_of_one_that_is_being_deleted_keeps_its_partitions() -> None:
    it = cluster(1, t=[[1]])
    two = {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))}
    anew = it.znodes.topics["t"] = TopicAssignment("t", b"another topic's.", two)
    run(topics._restore_deleting(it.shell, [it.shell.context.table.topic_by_name["t"]]))
    assert it.znodes.topics["t"] == anew


def test_only_a_topic_that_has_lost_its_id_may_have_been_made_anew() -> None:
    it = cluster(1, t=[[1]], u=[[1]])
    it.znodes.states.clear()
    lost = msgspec.structs.replace(it.znodes.topics["u"], topic_id=NO_TOPIC_ID)
    assert run(topics._recreated_without_id(it.shell, [it.znodes.topics["t"], lost])) == {"u"}
