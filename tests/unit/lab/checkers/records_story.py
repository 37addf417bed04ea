"""The story that made-up histories of records begin with, and the list of their cases."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.logs import Run
from tests.unit.lab.checkers.history_story import Case

T = ("t", 0)
A, B = "A" * 22, "B" * 22
RECORDS: list[Case] = []

Runs = list[tuple[int, int, int]]


class Story:
    """The topic t, with id A, has one partition.  Broker 1 leads in epoch 0 from the beginning, and has records 0 to 9,
    of which those below 6 were acknowledged and are committed."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.found: list[str] = []
        self.complaints: list[str] = []
        self.excused: list[str] = []
        self.topic_ids = {"t": A}
        self.by_hand: dict[str, int] = {}
        self.to_go: set[str] = set()
        self.check = module.DataChecker(
            self.complain, self.excused.append, self.topic_ids, self.by_hand, self.to_go.__contains__
        )
        self.state: LeaderAndIsr | None = None
        self.led(1, 0)
        self.acknowledged(0, 1, 0, 2)
        self.acknowledged(0, 1, 2, 6)
        self.raised(1, 0, 6, (0, 1, 10))

    def complain(self, rule: str, partition: tuple[str, int], detail: str) -> None:
        assert partition[0] == "t"
        self.found.append(rule)
        self.complaints.append(detail)

    def led(self, broker: int, epoch: int, *runs: tuple[int, int, int], topic_id: str = A) -> None:
        self.check.led(broker, T, epoch, [Run(*run) for run in runs], topic_id)

    def acknowledged(self, epoch: int, leader: int, start: int, end: int, topic_id: str = A) -> None:
        self.check.acknowledged(T, self.module.Records(epoch, leader, start, end), topic_id)

    def raised(self, broker: int, epoch: int, hw: int, *runs: tuple[int, int, int], topic_id: str = A) -> None:
        self.check.raised(broker, T, epoch, [Run(*run) for run in runs], hw, topic_id)

    def unclean(self, epoch: int) -> None:
        self.check.elected_uncleanly(T, epoch)

    def elected(self, leader: int, epoch: int, *, unasked: bool = False) -> None:
        self.check.elected(T, leader, epoch, unasked=unasked)

    def in_sync(self, *isr: int) -> None:
        """A state with this ISR was written by a controller that records; all brokers are live."""
        self.check.live = lambda: {1, 2, 3}
        self.check.eligible.term(1)
        self.check.eligible.recorded()
        after = LeaderAndIsr(isr[0], 0, isr, 1, 0)
        self.check.eligible.written(T, self.state, after, (1, 2, 3))
        self.state = after


def case(violated: str = "", excused: str = "") -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    """``violated`` are the rules that the story breaks, ``excused`` parts of what is excused, each in order."""

    def add(scenario: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            scenario(story)
            expected = excused.split(",") if excused else []
            assert len(story.excused) == len(expected), story.excused
            assert all(part in found for part, found in zip(expected, story.excused, strict=True)), story.excused
            return story.found

        RECORDS.append(Case(scenario.__name__, play, violated.split()))
        return scenario

    return add
