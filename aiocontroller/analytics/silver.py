"""Silver: journals and logs in one vocabulary, in order, on one clock."""

from __future__ import annotations

from aiocontroller.analytics import schema
from aiocontroller.analytics.clocks import clocks as clocks_of
from aiocontroller.analytics.dataframes import Column, DataFrame, F, Keep, Window, checkpointed
from aiocontroller.analytics.log_events import log_events
from aiocontroller.analytics.log_gaps import unregistered

_NEIGHBOURS = ("to_state", "leader", "leader_epoch", "isr", "ts_us", "controller_epoch")


def events(bronze: DataFrame, clocks: DataFrame | None = None, keep: Keep = checkpointed) -> DataFrame:
    """Return ``schema.EVENTS`` of ``schema.EVENTS_BRONZE``; ``clocks`` are computed for logs if they are not given.

    ``keep`` stores what several steps use (``log_events``).  If both a journal and the brokers' logs cover a term, the
    journal's records of partitions count.
    """
    of_journals = journal_events(bronze.where(F.col("source") == schema.JOURNAL_SOURCE))
    logs = bronze.where(F.col("source") != schema.JOURNAL_SOURCE)
    if logs.isEmpty():
        return of_journals
    of_logs = log_events(logs, clocks_of(bronze) if clocks is None else clocks, keep)
    journalled = of_journals.where("kind IN ('partition', 'isr')").select("cluster", "epoch").distinct()
    decided = F.col("kind").isin("partition", "isr")
    logged_only = of_logs.where(decided).join(F.broadcast(journalled), ["cluster", "epoch"], "left_anti")
    others = of_journals.unionByName(of_logs.where(~decided))
    return others.unionByName(logged_only).unionByName(unregistered(others))


def journal_events(bronze: DataFrame) -> DataFrame:
    """Return ``schema.EVENTS`` of a journal's records; its times are exact (``ts_error_us`` is 0)."""
    made: dict[str, Column] = {
        "ts_us": F.col("ts"),
        "ts_error_us": F.lit(0),
        "reference": F.concat_ws(":", "process", "seq"),
        # Write records of a journal have their conflicts in ``count``.
        "conflicts": F.coalesce("conflicts", F.when(F.col("kind") == "write", F.col("count"))),
    }
    return bronze.select(
        *(made.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name) for field in schema.EVENTS)
    )


def timeline(events: DataFrame) -> DataFrame:
    """Return ``schema.TIMELINE``: the changes of each partition, each row with its predecessor and successor."""
    changes = events.where(F.col("kind").isin("partition", "isr") & F.col("partition").isNotNull())
    journal = F.col("source") == schema.JOURNAL_SOURCE
    ordered = changes.withColumns(
        {"writer": F.when(journal, F.col("process")), "at_us": F.when(~journal, F.col("ts_us"))}
    )
    history = Window.partitionBy("cluster", "topic", "partition").orderBy("epoch", "start_us", "writer", "at_us", "seq")
    before = {f"prev_{name}": F.lag(name).over(history) for name in _NEIGHBOURS}
    after = {f"next_{name}": F.lead(name).over(history) for name in _NEIGHBOURS}
    return ordered.withColumns(before | after).select(*schema.TIMELINE.names)
