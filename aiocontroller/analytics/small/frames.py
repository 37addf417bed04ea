"""Data frames with PySpark's API, as plans that DuckDB computes when their rows are requested.

A frame knows the SELECT that makes it from other frames, and the names of its columns.  A costly frame (a join, an
aggregate, a window) that several steps of a query use is computed once (a common table expression).  Cheap frames are
repeated in each place, so that DuckDB reads only the columns and rows needed there.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiocontroller.analytics.schema import Field
from aiocontroller.analytics.small.columns import Column, ordering, quoted
from aiocontroller.analytics.small.translate import NotCarriedError

if TYPE_CHECKING:
    from aiocontroller.analytics.small.session import SmallSession

MakeSelect = Callable[[Sequence[str]], str]
"""Makes the SELECT of a frame from the names of its sources after FROM."""

_WEIGHTED: Final = re.compile(r"\s*percentile\((\w+), array\(([^)]*)\), (\w+)\) AS (\w+)\s*")
_WIDENS: Final = re.compile(r"SUM\(|HUGEINT", re.IGNORECASE)
"""Matches expressions that produce 128-bit numbers."""
_MAX_INT64: Final = (1 << 63) - 1
_JOINS: Final = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN", "left_semi": "SEMI JOIN",
               "left_anti": "ANTI JOIN"}  # fmt: skip
_KINDS: Final = {"INTEGER": "int", "BIGINT": "bigint", "VARCHAR": "string", "DOUBLE": "double", "BOOLEAN": "boolean",
                 "INTEGER[]": "array<int>", "VARCHAR[]": "array<string>"}  # fmt: skip


class Row(dict[str, Any]):
    """A row of a result, with access by name, by position, or by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        """Return a plain dict; structs are always plain values."""
        return {name: self[name] for name in self.keys()}


class SmallFrame:
    """A plan; nothing is computed before ``collect``, ``first``, ``count``, ``isEmpty``, ``persist`` or a write."""

    def __init__(
        self,
        session: SmallSession,
        make_select: MakeSelect,
        sources: Sequence[SmallFrame],
        columns: Sequence[str],
        *,
        cheap: bool = False,
        name: str = "",
        joined: str = "",
    ) -> None:
        self.sparkSession = session
        self.columns = list(columns)
        self._make_select = make_select
        self._sources = list(sources)
        self._cheap = cheap
        self._name = name
        """The alias; empty without one."""
        self._joined = joined
        """For a join by an expression: the text after FROM."""

    # -- rows ----------------------------------------------------------------------------------------------------------

    def sql(self) -> str:
        """Return one statement for DuckDB."""
        wanted: dict[int, int] = {}
        frames: list[SmallFrame] = []

        def visit(frame: SmallFrame) -> None:
            wanted[id(frame)] = wanted.get(id(frame), 0) + 1
            if wanted[id(frame)] == 1 or frame._cheap:
                for source in frame._sources:
                    visit(source)
                if wanted[id(frame)] == 1:
                    frames.append(frame)

        visit(self)
        shared: dict[int, str] = {}
        parts: list[str] = []
        for frame in frames:
            if wanted[id(frame)] > 1 and not frame._cheap:
                parts.append(f"s{len(parts)} AS MATERIALIZED ({frame._text(shared)})")
                shared[id(frame)] = f"s{len(parts) - 1}"
        return (f"WITH {', '.join(parts)} " if parts else "") + self._text(shared)

    def _text(self, shared: Mapping[int, str]) -> str:
        return self._make_select([source._as_source(shared) for source in self._sources])

    def _as_source(self, shared: Mapping[int, str]) -> str:
        if id(self) in shared:
            return shared[id(self)]
        return f"({self._text(shared)})"

    def _query(self) -> str:
        """Return the statement with whole numbers as in Spark: DuckDB's sums have 128 bits.

        A number beyond 64 bits, which Spark refuses, becomes the largest one: a torn number must not spoil all other
        results.
        """
        sql = self.sql()
        if _WIDENS.search(sql) is None:  # a description plans the whole statement
            return sql
        wide = [name for name, kind in self.sparkSession.described(sql) if str(kind) == "HUGEINT"]
        if not wide:
            return sql
        most = _MAX_INT64
        casts = ", ".join(
            f'CAST(CASE WHEN "{n}" > {most} THEN {most} WHEN "{n}" < {-most} THEN {-most} ELSE "{n}" END AS BIGINT) '
            f'AS "{n}"'
            for n in wide
        )
        return f"SELECT * REPLACE ({casts}) FROM ({sql})"

    def collect(self) -> list[Row]:
        """Compute all rows, into memory; numbers beyond 64 bits become the largest that fits."""
        result = self.sparkSession.run(self.sql())
        wide = [
            name for name, (_, kind, *_) in zip(self.columns, result.description, strict=True) if str(kind) == "HUGEINT"
        ]
        rows = [Row(zip(self.columns, row, strict=True)) for row in result.fetchall()]
        for row in rows if wide else ():  # as ``_query`` does, which would plan the statement twice
            row.update({name: max(-_MAX_INT64, min(row[name], _MAX_INT64)) for name in wide if row[name] is not None})
        return rows

    def first(self) -> Row | None:
        """Compute one row; None if there is none."""
        return next(iter(self.limit(1).collect()), None)

    def count(self) -> int:
        """Compute the number of rows only."""
        return int(self.sparkSession.run(f"SELECT count(*) FROM ({self.sql()})").fetchall()[0][0])

    def isEmpty(self) -> bool:
        """Compute at most one row."""
        return not self.sparkSession.run(f"SELECT 1 FROM ({self.sql()}) LIMIT 1").fetchall()

    def persist(self) -> SmallFrame:
        """Compute the rows now, into a table of the session; Spark would compute them at their first use."""
        return self.sparkSession.kept(self._query(), self.columns)

    localCheckpoint = persist

    def unpersist(self) -> None:
        """Do nothing: the table is deleted with the session."""

    @property
    def schema(self) -> list[Field]:
        """The columns with Spark's type names, or DuckDB's where Spark has none."""
        return [Field(name, _KINDS.get(kind, kind)) for name, kind in self.sparkSession.described(self.sql())]

    @property
    def write(self) -> Writer:
        """A writer of Parquet; each use begins a new one."""
        return Writer(self)

    # -- frames of one frame -------------------------------------------------------------------------------------------

    def _may_be_copied(self) -> bool:
        return self._cheap or not self._sources

    def _translated(self, column: Any) -> tuple[str, str]:
        """Return (DuckDB's expression, the column's name or "")."""
        if isinstance(column, str):
            return self.sparkSession.translated(column)
        text, name = self.sparkSession.translated(column.text)
        return text, column.name or name

    def _expressions(self, columns: Iterable[Any]) -> tuple[list[str], list[str]]:
        texts: list[str] = []
        names: list[str] = []
        for column in columns:
            for text, name in self._expanded(column):
                names.append(name or f"_c{len(names)}")
                texts.append(f'{text} AS "{names[-1]}"')
        return texts, names

    def _expanded(self, column: Any) -> Iterator[tuple[str, str]]:
        text = column if isinstance(column, str) else column.text.replace("`", "")
        if text == "*":
            yield from ((f'"{name}"', name) for name in self.columns)
        elif re.fullmatch(r"\w+\.\*", text):
            whole = text[:-2]
            yield from ((f'"{whole}"."{field}"', field) for field in self._fields(whole))
        else:
            yield self._translated(column)

    def _fields(self, whole: str) -> list[str]:
        """Return the fields of a frame's alias within a join, or of a struct."""
        for source in self._sources:
            if self._joined and source._name == whole:
                return source.columns
        return self.sparkSession.fields(self.sql(), whole)

    def select(self, *columns: Any) -> SmallFrame:
        """Keep these columns; ``*`` and ``struct.*`` expand."""
        return self._projected([quoted(each) if isinstance(each, str) else each for each in columns])

    def selectExpr(self, *columns: str) -> SmallFrame:
        """Keep these expressions in Spark SQL, each with ``AS`` or the name that Spark gives it."""
        return self._projected(columns)

    def _projected(self, columns: Sequence[Any]) -> SmallFrame:
        plain = [each.replace("`", "") if isinstance(each, str) and each.endswith("*") else each for each in columns]
        texts, names = self._expressions(plain)
        listed = ", ".join(texts)
        if self._joined:
            make_select, sources = self._make_select, self._sources
            return SmallFrame(
                self.sparkSession, lambda s: make_select(s).replace("SELECT *", f"SELECT {listed}", 1), sources, names
            )
        costly = re.search(r"\b(OVER \(|UNNEST\()", listed) is not None
        return self._of_text(f"SELECT {listed} FROM ", names, cheap=not costly)

    def withColumns(self, columns: Mapping[str, Column]) -> SmallFrame:
        """Add columns at the end, or replace those with the same names; all see the old values."""
        translated = {name: self._translated(column)[0] for name, column in columns.items()}
        new = [f'{text} AS "{name}"' for name, text in translated.items() if name not in self.columns]
        old = [f'{text} AS "{name}"' for name, text in translated.items() if name in self.columns]
        star = f"* REPLACE ({', '.join(old)})" if old else "*"
        names = [*self.columns, *(name for name in translated if name not in self.columns)]
        listed = ", ".join([star, *new])
        costly = re.search(r"\b(OVER \(|UNNEST\()", listed) is not None
        return self._of_text(f"SELECT {listed} FROM ", names, cheap=not costly)

    def _of_text(self, head: str, names: Sequence[str], tail: str = "", *, cheap: bool = False) -> SmallFrame:
        return SmallFrame(
            self.sparkSession, lambda s: f"{head}{s[0]}{tail}", [self], names, cheap=cheap and self._may_be_copied()
        )

    def withColumn(self, name: str, column: Column) -> SmallFrame:
        """Add or replace one column."""
        return self.withColumns({name: column})

    def withColumnRenamed(self, old: str, new: str) -> SmallFrame:
        """Rename a column; do nothing if there is none with that name."""
        return self.toDF(*(new if name == old else name for name in self.columns))

    def toDF(self, *names: str) -> SmallFrame:
        """Rename all columns, by position; ValueError for a wrong number of names."""
        listed = ", ".join(f'"{old}" AS "{new}"' for old, new in zip(self.columns, names, strict=True))
        return self._of_text(f"SELECT {listed} FROM ", names, cheap=True)

    def drop(self, *names: str) -> SmallFrame:
        """Drop columns; names that do not exist are allowed."""
        gone = [name for name in names if name in self.columns]
        if not gone:
            return self
        excluded = ", ".join(f'"{name}"' for name in gone)
        kept = [name for name in self.columns if name not in gone]
        return self._of_text(f"SELECT * EXCLUDE ({excluded}) FROM ", kept, cheap=True)

    def where(self, condition: Any) -> SmallFrame:
        """Keep the rows whose condition, a column or Spark SQL, is true and not null."""
        return self._of_text("SELECT * FROM ", self.columns, f" WHERE {self._translated(condition)[0]}", cheap=True)

    filter = where

    def distinct(self) -> SmallFrame:
        """Keep one of equal rows, in no particular order; nulls are equal."""
        return self._of_text("SELECT DISTINCT * FROM ", self.columns)

    def orderBy(self, *columns: Any) -> SmallFrame:
        """Sort; ascending with nulls first by default."""
        order = ", ".join(self.sparkSession.translated_order(ordering(each)) for each in columns)
        return self._of_text("SELECT * FROM ", self.columns, f" ORDER BY {order}")

    sortWithinPartitions = orderBy

    def repartition(self, number: int) -> SmallFrame:
        """The frame itself: there are no partitions within one process."""
        return self

    def limit(self, rows: int) -> SmallFrame:
        """Keep at most this many rows; unless the frame is sorted, any rows."""
        return self._of_text("SELECT * FROM ", self.columns, f" LIMIT {rows}")

    def alias(self, name: str) -> SmallFrame:
        """Name the frame for the expressions of a join."""
        return SmallFrame(
            self.sparkSession, lambda s: f"SELECT * FROM {s[0]}", [self], self.columns, cheap=self._may_be_copied(),
            name=name,
        )  # fmt: skip

    def transform(self, turn: Callable[[SmallFrame], SmallFrame]) -> SmallFrame:
        """Apply a function to the frame, so that steps read from left to right."""
        return turn(self)

    def groupBy(self, *keys: Any) -> Grouped:
        """Group by columns or expressions; nulls form a group of their own."""
        return Grouped(self, keys)

    def agg(self, *columns: Any) -> SmallFrame:
        """Aggregate all rows to one, even if there are none."""
        return self.groupBy().agg(*columns)

    # -- frames of two frames ------------------------------------------------------------------------------------------

    def union(self, other: SmallFrame) -> SmallFrame:
        """Rows of both by position, duplicates included, with this frame's names; AssertionError for different
        widths."""
        assert len(self.columns) == len(other.columns), (self.columns, other.columns)
        return SmallFrame(
            self.sparkSession, lambda s: f"SELECT * FROM {s[0]} UNION ALL SELECT * FROM {s[1]}", [self, other],
            self.columns, cheap=self._may_be_copied() and other._may_be_copied(),
        )  # fmt: skip

    def unionByName(self, other: SmallFrame, allowMissingColumns: bool = False) -> SmallFrame:
        """Rows of both by name; NotCarriedError if a column is missing on one side and that is not allowed."""
        names = [*self.columns, *(name for name in other.columns if name not in self.columns)]
        if not allowMissingColumns and (len(names) > len(self.columns) or set(self.columns) - set(other.columns)):
            raise NotCarriedError(f"unionByName of other columns: {self.columns} and {other.columns}")

        def in_order(frame: SmallFrame) -> SmallFrame:
            listed = ", ".join(f'"{n}"' if n in frame.columns else f'NULL AS "{n}"' for n in names)
            return frame._of_text(f"SELECT {listed} FROM ", names, cheap=True)

        return in_order(self).union(in_order(other))

    def join(self, other: SmallFrame, on: Any, how: str = "inner") -> SmallFrame:
        """Join by equal columns, which then appear once, or by an expression; ``how`` is a key of ``_JOINS``."""
        word = _JOINS[how]
        only_left = how in ("left_semi", "left_anti")
        if isinstance(on, Column):
            condition = self._translated(on)[0]
            one, two = self._name or "l", other._name or "r"
            return SmallFrame(
                self.sparkSession, lambda s: f"SELECT * FROM {s[0]} AS {one} {word} {s[1]} AS {two} ON {condition}",
                [self, other], self.columns if only_left else [*self.columns, *other.columns], joined=word,
            )  # fmt: skip
        keys = [on] if isinstance(on, str) else list(on)
        condition = " AND ".join(f'l."{key}" = r."{key}"' for key in keys)
        kept = [f'coalesce(l."{k}", r."{k}") AS "{k}"' if how == "full" else f'l."{k}" AS "{k}"' for k in keys]
        left, right = ([name for name in frame.columns if name not in keys] for frame in (self, other))
        kept += [f'l."{name}" AS "{name}"' for name in left]
        if not only_left:
            kept += [f'r."{name}" AS "{name}"' for name in right]
        listed = ", ".join(kept)
        return SmallFrame(
            self.sparkSession, lambda s: f"SELECT {listed} FROM {s[0]} AS l {word} {s[1]} AS r ON {condition}",
            [self, other], [*keys, *left, *([] if only_left else right)],
        )  # fmt: skip


class Grouped:
    """Rows in groups; ``agg`` or ``count`` makes one row of each group."""

    def __init__(self, frame: SmallFrame, keys: Sequence[Any]) -> None:
        self._frame = frame
        self._keys = [quoted(key) if isinstance(key, str) else key for key in keys]

    def count(self) -> SmallFrame:
        """The number of rows of each group, as ``count``."""
        return self.agg(Column("count(*)", "count"))

    def agg(self, *columns: Any) -> SmallFrame:
        """One row for each group: its keys, then the aggregates; ``percentile`` needs a weight."""
        frame = self._frame
        keys, names = frame._expressions(self._keys)
        by = tuple(names)
        texts: list[str] = []
        for column in columns:
            weighted = _WEIGHTED.fullmatch(column.text)
            if weighted is not None:
                frame, text = _with_ranks(frame, by, *weighted.groups())
                texts.append(text)
                names.append(weighted[4])
            else:
                found, more = frame._expressions([column])
                texts += found
                names += more
        grouped = f" GROUP BY {', '.join(str(n + 1) for n in range(len(keys)))}" if keys else ""
        return frame._of_text(f"SELECT {', '.join([*keys, *texts])} FROM ", names, grouped)


def _with_ranks(
    frame: SmallFrame, keys: Sequence[str], value: str, shares: str, weight: str, name: str
) -> tuple[SmallFrame, str]:
    """Compute ``percentile(value, array(shares), weight)``, interpolated as in Spark: each value counts ``weight``
    times."""
    group = ", ".join(f'"{key}"' for key in keys)
    ranks = f'sum("{weight}") OVER (PARTITION BY {group} ORDER BY "{value}")'
    every = f'sum("{weight}") OVER (PARTITION BY {group})'
    ranked = frame._of_text(f"SELECT *, {ranks} AS _upto, {every} AS _all FROM ", [*frame.columns, "_upto", "_all"])
    each = []
    for share in shares.split(","):
        at = f"((any_value(_all) - 1) * {float(share.strip().rstrip('D'))}::DOUBLE)"
        place = f"((_all - 1) * {float(share.strip().rstrip('D'))}::DOUBLE)"
        low, high = (f'min("{value}") FILTER (_upto > {cut}({place}))' for cut in ("floor", "ceil"))
        each.append(
            f"CASE WHEN {low} = {high} THEN CAST({low} AS DOUBLE) "
            f"ELSE (ceil({at}) - {at}) * {low} + ({at} - floor({at})) * {high} END"
        )
    return ranked, f'[{", ".join(each)}] AS "{name}"'


class Writer:
    """Writes Parquet folders with one file each; with partitions, one file in a folder for each value."""

    def __init__(self, frame: SmallFrame) -> None:
        self._frame = frame
        self._overwrite = False
        self._partitions: tuple[str, ...] = ()

    def mode(self, how: str) -> Writer:
        """``overwrite`` deletes the folder first; everything else appends."""
        self._overwrite = how == "overwrite"
        return self

    def option(self, name: str, value: Any) -> Writer:
        """Ignore the option: none has an effect here."""
        return self

    def partitionBy(self, *names: str) -> Writer:
        """Write one folder ``name=value`` for each value, and leave the column out of the files."""
        self._partitions = names
        return self

    def parquet(self, folder: str) -> None:
        """Compute the rows and write them; readers see an unpartitioned file only when it is complete."""
        where = Path(folder)
        if self._overwrite:
            shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True, exist_ok=True)
        if self._partitions:
            quoted = str(where).replace("'", "''")
            by = f"PARTITION_BY ({', '.join(self._partitions)}), FILENAME_PATTERN 'part-{{uuid}}', APPEND"
            self._copy(f"'{quoted}' (FORMAT parquet, COMPRESSION zstd, {by})")
            return
        draft = where / f"_{uuid.uuid4().hex}.parquet"
        path = str(draft).replace("'", "''")
        self._copy(f"'{path}' (FORMAT parquet, COMPRESSION zstd)")
        draft.replace(where / f"part-{uuid.uuid4().hex}.parquet")

    def _copy(self, to: str) -> None:
        self._frame.sparkSession.run(f"COPY ({self._frame._query()}) TO {to}")
