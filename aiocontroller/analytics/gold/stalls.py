"""When ZooKeeper did not answer: several processes that heard nothing from it at the same time.

If one process heard nothing from ZooKeeper, the process itself may have been paused.  If several did, the fault is
ZooKeeper's or the network's.  It may end many sessions at once although no process ended: brokers that went on serving
clients seem dead if the next controller does not find them registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiocontroller.analytics.gold.onsets import EXPIRY_US, Signs
from aiocontroller.analytics.gold.rows import Row

FEWEST: Final = 2
READ_LATE_US: Final = 100_000
"""A client on a busy machine may read an answer this long after it was sent."""


@dataclass(frozen=True)
class Stall:
    """ZooKeeper stopped answering between ``low_us`` and ``high_us`` and answered again at ``until_us``."""

    low_us: int
    high_us: int
    until_us: int
    error_us: int
    nodes: tuple[int, ...]
    places: tuple[str, ...]
    followed_us: int
    """Until then, events of brokers and controllers may be consequences of the stall."""

    def explains(self, at_us: int) -> bool:
        """Return whether an event at this time (µs since 1970) may be a consequence, clock errors included."""
        return self.low_us - self.error_us <= at_us <= self.followed_us + self.error_us


def stalls_of(signs: Sequence[Row], known: Signs) -> list[Stall]:
    """Return the stalls in order, without overlaps."""
    sessions = sorted(
        (r for r in signs if r["kind"] == "session" and r["node"] is not None), key=lambda r: (r["ts_us"], r["place"])
    )
    again_us: dict[int, int] = {}  # by node: the next session after the current row
    alone = []
    for row in reversed(sessions):
        if row["detail"] == "ESTABLISHED":
            again_us[row["node"]] = row["ts_us"]
        elif row["detail"] == "TIMED_OUT" and row["duration_us"] is not None:
            alone.append(_of_one(row, again_us.get(row["node"]) or row["ts_us"], known.session_us(row["node"])))
    found: list[Stall] = []
    for mine in reversed(alone):
        last = found[-1] if found else None
        if last is not None and mine.low_us <= last.until_us + last.error_us:
            found[-1] = last if mine.nodes[0] in last.nodes else _both(last, mine)
        else:
            found.append(mine)
    return [stall for stall in found if len(stall.nodes) >= FEWEST]


def _of_one(row: Row, until_us: int, session_us: int) -> Stall:
    """Return the stall that one process saw; its client sends at least three requests within a session timeout."""
    heard_us = row["ts_us"] - row["duration_us"]
    silent_by_us = min(heard_us + session_us // 3 + EXPIRY_US // 3, row["ts_us"])
    return Stall(
        heard_us - READ_LATE_US, silent_by_us, until_us, row["ts_error_us"] or 0, (row["node"],), (row["place"],),
        until_us + session_us + EXPIRY_US,
    )  # fmt: skip


def _both(one: Stall, other: Stall) -> Stall:
    """Merge two stalls: ZooKeeper had answered both processes before the stall began."""
    low_us, high_us = max(one.low_us, other.low_us), min(one.high_us, other.high_us)
    return replace(
        one,
        low_us=min(low_us, high_us),
        high_us=max(low_us, high_us),
        until_us=max(one.until_us, other.until_us),
        error_us=max(one.error_us, other.error_us),
        nodes=(*one.nodes, *other.nodes),
        places=(*one.places, *other.places),
        followed_us=max(one.followed_us, other.followed_us),
    )
