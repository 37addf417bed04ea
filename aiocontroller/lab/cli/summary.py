"""Summarizes a cluster's run from the journals, which are complete even across deaths of controllers."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.journal.records import Record, decode_record

EVENT_MARK = b'"kind":"event"'
"""Part of every line that records an event; searching for it is cheaper than decoding all lines."""


def journal_files(data: Path, *, since_us: int = 0) -> list[Path]:
    """All segments below ``data``, complete or not, of processes that started after ``since_us``."""
    # os.walk, unlike Path.rglob, passes over folders that go meanwhile: brokers' folders of deleted topics do
    found = (Path(folder, name) for folder, _, names in os.walk(data) for name in names)
    return sorted(p for p in found if p.match("*journal-*.jsonl") and p.is_file() and _start_us(p) >= since_us)


def _start_us(path: Path) -> int:
    """The start in the name ``journal-{node}-{epoch}-{start}-{segment}``; 0 for other names."""
    parts = path.name.split("-")
    return int(parts[3]) if len(parts) == 5 and parts[3].isdigit() else 0


def count_events(files: Iterable[Path]) -> dict[str, Any]:
    """``records``: total number; ``events``: count, waiting and handling times of each, most frequent first."""
    waited: dict[str, list[int]] = defaultdict(list)
    took: dict[str, list[int]] = defaultdict(list)
    records = 0
    for line in _lines(files):
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
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for path in files:
        try:
            with path.open("rb") as lines:
                yield from lines
        except FileNotFoundError:
            continue  # completed, so renamed, between the listing and now


def decoded(line: bytes) -> Record | None:
    """Decode a line; None for a torn one."""
    try:
        return decode_record(line)
    except msgspec.DecodeError:
        return None
