"""The share of time in which a topic, a broker's leadership and the whole cluster were available."""

from __future__ import annotations

from collections.abc import Collection

from aiocontroller.analytics.dataframes import DataFrame, F

NOT_AN_OUTAGE = ("creation", "deletion")
"""Causes of windows in which the partition did not have to be available."""


def availability(lives: DataFrame, windows: DataFrame, span: DataFrame, unknown: Collection[str] = ()) -> DataFrame:
    """The table ``availability``.

    ``partitions`` counts lives of partitions; for a broker, how often it became a partition's leader.  ``availability``
    is 1 - unavailable time / (time of life), with both summed over partitions.  The windows of partitions that a broker
    had led count against that broker.  ``availability`` counts from when a controller noticed the failure,
    ``onset_availability`` from when it happened, with an error of ``onset_error_us`` (also a sum).  For clusters in
    ``unknown`` (see ``completeness``) both are null, and the times cover only what is known.
    """
    causes = ", ".join(f"'{cause}'" for cause in NOT_AN_OUTAGE)
    outages = windows.where(f"unavailable AND cause NOT IN ({causes})").selectExpr(
        "cluster", "duration_us", "duration_us + start_us - onset_us AS onset_duration_us", "onset_error_us",
        "explode(filter(array(struct('cluster' AS level, cluster AS name), struct('topic' AS level, topic AS name), "
        "struct('broker' AS level, CAST(leader_before AS STRING) AS name)), l -> l.name IS NOT NULL)) AS l",
    )  # fmt: skip
    lost = outages.groupBy("cluster", "l.level", "l.name").agg(
        F.sum("duration_us").alias("unavailable_us"),
        F.sum("onset_duration_us").alias("onset_unavailable_us"),
        F.sum("onset_error_us").alias("onset_error_us"),
    )
    watched = span.selectExpr("cluster", "'cluster' AS level", "cluster AS name")
    every = lives.join(watched, ["cluster", "level", "name"], "full")
    known = every.join(F.broadcast(span), "cluster").join(lost, ["cluster", "level", "name"], "left")
    lived = known.withColumns(
        {
            **{name: F.expr(f"coalesce({name}, 0)") for name in (*_LOST, "onset_error_us")},
            "alive_us": F.expr("CAST((born - gone) * CAST(to_us AS DECIMAL(38, 0)) - born_us + gone_us AS DOUBLE)"),
        }
    )
    # A broker's time as a leader ends with its death, but a partition's life goes on.
    share = "if(known, greatest(coalesce(1D - try_divide({0}, alive_us + if(level = 'broker', {0}, 0)), 1D), 0D), NULL)"
    return lived.withColumn("known", ~F.col("cluster").isin(*unknown)).selectExpr(
        "cluster", "level", "name", "from_us", "to_us", "coalesce(born, 0) AS partitions", "unavailable_us",
        f"{share.format('unavailable_us')} AS availability",
        "onset_unavailable_us", "onset_error_us",
        f"{share.format('onset_unavailable_us')} AS onset_availability",
    )  # fmt: skip


_LOST = ("unavailable_us", "onset_unavailable_us")
