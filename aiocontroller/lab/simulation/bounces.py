"""How controllers see that a broker was killed and registered again: as one change, or as a death and a start.

Kafka's controller compares broker epochs for the first case (KIP-380), in which it never sees the broker missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiocontroller.journal.records import Record
from aiocontroller.zookeeper import paths

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.process import Process
    from aiocontroller.lab.simulation.simulation import Simulation

POLL_S = 0.005
UNSEEN_S = 0.8
"""The longest pause of a controller that is not to see a broker missing; silence ends its role after 0.9 s."""
AS_ONE_CHANGE = "a bounce seen as one change"
AS_TWO_CHANGES = "a bounce seen as a death and a birth"


class Bounces:
    """Restarts brokers, and counts by the controllers' journals how they were seen."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._unseen: dict[int, Process] = {}
        """Broker -> the process that has taken its place, which no controller has recorded yet."""
        self._dead: set[int] = set()
        """Those of them whose death a controller has recorded; membership only."""

    async def bounce(self, broker: int, end: Callable[[], None], *, unseen: bool) -> None:
        """Kill a broker by ``end``, which also ends its session, and start it again.

        With ``unseen``, the active controller is paused until the broker has registered.
        """
        simulation = self._simulation
        holder = simulation.holding()
        paused = holder[1].host if unseen and holder is not None and not holder[1].host.paused else None
        if paused is not None:
            paused.pause()
        end()
        simulation.start_broker(broker)
        self._unseen[broker] = simulation.processes[-1]
        self._dead.discard(broker)
        if paused is not None:
            give_up = simulation.clock.monotonic() + UNSEEN_S
            while not self._has_registered(broker) and simulation.clock.monotonic() < give_up:
                await simulation.clock.sleep(POLL_S)
            paused.resume()

    def _has_registered(self, broker: int) -> bool:
        node = self._simulation.model.tree.nodes.get(paths.broker_id(broker))
        running = self._simulation.brokers.get(broker)
        return node is not None and running is not None and node.owner == running[0].session_id

    def recorded(self, record: Record) -> None:
        """A controller has recorded something."""
        broker = record.broker
        if record.kind != "broker" or broker is None or broker not in self._unseen:
            return
        if not self._unseen[broker].alive:
            del self._unseen[broker]
        elif record.detail == "dead":
            self._dead.add(broker)
        elif record.detail == "bounced" or (record.detail == "added" and broker in self._dead):
            self._simulation.history.probe(AS_ONE_CHANGE if record.detail == "bounced" else AS_TWO_CHANGES)
            del self._unseen[broker]
