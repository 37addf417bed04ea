"""What happens while replicas are asked how far their logs reach: others start, replicas move, answers become void."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.log_evidence import Evidence
from tests.unit.controller.leaderless import T0, Asking, die, leader, stop
from tests.unit.controller.pure_cluster import PureCluster
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


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
@pytest.mark.parametrize("again", [False, True])
def test_no_replica_that_has_just_started_is_left_out(strategy: str, again: bool) -> None:
    """Broker 3 has the whole log; it starts, or starts again, while the others tell where theirs end."""
    it, asking = begun(strategy, 1)
    die(it, 1)
    if not again:
        die(it, 3)
    come(it, 1)
    gather = asking.gather

    async def gather_before_it_starts(*args: Any) -> Any:
        asking.evidence = {T0: Evidence({1: CUT, 2: CUT, **({3: WHOLE} if 3 in args[0] else {})})}
        found = await gather(*args)
        if len(asking.rounds) == 1:
            if again:
                it.unregister(3)
            it.register(3)
            it.queue.append(ev.BrokerChange())
        return found

    it.shell.log_questions.start(asking, gather_before_it_starts)
    asking.answer()
    assert state(it) == (3, (3,))
    assert len(asking.rounds) == 2


@pytest.mark.parametrize("between_terms", [False, True])
@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_no_replica_outside_the_isr_leads_while_its_members_are_about_to_be_taken_in(
    strategy: str, between_terms: bool
) -> None:
    """Brokers 1 and 2 have started again, and broker 3 alone lives while that is dealt with."""
    it, asking = begun(strategy, 1, 2)
    it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    start_again(it, 1, 2, between_terms=between_terms)
    assert leader(it) == -1
    asking.answer(t0=Evidence({1: WHOLE, 2: WHOLE, 3: CUT}))
    assert leader(it) in (1, 2)


@pytest.mark.parametrize("between_terms", [False, True])
def test_nor_does_a_member_lead_alone_while_another_replica_is(between_terms: bool) -> None:
    it, asking = begun("None", 1)
    die(it, 3)
    die(it, 1)
    if between_terms:
        start_again(it, 1, 2, between_terms=True)
    else:
        come(it, 1)
        start_again(it, 2)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert state(it) == (2, (2,))


def test_one_that_is_gone_before_it_is_taken_in_keeps_nobody_from_leading() -> None:
    it, _ = begun("None", 1)
    it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    die(it, 2)
    it.register(1)
    it.failover()
    it.unregister(1)
    it.step()
    assert leader(it) == -1
    it.queue.append(ev.OfflinePartitionsSweep())
    it.step()
    assert state(it) == (3, (3,))


def start_again(it: PureCluster, *brokers: int, between_terms: bool = False) -> None:
    """Nobody has seen them gone: they have registered anew when the controller looks."""
    if between_terms:
        for broker in brokers:
            it.register(broker)
        it.failover()
        it.step()
    else:
        come(it, *brokers)


def test_a_look_is_asked_again_if_its_answers_are_void() -> None:
    """The leader epoch has risen meanwhile, and no election asks: broker 2 is awaited."""
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    operator = Operator(it, dry_run=True)
    move(it, 1, 2, 3, 4)
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert (operator.found.result, operator.found.leader) == ("would elect", 3)
    assert leader(it) == -1


# -- while the one that has returned does not listen yet ---------------------------------------------------------------


@pytest.mark.parametrize("rounds, after", [(1, 3), (3, 3), (4, 1)])
def test_it_is_asked_again_until_it_listens(monkeypatch: pytest.MonkeyPatch, rounds: int, after: int) -> None:
    """But not for ever: our connections may be refused where others are not."""
    it, asking = begun("None", 1)
    die(it, 1)
    come(it, 1)
    for _ in range(rounds):
        asking.answer(t0=Evidence({2: CUT, 3: WHOLE}, {1: "nothing listens"}, unheard=(1,)))
        sweep(it, monkeypatch, 0)
    asking.answer(t0=Evidence({1: CUT, 2: CUT, 3: WHOLE}))
    assert state(it) == (after, (after,))


# -- while the one that has returned stops again -----------------------------------------------------------------------


def unproven(strategy: str) -> tuple[PureCluster, Asking]:
    """Broker 1, alone in the ISR, is back, and its log has not been compared; with Balanced broker 2 is awaited."""
    it, asking = begun(strategy, 1, min_isr=1 if strategy == "None" else 2)
    die(it, 2)
    die(it, 1)
    come(it, 1)
    assert state(it) == (-1, (1,))
    return it, asking


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_clean_stop_proves_nothing_while_the_log_has_not_been_compared(strategy: str, times: int) -> None:
    it, asking = unproven(strategy)
    for _ in range(times):
        stop(it, 1)
        come(it, 1)
    assert state(it) == (-1, (1,))
    come(it, 2)
    asking.answer(t0=Evidence({1: CUT, 2: CUT, 3: WHOLE}))
    assert state(it) == (3, (3,))


def test_the_next_controller_does_not_take_it_for_proven_either() -> None:
    it, asking = unproven("Balanced")
    stop(it, 1)
    it.failover()
    come(it, 1)
    assert leader(it) == -1
    come(it, 2)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: CUT}))
    assert state(it) == (2, (2,))


def test_a_clean_stop_proves_it_once_it_has_led() -> None:
    it, asking = begun("Balanced", 1)
    die(it, 1)
    come(it, 1)
    asking.answer(t0=Evidence({1: WHOLE, 2: CUT, 3: CUT}))
    stop(it, 1)
    assert leader(it) == -1
    come(it, 1)
    assert state(it) == (1, (1,))
    assert not asking.waits


# -- while replicas move -----------------------------------------------------------------------------------------------


def move(it: PureCluster, *target: int) -> None:
    it.znodes.reassignment = {T0: target}
    it.queue.append(ev.ZkPartitionReassignment())
    it.step()


def replicas(it: PureCluster) -> tuple[int, ...]:
    return it.znodes.topics["t"].partitions[0].replicas


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_a_move_that_could_end_does_not_have_it_lead_unasked(strategy: str) -> None:
    """Broker 3, which the move removes, has the whole log; the new assignment does not name it any more."""
    it, asking = begun(strategy, 1)
    die(it, 2)
    die(it, 1)
    move(it, 1)
    come(it, 1)
    assert leader(it) == -1
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert state(it) == (3, (3,))
    assert replicas(it) == (1, 2, 3)
    shrink(it, 3, 1)
    assert (state(it)[0], replicas(it)) == (1, (1,))


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_a_move_ends_once_the_logs_have_decided(strategy: str) -> None:
    """Nothing else would end it: the leader is the whole target, so its ISR does not change any more."""
    it, asking = begun(strategy, 1)
    die(it, 1)
    move(it, 1)
    come(it, 1)
    asking.answer(t0=Evidence({1: WHOLE, 2: CUT, 3: CUT}))
    assert (state(it), replicas(it)) == ((1, (1,)), (1,))
    assert it.shell.context.partitions_being_reassigned == {}
