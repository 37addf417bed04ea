"""The report: one HTML file for people.  ``gather`` reads gold, ``words`` and ``charts`` describe it, and ``page``
assembles it.

Nothing here grows with the data: tables show the worst rows and charts have a fixed number of bins, so ten partitions
and a million give pages of the same size.
"""

from __future__ import annotations

from pathlib import Path

from aiocontroller.analytics.dataframes import SparkSession
from aiocontroller.analytics.report.gather import gather
from aiocontroller.analytics.report.page import page

__all__ = ["write_report"]


def write_report(spark: SparkSession, out: str, file: Path) -> None:
    """Write the report of the gold tables below ``out``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(gather(spark, out)), encoding="utf-8")
