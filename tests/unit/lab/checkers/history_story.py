"""Made-up histories of a cluster, each with the invariants that it violates; none where nothing is wrong.

A case gets the module whose checker it feeds, so that the same cases judge mutated checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper import paths, znodes


class Case(NamedTuple):
    name: str
    play: Callable[[ModuleType], list[str]]
    """Returns the invariants that the checker finds violated."""
    violated: list[str]


class Story:
    """Session 7 has won epoch 1; t-0 is on brokers 1, 2 and 3, led by 1, and 1 and 2 are in sync; broker 4 has no
    replica, and broker 5 was never registered."""

    def __init__(self, module: ModuleType) -> None:
        self.now_s = 100.0
        self.there: set[str] = set()
        self.epochs = {1: 10, 2: 20}
        self.writer = module.Writer
        self.won = module.Writer(session=7, fenced=True, controller=True)
        self.history = module.ZNodeHistory(
            self.there.__contains__, lambda broker: self.epochs.get(broker, 0), lambda: self.now_s
        )
        self.change("/controller_epoch", b"1", 1)
        for broker in (1, 2, 3, 4):
            self.change(f"/brokers/ids/{broker}", b"{}", writer=self.writer(50 + broker))
        self.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=self.writer(99))
        self.state(version=0)
        self.received = self.history.received
        self.asked = self.history.asked

    def change(self, path: str, data: bytes | None, version: int = 0, writer: Any = None, **more: Any) -> None:
        self.history.changed(path, data, version, writer or self.won, **more)

    def delete(self, path: str, writer: Any = None) -> None:
        self.history.deleted(path, writer or self.won)

    def topic(
        self, partitions: dict[int, list[int]], *, topic_id: str = "", name: str = "t", writer: Any = None
    ) -> None:
        placed = ",".join(f'"{number}":{replicas}' for number, replicas in partitions.items())
        named = f'"topic_id":"{topic_id}",' if topic_id else ""
        self.change(paths.topic(name), f'{{"version":3,{named}"partitions":{{{placed}}}}}'.encode(), writer=writer)

    def state(
        self,
        leader: int = 1,
        epoch: int = 0,
        isr: tuple[int, ...] = (1, 2),
        *,
        version: int = 1,
        of: str = "t-0",
        controller_epoch: int = 1,
        **more: Any,
    ) -> None:
        """Write a state; one after the first unless ``version`` is given."""
        [data] = znodes.encode_partition_states([LeaderAndIsr(leader, epoch, isr, controller_epoch, 0)])
        name, _, number = of.partition("-")
        self.change(paths.topic_partition_state(name, int(number)), data, version, **more)

    def settings(self, text: str) -> None:
        self.change("/config/topics/t", f'{{"version":1,"config":{{{text}}}}}'.encode())

    def later(self, seconds: float) -> None:
        self.now_s += seconds


CASES: list[Case] = []


def case(violated: str = "") -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    """``violated`` names what is found in the story, in order."""

    def add(scenario: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            scenario(story)
            return [found.invariant.replace(" ", "-") for found in story.history.violations]

        CASES.append(Case(scenario.__name__, play, violated.split()))
        return scenario

    return add


STATE = paths.topic_partition_state("t", 0)
UNCLEAN = '"unclean.leader.election.enable":"{}"'
