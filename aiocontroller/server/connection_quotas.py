"""How many connections there may be, and who has to make room (Kafka's ``ConnectionQuotas``).

Rules.
 * ``max.connections.per.ip`` and its overrides refuse who comes, as in Kafka.
 * When all places are taken, who comes takes the place of another connection, of the address that has most of them:
   first of one that has never asked for anything, then of the one that has been idle for longest, at last of the one
   whose request has been under way for longest.  So idle connections, however many, keep nobody out.  (Kafka leaves
   them waiting, and makes room in this way on the listener between brokers only.)
 * A place is a descriptor: what is left for ZooKeeper, brokers, HTTP and files is subtracted before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

NO_LIMIT = 2**31 - 1
"""Kafka's default of ``max.connections``."""


class Guest(Protocol):
    """A connection that may have to go."""

    address: str

    def evict(self) -> None:
        """End at once; ``ConnectionQuotas.leave`` may come later."""


class _Address:
    """The connections of one IP address, each kind in the order in which they came to it."""

    __slots__ = ("busy", "idle", "silent")

    def __init__(self) -> None:
        self.silent: OrderedDict[Guest, None] = OrderedDict()
        """Has not asked for anything yet."""
        self.idle: OrderedDict[Guest, None] = OrderedDict()
        self.busy: OrderedDict[Guest, None] = OrderedDict()
        """A request is under way."""

    def __len__(self) -> int:
        return len(self.silent) + len(self.idle) + len(self.busy)

    def drop(self, guest: Guest) -> bool:
        return (
            self.busy.pop(guest, self) is None
            or self.idle.pop(guest, self) is None
            or self.silent.pop(guest, self) is None
        )

    def oldest(self) -> Guest:
        return next(iter(self.silent or self.idle or self.busy))


class ConnectionQuotas:
    def __init__(
        self,
        places: Callable[[], int],
        per_ip: int = NO_LIMIT,
        overrides: Mapping[str, int] | None = None,
    ) -> None:
        """``places``: how many there may be now, which may change with the number of brokers."""
        self._places = places
        self._per_ip = per_ip
        self._overrides = dict(overrides or {})
        self._addresses: dict[str, _Address] = {}
        self._count = 0
        self.evicted = 0

    def __len__(self) -> int:
        return self._count

    def refusal(self, address: str) -> str | None:
        """Why somebody at this address may not come in now; where there is none, there is room afterwards."""
        most = self._overrides.get(address, self._per_ip)
        known = self._addresses.get(address)
        if (0 if known is None else len(known)) >= most:
            return f"{address} has its {most} connections (max.connections.per.ip)"
        return None if self.make_room() else f"all {self._places()} places are taken"

    def make_room(self) -> bool:
        """End connections until one more may come; False when there is none to end."""
        while self._count >= self._places():
            if not self._addresses:
                return False
            crowd = max(self._addresses.values(), key=len)
            guest = crowd.oldest()
            self.evicted += 1
            self.leave(guest)
            guest.evict()
        return True

    def enter(self, guest: Guest) -> None:
        found = self._addresses.get(guest.address)
        if found is None:
            found = self._addresses[guest.address] = _Address()
        found.silent[guest] = None
        self._count += 1

    def leave(self, guest: Guest) -> None:
        """Idempotent."""
        found = self._addresses.get(guest.address)
        if found is not None and found.drop(guest):
            self._count -= 1
            if not len(found):
                del self._addresses[guest.address]

    def begin(self, guest: Guest) -> None:
        """It asks for something."""
        found = self._addresses.get(guest.address)
        if found is not None and found.drop(guest):
            found.busy[guest] = None

    def end(self, guest: Guest) -> None:
        """It has its answer."""
        found = self._addresses.get(guest.address)
        if found is not None and found.drop(guest):
            found.idle[guest] = None
