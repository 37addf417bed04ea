"""A session's events for its owner."""

from __future__ import annotations

import enum
from collections.abc import Callable


class SessionEvent(enum.Enum):
    """What happens to a session."""

    CONNECTED = "connected"
    """The first session is open."""
    SUSPENDED = "suspended"
    """The connection is lost; the session may live on."""
    RECONNECTED = "reconnected"
    """Connected again in the same session; watches are armed again."""
    EXPIRED = "expired"
    """The server says that the session is gone; reported before a new one is opened."""
    NEW_SESSION = "new_session"
    """A session after an expired one is open."""


SessionHandler = Callable[[SessionEvent], object]
