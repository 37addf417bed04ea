"""What all steps have in common: whom they mean, what they draw, how a process is struck.

A step's words say whom and what; what they do not say is drawn from the step's own seed.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from typing import TYPE_CHECKING, Any

from aiocontroller.chaos.plan import Step
from aiocontroller.chaos.under_way import UnderWay
from aiocontroller.chaos.words import WordsError, amount, seconds, understood
from aiocontroller.core.ids import TopicPartition

if TYPE_CHECKING:
    from aiocontroller.chaos.simulation import Process, Simulation

log = logging.getLogger(__name__)

Targets = dict[TopicPartition, tuple[int, ...] | None]


class StepTaker(UnderWay):
    """``take`` finds the method ``step_KIND`` of a step."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.simulation = simulation
        self.taken: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        """Topics as the operator knows them -> number of partitions."""
        self.chance = random.Random(0)
        self._words: deque[str] = deque()
        self._last_asked: Targets = {}
        self._moves: dict[TopicPartition, int] = {}
        """How many moves of a partition have been asked for."""

    async def take(self, step: Step) -> None:
        self.chance = random.Random(step.seed)
        self._words = deque(step.words)
        self.taken[step.kind] = self.taken.get(step.kind, 0) + 1
        log.info("%.3f %s", self.simulation.clock.monotonic(), step.kind)
        step_method = getattr(self, f"step_{step.kind}", None)
        if step_method is None:
            raise WordsError(f"{step.kind}: found a step that exists in storms of real processes only")
        with understood(step):
            result = step_method()
            if result is not None:
                await result
            if self._words:
                raise WordsError(f"found {' '.join(self._words)!r}, expected nothing more")
        await self.simulation.clock.sleep(step.pause_s)

    def _one(self, group: dict[int, Any]) -> int | None:
        """Who the next word names, else anybody of the group; None when there is nobody."""
        if self._words and group is self.simulation.controllers:
            return self._controller(self._words.popleft())
        if self._words:
            number = amount(self._words.popleft(), range(1, self.simulation.plan.brokers + 1))
            return number if number in group else None
        return self.chance.choice(sorted(group)) if group else None

    def _controller(self, word: str) -> int | None:
        """``active``, ``standby`` or a number; None when there is none."""
        controllers = self.simulation.controllers
        if word not in ("active", "standby"):
            number = amount(word, range(1, self.simulation.plan.controllers + 1))
            return number if number in controllers else None
        holder = self.simulation.holder()
        chosen = [number for number in controllers if (number == holder) is (word == "active")]
        return self.chance.choice(chosen) if chosen else None

    def _seconds(self, *choices: float) -> float:
        return seconds(self._words.popleft()) if self._words else self.chance.choice(choices)

    def _rest(self) -> list[str]:
        """All words that are left."""
        rest = list(self._words)
        self._words.clear()
        return rest

    def _pause_process(self, process: Process, duration_s: float) -> None:
        if not process.host.paused:
            process.host.pause()
            self.simulation.clock.call_later(duration_s, process.host.resume)

    def _end_session(self, session_id: int) -> None:
        model = self.simulation.model
        session = model.sessions.get(session_id)
        if session is not None:
            model.end_session(session, self.simulation.zookeeper.now_ms())
            if session.connection is not None:
                session.connection.end()

    def _cut(self, group: dict[int, tuple[Any, Process]]) -> None:
        number = self._one(group)
        if number is not None:
            self.simulation.network.cut_host(group[number][1].host.name)

    def _pause(self, group: dict[int, tuple[Any, Process]], durations_s: tuple[float, ...]) -> None:
        number = self._one(group)
        duration_s = self._seconds(*durations_s)
        if number is not None:
            self._pause_process(group[number][1], duration_s)
