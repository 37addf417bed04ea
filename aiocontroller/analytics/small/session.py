"""DuckDB within this process, with the part of a Spark session's API that the pipeline uses."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiocontroller.analytics.session import PipelineMissingError
from aiocontroller.analytics.small.frames import SmallFrame
from aiocontroller.analytics.small.translate import MACROS, translated

if TYPE_CHECKING:
    import duckdb

_DUCKDBS: Final = {"int": "INTEGER", "long": "BIGINT", "bigint": "BIGINT", "string": "VARCHAR", "double": "DOUBLE",
                   "boolean": "BOOLEAN", "array<int>": "INTEGER[]", "array<string>": "VARCHAR[]"}  # fmt: skip


class SmallSession:
    """A session; not thread-safe.  Raises PipelineMissingError without DuckDB."""

    def __init__(self) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise PipelineMissingError(f"DuckDB is missing ({error}): pip install 'aiocontroller[pipeline]'") from error
        spill = tempfile.mkdtemp(prefix="aiocontroller-duckdb-")
        atexit.register(shutil.rmtree, spill, ignore_errors=True)
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(
            config={"threads": threads, "temp_directory": spill,
                    "autoinstall_known_extensions": False, "autoload_known_extensions": False}
        )  # fmt: skip
        for macro in MACROS:
            self._connection.execute(f"CREATE TEMP MACRO {macro}")
        self._links = Path(spill, "links")
        self._io_error = duckdb.IOException
        self._tables = 0
        self._described: dict[str, list[tuple[str, str]]] = {}

    @property
    def read(self) -> Reader:
        """A reader of Parquet without a schema."""
        return Reader(self)

    def run(self, sql: str) -> Any:
        """Run a statement at once; OSError for DuckDB's I/O errors, KeyboardInterrupt for Ctrl-C."""
        try:
            return self._connection.execute(sql)
        except self._io_error as error:
            raise OSError(f"{error}") from error
        except RuntimeError as error:
            if str(error) == "Query interrupted":  # DuckDB's message for Ctrl-C
                raise KeyboardInterrupt from None
            raise

    def plain_name(self, folder: str) -> str:
        """Return a name that DuckDB does not treat as a pattern.

        Patterns cannot escape a backslash, so a folder with special characters is reached through a link.
        """
        if not re.search(r"[*?\[\\]", folder):
            return folder
        self._links.mkdir(exist_ok=True)
        link = self._links / hashlib.sha256(folder.encode()).hexdigest()
        if not link.is_symlink():
            link.symlink_to(Path(folder).absolute())
        return str(link)

    def described(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB's type) of each column."""
        if sql not in self._described:
            self._described[sql] = [(row[0], row[1]) for row in self.run(f"DESCRIBE {sql}").fetchall()]
        return self._described[sql]

    def fields(self, sql: str, column: str) -> list[str]:
        """Return the fields of a struct column."""
        found = self.run(f'SELECT UNNEST("{column}") FROM ({sql}) LIMIT 0').description
        return [each[0] for each in found]

    def translated(self, text: str) -> tuple[str, str]:
        """Return (DuckDB's expression, its name or "") of an expression in Spark SQL; cached."""
        return translated(text, _functions())

    def translated_order(self, text: str) -> str:
        """Translate an ordering such as ``x ASC NULLS FIRST``."""
        column, direction = re.fullmatch(r"(.*) ((?:ASC|DESC) NULLS \w+)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        return f"{self.translated(column)[0]} {direction}"

    def table(self, name: str, columns: Sequence[str]) -> SmallFrame:
        """A frame of a table or table function, whose columns the caller knows."""
        return SmallFrame(self, lambda s: f"SELECT * FROM {name}", [], columns, cheap=True, name="")

    def kept(self, sql: str, columns: Sequence[str]) -> SmallFrame:
        """Store the rows as a table."""
        self._tables += 1
        self.run(f"CREATE TEMP TABLE kept_{self._tables} AS {sql}")
        return self.table(f"kept_{self._tables}", columns)

    def createDataFrame(self, rows: Any, schema: str) -> SmallFrame:
        """Create a frame from tuples or an Arrow table."""
        columns = columns_of(schema)
        self._tables += 1
        name = f"kept_{self._tables}"
        self.run(f"CREATE TEMP TABLE {name} ({', '.join(f'{quote(n)} {kind}' for n, kind in columns)})")
        if not isinstance(rows, list) or rows:
            self._connection.register("arriving", _arrow(rows, columns) if isinstance(rows, list) else rows)
            self.run(f"INSERT INTO {name} SELECT * FROM arriving")
            self._connection.unregister("arriving")
        return self.table(name, [n for n, _ in columns])


def _arrow(rows: Sequence[Sequence[Any]], columns: Sequence[tuple[str, str]]) -> Any:
    """Return the rows as an Arrow table: DuckDB would need a statement for each row of a list, a hundred times as
    long."""
    import pyarrow as pa

    types = {"INTEGER": pa.int32(), "BIGINT": pa.int64(), "VARCHAR": pa.string(), "DOUBLE": pa.float64(),
             "BOOLEAN": pa.bool_(), "INTEGER[]": pa.list_(pa.int32()), "VARCHAR[]": pa.list_(pa.string())}  # fmt: skip
    values = zip(*rows, strict=True)
    return pa.table({name: pa.array(column, types[kind]) for column, (name, kind) in zip(values, columns, strict=True)})


@cache
def _functions() -> frozenset[str]:
    """DuckDB's own functions, by lower-case name; one set for all sessions, since it is a key of the cached
    translations."""
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return frozenset(row[0] for row in found)


class Reader:
    """Reads folders of Parquet files."""

    def __init__(self, session: SmallSession, columns: Sequence[tuple[str, str]] | None = None) -> None:
        self._session, self._columns = session, columns

    def schema(self, ddl: str) -> Reader:
        """A reader of exactly these columns (``name type, …``): missing ones are null, and others are left out."""
        return Reader(self._session, columns_of(ddl))

    def parquet(self, *folders: str) -> SmallFrame:
        """A frame of all files below the folders; names that begin with ``_`` or ``.`` are skipped."""
        listed = ", ".join(
            "'" + self._session.plain_name(folder).replace("'", "''") + "/**/[!_.]*.parquet'" for folder in folders
        )
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        there = dict(self._session.described(f"SELECT * FROM {source}"))
        if self._columns is None:
            return self._session.table(source, list(there))
        made = ", ".join(
            quote(name) if there.get(name) == kind
            else f"CAST({quote(name) if name in there else 'NULL'} AS {kind}) AS {quote(name)}"
            for name, kind in self._columns
        )  # fmt: skip
        text = f"SELECT {made} FROM {source}"
        return SmallFrame(self._session, lambda s: text, [], [name for name, _ in self._columns], cheap=True)


def quote(name: str) -> str:
    """The name in double quotes, for DuckDB; quotes within it are not escaped."""
    return f'"{name}"'


def columns_of(ddl: str) -> list[tuple[str, str]]:
    """Return Spark's ``name type, …`` with DuckDB's types."""
    pairs = (pair.replace("`", "").split() for pair in ddl.split(","))
    return [(name, _DUCKDBS[kind]) for name, kind in pairs]
