"""The quality of the inputs: a row for each file."""

from __future__ import annotations

from aiocontroller.analytics.dataframes import DataFrame, F, Window


def with_sources(table: DataFrame, tallies: DataFrame, kind: str) -> DataFrame:
    """Add ``sources``: the kinds of files that hold the records behind a row, whose ``kind`` is an SQL expression."""
    counted = tallies.groupBy("cluster", "kind").agg(
        F.expr("array_join(array_sort(collect_set(source)), ', ') AS sources")
    )
    return table.withColumn("kind", F.expr(kind)).join(F.broadcast(counted), ["cluster", "kind"], "left").drop("kind")


def data_quality(tallies: DataFrame, repeated: DataFrame, read: DataFrame, quarantine: DataFrame) -> DataFrame:
    """The table ``data_quality``; ``repeated`` has (file, duplicates), ``read`` (file, read) of logs, and
    ``quarantine`` is bronze's.

    ``gaps`` counts the process's records that are missing between the end of the previous file and the end of this one.
    If files of a process overlap, its first file counts all of its missing records.
    """
    files = tallies.groupBy("file", "source", "cluster", "process").agg(
        F.expr("sum(n) AS records"), F.expr("min(first_seq) AS first_seq"), F.expr("max(last_seq) AS last_seq"),
        F.expr("min(first_us) AS first_us"), F.expr("max(last_us) AS last_us"),
    )  # fmt: skip
    process = Window.partitionBy("cluster", "process")
    in_order = process.orderBy("first_seq", "file")
    placed = files.withColumns(
        {
            "before": F.coalesce(F.max("last_seq").over(in_order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)),
            "missing": F.max("last_seq").over(process) - F.sum("records").over(process),
            "nth": F.row_number().over(in_order),
        }
    ).withColumn("apart", F.expr("last_seq - before - records"))
    tidy = placed.withColumn("tidy", F.min(F.expr("apart >= 0 AND first_seq > before")).over(process))
    gaps = "if(source <> 'journal', 0L, if(tidy, apart, if(nth = 1, missing, 0L))) AS gaps"
    of_files = tidy.selectExpr("file", "source", "records", "first_us", "last_us", gaps)
    summed = of_files.groupBy("file", "source").agg(
        F.expr("sum(records) AS records"), F.expr("sum(gaps) AS gaps"),
        F.expr("min(first_us) AS first_us"), F.expr("max(last_us) AS last_us"),
    )  # fmt: skip
    bad = quarantine.groupBy("file", "source").agg(
        F.expr("sum(count) AS quarantined"),
        F.expr("sum(if(reason LIKE '%torn%', count, 0L)) AS torn"),
        F.expr("array_sort(collect_set(reason)) AS reasons"),
    )
    counted = summed.join(bad, ["file", "source"], "full").join(repeated, "file", "left").join(read, "file", "left")
    whole = counted.selectExpr(
        "file", "source", "coalesce(read, records, 0L) AS records", "coalesce(quarantined, 0L) AS quarantined",
        "coalesce(torn, 0L) AS torn", "coalesce(duplicates, 0L) AS duplicates", "coalesce(gaps, 0L) AS gaps",
        "first_us", "last_us", "reasons",
    )  # fmt: skip
    words = """
        coalesce(nullif(array_join(filter(array(
            if(quarantined > 0, concat(quarantined, ' lines not understood: ', array_join(reasons, ', ')), NULL),
            if(duplicates > 0, concat(duplicates, ' records were there already'), NULL),
            if(gaps > 0, concat(gaps, ' records are missing'), NULL)), w -> w IS NOT NULL), '; '), ''), 'complete')"""
    return whole.withColumn("words", F.expr(words)).drop("reasons")
