"""Recoveries while everything else goes on: deletions, rival requests, brokers that listen late or answer nonsense."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import NOT_IN_TIME, Evidence
from aiocontroller.core.request_content import ElectionType
from tests.unit.controller.leaderless import T0, die, leader
from tests.unit.controller.pure_cluster import Channels
from tests.unit.controller.test_recovery_strategies import (
    CUT,
    WHOLE,
    Operator,
    begun,
    come,
    dead_isr,
    shrink,
    state,
    sweep,
)

U0 = TopicPartition("u", 0)
LISTENS_NOT = "nothing listens on b2:9092"


# -- brokers that do not listen yet ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds, after", [(0, 2), (1, 2), (3, 2), (4, 1)])
def test_with_balanced_a_replica_that_does_not_listen_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, rounds: int, after: int
) -> None:
    """All brokers lost power; broker 2, which nobody awaits, is the last one to listen, and has the best log."""
    it, asking = begun("Balanced", 1)
    die(it, 1)
    come(it, 1)
    for at_s in range(rounds):
        asking.answer(t0=Evidence({1: CUT, 3: CUT}, {2: LISTENS_NOT}, unheard=(2,)))
        sweep(it, monkeypatch, at_s)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: CUT}))
    assert state(it) == (after, (after,))


@pytest.mark.parametrize("why, unheard", [(LISTENS_NOT, (2,)), (NOT_IN_TIME, ())])
def test_nobody_waits_for_a_replica_that_has_died_while_it_was_asked(why: str, unheard: tuple[int, ...]) -> None:
    it, asking = begun("Balanced", 1)
    die(it, 1)
    come(it, 1)
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}, {2: why}, unheard=unheard))
    assert state(it) == (3, (3,))


def test_a_partition_that_waits_for_long_leaves_the_others_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of broker 4 has failed; later broker 1 loses its power, and broker 2, with the whole log, is late."""
    it, asking = begun("Balanced", 1)
    come(it, 4)
    it.create_topic("u", [[4, 3]])
    it.step()
    shrink(it, 4, of=U0)
    die(it, 4)
    come(it, 4)
    for at_s in range(1, 9):
        asking.answer(u0=Evidence({3: WHOLE}, {4: "it answers KAFKA_STORAGE_ERROR"}))
        sweep(it, monkeypatch, at_s)
    assert leader(it, U0) == -1
    die(it, 1)
    come(it, 1)
    failed = Evidence({3: WHOLE}, {4: "it answers KAFKA_STORAGE_ERROR"})
    for at_s in (9, 10, 11):
        asking.answer(t0=Evidence({1: CUT, 3: CUT}, {2: NOT_IN_TIME}), u0=failed)
        assert leader(it) == -1
        sweep(it, monkeypatch, at_s)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: CUT}), u0=failed)
    assert state(it) == (2, (2,))


# -- deletions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_by", ["the election", "an operator", "a client"])
def test_no_leader_is_elected_for_a_topic_that_is_being_deleted(monkeypatch: pytest.MonkeyPatch, asked_by: str) -> None:
    """The brokers have not yet answered the requests to delete; a new leader would create the replicas anew."""
    it, asking = begun("None", 1)
    if asked_by == "the election":
        it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    die(it, 1)
    answers: list[Any] = []
    if asked_by == "an operator":
        it.queue.append(ev.RecoverPartitions(reply=Reply(answers.append), topic="t"))
    if asked_by == "a client":
        it.queue.append(
            ev.ReplicaLeaderElection(reply=Reply(answers.append), partitions=(T0,), election_type=ElectionType.UNCLEAN)
        )
    it.step()
    assert asking.waits
    monkeypatch.setattr(Channels, "_stop_replica", lambda *args: None)
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    asking.answer(t0=Evidence({2: CUT, 3: WHOLE}))
    assert leader(it) == -1
    assert len(answers) == (asked_by != "the election")


def test_nor_while_something_holds_the_deletion_back() -> None:
    it, asking = begun("None", 1)
    die(it, 1)
    operator = Operator(it)
    it.shell.context.mark_topics_ineligible_for_deletion(["t"])
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    asking.answer(t0=Evidence({2: CUT, 3: WHOLE}))
    assert leader(it) == -1
    assert (operator.found.result, operator.found.detail) == ("failed", "its topic is being deleted")


# -- several requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [9, 3, None])
def test_the_first_operator_s_choice_counts(second: int | None) -> None:
    """Broker 9 is no replica."""
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    one, two = Operator(it, leader=1), Operator(it, leader=second)
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert (one.found.result, one.found.leader) == ("elected", 1)
    assert (two.found.result, two.found.leader) == (("elected", 1) if second is None else ("failed", None))
    assert state(it) == (1, (1,))


def test_a_choice_that_is_none_keeps_no_other_request_from_its_election() -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    wrong, right = Operator(it, leader=9), Operator(it)
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert (wrong.found.result, wrong.found.leader) == ("failed", None)
    assert wrong.found.detail == "broker 9 has not reported how far its log reaches (it has no live replica)"
    assert (right.found.result, right.found.leader) == ("elected", 3)
