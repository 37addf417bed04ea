"""Which debts are given up, paid, or asked for again."""

from __future__ import annotations

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debt_changes import (
    AFTER_SILENCE_S,
    FIRST_RETRY_S,
    LONGEST_RETRY_S,
    held_back,
    plan_freed,
    plan_giving_up,
    read_answer,
    retry_delay_s,
    rows_by_broker,
    rows_of_debtors,
)
from aiocontroller.core.debts import Debt, Deletions
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import StopReplicaResponseReceived
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import ReplicaState
from tests.builders import ctx, topic_id

OLD = b"an earlier topic"


def cluster(*, epoch: int = 7) -> ControllerContext:
    """Broker 1 owes an earlier t-0, the present t-1, an earlier t-2 of which it is no replica, and an unknown u-0."""
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2], [2]]}, epoch=epoch)
    context.debts.set(1, "t", {0: OLD, 1: topic_id("t"), 2: OLD}, 0)
    context.debts.set(1, "u", {0: OLD}, 0)
    return context


@pytest.mark.parametrize(
    "last_epoch, overtaken",
    [(7, []), (6, []), (5, ["t-0 on broker 1"]), (8, ["t-0 on broker 1"]), (0, ["t-0 on broker 1"])],
)
def test_debts_that_another_controller_has_overtaken_are_given_up(last_epoch: int, overtaken: list[str]) -> None:
    """A replica of the same topic is never owed; of an earlier one only if debts were managed all the time."""
    found = plan_giving_up(cluster(), last_epoch)
    assert [repr(debt) for debt in found.overtaken] == overtaken
    assert sorted(map(repr, found.changes.forgotten())) == sorted(["t-1 on broker 1", *overtaken])


def test_rows_of_topics_that_debts_name() -> None:
    assert rows_of_debtors(cluster()) == [0, 1, 2]
    assert rows_of_debtors(ctx(brokers=1, topics={"t": [[1]]})) == []


def answer(
    debts: list[Debt], codes: dict[tuple[str, int], int], *, epoch: int = 101, error: int = 0
) -> StopReplicaResponseReceived:
    errors = tuple((topic, partition, code) for (topic, partition), code in codes.items())
    return StopReplicaResponseReceived(1, epoch, error, errors, Deletions(debts=debts))


def test_a_broker_pays_refuses_or_does_not_answer() -> None:
    context = cluster()
    debts = context.debts.of_broker(1)
    unknown = Debt(1, "t", OLD, 0)
    fenced = KafkaErrorCode.FENCED_LEADER_EPOCH
    codes = {("t", 0): 0, ("t", 1): fenced, ("t", 2): KafkaErrorCode.KAFKA_STORAGE_ERROR, ("u", 0): 0}
    found = read_answer(context, answer([*debts, unknown], codes))
    assert [repr(debt) for debt in found.paid] == ["t-0 on broker 1", "u-0 on broker 1"]
    assert {repr(debt): is_fenced for debt, is_fenced in found.refused.items()} == {
        "t-1 on broker 1": True,
        "t-2 on broker 1": False,
    }
    assert unknown not in found.paid, "an equal debt is another one"
    silent = read_answer(context, answer(debts, {}, error=KafkaErrorCode.REQUEST_TIMED_OUT))
    assert (silent.paid, list(silent.refused.values())) == ([], [False] * 4)
    assert read_answer(context, answer(debts, codes, epoch=100)) == ([], {}), "another incarnation"


def test_a_broker_is_asked_later_and_later() -> None:
    assert [retry_delay_s(n, silent=False) for n in range(3)] == [FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
    assert retry_delay_s(0, silent=True) == AFTER_SILENCE_S
    assert retry_delay_s(10**6, silent=False) == LONGEST_RETRY_S


def test_rows_that_a_broker_may_hear_of_now() -> None:
    context = cluster()
    context.hold_back([0, 1, 2])
    assert context.held_back == {1: {0}}
    gone = context.debts.of_broker(1)
    assert rows_by_broker(context, gone) == {1: [0, 1, 2]}
    assert held_back(context, 1, [2, 0, 1]) == [0]
    assert held_back(context, 2, [0]) == []
    set_replica_states(context.table, {1: [0]}, ReplicaState.NewReplica)
    freed = plan_freed(context, 1, [0, 1])
    assert (freed.new, freed.staying) == ([0], {1: [1]})
