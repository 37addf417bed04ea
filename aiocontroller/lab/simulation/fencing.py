"""What ``aiocontroller.fence.command`` does in the simulation: it kills a broker, late or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiocontroller.net.commands import CommandResult
from aiocontroller.zookeeper import paths

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation


async def fence(
    simulation: Simulation, command: Sequence[str], variables: Mapping[str, str], *, timeout_s: float
) -> CommandResult:
    """Run the command.  It is a violation if the broker leads a partition whose topic is not being deleted."""
    broker, history = int(command[-1]), simulation.history
    for (topic, number), state in history.states.items():
        going = paths.delete_topics_topic(topic) in simulation.model.tree.nodes
        if state.leader == broker and not going and topic not in history.written_by_hand:
            simulation.problems.append(f"fence: broker {broker} is ended and leads {topic}-{number}")
    chance = simulation.chance.source(f"fence {broker} {simulation.clock.monotonic()}")
    await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))
    how = chance.choice(("ends it", "fails", "cannot be started", "hangs"))
    simulation.marks[f"fence/{how}"] += 1
    if how == "cannot be started":
        raise FileNotFoundError(command[0])
    if how == "hangs":
        await asyncio.sleep(timeout_s)
        return CommandResult(None, "")
    if how == "fails":
        return CommandResult(255, "no route to host")
    if broker in simulation.brokers:  # otherwise another step has killed it meanwhile
        simulation.kill(simulation.brokers[broker][1])
    return CommandResult(0, "")
