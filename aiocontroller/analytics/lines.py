"""Files as lines, with what ``SourceFile`` says of each; what the readers of journals and logs have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from aiocontroller.analytics import schema
from aiocontroller.analytics.session import small_table
from aiocontroller.analytics.sources import SourceFile


def read_lines(spark: SparkSession, files: Sequence[SourceFile], line_separator: str | None = None) -> DataFrame:
    """``value``, its place among the others of its file (``position``), and what ``SourceFile`` says of the file."""
    reader = spark.read if line_separator is None else spark.read.option("lineSep", line_separator)
    lines = reader.text(globs(files))
    placed = lines.select("value", F.col("_metadata.file_path").alias("file_path"), _position().alias("position"))
    known = about(spark, files, lines).withColumnRenamed("node_of_file", "node")
    return placed.join(F.broadcast(known), "file_path").drop("file_path")


def globs(files: Sequence[SourceFile]) -> list[str]:
    """Names that Spark takes for what they are."""
    return [re.sub(r"([][{}*?\\])", r"\\\1", file.path) for file in files]


def about(spark: SparkSession, files: Sequence[SourceFile], reading: DataFrame) -> DataFrame:
    """What ``SourceFile`` says, by the paths that ``reading`` gives its files."""
    as_spark_says = {unquote(uri): uri for uri in map(one_slash, reading.inputFiles())}
    return small_table(
        spark,
        [
            (
                as_spark_says[one_slash(f.path)],
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


def one_slash(path: str) -> str:
    """Spark writes local files both as ``file:/a`` and as ``file:///a``."""
    return re.sub("^file:/+", "file:/", path)


def _position() -> Column:
    """Grows along a file: where Spark cut it, and which line of its task; the value depends on the cuts."""
    row_of_task = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.col("_metadata.file_block_start") + row_of_task


def sample(text: Column) -> Column:
    """At most ``SAMPLE_CHARACTERS`` of it, NUL bytes shown as such."""
    return F.replace(F.substring(text, 1, schema.SAMPLE_CHARACTERS), F.lit("\0"), F.lit("␀"))
