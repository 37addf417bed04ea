"""A process of a simulation: a controller, a broker, a client."""

from __future__ import annotations

import asyncio

from aiocontroller.lab.simulated_net import Host


class Process:
    """A process with a host of its own, which can be killed without notice."""

    def __init__(self, name: str, host: Host, task: asyncio.Task[None]) -> None:
        self.name = name
        self.host = host
        self.task = task
        self.begun = False
        """It runs and is registered among the controllers or brokers."""

    @property
    def alive(self) -> bool:
        """Whether it has neither ended nor been killed."""
        return not (self.task.done() or self.host.crashed)
