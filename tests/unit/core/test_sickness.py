"""The rules of the judge of sickness, observation by observation."""

from __future__ import annotations

import pytest

from aiocontroller.core.sickness import CHANGE_S, CPU, DISK, NETWORK_IN, NETWORK_OUT, PAUSE_S, PER_HOUR, SicknessLimits
from tests.unit.core.sick_cluster import DISK as SLOW_DISK
from tests.unit.core.sick_cluster import FAR, FROZEN, MUTE, SLOW, STEP_S, STUCK, WELL, SickCluster


def settled(brokers: tuple[int, ...] = (1, 2, 3), limits: SicknessLimits | None = None) -> SickCluster:
    it = SickCluster(brokers, limits)
    assert it.run(10) == []
    return it


def seconds_until_sick(it: SickCluster, at_most_s: float = 6.0) -> float:
    began_s = it.now_s
    while it.sick is None:
        it.step()
        assert it.now_s - began_s < at_most_s, "nobody was judged"
    return it.now_s - began_s


@pytest.mark.parametrize(
    "condition, kind, within_s",
    [(SLOW_DISK, DISK, 1.9), (MUTE, NETWORK_OUT, 1.9), (FAR, NETWORK_IN, 1.9), (SLOW, CPU, 6.0)],
)
def test_a_sick_broker_is_judged_within_seconds(condition: str, kind: str, within_s: float) -> None:
    it = settled()
    it.condition[2] = condition
    assert seconds_until_sick(it) <= within_s
    assert it.judge.sick is not None
    assert (it.sick, it.judge.sick.kind, it.judge.sick.epoch) == (2, kind, 72)


def test_a_broker_that_answers_only_now_and_then_is_sick() -> None:
    """All its threads wait for its disk, so after each pause it is too early to believe what it says about its logs."""
    it = settled()
    it.condition[2] = STUCK
    assert seconds_until_sick(it, 10) > 3 * PAUSE_S
    assert it.judge.sick is not None
    assert (it.sick, it.judge.sick.kind) == (2, CPU)
    assert it.judge.sick.evidence.startswith("answered nothing for ")
    it.condition[2] = WELL
    assert it.run(14) == []
    assert it.run(10) == [None]


@pytest.mark.parametrize(
    "times, on_s, off_s", [(5, 0.8, 0.4), (3, 1.2, 0.6), (2, 2.0, 1.0), (2, 4.0, 0.2), (1, 13.0, 1.0)]
)
def test_a_broker_that_pauses_a_few_times_is_not_sick(times: int, on_s: float, off_s: float) -> None:
    """As a collector of garbage stops it."""
    it = settled()
    for _ in range(times):
        it.condition[2] = FROZEN
        assert it.run(on_s) == []
        it.condition[2] = WELL
        assert it.run(off_s) == []
    assert it.run(10) == []


def test_everybody_who_answers_only_now_and_then_is_our_own_fault() -> None:
    it = settled()
    it.condition.update({1: STUCK, 2: STUCK, 3: STUCK})
    assert it.run(30) == []


@pytest.mark.parametrize("slow_s", [0.4, 0.8, 1.2, 1.6, 2.0, 3.0])
def test_a_broker_that_answers_late_for_a_moment_is_not_sick(slow_s: float) -> None:
    """As when its processor is busy with something else, or it compiles what it runs for the first time."""
    it = settled()
    for _ in range(3):
        it.condition[2] = SLOW
        assert it.run(slow_s) == []
        it.condition[2] = WELL
        assert it.run(4) == []
    assert it.judge.held == ()


def test_the_evidence_is_one_line() -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.judge.accused(3, 2, it.now_s + 1)
    seconds_until_sick(it)
    assert it.judge.sick is not None
    assert (
        it.judge.sick.evidence
        == "1.4 s behind 1, 1.4 s behind 3, answers in 2 ms, others in 2 ms, 3 asked to remove it"
    )


def test_a_broker_that_follows_one_leader_needs_another_follower_that_keeps_up() -> None:
    it = SickCluster()
    it.leaders = {1}
    it.run(10)
    it.condition[2] = SLOW_DISK
    assert seconds_until_sick(it) < 2
    assert it.sick == 2
    other = SickCluster((1, 2, 3))
    other.leaders = {1}
    other.run(10)
    other.condition[2] = other.condition[3] = SLOW_DISK
    seconds_until_sick(other)
    assert other.sick == 1  # both followers are stale: it is not one of them that is at fault


def test_a_slow_disk_of_a_broker_that_only_leads_is_not_seen() -> None:
    """docs/sick-brokers.md says so: no other broker waits for it."""
    it = SickCluster()
    it.leaders = {2}
    it.run(10)
    it.condition[2] = SLOW_DISK
    assert it.run(20) == []
    it.condition[2] = STUCK
    assert it.run(20) == [2], "but if all its threads wait, it is"


def test_of_two_brokers_none_is_judged() -> None:
    it = settled((1, 2))
    for condition in (SLOW_DISK, MUTE, SLOW):
        it.condition[2] = condition
        assert it.run(10) == []


def test_two_sick_brokers_are_held() -> None:
    it = settled((1, 2, 3, 4, 5))
    it.condition[4] = it.condition[5] = SLOW_DISK
    assert it.run(10) == []
    assert it.judge.held == (4, 5)
    it.condition[5] = WELL
    seconds_until_sick(it)
    assert (it.sick, it.judge.held) == (4, ())


def test_while_one_is_sick_no_other_is_judged() -> None:
    it = settled((1, 2, 3, 4, 5))
    it.condition[4] = SLOW_DISK
    assert it.run(3) == [4]
    it.condition[5] = SLOW_DISK
    assert it.run(10) == []
    assert (it.sick, it.judge.held) == (4, (5,))


@pytest.mark.parametrize("condition", [SLOW_DISK, MUTE])
def test_an_idle_cluster_is_never_judged(condition: str) -> None:
    it = settled()
    it.idle = True
    it.run(5)
    it.condition[2] = condition
    assert it.run(30) == []


@pytest.mark.parametrize("pause_s", [0.4, 0.8, 1.2, 1.6, 3.0, 13.0])
def test_a_broker_that_was_frozen_is_not_sick(pause_s: float) -> None:
    it = settled()
    it.condition[2] = FROZEN
    assert it.run(pause_s) == []
    it.condition[2] = WELL
    assert it.run(10) == []


@pytest.mark.parametrize("pause_s", [1.2, 3.0, 13.0])
def test_a_broker_that_fetches_only_a_moment_after_its_freeze_is_not_sick(pause_s: float) -> None:
    it = settled()
    it.condition[2] = FROZEN
    assert it.run(pause_s) == []
    it.condition[2] = SLOW_DISK
    assert it.run(0.8) == []
    it.condition[2] = WELL
    assert it.run(10) == []


@pytest.mark.parametrize("pause_s", [0.4, 1.2, 3.0, 60.0])
def test_our_own_sleep_is_no_evidence(pause_s: float) -> None:
    it = settled()
    it.sleep(pause_s)
    assert it.run(10) == []
    it.condition[2] = SLOW_DISK
    it.sleep(pause_s)
    it.condition[2] = WELL
    assert it.run(10) == []


@pytest.mark.parametrize("broker", [1, 2])
def test_a_broker_that_restarts_is_not_judged_and_nobody_else_is(broker: int) -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(0.6)
    it.restart(broker)
    assert it.run(CHANGE_S - STEP_S) == []
    seconds_until_sick(it, 8.0)
    assert it.sick == 2


def test_a_broker_in_controlled_shutdown_is_not_judged() -> None:
    it = settled()
    it.leaving.add(2)
    it.condition[2] = SLOW_DISK
    assert it.run(20) == []


def test_a_broker_is_well_again_only_after_a_while() -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(3)
    it.condition[2] = WELL
    assert it.run(10) == []
    assert it.run(5) == [None]


def test_the_while_doubles_with_each_relapse() -> None:
    it = settled()
    for times in range(1, 4):
        it.condition[2] = SLOW_DISK
        it.run(4)
        it.condition[2] = WELL
        assert it.run(10 * 2 ** (times - 1)) == []
        assert it.run(6) == [None]


def test_a_sick_broker_that_falls_silent_is_not_well() -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(3)
    it.condition[2] = FROZEN
    assert it.run(60) == []
    assert it.sick == 2


def test_a_sick_broker_outside_of_every_isr_is_well_only_when_it_has_caught_up() -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(3)
    it.isr_excluded, it.leaders = {2}, {1, 3}
    it.leader_epoch += 1
    assert it.run(60) == []
    it.condition[2] = WELL
    assert it.run(30) == [None]


def test_a_sick_broker_that_registers_again_is_another_one() -> None:
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(3)
    it.condition[2] = WELL
    it.restart(2)
    assert it.run(1) == [None]


def test_verdicts_are_rare() -> None:
    it = settled(limits=SicknessLimits(healthy_s=1.0))
    verdicts = 0
    for broker in (1, 2, 3) * 6:
        it.condition[broker] = SLOW_DISK
        verdicts += it.run(4) == [broker]
        it.condition[broker] = WELL
        it.run(20)
    assert verdicts == PER_HOUR
    it.condition[1] = SLOW_DISK
    it.run(4)
    assert it.judge.held == (1,)


def test_everybody_slow_is_our_own_fault() -> None:
    it = settled()
    it.condition.update({1: SLOW, 2: SLOW, 3: SLOW})
    assert it.run(20) == []


def test_a_broken_way_between_two_brokers_is_no_sickness() -> None:
    """2 copies nothing from 1, and all the others copy from everybody."""
    it = settled((1, 2, 3, 4))
    for _ in range(100):
        kept = it.ends[(first := next(iter(it.ends)))][2]
        it.step()
        it.ends[first][2] = kept
        assert it.sick is None


def test_a_sick_broker_that_has_new_leaders_is_not_well_before_they_are_known() -> None:
    it = settled(limits=SicknessLimits(healthy_s=1.0))
    it.condition[2] = SLOW_DISK
    it.run(3)
    for _ in range(3):
        it.leader_epoch += 1
        assert it.run(4.0) == []
    assert it.run(60) == []
    assert it.sick == 2


def test_a_sick_broker_that_does_not_tell_where_its_logs_end_is_not_well() -> None:
    """Its other connections go on: the one that is asked for logs may wait behind its disk."""
    it = settled()
    it.condition[2] = SLOW_DISK
    it.run(3)
    it.condition[2] = WELL
    for _ in range(5):
        it.mute_about_logs = {2}
        assert it.run(8) == []
        it.mute_about_logs = set()
        it.run(0.4)
    assert it.run(30) == [None]
