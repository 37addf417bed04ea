"""Silver: one vocabulary for journals and logs, in order, on one clock."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from aiocontroller.analytics import schema

_NEIGHBOURS = ("to_state", "leader", "leader_epoch", "isr", "ts_us", "controller_epoch")


def events(bronze: DataFrame) -> DataFrame:
    """``schema.EVENTS`` of ``schema.EVENTS_BRONZE``."""
    made: dict[str, Column] = {
        "ts_us": F.col("ts"),
        "ts_error_us": F.lit(0),
        # The journal's writes count their conflicts under ``count``.
        "conflicts": F.coalesce("conflicts", F.when(F.col("kind") == "write", F.col("count"))),
    }
    return bronze.select(
        *(made.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name) for field in schema.EVENTS)
    )


def timeline(events: DataFrame) -> DataFrame:
    """``schema.TIMELINE``: what changed about each partition, each row beside the one before and the one after it."""
    changes = events.where(F.col("kind").isin("partition", "isr") & F.col("partition").isNotNull())
    history = Window.partitionBy("cluster", "topic", "partition").orderBy(*schema.ORDER)
    before = {f"prev_{name}": F.lag(name).over(history) for name in _NEIGHBOURS}
    after = {f"next_{name}": F.lead(name).over(history) for name in _NEIGHBOURS}
    return changes.withColumns(before | after).select(*schema.TIMELINE.names)
