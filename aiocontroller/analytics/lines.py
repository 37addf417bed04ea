"""Reads files as lines with the attributes of their ``SourceFile``, for the readers of journals and logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import Column, DataFrame, F, SparkSession
from aiocontroller.analytics.reading import as_glob
from aiocontroller.analytics.session import small_table
from aiocontroller.analytics.source_files import SourceFile


def read_lines(spark: SparkSession, files: Sequence[SourceFile], line_separator: str | None = None) -> DataFrame:
    """Return ``value``, the line's place among all lines (``position``), and the attributes of its ``SourceFile``."""
    reader = spark.read if line_separator is None else spark.read.option("lineSep", line_separator)
    lines = reader.text(globs(files))
    placed = lines.select("value", F.col("_metadata.file_path").alias("file_path"), _position().alias("position"))
    known = about(spark, files, lines).withColumnRenamed("node_of_file", "node")
    joined = placed.join(F.broadcast(known), "file_path")
    position = F.col("position") + F.col("first_position")
    return joined.withColumn("position", position).drop("file_path", "first_position")


def globs(files: Sequence[SourceFile]) -> list[str]:
    """Return the names, escaped so that Spark takes them literally."""
    return [as_glob(file.path) for file in files]


def about(spark: SparkSession, files: Sequence[SourceFile], reading: DataFrame) -> DataFrame:
    """Return the attributes of each ``SourceFile`` by the path that ``reading`` uses for it."""
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
                f.first_position,
            )
            for f in files
        ],
        "file_path string, file string, source string, cluster string, process string, start_us long, "
        "node_of_file int, time_zone string, date string, first_position long",
    )


def one_slash(path: str) -> str:
    """Normalise a path: Spark writes local files both as ``file:/a`` and as ``file:///a``."""
    return re.sub("^file:/+", "file:/", path)


def _position() -> Column:
    """Return a number that grows along a file, made of the start of Spark's split and the row number in its task.

    The value depends on the splits.
    """
    row_of_task = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    return F.col("_metadata.file_block_start") + row_of_task


def sample(text: Column) -> Column:
    """Return the first ``SAMPLE_CHARACTERS`` of the text, with NUL bytes made visible."""
    return F.replace(F.substring(text, 1, schema.SAMPLE_CHARACTERS), F.lit("\0"), F.lit("␀"))
