"""Rate-limited log lines for events that any client can cause: logs the first at once, and counts the others."""

from __future__ import annotations

import logging

from aiocontroller.net.ports import Clock

SUMMED_UP_AFTER_S = 10.0
MAX_CHARACTERS = 1000
"""Limit for a line that quotes a client's input."""


def shortened(text: str) -> str:
    """The text, truncated if it is long."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"


class Complaints:
    """One logger's warnings by kind; each kind gets one line and one summary in ten seconds."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._held: dict[str, int] = {}
        """Number of suppressed lines by kind; contains the kinds that are suppressed now."""

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Log the first of its kind at WARNING; the others are counted for ``SUMMED_UP_AFTER_S`` seconds."""
        if kind in self._held:
            self._held[kind] += 1
            return
        self._held[kind] = 0
        self._log.warning("%s", shortened(message % arguments))
        self._clock.call_later(SUMMED_UP_AFTER_S, lambda: self._sum_up(kind))

    def _sum_up(self, kind: str) -> None:
        held = self._held.pop(kind)
        if held:
            self._held[kind] = 0
            self._log.warning("%s: %d more in the last %.0f s", kind, held, SUMMED_UP_AFTER_S)
            self._clock.call_later(SUMMED_UP_AFTER_S, lambda: self._sum_up(kind))
