"""Follows the events of all controllers in their journals, without missing any, with the effect of each."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from aiocontroller.journal.reading import decoded, journal_files
from aiocontroller.journal.records import Record
from aiocontroller.lab.cli.happenings import Happenings

READ_AT_ONCE_BYTES = 32 << 20
"""Most bytes to read in one call; the next one reads the rest."""


class JournalTail:
    """Follows all segments below ``data`` of processes that started after ``since_us``."""

    def __init__(self, data: Path, since_us: int) -> None:
        self._data, self._since_us = data, since_us
        self._read: dict[str, int] = {}
        """Bytes read, by the segment's final name, since a segment is renamed while it is followed."""
        self._happenings: defaultdict[tuple[str, ...], Happenings] = defaultdict(Happenings)
        """Collected records, by node and start of the process."""

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events recorded since the last call, oldest first."""
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
                continue  # just renamed; the next call finds it
            whole = data[: data.rfind(b"\n") + 1]
            self._read[name] = start + len(whole)
            left -= len(data)
            happenings = self._happenings[tuple(name.split("-")[1:4:2])]
            for record in map(decoded, whole.splitlines()):
                text = None if record is None else happenings.take(record)
                if record is not None and text is not None:
                    events.append(_event(record, text))
            if left <= 0:
                break
        return sorted(events, key=lambda event: int(event["at_us"]))


def _event(record: Record, text: str) -> dict[str, Any]:
    return {
        "controller": record.node,
        "epoch": record.epoch,
        "event": record.event,
        "state": record.state,
        "at_us": record.ts,
        "queue_us": record.queue_us or 0,
        "processing_us": record.processing_us or 0,
        "detail": record.detail or "",
        "text": text,
    }
