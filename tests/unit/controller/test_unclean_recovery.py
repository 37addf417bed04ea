"""Unclean elections by evidence: who is asked, who leads, what is recorded and answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.controller import state_changes, unclean_recovery
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import Evidence, LogEnd
from aiocontroller.core.request_content import ElectionType
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.leaderless import (
    BETTER_ON_3,
    T0,
    T1,
    Asking,
    change,
    die,
    leader,
    offline,
    records,
    stop,
)
from tests.unit.controller.pure_cluster import PureCluster, StillClock


def test_the_best_log_leads_although_another_is_first() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    assert leader(it) == -1
    asking.answer(t0=BETTER_ON_3)
    assert [set(asked) for asked in asking.rounds] == [{T0}]
    question = asking.rounds[0][T0]
    assert (question.brokers, question.awaited) == ((2, 3), (1,))
    assert list(asking.brokers) == [2, 3]
    assert (leader(it), it.znodes.states[T0].isr) == (3, (3,))
    assert it.shell.counts.unclean_elections.count == 1
    assert records(it) == [
        ("evidence", "t", 0, -1, 150, [1]),
        ("elected", "t", 0, 3, 150, [1]),
    ]


def test_the_record_says_what_is_lost_in_words() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    asking.answer(t0=BETTER_ON_3)
    assert isinstance(it.shell.journal, MemoryJournal)
    elected = it.shell.journal.of_kind("recovery")[-1]
    assert elected.detail == (
        "broker 3 ends at 400 of epoch 2; broker 2 ends at 500 of epoch 1, up to 150 records of which are lost; "
        "broker 1 has not answered (it is dead; it was in the last ISR, and the end of its log is unknown): "
        "up to 150 records lost, and what only broker 1 held"
    )


def test_one_live_replica_leads_at_once() -> None:
    it = offline([1, 2])
    asking = Asking(it)
    die(it, 1)
    assert leader(it) == 2
    assert not asking.waits


def test_nobody_is_asked_where_unclean_elections_are_forbidden() -> None:
    it = offline(allowed=False)
    asking = Asking(it)
    die(it, 1)
    assert leader(it) == -1
    assert not asking.waits


def test_without_any_answer_the_first_replica_leads_as_under_kafka() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    asking.answer()
    assert leader(it) == 2
    assert records(it) == [("evidence", "t", 0, -1, None, None), ("elected", "t", 0, 2, 0, [1, 2])]


def test_of_two_the_one_that_has_answered_leads() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    asking.answer(t0=Evidence({3: LogEnd(0, 1)}, {2: "silent"}))
    assert leader(it) == 3


def test_a_bug_while_asking_costs_the_evidence_only() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    asking.error = ZeroDivisionError()
    asking.answer()
    assert leader(it) == 2


def test_who_died_meanwhile_does_not_lead() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    die(it, 3)
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 2


def test_a_member_of_the_isr_that_stopped_cleanly_and_is_back_leads_whatever_was_told() -> None:
    it = offline()
    asking = Asking(it)
    stop(it, 1)
    it.register(1)
    change(it)
    assert leader(it) == 1
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 1
    assert records(it) == []


def test_evidence_from_before_another_leader_is_void() -> None:
    """Broker 1 led again and died again between question and answer: the logs may have changed."""
    it = offline()
    asking = Asking(it)
    stop(it, 1)
    it.register(1)
    change(it)
    assert leader(it) == 1
    die(it, 1)
    assert leader(it) == -1
    first = [asking.it.shell.log_questions.open]
    asking.answer(t0=BETTER_ON_3)
    assert first == [1]
    assert leader(it) == 3
    epochs = [asked[T0].leader_epoch for asked in asking.rounds]
    assert epochs == sorted(epochs)
    assert it.znodes.states[T0].leader_epoch == epochs[-1] + 1


def test_many_partitions_are_asked_about_together() -> None:
    it = offline([1, 2, 3], [1, 3, 2])
    asking = Asking(it)
    die(it, 1)
    asking.answer(t0=BETTER_ON_3, t1=Evidence({2: LogEnd(0, 9), 3: LogEnd(0, 8)}))
    assert [set(asked) for asked in asking.rounds] == [{T0, T1}]
    assert (leader(it, T0), leader(it, T1)) == (3, 2)


def test_a_topic_deleted_meanwhile_is_left_alone() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    asking.answer(t0=BETTER_ON_3)
    assert records(it) == []


def test_the_end_of_the_term_ends_the_question() -> None:
    it = offline()
    asking = Asking(it)
    die(it, 1)
    it.failover()  # which asks anew
    assert leader(it) == -1
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 3


# -- by request --------------------------------------------------------------------------------------------------------


class Client:
    """Asks for elections, and keeps the answers."""

    def __init__(self, it: PureCluster, *partitions: TopicPartition) -> None:
        self.answers: list[Any] = []
        self.event = ev.ReplicaLeaderElection(
            reply=Reply(self.answers.append), partitions=partitions or None, election_type=ElectionType.UNCLEAN
        )
        it.queue.append(self.event)
        it.step()

    @property
    def codes(self) -> dict[TopicPartition, Code]:
        [answer] = self.answers
        return {tp: code for tp, (code, _) in answer.items()}


def test_an_election_by_request_waits_for_the_answers() -> None:
    it = offline(allowed=False)
    it.znodes.unclean_by_request = True
    asking = Asking(it)
    die(it, 1)
    client = Client(it, T0, TopicPartition("gone", 0))
    assert client.answers == []
    assert client.event.reply.deferred
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 3
    assert client.codes == {T0: Code.NONE, TopicPartition("gone", 0): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert it.shell.log_questions.requests == []


def test_two_requests_about_one_partition_get_the_same_answer() -> None:
    it = offline([1, 2, 3], [1, 2, 3], allowed=False)
    it.znodes.unclean_by_request = True
    asking = Asking(it)
    die(it, 1)
    clients = Client(it, T0), Client(it)
    asking.answer(t0=BETTER_ON_3)
    assert [client.codes for client in clients] == [{T0: Code.NONE}, {T0: Code.NONE, T1: Code.NONE}]
    assert (leader(it, T0), leader(it, T1)) == (3, 2)


def test_a_request_is_answered_although_the_topic_goes() -> None:
    it = offline([1, 2, 3], [1, 2, 3], allowed=False)
    it.znodes.unclean_by_request = True
    asking = Asking(it)
    die(it, 1)
    client = Client(it)
    it.znodes.deletions["t"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    asking.answer()
    assert set(client.codes.values()) <= {Code.INVALID_TOPIC_EXCEPTION, Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_request_is_refused_when_the_term_ends() -> None:
    it = offline(allowed=False)
    it.znodes.unclean_by_request = True
    Asking(it)
    die(it, 1)
    client = Client(it, T0)
    it.failover()
    assert client.answers == [Code.NOT_CONTROLLER]
    assert it.shell.log_questions.requests == []


def test_a_request_is_told_if_all_replicas_have_died_meanwhile() -> None:
    it = offline(allowed=False)
    it.znodes.unclean_by_request = True
    asking = Asking(it)
    die(it, 1)
    client = Client(it, T0)
    die(it, 2)
    die(it, 3)
    asking.answer(t0=BETTER_ON_3)
    assert client.codes == {T0: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_many_records_let_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    it = offline(*[[1, 2, 3]] * 5)
    asking = Asking(it)
    die(it, 1)
    breaths = 0

    async def breathe() -> None:
        nonlocal breaths
        breaths += 1

    monkeypatch.setattr(it.shell, "breathe", breathe)
    monkeypatch.setattr(unclean_recovery, "COMPARED_AT_ONCE", 2)
    asking.answer(t0=BETTER_ON_3)
    assert breaths >= 6


def test_many_partitions_are_asked_about_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although other tasks run while the questions are put together."""
    monkeypatch.setattr(state_changes, "ASKED_AT_ONCE", 2)
    it = offline(*[[1, 2, 3]] * 5)
    asking = Asking(it)
    die(it, 1)
    asking.answer()
    assert [len(asked) for asked in asking.rounds] == [5]


class Operator:
    """Asks for a recovery of topic t, and keeps the answer."""

    def __init__(self, it: PureCluster, *, leader: int | None = None, dry_run: bool = False) -> None:
        self.answers: list[Any] = []
        reply = Reply(self.answers.append)
        it.queue.append(ev.RecoverPartitions(reply=reply, topic="t", leader=leader, dry_run=dry_run))
        it.step()

    @property
    def results(self) -> list[tuple[str, int | None]]:
        [answer] = self.answers
        return [(found.result, found.leader) for found in answer]


def forbidden(*partitions: list[int]) -> tuple[PureCluster, Asking]:
    """Unclean elections are not allowed, and broker 1 has died."""
    it = offline(*partitions, allowed=False)
    it.znodes.unclean_by_request = True
    asking = Asking(it)
    die(it, 1)
    return it, asking


@pytest.mark.parametrize(
    "leader, dry_run, result, after",
    [
        (None, False, ("elected", 3), 3),
        (2, False, ("elected", 2), 2),
        (1, False, ("failed", None), -1),
        (None, True, ("would elect", 3), -1),
        (2, True, ("would elect", 2), -1),
    ],
)
def test_an_operator_recovers(leader: int | None, dry_run: bool, result: tuple[str, int | None], after: int) -> None:
    it, asking = forbidden()
    operator = Operator(it, leader=leader, dry_run=dry_run)
    assert operator.answers == []
    asking.answer(t0=BETTER_ON_3)
    assert operator.results == [result]
    assert it.znodes.states[T0].leader == after


def test_a_lone_replica_does_not_lead_in_the_place_of_the_one_that_is_wanted() -> None:
    """The answers are void, since broker 1 led again meanwhile; broker 3, which was wanted, is dead by now."""
    it, asking = forbidden()
    operator = Operator(it, leader=3)
    it.register(1)
    change(it)
    die(it, 1)
    die(it, 3)
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == -1
    assert operator.results == [("failed", None)]


def test_the_order_of_a_dry_run_and_an_election_does_not_matter() -> None:
    it, asking = forbidden()
    looking, acting = Operator(it, dry_run=True), Operator(it, leader=2)
    asking.answer(t0=BETTER_ON_3)
    assert looking.results == [("would elect", 3)]
    assert acting.results == [("elected", 2)]
    assert leader(it) == 2


# -- by the clock ------------------------------------------------------------------------------------------------------


def aggressive(monkeypatch: pytest.MonkeyPatch, strategy: str = "Aggressive") -> tuple[PureCluster, Asking]:
    """Unclean elections are not allowed; broker 1, the only one in sync, has just died."""
    it = offline(allowed=False)
    it.znodes.unclean_by_request = True
    changed = msgspec.structs.replace(it.shell.config, aiocontroller_unclean_recovery_strategy=strategy)
    it.shell.config = changed
    asking = Asking(it)
    die(it, 1)
    return it, asking


def sweep(it: PureCluster, monkeypatch: pytest.MonkeyPatch, at_s: float) -> None:
    monkeypatch.setattr(StillClock, "monotonic", lambda self: at_s)
    it.queue.append(ev.OfflinePartitionsSweep())
    it.step()


def test_the_best_log_leads_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = aggressive(monkeypatch)
    for at_s in (5, 300):
        sweep(it, monkeypatch, at_s)
        assert not asking.waits
    sweep(it, monkeypatch, 305)
    assert asking.waits
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 3
    assert it.shell.log_questions.requests == []


def test_nobody_leads_of_whom_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = aggressive(monkeypatch)
    for at_s in (5, 305):
        sweep(it, monkeypatch, at_s)
    asking.answer()
    assert leader(it) == -1
    sweep(it, monkeypatch, 310)  # and it is tried again
    asking.answer(t0=BETTER_ON_3)
    assert leader(it) == 3


def test_nobody_is_asked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = aggressive(monkeypatch, "None")
    for at_s in (5, 305, 1000):
        sweep(it, monkeypatch, at_s)
    assert not asking.waits
    assert leader(it) == -1
