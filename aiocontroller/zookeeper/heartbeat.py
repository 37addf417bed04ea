"""Pings an idle connection and closes it when the server does not answer.

After a third of the session timeout without traffic in either direction a ping is due; after two thirds without a byte
from the server, it counts as dead.  The last third is for finding another server.
"""

from __future__ import annotations

from aiocontroller.net.ports import Clock, Timer
from aiocontroller.zookeeper.connection import Connection

LATE_TIMER_S = 0.05
"""A timer that fires later than this means that our own event loop was blocked."""


class Heartbeat:
    """The timer of one connection, from its handshake to ``stop``."""

    def __init__(self, clock: Clock, conn: Connection, session_timeout_s: float) -> None:
        self._clock = clock
        self._conn = conn
        self._third_s = session_timeout_s / 3
        self._timer: Timer | None = None
        self._due = 0.0
        self._schedule(self._third_s)

    def stop(self) -> None:
        """Send no more pings."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, delay_s: float) -> None:
        self._due = self._clock.monotonic() + delay_s
        self._timer = self._clock.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        conn, third_s = self._conn, self._third_s
        if self._timer is None or not conn.alive:
            return
        now = self._clock.monotonic()
        silent_s = now - conn.last_received
        if silent_s >= 2 * third_s:
            if now - self._due > LATE_TIMER_S:
                # our own loop was blocked: read the socket before blaming the server
                self._schedule(LATE_TIMER_S / 2)
            else:
                conn.abort(f"the server was silent for {silent_s:.3f} s")
            return
        idle_s = max(silent_s, now - conn.last_sent)
        if idle_s < third_s:
            self._schedule(third_s - idle_s)
        else:
            conn.ping()
            self._schedule(min(third_s, 2 * third_s - silent_s))
