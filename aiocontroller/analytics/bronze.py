"""Bronze: each line of each file becomes a typed record, or goes into quarantine with a reason; none is lost.

The readers return bronze's columns and beside them ``line`` and ``reason`` (``schema.REJECTED``), so that a file is
parsed once; ``accepted`` and ``quarantine`` take the two halves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from aiocontroller.analytics import schema
from aiocontroller.analytics.sources import SourceFile
from aiocontroller.core.errors import BadInputError

_CORRUPT = "_corrupt_record"
_RECORD_BEGINS = r'(?=\{"v":\d+,"seq":\d+,"epoch":)'
"""Inside a string the quotes would be escaped: this is a record's beginning, wherever it stands in a line."""


def _position() -> Column:
    """Grows along a file: where Spark cut it, and which line of its task; the value depends on the cuts."""
    row_of_task = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.col("_metadata.file_block_start") + row_of_task


def read_journal(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of journal segments."""
    return journal_records(read_lines(spark, files))


def journal_records(lines: DataFrame) -> DataFrame:
    """The same of lines as ``read_lines`` gives them, however they were read."""
    whole = F.when(
        F.locate('{"v":', F.col("value"), 2) > 0, F.split("value", _RECORD_BEGINS)
    ).otherwise(F.array("value"))  # fmt: skip
    records = lines.select("*", F.posexplode(whole).alias("nth", "text")).where(F.trim("text") != "")
    wanted = StructType([*schema.JOURNAL.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = records.withColumn("r", F.from_json("text", wanted, options))
    reason = _why_rejected(F.col("text"), F.col("r"))
    origin = {
        "reference": F.concat_ws(":", "process", "r.seq"),
        "joined": F.col("nth") > 0,
    }
    return parsed.select(
        *(F.col(f"r.{name}").alias(name) for name in schema.JOURNAL.names),
        *(origin.get(name, F.col(name)).alias(name) for name in schema.ORIGIN.names),
        F.when(reason.isNotNull(), sample(F.col("text"))).alias("line"),
        reason.alias("reason"),
    )


def read(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of journals and logs."""
    from aiocontroller.analytics.log_reader import read_logs  # which reads its lines by ``read_lines``

    journals = [file for file in files if file.source == schema.JOURNAL_SOURCE]
    logs = [file for file in files if file.source != schema.JOURNAL_SOURCE]
    if not logs:
        return read_journal(spark, journals)
    records = read_logs(spark, logs)
    return read_journal(spark, journals).unionByName(records) if journals else records


def read_lines(spark: SparkSession, files: Sequence[SourceFile], line_separator: str | None = None) -> DataFrame:
    """``value``, its place among the others of its file (``position``), and what ``SourceFile`` says of the file."""
    reader = spark.read if line_separator is None else spark.read.option("lineSep", line_separator)
    lines = reader.text([re.sub(r"([][{}*?\\])", r"\\\1", file.path) for file in files])
    as_spark_says = {unquote(uri): uri for uri in map(_one_slash, lines.inputFiles())}
    about = spark.createDataFrame(
        [
            (
                as_spark_says[_one_slash(f.path)],
                f.name,
                f.source,
                f.cluster,
                f.process,
                f.start_us,
                f.node,
                f.time_zone,
                f.date,
            )
            for f in files
        ],
        "path string, file string, source string, cluster string, process string, start_us long, node int, "
        "time_zone string, date string",
    )
    placed = lines.select("value", F.col("_metadata.file_path").alias("path"), _position().alias("position"))
    return placed.join(F.broadcast(about), "path").drop("path")


def _one_slash(path: str) -> str:
    """Spark writes local files both as ``file:/a`` and as ``file:///a``."""
    return re.sub("^file:/+", "file:/", path)


def accepted(records: DataFrame) -> DataFrame:
    """The records that were understood: ``schema.EVENTS_BRONZE``."""
    return records.where(F.col("reason").isNull()).drop(*schema.REJECTED.names)


def quarantine(records: DataFrame) -> DataFrame:
    """The others, a row for each file and reason: ``schema.QUARANTINE``."""
    rejected = records.where(F.col("reason").isNotNull())
    counted = rejected.groupBy("file", "reason", "source", "cluster").agg(
        F.min("line").alias("line"), F.count(F.lit(1)).alias("count")
    )
    return counted.select(*schema.QUARANTINE.names)


def refuse_quarantined(understood: DataFrame, quarantined: DataFrame, most: float) -> None:
    """``BadInputError`` when the share of lines in quarantine is above ``most``; it names the worst file."""
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


def sample(text: Column) -> Column:
    """At most ``SAMPLE_CHARACTERS`` of it, NUL bytes shown as such."""
    return F.replace(F.substring(text, 1, schema.SAMPLE_CHARACTERS), F.lit("\0"), F.lit("␀"))


def _why_rejected(text: Column, record: Column) -> Column:
    """Null for a whole record of a version that we know; else the reason in words."""
    version = record["v"]
    missing = F.array_compact(
        F.array(*(F.when(record[name].isNull(), F.lit(name)) for name in schema.JOURNAL_REQUIRED))
    )
    known = F.lit(", ".join(map(str, sorted(schema.JOURNAL_VERSIONS))))
    return (
        F.when(text.contains("\0"), F.lit("NUL bytes: a part of the file that was never written"))
        .when(
            ~version.isin(*schema.JOURNAL_VERSIONS),
            F.concat(F.lit("format version "), version, F.lit("; this program reads "), known),
        )
        .when(
            record[_CORRUPT].isNotNull(),
            F.when(~F.rtrim(text).endswith("}"), F.lit("torn: it ends within a record"))
            .when(~text.startswith("{"), F.lit("torn: it begins within a record"))
            .otherwise(F.lit("not JSON, or a field of another type than the journal's")),
        )
        .when(F.size(missing) > 0, F.concat(F.lit("not a journal record: no "), F.array_join(missing, ", ")))
    )
