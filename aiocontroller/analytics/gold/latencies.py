"""Durations as exact percentiles, from the count of each value."""

from __future__ import annotations

from aiocontroller.analytics.dataframes import DataFrame, F

_P = "percentile(value_us, array(0.5D, 0.9D, 0.99D, 0.999D), n) AS p"


def latencies(counts: DataFrame) -> DataFrame:
    """The table ``latencies``; requests have a row for each broker, and one in total with ``broker`` null.  Percentiles
    are interpolated."""
    everybody = counts.where("what = 'request' AND broker IS NOT NULL").withColumn(
        "broker", F.expr("CAST(NULL AS INT)")
    )
    grouped = (
        counts.unionByName(everybody)
        .groupBy("cluster", "what", "name", "broker")
        .agg(
            F.expr("sum(n) AS count"),
            F.expr(_P),
            F.expr("max(value_us) AS max_us"),
            F.expr("round(sum(CAST(value_us AS DECIMAL(38, 0)) * n) / sum(n)) AS mean_us"),
        )
    )
    quantiles = (
        f"CAST(round(p[{i}]) AS BIGINT) AS {name}" for i, name in enumerate(("p50_us", "p90_us", "p99_us", "p999_us"))
    )
    return grouped.selectExpr("cluster", "what", "name", "broker", "count", *quantiles, "max_us", "mean_us")


def requests(tallies: DataFrame, latency: DataFrame) -> DataFrame:
    """The table ``requests``; ``unanswered`` is requests minus answers and includes requests in flight at the end."""
    sent = tallies.where("kind IN ('request', 'response') AND broker IS NOT NULL AND api IS NOT NULL")
    counted = sent.groupBy("cluster", "broker", "api").agg(
        F.expr("sum(if(kind = 'request', n, 0L)) AS count"),
        F.expr("sum(if(kind = 'request', partitions, NULL)) AS partitions"),
        F.expr("sum(if(kind = 'request', bytes, NULL)) AS bytes"),
        F.expr("sum(if(kind = 'response', errors, 0L)) AS errors"),
        F.expr("sum(if(kind = 'request', n, -n)) AS unanswered"),
    )
    took = latency.where("what = 'request' AND broker IS NOT NULL").selectExpr(
        "cluster", "broker", "name AS api", "p50_us", "p99_us", "max_us"
    )
    return counted.join(took, ["cluster", "broker", "api"], "left")
