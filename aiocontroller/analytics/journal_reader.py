"""Reads journals by Spark: each line becomes a typed record, or is rejected with a reason.

Spark's JSON reader is twice as fast as ``from_json`` over lines but has two limits: it drops the second of two records
on a line, and does not keep the text of JSON that is not a record.  So lines are first examined as text, which costs
little, and files in which every line looks like one record go to the fast reader.

If files and tables are on disks of this machine, ``journal_files`` is faster still; it leaves the lines that it does
not understand to ``journal_records``.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import Column, DataFrame, F, SparkSession
from aiocontroller.analytics.lines import about, globs, one_slash, read_lines, sample
from aiocontroller.analytics.source_files import SourceFile

_CORRUPT = "_corrupt_record"
_RECORD_BEGINS = r'(?=\{"v":\d+,"seq":\d+,"epoch":)'
"""Quotes inside a string are escaped, so this starts a record anywhere in a line."""


PLAIN_FROM_BYTES = 8 << 20
"""Smaller inputs are read line by line, since the examination would take longer."""
_PLAIN = (
    rf'^\{{"v":(?:{"|".join(map(str, sorted(schema.JOURNAL_VERSIONS)))}),'
    r'"seq":\d{1,18},"epoch":\d{1,9},"node":\d{1,9},"ts":\d{1,18},"kind":"\w+"[,}]'
)
"""The start of a record that has all of ``schema.JOURNAL_REQUIRED`` with the right types."""


def read_journal(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """Return ``schema.EVENTS_BRONZE`` and ``schema.REJECTED`` of journal segments."""
    plain = _plain(spark, files) if sum(file.size for file in files) >= PLAIN_FROM_BYTES else []
    others = [file for file in files if file not in plain]
    if not plain:
        return journal_records(read_lines(spark, others))
    records = _plain_records(spark, plain)
    return records.unionByName(journal_records(read_lines(spark, others))) if others else records


def _plain(spark: SparkSession, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files in which each line looks like one complete record of a known version."""
    lines = spark.read.text(globs(files))
    line = F.col("value")
    odd = ~line.rlike(_PLAIN) | ~line.endswith("}") | line.contains("\0") | (F.locate('{"v":', line, 2) > 0)
    found = lines.where((line != "") & odd).select(F.col("_metadata.file_path").alias("path")).distinct().collect()
    doubtful = {one_slash(unquote(row["path"])) for row in found}
    return [file for file in files if one_slash(file.path) not in doubtful]


def _plain_records(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    """Do the same as ``journal_records`` for ``_plain`` files; lines torn in the middle are still found."""
    wanted = schema.JOURNAL.with_text(_CORRUPT).ddl
    reader = spark.read.schema(wanted).option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
    records = reader.json(globs(files))
    placed = records.select("*", F.col("_metadata.file_path").alias("file_path"))
    named = placed.join(F.broadcast(about(spark, files, records)), "file_path")
    corrupt = F.col(_CORRUPT).isNotNull()
    # Always true, but uses all columns: the reader detects an error in a column only if the column is used.
    every_column = F.length(F.to_json(F.struct(*schema.JOURNAL.names))) > 0
    made = {"reference": F.lit(None).cast("string"), "joined": F.lit(False)}
    return named.select(
        *(made.get(name, F.col(name)).alias(name) for name in schema.EVENTS_BRONZE.names),
        F.when(corrupt, sample(F.col(_CORRUPT))).alias("line"),
        F.when(corrupt & every_column, _why_corrupt(F.col(_CORRUPT))).alias("reason"),
    )


def journal_records(lines: DataFrame) -> DataFrame:
    """Return the same for lines with the columns of ``read_lines``, whatever read them."""
    whole = F.when(
        F.locate('{"v":', F.col("value"), 2) > 0, F.split("value", _RECORD_BEGINS)
    ).otherwise(F.array("value"))  # fmt: skip
    records = lines.select("*", F.posexplode(whole).alias("nth", "text")).where(F.trim("text") != "")
    wanted = schema.JOURNAL.with_text(_CORRUPT).ddl
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
    """Return null for a complete record of a known version, otherwise the reason as text."""
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
