"""A journal in memory whose records an observer receives."""

from __future__ import annotations

from collections.abc import Callable

from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.journal.records import Record
from aiocontroller.lab.simulated_net import SimulatedClock


class ObservedJournal(MemoryJournal):
    """Passes each record to an observer when it is made."""

    def __init__(self, node: int, clock: SimulatedClock, observe: Callable[[Record], None]) -> None:
        super().__init__(node, clock)
        self._observe = observe

    def _put(self, record: Record) -> None:
        super()._put(record)
        self._observe(record)
