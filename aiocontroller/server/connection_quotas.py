"""Limits the number of connections, and chooses which one has to make room (Kafka's ``ConnectionQuotas``).

Rules.
 * ``max.connections.per.ip`` and its overrides refuse a new connection, as in Kafka.
 * When all places are taken, a new connection replaces one of the address with the most connections: first one that
   has never sent a request, then the one that has been idle for longest, and last the one with the longest-running
   request.  So idle connections, however many, never keep out new ones.  (Kafka leaves new connections waiting, and
   makes room in this way on the inter-broker listener only.)
 * A listener can have its own limit (``listener.name.<listener>.max.connections``); when it is reached, one of its own
   connections makes room, so that a crowd on it takes no place from another listener.
 * A place is a file descriptor: those reserved for ZooKeeper, brokers, HTTP and files are subtracted first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

NO_LIMIT = 2**31 - 1
"""Kafka's default of ``max.connections``."""


class Guest(Protocol):
    """A connection that may have to make room."""

    address: str

    @property
    def listener(self) -> str:
        """The name of the listener that accepted it."""

    def evict(self) -> None:
        """Close at once; ``ConnectionQuotas.leave`` may be called later."""


class _Address:
    """The connections of one IP address by kind, in order of arrival."""

    __slots__ = ("busy", "idle", "silent")

    def __init__(self) -> None:
        self.silent: OrderedDict[Guest, None] = OrderedDict()
        """No request yet."""
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


class _Room:
    """Places shared by the connections of one listener, or by all."""

    def __init__(self, places: Callable[[], int], where: str = "") -> None:
        self.places = places
        self.where = where
        self.addresses: dict[str, _Address] = {}
        self.count = 0

    def of(self, address: str) -> int:
        known = self.addresses.get(address)
        return 0 if known is None else len(known)

    def next_to_go(self) -> Guest | None:
        """The connection that a new one replaces; None if there is none."""
        if not self.addresses:
            return None
        # Of the addresses with equally many: one with a connection that has never sent a request.
        return max(self.addresses.values(), key=lambda each: (len(each), bool(each.silent))).oldest()

    def enter(self, guest: Guest) -> None:
        found = self.addresses.get(guest.address)
        if found is None:
            found = self.addresses[guest.address] = _Address()
        found.silent[guest] = None
        self.count += 1

    def leave(self, guest: Guest) -> None:
        found = self.addresses.get(guest.address)
        if found is not None and found.drop(guest):
            self.count -= 1
            if not len(found):
                del self.addresses[guest.address]

    def begin(self, guest: Guest) -> None:
        found = self.addresses.get(guest.address)
        if found is not None and found.drop(guest):
            found.busy[guest] = None

    def end(self, guest: Guest) -> None:
        found = self.addresses.get(guest.address)
        if found is not None and found.drop(guest):
            found.idle[guest] = None


class ConnectionQuotas:
    """Limits connections in total, by address and by listener, and makes room where a limit is reached."""

    def __init__(
        self,
        places: Callable[[], int],
        per_ip: int = NO_LIMIT,
        overrides: Mapping[str, int] | None = None,
        per_listener: Mapping[str, int] | None = None,
    ) -> None:
        """``places``: the current limit, which may change with the number of brokers.

        ``overrides`` are by IP address, ``per_listener`` by listener name.
        """
        self._per_ip = per_ip
        self.overrides = dict(overrides or {})
        self._all = _Room(places)
        self._of_listeners = {name: _limited(name, most) for name, most in (per_listener or {}).items()}
        self.evicted = 0

    def __len__(self) -> int:
        return self._all.count

    def refusal(self, address: str, listener: str = "") -> str | None:
        """Why this address may not connect now; None means that room has been made."""
        most = self.overrides.get(address, self._per_ip)
        if self._all.of(address) >= most:
            return f"{address} has its {most} connections (max.connections.per.ip)"
        full = next((room for room in self._rooms(listener) if not self._make_room(room)), None)
        return None if full is None else f"all {full.places()} places{full.where} are taken"

    def _make_room(self, room: _Room) -> bool:
        """Close connections until there is room for one more; False when there is none to close."""
        while room.count >= room.places():
            guest = room.next_to_go()
            if guest is None:
                return False
            self.evicted += 1
            self.leave(guest)
            guest.evict()
        return True

    def _rooms(self, listener: str) -> tuple[_Room, ...]:
        own = self._of_listeners.get(listener)
        return (self._all,) if own is None else (own, self._all)

    def enter(self, guest: Guest) -> None:
        """Count a new connection, for which there must be room."""
        for room in self._rooms(guest.listener):
            room.enter(guest)

    def leave(self, guest: Guest) -> None:
        """Stop counting the connection; idempotent."""
        for room in self._rooms(guest.listener):
            room.leave(guest)

    def begin(self, guest: Guest) -> None:
        """A request has started."""
        for room in self._rooms(guest.listener):
            room.begin(guest)

    def end(self, guest: Guest) -> None:
        """The request has been answered."""
        for room in self._rooms(guest.listener):
            room.end(guest)


def _limited(listener: str, most: int) -> _Room:
    return _Room(lambda: most, f" of listener {listener}")
