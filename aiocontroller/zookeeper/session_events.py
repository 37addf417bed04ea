"""What a session tells its owner, and the tables in which aiozk's watch callbacks are kept."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any


class SessionEvent(enum.Enum):
    CONNECTED = "connected"
    """The first session is open."""
    SUSPENDED = "suspended"
    """The connection is lost; the session may live on."""
    RECONNECTED = "reconnected"
    """Connected again, same session; watches are armed again."""
    EXPIRED = "expired"
    """The session is gone by the server's word; reported, and awaited, before a new one is opened."""
    NEW_SESSION = "new_session"
    """A session after an expired one is open."""


SessionHandler = Callable[[SessionEvent], Awaitable[None] | None]


class OrderedCallbacks(dict[Any, None]):
    """aiozk keeps watch callbacks in a set; ours are called in the order of registration."""

    add = dict.setdefault

    def discard(self, item: Any) -> None:
        self.pop(item, None)


class CallbackTable(dict[Any, OrderedCallbacks]):
    def __missing__(self, key: Any) -> OrderedCallbacks:
        self[key] = found = OrderedCallbacks()
        return found
