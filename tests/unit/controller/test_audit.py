"""The audit's slices: what they read, what they find, and when a difference is acted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import audit
from aiocontroller.core import events as ev
from aiocontroller.core.audit import AuditFinding, DifferenceKind
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.events import Audit
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.zookeeper.kafka_zk_client import TopicAssignments
from aiocontroller.zookeeper.znode_json import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

T0 = TopicPartition("t", 0)


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, t=[[1, 2], [2, 1]], u=[[1]])


def lists(it: PureCluster) -> list[AuditFinding]:
    return run(audit._look_at_lists(it.shell))


def topics(it: PureCluster, *names: str) -> list[AuditFinding]:
    it.shell.auditor.begin_pass(names, len(it.shell.context.table))
    context = it.shell.context
    return run(audit._look_at_topics(it.shell, it.shell.auditor.take(context.table, context.is_held_back)))


def kinds(found: Sequence[AuditFinding]) -> list[tuple[DifferenceKind, str]]:
    return [(finding.kind, finding.subject) for finding in found]


def test_a_cluster_that_agrees_has_no_findings(it: PureCluster) -> None:
    assert (lists(it), topics(it, "t", "u")) == ([], [])


def test_brokers_and_topics_that_came_or_went_unheard_are_found(it: PureCluster) -> None:
    it.register(3)
    it.unregister(2)
    it.znodes.topics["new"] = msgspec.structs.replace(it.znodes.topics["u"], topic="new")
    del it.znodes.topics["u"]
    assert {finding.subject.rpartition(" ")[2] for finding in lists(it)} == {"2", "3", "new", "u"}


def test_what_an_event_in_the_queue_tells_of_is_no_difference(it: PureCluster) -> None:
    """Of two looks at a broker that has died and come back, the first found it gone, the second found it unknown."""
    it.register(3)
    it.unregister(2)
    it.znodes.topics["new"] = msgspec.structs.replace(it.znodes.topics["u"], topic="new")
    it.queue.append(ev.BrokerChange())
    assert kinds(lists(it)) == [(DifferenceKind.TOPIC, "topic new")]
    it.queue.append(ev.TopicChange())
    assert lists(it) == []
    it.step()
    it.znodes.brokers[1] = msgspec.structs.replace(it.znodes.brokers[1], rack="elsewhere")
    it.znodes.brokers[3] = msgspec.structs.replace(it.znodes.brokers[3], rack="elsewhere")
    it.queue.append(ev.BrokerModifications(1))
    assert kinds(lists(it)) == [(DifferenceKind.BROKER, "broker 3")]


def test_a_notification_that_stays_is_found(it: PureCluster) -> None:
    it.znodes.isr_changes = [T0]
    assert kinds(lists(it)) == [(DifferenceKind.UNHEARD, "/isr_change_notification/isr_change_0")]


def test_a_deletion_that_was_not_heard_is_found_and_one_that_is_queued_is_not(it: PureCluster) -> None:
    it.shell.context.queue_topic_deletion(["u"])
    it.znodes.deletions = {"t": None, "u": None}
    assert kinds(lists(it)) == [(DifferenceKind.UNHEARD, "/admin/delete_topics/t")]


def test_a_topic_whose_deletion_waits_is_looked_at_and_one_that_is_being_deleted_is_not(it: PureCluster) -> None:
    """It may wait for a reassignment that does not go on before another's write is repaired."""
    context, before = it.shell.context, it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(before, leader=2, partition_epoch=9)
    context.queue_topic_deletion(["t"])
    assert topics(it, "t") == []
    context.mark_topics_ineligible_for_deletion(["t"])
    assert kinds(topics(it, "t")) == [(DifferenceKind.STATE, "t-0")]
    it.znodes.states[T0] = before
    it.unregister(before.leader)
    context.remove_brokers([before.leader])
    assert topics(it, "t") == [], "no leaders are elected for it any more"
    context.begin_topic_deletion(["t"])
    it.znodes.states[T0] = msgspec.structs.replace(before, leader=2, partition_epoch=9)
    assert topics(it, "t") == []


def test_a_dead_leader_of_a_topic_whose_deletion_waits_is_left_alone(it: PureCluster) -> None:
    """Only a partition that is being reassigned gets another leader."""
    context = it.shell.context
    row = context.table.row(*T0)
    context.queue_topic_deletion(["t"])
    context.mark_topics_ineligible_for_deletion(["t"])
    context.remove_brokers([it.znodes.states[T0].leader])
    assert topics(it, "t") == []
    context.partitions_being_reassigned[row] = None
    assert kinds(topics(it, "t")) == [(DifferenceKind.DEAD_LEADER, "t-0")]


def test_a_broker_whose_registration_cannot_be_read_is_not_gone(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*, watch: bool) -> tuple[list[Any], list[Any]]:
        return [it.znodes.brokers[1]], [BadZNode("/brokers/ids/2", "{", "JSON")]

    monkeypatch.setattr(it.znodes, "get_all_brokers_in_cluster", read)
    assert lists(it) == []
    assert list(it.shell.bad_paths()) == ["/brokers/ids/2"]
    monkeypatch.undo()
    assert lists(it) == []
    assert not it.shell.bad_paths()


def test_an_assignment_that_another_wrote_is_found(it: PureCluster) -> None:
    found = it.znodes.topics["t"]
    partitions = found.partitions | {1: ReplicaAssignment((1,)), 2: ReplicaAssignment((2,))}
    it.znodes.topics["t"] = msgspec.structs.replace(found, partitions=partitions)
    assert [(f.kind, f.topic, f.partition) for f in topics(it, "t", "u")] == [
        (DifferenceKind.ASSIGNMENT, "t", 1),
        (DifferenceKind.PARTITIONS, "t", 2),
    ]


def test_a_state_that_another_wrote_is_found(it: PureCluster) -> None:
    state = it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(state, leader=2, partition_epoch=state.partition_epoch + 1)
    assert [(f.topic, f.partition) for f in topics(it, "t", "u")] == [("t", 0)]


def test_states_of_a_topic_with_another_id_are_not_compared(it: PureCluster) -> None:
    """They are another topic's."""
    it.znodes.topics["t"] = msgspec.structs.replace(it.znodes.topics["t"], topic_id=b"another topic's.")
    it.znodes.states[T0] = msgspec.structs.replace(it.znodes.states[T0], leader=2, partition_epoch=9)
    assert [finding.kind for finding in topics(it, "t")] == [DifferenceKind.TOPIC_ID]


def test_a_state_of_a_later_controller_ends_the_term(it: PureCluster) -> None:
    it.znodes.states[T0] = msgspec.structs.replace(it.znodes.states[T0], controller_epoch=it.znodes.epoch + 1)
    with pytest.raises(ControllerMovedError, match="later than ours"):
        topics(it, "t")


def test_a_state_that_cannot_be_read_is_reported_and_left_out(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = BadZNode("/brokers/topics/t/partitions/0/state", "{", "JSON")
    read = it.znodes.get_topic_partition_states

    async def one_is_damaged(names: Sequence[str], numbers: Sequence[int]) -> list[Any]:
        return [damaged, *(await read(names, numbers))[1:]]

    monkeypatch.setattr(it.znodes, "get_topic_partition_states", one_is_damaged)
    assert topics(it, "t", "u") == []
    assert list(it.shell.bad_paths()) == [damaged.path]
    assert it.shell.unreadable(1) == [damaged]
    assert it.shell.unreadable(0) == []
    monkeypatch.setattr(it.znodes, "get_topic_partition_states", read)
    assert topics(it, "t", "u") == []
    assert not it.shell.bad_paths(), "it has been repaired"


def test_only_a_suspected_topic_is_watched_anew(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[bool] = []
    read = it.znodes.get_topic_assignments

    async def noting(names: Sequence[str], *, watch: bool = True) -> TopicAssignments:
        watched.append(watch)
        return await read(names, watch=watch)

    monkeypatch.setattr(it.znodes, "get_topic_assignments", noting)
    topics(it, "t", "u")
    assert watched == [False]


def test_a_topic_that_is_gone_has_the_lists_compared(it: PureCluster) -> None:
    del it.znodes.topics["u"]
    assert topics(it, "u") == []
    assert it.shell.auditor.lists_due


def test_each_slice_is_measured(it: PureCluster) -> None:
    slices = it.shell.auditor.slices
    run(audit.audit(it.shell, Audit()))
    run(audit.audit(it.shell, Audit()))
    assert slices.count == 2
