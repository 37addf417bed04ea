"""Journals by Spark: each line becomes a typed record, or is rejected with a reason.

Spark's JSON reader is twice as fast as ``from_json`` over lines, and knows less: of two records on a line it drops the
second one, and of JSON that is no record it does not keep the text.  So a journal's lines are first looked at as text,
which costs little; a file of which every line looks like one record goes to the fast reader.

Where files and tables are on disks of this machine, ``journal_files`` is faster still, and leaves to ``records_of``
here the lines that it does not understand.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from aiocontroller.analytics import schema
from aiocontroller.analytics.lines import about, globs, one_slash, read_lines, sample
from aiocontroller.analytics.sources import SourceFile

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
    lines = spark.read.text(globs(files))
    line = F.col("value")
    odd = ~line.rlike(_PLAIN) | ~line.endswith("}") | line.contains("\0") | (F.locate('{"v":', line, 2) > 0)
    found = lines.where((line != "") & odd).select(F.col("_metadata.file_path").alias("path")).distinct().collect()
    doubtful = {one_slash(unquote(row["path"])) for row in found}
    return [file for file in files if one_slash(file.path) not in doubtful]


def _plain_records(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """As ``journal_records``, of ``_plain`` files; what is torn in the middle of a line is still found."""
    wanted = StructType([*schema.JOURNAL.fields, StructField(_CORRUPT, StringType())])
    reader = spark.read.schema(wanted).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    records = reader.json(globs(files))
    placed = records.select("*", F.col("_metadata.file_path").alias("file_path"))
    named = placed.join(F.broadcast(about(spark, files, records)), "file_path")
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
