"""The steps in which each controller took the role."""

from __future__ import annotations

from aiocontroller.analytics.dataframes import DataFrame, F, Window


def failovers(milestones: DataFrame) -> DataFrame:
    """The table ``failovers``, from the election to the end of the last step; times of steps not reached are null."""
    office = milestones.where("kind IN ('elected', 'loaded', 'failover')").groupBy(
        "cluster", "node", "process", "epoch"
    )
    elections = office.agg(
        F.expr("min(if(kind = 'elected', ts_us, NULL)) AS elected_us"),
        F.expr("min(if(kind = 'loaded', ts_us, NULL)) AS loaded_us"),
        F.expr("max(if(kind = 'failover', ts_us, NULL)) AS done_us"),
        F.expr("max(if(kind = 'loaded', partitions, NULL)) AS partitions"),
        F.expr("max(if(kind = 'loaded', size(brokers), NULL)) AS brokers"),
        F.expr("max(if(kind = 'loaded', count, NULL)) AS topics"),
        F.expr("array_join(array_sort(collect_set(source)), ', ') AS sources"),
    )
    return elections.selectExpr(
        "cluster", "node", "epoch", "elected_us", "loaded_us",
        "coalesce(done_us, loaded_us) - elected_us AS duration_us", "partitions", "brokers", "topics", "sources",
    )  # fmt: skip


def failover_phases(milestones: DataFrame) -> DataFrame:
    """Return (cluster, node, epoch, phase, duration_us, position); positions of a term count from 1."""
    steps = milestones.where("kind = 'failover'")
    term = Window.partitionBy("cluster", "node", "process", "epoch").orderBy("seq")
    return steps.select(
        "cluster",
        "node",
        "epoch",
        F.col("event").alias("phase"),
        "duration_us",
        F.row_number().over(term).alias("position"),
    )
