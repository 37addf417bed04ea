"""Finds the hour that local times skip where summer time begins.

Logs without a given zone are read as UTC, so whatever lasted across that hour seems to have taken an hour more.  All
such logs of a cluster are silent for exactly that hour, with lines right before and right after it, and some time zone
skips it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.times import time_of

HOUR_SKIPPED: Final = "times without a zone: all logs are silent for an hour that some zones skip"
ZONE_OF_LOGS: Final = "time zone of the logs"
"""The name of such an hour in the table ``completeness``."""
_HOUR_US: Final = 3_600_000_000
_NEAR_US: Final = 360_000_000
"""More than the five minutes between two lines of a controller that balances leaders."""
_USUAL: Final = ("Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles", "Australia/Sydney")


def lost_hours(logs: DataFrame, zoneless: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return rows of ``schema.CLOCKS``, one for each such hour of a cluster; ``offset_us`` is when it begins.

    ``zoneless`` are the names of the files whose lines have no zone.  Costs one pass over the times.
    """
    if not zoneless:
        return []
    timed = logs.where("ts IS NOT NULL AND node IS NOT NULL").where(F.col("file").isin(*zoneless))
    by_hour = timed.groupBy("cluster", F.expr(f"ts DIV {_HOUR_US}").alias("hour")).agg(
        F.min("ts").alias("first_us"), F.max("ts").alias("last_us"), F.min("node").alias("node"),
        F.min("file").alias("file"), F.count("*").alias("n"),
    )  # fmt: skip
    rows = sorted(by_hour.collect(), key=lambda row: (row["cluster"], row["hour"]))
    found = []
    for before, after in pairwise(rows):
        begin_us = (before["hour"] + 1) * _HOUR_US
        if (
            (before["cluster"], before["hour"] + 2) == (after["cluster"], after["hour"])
            and begin_us - before["last_us"] < _NEAR_US
            and after["first_us"] - begin_us - _HOUR_US < _NEAR_US
            and zone_that_skips(begin_us) is not None
        ):
            pairs = before["n"] + after["n"]
            found.append(
                (after["cluster"], after["node"], begin_us, _HOUR_US, pairs, HOUR_SKIPPED, None, after["file"])
            )
    return found


def moments_within(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return (cluster, a moment within the hour) for each such hour in rows of ``completeness``.

    What begins before that moment and ends after it lasted across the hour: no record is within, and clocks differ by
    less than half an hour.
    """
    return [(row["cluster"], (row["from_us"] + row["to_us"]) // 2) for row in rows if row["name"] == ZONE_OF_LOGS]


def zone_that_skips(begin_us: int) -> str | None:
    """Return a time zone in which no clock shows the hour that begins at a local time, read as UTC; None if there is
    none."""
    local = time_of(begin_us).replace(tzinfo=None)
    return next((name for name in _zones() if _skips(local, name)), None)


def _zones() -> Iterator[str]:
    yield from _USUAL
    yield from sorted(available_timezones())


def _skips(local: datetime, name: str) -> bool:
    zone = ZoneInfo(name)
    moments = (local, local + timedelta(minutes=59, seconds=59))
    return all(
        each.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != each for each in moments
    )
