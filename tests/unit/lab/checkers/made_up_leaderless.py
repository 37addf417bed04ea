"""Made-up partitions without a leader."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from aiocontroller.core.ids import LeaderAndIsr
from tests.unit.lab.checkers.complaints import Ear, case
from tests.unit.lab.checkers.history_story import Case

LEADERLESS: list[Case] = []


class Waiting(Ear):
    def __init__(self, module: ModuleType) -> None:
        super().__init__()
        self.leaderless = module.Leaderless(self.complain)

    def look(
        self,
        after_s: float,
        leader: int,
        isr: tuple[int, ...] = (1, 2),
        *,
        able: bool = True,
        damaged: tuple[int, ...] = (),
    ) -> None:
        self.later(after_s)
        states = {("t", 0): LeaderAndIsr(leader, 0, isr, 1, 0), ("t", 1): LeaderAndIsr(2, 0, isr, 1, 0)}
        self.leaderless.look(self.now_s, states, {2, 3}, damaged, able=able)


def waited(violated: str = "") -> Callable[[Callable[[Waiting], None]], Callable[[Waiting], None]]:
    return case(LEADERLESS, Waiting, violated)


@waited("leaderless")
def no_leader_for_long(w: Waiting) -> None:
    w.look(0, -1)
    w.look(5, -1)
    w.look(0.5, -1)


@waited("leaderless")
def a_dead_leader_for_long(w: Waiting) -> None:
    w.look(0, 1)
    w.look(5.5, 1)


@waited()
def a_leader_is_elected_that_has_just_died(w: Waiting) -> None:
    w.look(0, 1)
    w.look(3.5, 1)
    w.look(0, 4)
    w.look(3.5, 4)


@waited("leaderless")
def none_is_elected_after_a_dead_leader(w: Waiting) -> None:
    w.look(0, 1)
    w.look(3, 1)
    w.look(0, -1)
    w.look(2.5, -1)


@waited("leaderless")
def a_dead_leader_is_elected_and_stays(w: Waiting) -> None:
    w.look(0, 1)
    w.look(1, 1)
    w.look(0, 4)
    w.look(5.5, 4)


@waited()
def no_replica_in_sync_is_alive(w: Waiting) -> None:
    w.look(0, -1, (1, 4))
    w.look(11, -1, (1, 4))


@waited()
def a_damaged_broker_leads_or_cannot_lead(w: Waiting) -> None:
    w.look(0, 3, damaged=(3,))
    w.look(11, 3, damaged=(3,))
    w.look(0, -1, damaged=(2,))
    w.look(11, -1, damaged=(2,))


@waited()
def a_leader_in_time(w: Waiting) -> None:
    w.look(0, -1)
    w.look(5, 2)
    w.look(9, -1)
    w.look(0.5, -1)


@waited("leaderless")
def no_leader_now_and_then(w: Waiting) -> None:
    for _ in range(4):
        w.look(100, 2)
        w.look(50, -1)
        w.look(3.5, -1)


@waited("leaderless")
def each_of_two_losses_of_a_broker_handled_late(w: Waiting) -> None:
    for _ in range(2):
        w.look(100, 2)
        w.look(50, -1)
        w.look(5, -1)


@waited()
def no_leader_for_as_long_as_may_be(w: Waiting) -> None:
    for _ in range(2):
        w.look(100, 2)
        w.look(50, -1)
        w.look(2, -1)
        w.look(50, -1, able=False)
        w.look(50, -1)
        w.look(1.5, -1)


@waited()
def a_controller_that_could_not_elect(w: Waiting) -> None:
    w.look(0, -1)
    w.look(9, -1, able=False)
    w.look(9, -1)
    w.look(5, -1)
