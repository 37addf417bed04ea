"""How leadership moves between brokers, and how far it is from the preferred leaders."""

from __future__ import annotations

from aiocontroller.analytics.dataframes import DataFrame, F, Window

COUNTS = ("leaders", "preferred_leaders", "led_preferred", "replicas")


def imbalance(balance: DataFrame) -> DataFrame:
    """What each broker leads, is preferred for and holds, at the end of each minute in which that changed.

    ``imbalance`` is computed as Kafka does: of the partitions that prefer the broker, the share that another broker
    leads.
    """
    so_far = (
        Window.partitionBy("cluster", "broker")
        .orderBy("ts_us")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    totals = balance.select("cluster", "ts_us", "broker", *(F.sum(name).over(so_far).alias(name) for name in COUNTS))
    ratio = "coalesce(try_divide(preferred_leaders - led_preferred, preferred_leaders), 0D) AS imbalance"
    return totals.selectExpr("cluster", "ts_us", "broker", "leaders", "preferred_leaders", "replicas", ratio)
