"""Memory for frames that are being received or answered (Kafka's ``MemoryPool``).

A frame takes what it announces, before it is read any further, and gives it back when its request is answered.  Who
finds too little left is not read; when something is given back, the first for whom there is enough goes on.  So the
frames in memory are never larger together than the pool, and each that is begun can be finished.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Protocol

SMALL_BYTES = 8192
"""Frames up to here take nothing: their number is bounded by that of the connections, and they never wait."""

LOOKED_AT = 100
"""Of those who wait, when something is given back."""


class Receiver(Protocol):
    def memory_is_free(self) -> None:
        """What it waited for has been taken for it."""


class MemoryPool:
    def __init__(self, size_bytes: int) -> None:
        """A frame that is larger than all of it never fits, so nothing larger may be accepted."""
        self.size_bytes = size_bytes
        self.used_bytes = self.peak_bytes = 0
        self._waiting: OrderedDict[Receiver, int] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Connections that are not read for want of memory."""
        return len(self._waiting)

    def take(self, receiver: Receiver, size_bytes: int) -> bool:
        """Whether it was there; else the receiver hears when it is."""
        if self.used_bytes + size_bytes <= self.size_bytes:
            self._use(size_bytes)
            return True
        self._waiting[receiver] = size_bytes
        return False

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        for receiver, wanted_bytes in list(islice(self._waiting.items(), LOOKED_AT)):
            if self.used_bytes + wanted_bytes <= self.size_bytes:
                del self._waiting[receiver]
                self._use(wanted_bytes)
                receiver.memory_is_free()

    def _use(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def forget(self, receiver: Receiver) -> None:
        """It waits no longer."""
        self._waiting.pop(receiver, None)
