"""Early detection: who is trusted again, who is alarming, what moves away, which registration is stale."""

from __future__ import annotations

import pytest

from aiocontroller.core import suspicions
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.suspicions import compare_suspects, followed_by, has_moved_off, is_stale_registration, led_by
from tests.builders import ctx, lead, row_of
from tests.unit.core.playing import Played


def suspicion(broker: int) -> Suspicion:
    return Suspicion(peer=broker, epoch=100 + broker, reason="silent", quiet_s=1.0, since_s=0.0)


def test_suspects_come_and_go() -> None:
    context = ctx(brokers=4, shutting_down=[4])
    context.suspect([1, 2])
    changes = compare_suspects(context, {2: suspicion(2), 3: suspicion(3), 4: suspicion(4)})
    assert changes.trusted == [1]
    assert [s.peer for s in changes.alarming] == [3], "4 closes its listener because it shuts down"


def test_what_moves_away() -> None:
    """Partitions of topics being deleted stay, and so does a follower whose leader is dead."""
    context = ctx(brokers=3, topics={"t": [[1, 2], [2, 1], [2, 1], [3, 1]], "gone": [[1, 2]]}, dead=[3])
    lead(context, "t-2", 2, (2,))
    context.queue_topic_deletion(["gone"])
    context.suspect([1])
    assert led_by(context, 1) == [0]
    assert followed_by(context, 1) == [1]
    lead(context, "t-0", 2, (2, 1))
    assert (led_by(context, 1), followed_by(context, 1)) == ([], [0, 1])


@pytest.mark.parametrize("broker, epoch, stale", [(1, 101, True), (1, 100, False), (2, 102, False), (9, 1, False)])
def test_a_registration_is_stale_while_its_incarnation_is_suspected(broker: int, epoch: int, stale: bool) -> None:
    context = ctx(brokers=2)
    context.suspect([1])
    assert is_stale_registration(context, broker, epoch) is stale


@pytest.mark.parametrize(
    "leader, isr, deleting, moved_off",
    [
        (2, (2,), False, True),
        (1, (1, 2), False, False),
        (2, (2, 1), False, False),
        (-1, (1,), False, False),
        (1, (2,), False, False),
        (1, (1, 2), True, True),
    ],
)
def test_a_broker_has_moved_off_when_it_leads_nothing_and_is_in_no_isr(
    leader: int, isr: tuple[int, ...], deleting: bool, moved_off: bool
) -> None:
    context = ctx(2, {"t": [[1, 2]], "never-led": [[1, 2]]})
    lead(context, "t-0", leader, isr)
    for name in ("t-0", "never-led-0"):
        context.table.topic(row_of(context, name)).deleting = deleting
    context.table.isr_of[row_of(context, "never-led-0")] = NO_ISR
    assert Played(context, has_moved_off(context, 1)).result == moved_off


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_others_may_run_after_so_many_partitions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they share assignments; the others' partitions are not looked at."""
    monkeypatch.setattr(suspicions, "PARTITIONS_AT_ONCE", at_once)
    context = ctx(3, {"t": [[1, 2], [2, 1], [3, 1]] * 4, "u": [[2, 3]] * 9})
    for number in range(12):
        other = context.table.replicas(number)[number % 3 == 0]
        lead(context, f"t-{number}", 2 if other == 1 else other, (2 if other == 1 else other,))
    slices = [list(rows) for rows in context.table.slices_on_broker(1, at_once)]
    assert sorted(row for rows in slices for row in rows) == list(range(12))
    assert all(len(rows) <= at_once for rows in slices)
    played = Played(context, has_moved_off(context, 1))
    assert (played.result, len(played.steps)) == (True, len(slices))
    lead(context, "t-11", 3, (3, 1))
    assert Played(context, has_moved_off(context, 1)).result is False
