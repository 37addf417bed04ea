"""Brokers that start, fail, bounce or change: what differs, which replicas are concerned, which deletions go on."""

from __future__ import annotations

import pytest

from aiocontroller.core.broker_changes import (
    Modification,
    compare_registrations,
    judge_modification,
    others,
    queued_topics_of,
    replicas_being_deleted,
    replicas_on,
    replicas_to_start,
    replicas_to_take_offline,
)
from aiocontroller.core.ids import Broker
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import ReplicaState
from tests.builders import broker, ctx


def test_registrations_are_new_bounced_or_gone() -> None:
    context = ctx(brokers=[1, 2, 3, 4])
    found = [broker(1), broker(2, epoch=500), broker(5)]
    changes = compare_registrations(context, found, unreadable={4})
    assert [b.id for b in changes.new] == [5]
    assert [b.id for b in changes.bounced] == [2]
    assert changes.dead == [3], "a znode that cannot be read says nothing about its broker"
    assert changes.by_kind() == [("added", 5), ("bounced", 2), ("dead", 3)]


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
