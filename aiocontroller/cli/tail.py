"""The controllers' events as they are written to the journal: none is missed, whichever controller handled it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiocontroller.cli.summary import EVENT_MARK, decoded, journal_files

READ_AT_ONCE_BYTES = 32 << 20
"""A look never takes longer than reading this; the rest comes with the next one."""


class JournalTail:
    """Follows all segments below ``data`` of processes that began after ``since_us``."""

    def __init__(self, data: Path, since_us: int) -> None:
        self._data, self._since_us = data, since_us
        self._read: dict[str, int] = {}
        """Bytes taken, by the segment's final name: it is renamed while it is followed."""

    def new_events(self) -> list[dict[str, Any]]:
        """The events recorded since the last call, oldest first."""
        events: list[dict[str, Any]] = []
        left = READ_AT_ONCE_BYTES
        for path in journal_files(self._data, since_us=self._since_us):
            name = path.name.removeprefix("_")
            start = self._read.get(name, 0)
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    data = file.read(left)
            except FileNotFoundError:
                continue  # renamed just now; the next look finds it
            whole = data[: data.rfind(b"\n") + 1]
            self._read[name] = start + len(whole)
            left -= len(data)
            events += (
                event for line in whole.splitlines() if EVENT_MARK in line and (event := _event(line)) is not None
            )
            if left <= 0:
                break
        return sorted(events, key=lambda event: int(event["at_us"]))


def _event(line: bytes) -> dict[str, Any] | None:
    record = decoded(line)
    if record is None or record.event is None:
        return None
    return {
        "controller": record.node,
        "epoch": record.epoch,
        "event": record.event,
        "state": record.state,
        "at_us": record.ts,
        "queue_us": record.queue_us or 0,
        "processing_us": record.processing_us or 0,
        "detail": record.detail or "",
    }
