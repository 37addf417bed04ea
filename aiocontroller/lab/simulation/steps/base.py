"""Common parts of all steps: choosing targets, drawing values, and injecting a fault into a process.

A step's arguments name its target and values; missing ones are drawn from the step's own seed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.scenarios.arguments import StepArgumentError, known_number, naming
from aiocontroller.lab.scenarios.background import BackgroundTasks
from aiocontroller.lab.scenarios.plan import ScenarioStep
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import VERBS, verb_of

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.process import Process
    from aiocontroller.lab.simulation.simulation import Simulation

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
        self._given = Given()
        """The values of the step's arguments that have not been taken yet."""
        self._last_asked: Targets = {}
        self._moves: dict[TopicPartition, int] = {}
        """How many moves of each partition were requested."""

    async def take(self, step: ScenarioStep) -> None:
        self.chance = random.Random(step.seed)
        self.taken[step.kind] = self.taken.get(step.kind, 0) + 1
        log.info("%.3f %s", self.simulation.clock.monotonic(), step.kind)
        step_method = getattr(self, f"step_{step.kind}", None)
        if step_method is None:
            raise StepArgumentError(f"{step}: found a verb that simulations do not play (docs/scenarios.md)")
        with naming(step):
            self._given = VERBS[verb_of(step.kind)].shape.read(step.arguments)
            result = step_method()
            if result is not None:
                await result
            self._given.refuse_rest()
        await self.simulation.clock.sleep(step.pause_s)

    def _one(self, group: dict[int, Any]) -> int | None:
        """Return the controller or broker that the step names, otherwise a random member of the group; None if the
        group is empty, or does not contain it."""
        if group is self.simulation.controllers:
            if (controller := self._given.take("controller")) is not None:
                return self._controller(controller)
        elif (broker := self._given.take("broker")) is not None:
            return self._known(broker, group)
        return self.chance.choice(sorted(group)) if group else None

    def _known(self, broker: int, group: dict[int, Any]) -> int | None:
        """Return the broker if it is in the group; StepArgumentError if the cluster has no such broker."""
        number = known_number(broker, range(1, self.simulation.plan.brokers + 1))
        return number if number in group else None

    def _each(self, group: dict[int, Any]) -> Iterator[int]:
        """Yield the brokers of the group that the step names, otherwise one that is drawn, if there is any."""
        named = self._given.take("brokers")
        if named is None and (drawn := self._one(group)) is not None:
            yield drawn
        for broker in named or ():
            if (member := self._known(broker, group)) is not None:
                yield member

    def _controller(self, word: str | int) -> int | None:
        """Return the controller for ``active``, ``standby`` or a number; None if it does not exist."""
        controllers = self.simulation.controllers
        if isinstance(word, int):
            number = known_number(word, range(1, self.simulation.plan.controllers + 1))
            return number if number in controllers else None
        holder = self.simulation.holding()
        chosen = [number for number, each in controllers.items() if (each == holder) is (word == "active")]
        return self.chance.choice(chosen) if chosen else None

    def _seconds(self, *choices: float) -> float:
        given: float | None = self._given.take("seconds")
        return self.chance.choice(choices) if given is None else given

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
