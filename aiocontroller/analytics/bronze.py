"""Bronze: each line of each file becomes a typed record, or goes into quarantine with a reason; none is lost.

The readers (``journal_reader``, ``log_reader``) return bronze's columns and also ``line`` and ``reason``
(``schema.REJECTED``).  ``accepted`` and ``quarantine`` split the result; ``together`` and ``put_aside`` do the same
with a single parse of the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F, SparkSession
from aiocontroller.analytics.journal_files import DAY_US
from aiocontroller.analytics.journal_reader import read_journal
from aiocontroller.analytics.log_reader import read_logs
from aiocontroller.analytics.source_files import SourceFile
from aiocontroller.core.errors import BadInputError

DAY: Final = f"CAST(date_from_unix_date(CAST(floor(ts / {DAY_US}) AS INT)) AS DATE)"
ASIDE: Final = "rejected"


def read(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """Return ``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of journals and logs."""
    journals = [file for file in files if file.source == schema.JOURNAL_SOURCE]
    logs = [file for file in files if file.source != schema.JOURNAL_SOURCE]
    if not logs:
        return read_journal(spark, journals)
    records = read_logs(spark, logs)
    return read_journal(spark, journals).unionByName(records) if journals else records


def accepted(records: DataFrame) -> DataFrame:
    """Return the records that were understood: ``schema.EVENTS_BRONZE``."""
    return records.where(F.col("reason").isNull()).drop(*schema.REJECTED.names)


def quarantine(records: DataFrame) -> DataFrame:
    """Return the other records, a row for each file and reason: ``schema.QUARANTINE``."""
    rejected = records.where(F.col("reason").isNotNull())
    counted = rejected.groupBy("file", "reason", "source", "cluster").agg(
        F.min("line").alias("line"), F.count(F.lit(1)).alias("count")
    )
    return counted.select(*schema.QUARANTINE.names)


def together(records: DataFrame) -> DataFrame:
    """Return all records as ``schema.EVENTS_BRONZE`` with ``day``, to be written in one pass, by day.

    Rejected ones have ``ASIDE`` as their day, their line as ``detail`` and their reason as ``event``.
    """
    rejected = F.col("reason").isNotNull()
    made = {
        "detail": F.when(rejected, F.col("line")).otherwise(F.col("detail")),
        "event": F.when(rejected, F.col("reason")).otherwise(F.col("event")),
        "day": F.when(rejected, F.lit(ASIDE)).otherwise(F.expr(DAY).cast("string")),
    }
    return records.withColumns(made).drop(*schema.REJECTED.names)


def put_aside(rejected: DataFrame) -> DataFrame:
    """Return ``schema.QUARANTINE`` of the rejected ones that ``together`` marked."""
    return quarantine(rejected.withColumns({"line": F.col("detail"), "reason": F.col("event")}))


def merged_quarantine(tables: DataFrame) -> DataFrame:
    """Merge the quarantine tables of several batches."""
    counted = tables.groupBy("file", "reason", "source", "cluster").agg(
        F.min("line").alias("line"), F.sum("count").alias("count")
    )
    return counted.select(*schema.QUARANTINE.names)


def refuse_quarantined(understood: DataFrame, quarantined: DataFrame, most: float) -> None:
    """Raise ``BadInputError``, which names the worst file, if the share of lines in quarantine is above ``most``."""
    if most >= 1:
        return
    worst = quarantined.orderBy(F.desc("count"), "file").limit(1).collect()
    if not worst:
        return
    bad = int(quarantined.agg(F.sum("count")).collect()[0][0])
    every = bad + understood.count()
    if bad > most * every:
        row = worst[0]
        raise BadInputError(
            f"{bad:,} of {every:,} lines were not understood, which is more than {most:.2%}; most of one kind: "
            f"{row['count']:,} in {row['file']}: {row['reason']}: {row['line'][:120]!r}"
        )
