"""Memory for frames that are being received or answered (Kafka's ``MemoryPool``).

A frame takes its announced size from the pool before it is read any further, and gives it back when its request is
answered.  A connection that finds too little memory is not read until enough has been given back; those that wait are
tried in the order of their arrival.  So all frames together never exceed the pool, and every frame that was started can
be completed.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Protocol

SMALL_BYTES = 8192
"""Frames up to this size take nothing and never wait: the number of connections limits their number."""

LOOKED_AT = 100
"""Waiting connections checked when memory is given back."""


class Receiver(Protocol):
    """A connection that receives a frame."""

    def memory_is_free(self) -> None:
        """The memory that it waited for has been taken for it."""


class MemoryPool:
    """The memory that requests may hold together; connections wait for it in the order of their arrival."""

    def __init__(self, size_bytes: int) -> None:
        """A frame larger than the pool can never be received, so larger frames must be refused."""
        self.size_bytes = size_bytes
        self.used_bytes = self.peak_bytes = 0
        self._waiting: OrderedDict[Receiver, int] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of connections that wait for memory."""
        return len(self._waiting)

    def take(self, receiver: Receiver, size_bytes: int) -> bool:
        """Take memory; False if there is too little: the receiver is called once it has been taken."""
        if self.used_bytes + size_bytes <= self.size_bytes:
            self._use(size_bytes)
            return True
        self._waiting[receiver] = size_bytes
        return False

    def give_back(self, size_bytes: int) -> None:
        """Free bytes; waiting receivers for which there are enough go on."""
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
        """The receiver no longer waits."""
        self._waiting.pop(receiver, None)
