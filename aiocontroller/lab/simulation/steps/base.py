"""Common parts of all steps: choosing targets, drawing values, and injecting a fault into a process.

A step's arguments name its target and values; missing ones are drawn from the step's own seed.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.scenarios.arguments import StepArgumentError, known_number, naming, seconds
from aiocontroller.lab.scenarios.background import BackgroundTasks
from aiocontroller.lab.scenarios.plan import Step

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Process, Simulation

log = logging.getLogger(__name__)

Targets = dict[TopicPartition, tuple[int, ...] | None]


class StepTaker(BackgroundTasks):
    """``take`` calls the method ``step_KIND`` for a step."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.simulation = simulation
        self.taken: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        """The topics that the operator has created -> their number of partitions."""
        self.chance = random.Random(0)
        self._arguments: deque[str] = deque()
        self._last_asked: Targets = {}
        self._moves: dict[TopicPartition, int] = {}
        """How many moves of each partition were requested."""

    async def take(self, step: Step) -> None:
        self.chance = random.Random(step.seed)
        self._arguments = deque(step.arguments)
        self.taken[step.kind] = self.taken.get(step.kind, 0) + 1
        log.info("%.3f %s", self.simulation.clock.monotonic(), step.kind)
        step_method = getattr(self, f"step_{step.kind}", None)
        if step_method is None:
            raise StepArgumentError(f"{step}: found a verb that simulations do not play (docs/scenarios.md)")
        with naming(step):
            result = step_method()
            if result is not None:
                await result
            if self._arguments:
                raise StepArgumentError(f"found {' '.join(self._arguments)!r}, expected nothing more")
        await self.simulation.clock.sleep(step.pause_s)

    def _one(self, group: dict[int, Any]) -> int | None:
        """Return the member of the group that the next argument names, otherwise a random one; None if the group is
        empty."""
        if self._arguments and group is self.simulation.controllers:
            return self._controller(self._arguments.popleft())
        if self._arguments:
            number = known_number(self._arguments.popleft(), range(1, self.simulation.plan.brokers + 1))
            return number if number in group else None
        return self.chance.choice(sorted(group)) if group else None

    def _each(self, group: dict[int, Any]) -> Iterator[int]:
        """Yield the members of the group that the arguments name, otherwise one that is drawn, if there is any."""
        first = self._one(group)
        if first is not None:
            yield first
        while self._arguments:
            another = self._one(group)
            if another is not None:
                yield another

    def _controller(self, word: str) -> int | None:
        """Return the controller for ``active``, ``standby`` or a number; None if it does not exist."""
        controllers = self.simulation.controllers
        if word not in ("active", "standby"):
            number = known_number(word, range(1, self.simulation.plan.controllers + 1))
            return number if number in controllers else None
        holder = self.simulation.holder()
        chosen = [number for number in controllers if (number == holder) is (word == "active")]
        return self.chance.choice(chosen) if chosen else None

    def _seconds(self, *choices: float) -> float:
        return seconds(self._arguments.popleft()) if self._arguments else self.chance.choice(choices)

    def _rest(self) -> list[str]:
        """Take all arguments that are left."""
        rest = list(self._arguments)
        self._arguments.clear()
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
