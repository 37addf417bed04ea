"""The answers, each a pure function of facts (``facts``): when, how long, why, and by which records.

``tables`` is all of it.  Every table has the columns of ``schema.GOLD``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from aiocontroller.analytics.gold import violations as invariants
from aiocontroller.analytics.gold import windows as outages
from aiocontroller.analytics.gold.availability import availability
from aiocontroller.analytics.gold.brokers import broker_events, brokers
from aiocontroller.analytics.gold.churn import imbalance
from aiocontroller.analytics.gold.failovers import failover_phases, failovers
from aiocontroller.analytics.gold.latencies import latencies, requests
from aiocontroller.analytics.gold.quality import data_quality
from aiocontroller.analytics.schema import GOLD

__all__ = ["LARGE", "SORTED_BY", "tables"]

LARGE: Final = frozenset({"windows", "latencies", "violations", "availability", "brokers"})
"""Tables that are made of much: of what grows with the records and not with brokers, topics and controllers."""

SORTED_BY: Final[dict[str, tuple[str, ...]]] = {
    "windows": ("start_us", "cluster", "topic", "partition", "kind"),  # a long first: Spark sorts by eight bytes first
    "failovers": ("cluster", "epoch", "node"),
    "failover_phases": ("cluster", "epoch", "node", "position"),
    "latencies": ("cluster", "what", "name", "broker"),
    "churn": ("cluster", "hour_us", "topic", "broker"),
    "imbalance": ("cluster", "ts_us", "broker"),
    "requests": ("cluster", "broker", "api"),
    "violations": ("cluster", "ts_us", "invariant", "topic", "partition", "words"),
    "availability": ("cluster", "level", "name"),
    "brokers": ("cluster", "ts_us", "broker", "event"),
    "data_quality": ("file", "source"),
}
"""The order of each table's rows in its files: the same input gives the same rows in the same order."""


def tables(
    facts: Mapping[str, DataFrame],
    last_rows: DataFrame,
    repeated: DataFrame,
    quarantine: DataFrame,
    pin: Callable[[str, DataFrame], DataFrame] = lambda name, table: table.persist(),
) -> dict[str, DataFrame]:
    """Every gold table of merged ``facts``, each partition's last row, and what was read twice or not understood.

    ``pin`` keeps what several tables are made of; it is told the name that the table has, or nearly has.
    """
    milestones, tallies = pin("milestones", facts["milestones"]), pin("tallies", facts["tallies"])
    events = pin("events", broker_events(milestones))
    span = pin("span", outages.spans(tallies))
    windows = pin("windows", outages.attributed(facts["windows"], outages.still_open(last_rows), events, span))
    took = pin("latencies", latencies(facts["latencies"]))
    made = {
        "windows": windows,
        "failovers": failovers(milestones),
        "failover_phases": failover_phases(milestones),
        "latencies": took,
        "churn": facts["churn"],
        "imbalance": imbalance(facts["balance"]),
        "requests": requests(tallies, took),
        "violations": invariants.violations(facts["findings"], milestones, tallies, last_rows, events, span),
        "availability": availability(facts["lives"], windows, span),
        "brokers": brokers(events, tallies, windows),
        "data_quality": data_quality(tallies, repeated, quarantine),
    }
    return {name: _conform(table, GOLD[name]) for name, table in made.items()}


def _conform(table: DataFrame, schema: StructType) -> DataFrame:
    """These columns in this order; ``violations`` is a union, named by position."""
    if set(schema.names) - set(table.columns):
        table = table.toDF(*schema.names)
    return table.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in schema))
