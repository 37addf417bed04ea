"""The gold tables, each a pure function of facts (``facts``): what happened when, how long, why, and by which records.

``tables`` makes all of them.  Every table has the columns of ``schema.GOLD``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.gold import violations as invariants
from aiocontroller.analytics.gold import windows as outages
from aiocontroller.analytics.gold.availability import availability
from aiocontroller.analytics.gold.brokers import broker_events, brokers
from aiocontroller.analytics.gold.churn import imbalance
from aiocontroller.analytics.gold.completeness import completeness
from aiocontroller.analytics.gold.failovers import failover_phases, failovers
from aiocontroller.analytics.gold.incidents import incidents, with_onsets
from aiocontroller.analytics.gold.latencies import latencies, requests
from aiocontroller.analytics.gold.problems import problems
from aiocontroller.analytics.gold.quality import data_quality, with_sources
from aiocontroller.analytics.lost_hours import moments_within
from aiocontroller.analytics.schema import GOLD, Table

__all__ = ["LARGE", "SORTED_BY", "tables"]

LARGE: Final = frozenset({"windows", "latencies", "violations", "availability", "brokers", "incidents"})
"""Tables made from inputs that grow with the records, and not just with brokers, topics and controllers."""

SORTED_BY: Final[dict[str, tuple[str, ...]]] = {
    # a long first: Spark compares the first eight bytes before the rest
    "windows": ("start_us", "cluster", "topic", "partition", "kind"),
    "incidents": ("cluster", "number"),
    "completeness": ("cluster", "what", "name", "from_us"),
    "failovers": ("cluster", "epoch", "node"),
    "failover_phases": ("cluster", "epoch", "node", "position"),
    "latencies": ("cluster", "what", "name", "broker"),
    "churn": ("cluster", "hour_us", "topic", "broker"),
    "imbalance": ("cluster", "ts_us", "broker"),
    "requests": ("cluster", "broker", "api"),
    "violations": ("cluster", "ts_us", "invariant", "topic", "partition", "words"),
    "problems": ("cluster", "from_us", "problem", "broker", "words"),
    "availability": ("cluster", "level", "name"),
    "brokers": ("cluster", "ts_us", "broker", "event"),
    "data_quality": ("file", "source"),
}
"""The order of each table's rows in its files; the same input gives the same rows in the same order."""


_KIND_OF_LATENCY: Final = """
    CASE what WHEN 'queue' THEN 'event' WHEN 'processing' THEN 'event' WHEN 'request' THEN 'response' ELSE what END"""


def tables(
    facts: Mapping[str, DataFrame],
    last_rows: DataFrame,
    repeated: DataFrame,
    read: DataFrame,
    quarantine: DataFrame,
    pin: Callable[[str, DataFrame], DataFrame] = lambda name, table: table.persist(),
    lacks: Sequence[Mapping[str, Any]] = (),
) -> dict[str, DataFrame]:
    """Return every gold table.

    The inputs are merged ``facts``, each partition's last row, the counts of repeated records and of those read from
    logs, and the quarantine.  ``pin`` caches a table that several others share, under a name.  ``lacks`` are what the
    files lack, as in a commit.
    """
    milestones, tallies = pin("milestones", facts["milestones"]), pin("tallies", facts["tallies"])
    events = pin("events", broker_events(milestones))
    span = pin("span", outages.spans(tallies))
    skipped = moments_within({**lack, "name": lack["file"]} for lack in lacks)
    every = pin("outages", outages.attributed(facts["windows"], outages.still_open(last_rows), events, span, skipped))
    failures, onsets = incidents(events, milestones, tallies, every)
    windows = with_onsets(every, onsets)
    quality = pin("quality", data_quality(tallies, repeated, read, quarantine))
    whole, unknown = completeness(milestones, tallies, facts["balance"], quality, quarantine, lacks)
    took = pin("latencies", latencies(facts["latencies"]))
    made = {
        "windows": windows,
        "incidents": failures,
        "completeness": whole,
        "failovers": failovers(milestones),
        "failover_phases": failover_phases(milestones),
        "latencies": with_sources(took, tallies, _KIND_OF_LATENCY),
        "churn": with_sources(facts["churn"], tallies, "'partition'"),
        "imbalance": imbalance(facts["balance"]),
        "requests": requests(tallies, took),
        "violations": invariants.violations(facts["findings"], milestones, tallies, last_rows, events, span),
        "problems": problems(milestones, tallies, every, facts["findings"], last_rows, events, span),
        "availability": availability(facts["lives"], windows, span, unknown),
        "brokers": brokers(events, tallies, windows, unknown),
        "data_quality": quality,
    }
    return {name: _conform(table, GOLD[name]) for name, table in made.items()}


def _conform(table: DataFrame, schema: Table) -> DataFrame:
    """Return the columns of ``schema`` in its order; rename them by position if the names differ, as in
    ``violations``."""
    if set(schema.names) - set(table.columns):
        table = table.toDF(*schema.names)
    return table.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in schema))
