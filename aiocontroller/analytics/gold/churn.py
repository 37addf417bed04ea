"""Where leadership moves, and how far it is from where it should be."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

COUNTS = ("leaders", "preferred_leaders", "led_preferred", "replicas")


def imbalance(balance: DataFrame) -> DataFrame:
    """At the end of each minute in which something changed for a broker, what it leads, is preferred for, and holds.

    ``imbalance`` as Kafka reckons it: of the partitions that prefer the broker, the share that somebody else leads.
    """
    so_far = (
        Window.partitionBy("cluster", "broker")
        .orderBy("ts_us")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    totals = balance.select("cluster", "ts_us", "broker", *(F.sum(name).over(so_far).alias(name) for name in COUNTS))
    ratio = "coalesce(try_divide(preferred_leaders - led_preferred, preferred_leaders), 0D) AS imbalance"
    return totals.selectExpr("cluster", "ts_us", "broker", "leaders", "preferred_leaders", "replicas", ratio)
