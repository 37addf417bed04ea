"""Made-up histories of clusters that were there before the run, as rehearsals begin with them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper import paths, znodes
from tests.unit.lab.checkers.history_story import CASES, Case, Story

EPOCH = 4
"""Of the controller before the run."""


class Begun(Story):
    """Before the run t-0 was on brokers 0, 1 and 2, led by 0 in leader epoch 6; nobody has won an election since."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self.history = module.ZNodeHistory(self.there.__contains__, lambda broker: 0, lambda: self.now_s)
        self.there.add(paths.CONTROLLER)
        self.began(paths.CONTROLLER_EPOCH, b"%d" % EPOCH)
        for broker in range(3):
            self.began(f"{paths.BROKER_IDS}/{broker}", b"{}")
        self.began(paths.topic("t"), b'{"version":3,"topic_id":"%s","partitions":{"0":[0,1,2]}}' % (b"A" * 22))
        self.began_with_state()

    def began(self, path: str, data: bytes) -> None:
        self.history.existed_before(path, data)

    def began_with_state(self, leader: int = 0, *, controller_epoch: int = EPOCH) -> None:
        [data] = znodes.encode_partition_states([LeaderAndIsr(leader, 6, (0, 1), controller_epoch, 0)])
        self.began(paths.topic_partition_state("t", 0), data)

    def wins(self, epoch: int) -> None:
        """Session 7 writes this controller epoch."""
        self.change(paths.CONTROLLER_EPOCH, b"%d" % epoch, 1)


def case(violated: str = "") -> Callable[[Callable[[Begun], None]], Callable[[Begun], None]]:
    """``violated`` names what is found in the story, in order."""

    def add(scenario: Callable[[Begun], None]) -> Callable[[Begun], None]:
        def play(module: ModuleType) -> list[str]:
            story = Begun(module)
            scenario(story)
            return [found.invariant.replace(" ", "-") for found in story.history.violations]

        CASES.append(Case(scenario.__name__, play, violated.split()))
        return scenario

    return add


@case()
def a_cluster_goes_on(s: Begun) -> None:
    assert s.history.states["t", 0] == LeaderAndIsr(0, 6, (0, 1), EPOCH, 0)
    assert s.history.assigned["t", 0] == {0, 1, 2}
    s.wins(EPOCH + 1)
    s.state(1, 7, (1,), controller_epoch=EPOCH + 1)


@case()
def a_cluster_without_a_past_begins_with_epoch_0(s: Begun) -> None:
    s.history = type(s.history)(s.there.__contains__)
    s.wins(0)
    s.wins(1)


@case("I2")
def the_epoch_from_before_is_won_again(s: Begun) -> None:
    s.wins(EPOCH)


@case("I2")
def an_epoch_is_written_twice(s: Begun) -> None:
    s.wins(EPOCH + 1)
    s.wins(EPOCH + 1)


@case()
def a_state_from_before_bears_the_epoch_that_is_won(s: Begun) -> None:
    """The winner begins again with the same epoch, and then with a higher one."""
    s.began_with_state(controller_epoch=EPOCH + 1)
    s.wins(EPOCH + 1)
    s.wins(EPOCH + 1)


@case("I2")
def an_earlier_state_bears_the_highest_epoch(s: Begun) -> None:
    """What counts is the highest epoch of all states."""
    s.began_with_state(controller_epoch=EPOCH + 2)
    s.began_with_state(controller_epoch=EPOCH + 1)
    s.wins(EPOCH + 1)
    s.wins(EPOCH + 1)


@case("one-leader one-leader I3")
def another_leads_in_the_leader_epoch_from_before(s: Begun) -> None:
    s.wins(EPOCH + 1)
    s.state(1, 6, (1,), controller_epoch=EPOCH + 1)


@case()
def beginnings_are_a_part_of_the_digest(s: Begun) -> None:
    before = s.history.digest.hexdigest()
    s.began_with_state()
    once = s.history.digest.hexdigest()
    s.began_with_state(controller_epoch=EPOCH - 1)
    assert len({before, once, s.history.digest.hexdigest()}) == 3
