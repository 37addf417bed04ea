"""The data frame interface: code that imports ``F``, ``Window`` and ``DataFrame`` from here runs on two engines.

Transformations use PySpark's API. Spark computes them on many machines, and DuckDB within this process (``small/``).
``computing_by`` selects the engine for everything that runs within it; the default is Spark.  ``docs/pipeline.md``
lists the parts of the API that both engines support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "DUCKDB", "NAMES", "SPARK", "Column", "DataFrame", "F", "Keep", "SparkSession", "Window", "WindowSpec",
    "checkpointed", "computing_by", "engine",
]  # fmt: skip

SPARK: Final = "spark"
DUCKDB: Final = "duckdb"
NAMES: Final = {SPARK: "Spark", DUCKDB: "DuckDB"}

_engine: ContextVar[str] = ContextVar("engine", default=SPARK)


def engine() -> str:
    """Return ``SPARK`` or ``DUCKDB``."""
    return _engine.get()


@contextmanager
def computing_by(name: str) -> Iterator[None]:
    """Select the engine, ``SPARK`` or ``DUCKDB``, within the block and the tasks that it starts."""
    before = _engine.set(name)
    try:
        yield
    finally:
        _engine.reset(before)


def checkpointed(name: str, rows: Any) -> Any:
    """Compute the rows at once where a plan would repeat their computation for each use; DuckDB does it once anyway."""
    return rows.localCheckpoint() if engine() == SPARK else rows


Keep = Callable[[str, Any], Any]
"""Stores rows under a name and returns them."""

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
    from pyspark.sql import functions as F
else:
    # For annotations only; no engine is imported before the first computation.
    Column = SparkSession = WindowSpec = Any

    class _Functions:
        def __getattr__(self, name: str) -> Any:
            return getattr(_module("functions"), name)

    class _Window:
        def __getattr__(self, name: str) -> Any:
            return getattr(_module("window").Window, name)

    class DataFrame:
        """The class methods that ``functools.reduce`` uses."""

        @staticmethod
        def union(one: Any, other: Any) -> Any:
            """Rows of both by position, duplicates included, as PySpark's ``DataFrame.union``."""
            return one.union(other)

        @staticmethod
        def unionByName(one: Any, other: Any) -> Any:
            """Rows of both by column name; an error where a column is missing on one side."""
            return one.unionByName(other)

    F = _Functions()
    Window = _Window()

    def _module(name: str) -> ModuleType:
        if _engine.get() == SPARK:
            from pyspark.sql import functions, window

            return functions if name == "functions" else window
        from aiocontroller.analytics.small import columns

        return columns
