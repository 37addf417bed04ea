"""Brokers that start, fail, bounce or change: what differs, which replicas are concerned, which deletions go on."""

from __future__ import annotations

import pytest

from aiocontroller.core.broker_changes import (
    Modification,
    compare_registrations,
    is_to_be_unlisted,
    judge_modification,
    on_broker_startup,
    others,
    queued_topics_of,
    replicas_being_deleted,
    replicas_on,
    replicas_to_start,
    replicas_to_take_offline,
)
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import OwnReplicas
from aiocontroller.core.ids import Broker, ReplicaAssignment
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.core.steps import (
    AskForDebts,
    ElectLeaders,
    Enqueue,
    LoadKnownControllers,
    MoveReplicas,
    RaiseLeaderEpochs,
    ResumeDeletions,
    SendMetadata,
)
from tests.builders import broker, ctx, lead
from tests.unit.core.playing import Played


def test_registrations_are_new_bounced_or_gone() -> None:
    context = ctx(brokers=[1, 2, 3, 4])
    found = [broker(1), broker(2, epoch=500), broker(5)]
    changes = compare_registrations(context, found, unreadable={4})
    assert [b.id for b in changes.new] == [5]
    assert [b.id for b in changes.bounced] == [2]
    assert changes.dead == [3], "a znode that cannot be read says nothing about its broker"
    assert changes.by_kind() == [("added", 5), ("bounced", 2), ("dead", 3)]


@pytest.mark.parametrize("listed, epoch, unlisted", [(True, 102, True), (True, 101, False), (False, 102, False)])
def test_only_the_incarnation_that_is_gone_is_unlisted(listed: bool, epoch: int, unlisted: bool) -> None:
    context = ctx(brokers=2)
    assert not is_to_be_unlisted(context, 2, 102), "it is registered"
    context.remove_brokers([2], listed=listed)
    assert is_to_be_unlisted(context, 2, epoch) is unlisted
    context.add_brokers([broker(2, epoch=300)])
    assert not is_to_be_unlisted(context, 2, epoch), "it is back"


def test_the_same_registrations_are_no_change() -> None:
    context = ctx(brokers=[1, 2])
    older = [broker(1, epoch=1), broker(2)]
    assert not any(compare_registrations(context, older, ())), "an older epoch was read before the last change"
    assert not any(compare_registrations(context, [broker(1, rack="r"), broker(2)], ()))


def test_brokers_that_start_hear_more_than_the_others() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [3, 1]], "u": [[3, 2]]})
    assert others(context, [2]) == [1, 3]
    replicas = replicas_on(context, [3, 1])
    assert replicas == {3: [1, 2], 1: [0, 1]}
    set_replica_states(context.table, {3: [1]}, ReplicaState.ReplicaDeletionSuccessful)
    assert replicas_to_start(context, replicas) == {3: [2], 1: [0, 1]}


def test_only_queued_deletions_may_go_on() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [3, 1]], "u": [[3, 2]]})
    replicas = replicas_on(context, [1, 3])
    assert queued_topics_of(context, replicas) == []
    context.queue_topic_deletion(["u"])
    assert queued_topics_of(context, replicas) == ["u"]


def test_replicas_of_topics_being_deleted_are_kept_apart() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [3, 1]], "u": [[1, 2]]})
    replicas = replicas_on(context, [1])
    assert replicas_being_deleted(context, replicas) == {}
    context.queue_topic_deletion(["u"])
    assert replicas_to_take_offline(context, replicas) == {1: [0, 1]}
    assert replicas_being_deleted(context, replicas) == {1: [2]}
    context.partitions_being_reassigned[2] = None
    assert replicas_to_take_offline(context, replicas) == {1: [0, 1, 2]}, "the deletion waits for its reassignment"
    assert replicas_being_deleted(context, replicas) == {1: []}


@pytest.mark.parametrize(
    "known, found, verdict",
    [
        ([1], broker(1), Modification.NOTHING),
        ([1], broker(1, rack="r"), Modification.CHANGED),
        ([1], Broker(1, 101, ()), Modification.CHANGED),
        ([1], broker(1, epoch=500, rack="r"), Modification.NOTHING),
        ([1], None, Modification.NOTHING),
        ([2], broker(1), Modification.APPEARED),
        ([2], None, Modification.NOTHING),
    ],
)
def test_a_registration_that_changes(known: list[int], found: Broker | None, verdict: Modification) -> None:
    """Another incarnation, and a registration that is gone, are for BrokerChange."""
    assert judge_modification(ctx(brokers=known), 1, found) is verdict


# -- a broker starts ---------------------------------------------------------------------------------------------------


def test_a_broker_that_starts_gets_everything_before_anything_is_elected() -> None:
    context = ctx(brokers=[1, 2, 3], topics={"t": [[1, 2], [2, 3]]})
    context.table.set_state([1], PartitionState.OfflinePartition)
    set_replica_states(context.table, {2: [0, 1]}, ReplicaState.OfflineReplica)
    played = Played(context, on_broker_startup(context, [2]))
    assert played.steps[:3] == [SendMetadata([1, 3]), SendMetadata([2], range(2)), AskForDebts(2)]
    assert played.steps[3:5] == [
        MoveReplicas({2: [0, 1]}, ReplicaState.OnlineReplica),
        ElectLeaders([1], Strategy.OFFLINE),
    ]
    assert played.kinds[5] == "SendRequests"
    assert context.table.state[1] == PartitionState.OnlinePartition
    assert played.steps[-1] == ResumeDeletions([])


def test_without_offline_partitions_nothing_is_elected() -> None:
    context = ctx(brokers=[1, 2], topics={"t": [[1, 2]]})
    assert Played(context, on_broker_startup(context, [2])).of(ElectLeaders) == []


def test_moves_to_a_broker_that_starts_are_resumed() -> None:
    move = ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))
    context = ctx(brokers=3, topics={"t": [move, move]})
    context.begin_reassignments([0, 1])
    for name in ("t-0", "t-1"):
        lead(context, name, 1, (1, 2))
    assert Played(context, on_broker_startup(context, [2])).of(RaiseLeaderEpochs) == []
    assert Played(context, on_broker_startup(context, [3])).of(RaiseLeaderEpochs) == [RaiseLeaderEpochs([0, 1])]


def test_queued_deletions_go_on_when_a_broker_starts() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2]], "u": [[2, 3]]})
    context.queue_topic_deletion(["t", "u"])
    assert Played(context, on_broker_startup(context, [3])).steps[-1] == ResumeDeletions(["u"])


def test_a_broker_with_the_id_of_a_controller_takes_it_over() -> None:
    context = ctx(brokers=[1, 2], topics={"t": [[1, 9]]})
    context.controllers = frozenset({2, 9})
    played = Played(context, on_broker_startup(context, [2]))
    assert played.of(LoadKnownControllers) == [LoadKnownControllers()]
    assert played.of(Enqueue) == [Enqueue(OwnReplicas())], "2 may hold the replica of 9 now"
    context.controllers = frozenset({8})
    assert not {"LoadKnownControllers", "Enqueue"}.intersection(Played(context, on_broker_startup(context, [2])).kinds)
