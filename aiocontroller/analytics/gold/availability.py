"""Which share of its time a topic, a broker's leadership and the whole cluster were available."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

NOT_AN_OUTAGE = ("creation", "deletion")
"""Causes of windows in which nobody could have missed the partition."""


def availability(lives: DataFrame, windows: DataFrame, span: DataFrame) -> DataFrame:
    """``partitions``: lives of partitions; of a broker, how often it became some partition's leader.

    ``availability`` is 1 - unavailable time / (time of life), both summed over partitions.  To a broker's account go
    the windows of partitions that it had led.
    """
    causes = ", ".join(f"'{cause}'" for cause in NOT_AN_OUTAGE)
    outages = windows.where(f"unavailable AND cause NOT IN ({causes})").selectExpr(
        "cluster", "duration_us",
        "explode(filter(array(struct('cluster' AS level, cluster AS name), struct('topic' AS level, topic AS name), "
        "struct('broker' AS level, CAST(leader_before AS STRING) AS name)), l -> l.name IS NOT NULL)) AS l",
    )  # fmt: skip
    lost = outages.groupBy("cluster", "l.level", "l.name").agg(F.sum("duration_us").alias("unavailable_us"))
    known = lives.join(F.broadcast(span), "cluster").join(lost, ["cluster", "level", "name"], "left")
    lived = known.withColumns(
        {
            "unavailable_us": F.expr("coalesce(unavailable_us, 0)"),
            "alive_us": F.expr("CAST((born - gone) * CAST(to_us AS DECIMAL(38, 0)) - born_us + gone_us AS DOUBLE)"),
        }
    )
    # What a broker led ends when it dies, a partition's life does not.
    whole = "alive_us + if(level = 'broker', unavailable_us, 0)"
    return lived.selectExpr(
        "cluster", "level", "name", "from_us", "to_us", "born AS partitions", "unavailable_us",
        f"greatest(coalesce(1D - try_divide(unavailable_us, {whole}), 1D), 0D) AS availability",
    )  # fmt: skip
