"""Bronze: each line of each file becomes a typed record, or goes into quarantine with a reason; none is lost.

The readers return bronze's columns and beside them ``line`` and ``reason`` (``schema.REJECTED``), so that a file is
parsed once; ``accepted`` and ``quarantine`` take the two halves.

Spark's JSON reader is twice as fast as ``from_json`` over lines, and knows less: of two records on a line it drops the
second one, and of JSON that is no record it does not keep the text.  So a journal's lines are first looked at as text,
which costs little; a file of which every line looks like one record goes to the fast reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from aiocontroller.analytics import schema
from aiocontroller.analytics.session import small_table
from aiocontroller.analytics.sources import SourceFile
from aiocontroller.core.errors import BadInputError

_CORRUPT = "_corrupt_record"
_RECORD_BEGINS = r'(?=\{"v":\d+,"seq":\d+,"epoch":)'
"""Inside a string the quotes would be escaped: this is a record's beginning, wherever it stands in a line."""


PLAIN_FROM_BYTES = 8 << 20
"""Less than this in all is read line by line: looking first would take longer."""
_PLAIN = (
    rf'^\{{"v":(?:{"|".join(map(str, sorted(schema.JOURNAL_VERSIONS)))}),'
    r'"seq":\d{1,18},"epoch":\d{1,9},"node":\d{1,9},"ts":\d{1,18},"kind":"\w+"[,}]'
)
"""How a record begins that has all of ``schema.JOURNAL_REQUIRED``, in their types."""


def _position() -> Column:
    """Grows along a file: where Spark cut it, and which line of its task; the value depends on the cuts."""
    row_of_task = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.col("_metadata.file_block_start") + row_of_task


def read_journal(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of journal segments."""
    plain = _plain(spark, files) if sum(file.size for file in files) >= PLAIN_FROM_BYTES else []
    others = [file for file in files if file not in plain]
    if not plain:
        return journal_records(read_lines(spark, others))
    records = _plain_records(spark, plain)
    return records.unionByName(journal_records(read_lines(spark, others))) if others else records


def _plain(spark: SparkSession, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Those of which each line looks like one whole record of a version that we know."""
    lines = spark.read.text(_globs(files))
    line = F.col("value")
    odd = ~line.rlike(_PLAIN) | ~line.endswith("}") | line.contains("\0") | (F.locate('{"v":', line, 2) > 0)
    found = lines.where((line != "") & odd).select(F.col("_metadata.file_path").alias("path")).distinct().collect()
    doubtful = {_one_slash(unquote(row["path"])) for row in found}
    return [file for file in files if _one_slash(file.path) not in doubtful]


def _plain_records(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """As ``journal_records``, of ``_plain`` files; what is torn in the middle of a line is still found."""
    wanted = StructType([*schema.JOURNAL.fields, StructField(_CORRUPT, StringType())])
    reader = spark.read.schema(wanted).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    records = reader.json(_globs(files))
    placed = records.select("*", F.col("_metadata.file_path").alias("file_path"))
    named = placed.join(F.broadcast(_about(spark, files, records)), "file_path")
    corrupt = F.col(_CORRUPT).isNotNull()
    # True, and names them all: the reader finds a fault in a column only where somebody wants that column.
    every_column = F.length(F.to_json(F.struct(*schema.JOURNAL.names))) > 0
    made = {"reference": F.lit(None).cast("string"), "joined": F.lit(False)}
    return named.select(
        *(made.get(name, F.col(name)).alias(name) for name in schema.EVENTS_BRONZE.names),
        F.when(corrupt, sample(F.col(_CORRUPT))).alias("line"),
        F.when(corrupt & every_column, _why_corrupt(F.col(_CORRUPT))).alias("reason"),
    )


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
    origin = {"reference": F.lit(None).cast("string"), "joined": F.col("nth") > 0}
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
    lines = reader.text(_globs(files))
    placed = lines.select("value", F.col("_metadata.file_path").alias("file_path"), _position().alias("position"))
    about = _about(spark, files, lines).withColumnRenamed("node_of_file", "node")
    return placed.join(F.broadcast(about), "file_path").drop("file_path")


def _globs(files: Sequence[SourceFile]) -> list[str]:
    """Names that Spark takes for what they are."""
    return [re.sub(r"([][{}*?\\])", r"\\\1", file.path) for file in files]


def _about(spark: SparkSession, files: Sequence[SourceFile], reading: DataFrame) -> DataFrame:
    """What ``SourceFile`` says, by the paths that ``reading`` gives its files."""
    as_spark_says = {unquote(uri): uri for uri in map(_one_slash, reading.inputFiles())}
    return small_table(
        spark,
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
        "file_path string, file string, source string, cluster string, process string, start_us long, "
        "node_of_file int, time_zone string, date string",
    )


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


def _why_corrupt(text: Column) -> Column:
    return (
        F.when(~F.rtrim(text).endswith("}"), F.lit("torn: it ends within a record"))
        .when(~text.startswith("{"), F.lit("torn: it begins within a record"))
        .otherwise(F.lit("not JSON, or a field of another type than the journal's"))
    )


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
        .when(record[_CORRUPT].isNotNull(), _why_corrupt(text))
        .when(F.size(missing) > 0, F.concat(F.lit("not a journal record: no "), F.array_join(missing, ", ")))
    )
