"""How fast pieces of work end, and when the rest will have ended at that pace.  Pure; times in microseconds since 1970.

The pace counts pieces and knows nothing of their sizes, so it is an estimate only where many end one after the other.
A piece that never ends slows the pace until nothing is expected any more.
"""

from __future__ import annotations

from collections import deque

import msgspec

WINDOW_US = 600_000_000
"""The pace is that of the latest ten minutes."""
LEAST_ENDED = 3
"""With fewer there is no pace."""
STEP_US = 5_000_000
"""An expectation changes at most this often, which spares its displays constant updates."""


class Expectation(msgspec.Struct, frozen=True):
    """``ended`` pieces since ``since_us``; ``expected_us`` is when the rest ends at this pace, None if unknown."""

    ended: int
    since_us: int | None
    expected_us: int | None


class Pace:
    """Measures a pace; each call costs O(1), and memory is bounded."""

    def __init__(self) -> None:
        self._began_us: int | None = None
        """When the present work began; None if there is none."""
        self._ended = 0
        self._ends: deque[tuple[int, int]] = deque()
        """(a time, how many ended in the step from then on)."""

    def left(self, now_us: int, count: int) -> None:
        """Report that ``count`` pieces of work are left; after 0, the next ones count as new work."""
        if not count:
            self._began_us, self._ended = None, 0
            self._ends.clear()
        elif self._began_us is None:
            self._began_us = now_us

    def one_ended(self, at_us: int) -> None:
        """Report that a piece of work was completed, as opposed to given up."""
        self._ended += 1
        step = at_us - at_us % STEP_US
        if self._ends and self._ends[-1][0] == step:
            self._ends[-1] = step, self._ends[-1][1] + 1
        else:
            self._ends.append((step, 1))
            self._forget(step)

    def _forget(self, now_us: int) -> None:
        while self._ends and self._ends[0][0] < now_us - WINDOW_US:
            self._ends.popleft()

    def expectation(self, now_us: int, left: int) -> Expectation:
        """The expectation for ``left`` remaining pieces."""
        if self._began_us is None:
            return Expectation(0, None, None)
        now_us += STEP_US - now_us % STEP_US
        self._forget(now_us)
        took_us = now_us - max(self._began_us, now_us - WINDOW_US)
        ended = sum(count for _, count in self._ends)
        if ended < LEAST_ENDED or not left or took_us <= 0:
            return Expectation(self._ended, self._began_us, None)
        return Expectation(self._ended, self._began_us, now_us + round(left * took_us / ended))
