"""Small tables as plain values, for joins without an engine."""

from __future__ import annotations

from typing import Any

from aiocontroller.analytics.dataframes import DataFrame

Row = dict[str, Any]


def collected(table: DataFrame) -> list[Row]:
    """Return the table's rows, in an order that depends only on their content."""
    return sorted((row.asDict(recursive=True) for row in table.collect()), key=repr)
