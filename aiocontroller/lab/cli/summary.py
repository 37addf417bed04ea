"""Summarizes a cluster's run from the journals, which are complete even across deaths of controllers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aiocontroller.journal.reading import decoded, lines

EVENT_MARK = b'"kind":"event"'
"""A part of every line that records an event; searching for it is cheaper than decoding all lines."""


def count_events(files: Iterable[Path]) -> dict[str, Any]:
    """Return ``records``, their total number, and ``events``: the count, waiting and handling times of each type, most
    frequent first."""
    waited: dict[str, list[int]] = defaultdict(list)
    took: dict[str, list[int]] = defaultdict(list)
    records = 0
    for line in lines(files):
        records += 1
        record = decoded(line) if EVENT_MARK in line else None
        if record is not None and record.event is not None:
            waited[record.event].append(record.queue_us or 0)
            took[record.event].append(record.processing_us or 0)
    rows = [
        {
            "event": event,
            "count": len(took[event]),
            "queue_us": {"p50": percentile(waited[event], 0.5), "max": max(waited[event])},
            "processing_us": {
                "p50": percentile(took[event], 0.5),
                "p99": percentile(took[event], 0.99),
                "max": max(took[event]),
            },
        }
        for event in took
    ]
    rows.sort(key=lambda row: (-int(str(row["count"])), str(row["event"])))
    return {"records": records, "events": rows}


def percentile(values: Sequence[int], q: float) -> int:
    """Return a percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]
