"""Columns, functions and windows with PySpark's API: each is a text in Spark SQL for ``translate``.

This has only what the transformations use.  Any other ``F.name(…)`` is the SQL function of that name; if DuckDB has
none, ``translate`` raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final


def quoted(name: str) -> str:
    """Return the name in backquotes; ``a.b`` is field ``b`` of ``a``."""
    return ".".join(part if part == "*" else f"`{part}`" for part in name.split("."))


class Column:
    """An expression in Spark SQL; operators build larger ones, so ``==`` does not compare."""

    def __init__(self, text: str, name: str | None = None, nulls_ignored: bool = False, order: str = "") -> None:
        self.text = text
        self.name = name
        self.nulls_ignored = nulls_ignored
        self.order = order

    def alias(self, *names: str) -> Column:
        """Name the column; only the first name counts, since no expression here makes several columns."""
        return Column(self.text, names[0])

    def cast(self, kind: Any) -> Column:
        """Convert to a type of Spark SQL; DuckDB raises if a value does not fit, like Spark in ANSI mode."""
        return Column(f"CAST({self.text} AS {kind})")

    def try_cast(self, kind: Any) -> Column:
        """Convert; null if a value does not fit."""
        return Column(f"TRY_CAST({self.text} AS {kind})")

    def over(self, window: WindowSpec) -> Column:
        """Compute over a window; ``first`` and ``last`` with ``ignorenulls`` skip nulls there."""
        nulls = " IGNORE NULLS" if self.nulls_ignored else ""
        return Column(f"{self.text}{nulls} OVER ({window.text()})")

    def isNull(self) -> Column:
        """True or false, never null."""
        return Column(f"({self.text} IS NULL)")

    def isNotNull(self) -> Column:
        """True or false, never null."""
        return Column(f"({self.text} IS NOT NULL)")

    def isin(self, *values: Any) -> Column:
        """Test for membership; ``values`` may be several values or one list of them."""
        if len(values) == 1 and isinstance(values[0], (list, tuple, set, frozenset)):
            values = tuple(values[0])
        return Column(f"({self.text} IN ({', '.join(_literal(value) for value in values)}))")

    def when(self, condition: Column, value: Any) -> Column:
        """Add a branch to a CASE; AssertionError for any other expression."""
        assert self.text.endswith(" END"), self.text
        return Column(f"{self.text[:-4]} WHEN {condition.text} THEN {_value(value)} END")

    def otherwise(self, value: Any) -> Column:
        """Add the ELSE to a CASE, which yields null without one; AssertionError for any other expression."""
        assert self.text.endswith(" END"), self.text
        return Column(f"{self.text[:-4]} ELSE {_value(value)} END")

    def asc_nulls_first(self) -> Column:
        """An ascending order, the default of ``ordering``."""
        return Column(self.text, order="ASC NULLS FIRST")

    def __getitem__(self, field: str) -> Column:
        return Column(f"({self.text}).`{field}`", field)

    def __invert__(self) -> Column:
        return Column(f"(NOT {self.text})")

    def __hash__(self) -> int:
        return hash(self.text)

    def _with(self, operator: str, other: Any) -> Column:
        return Column(f"({self.text} {operator} {_value(other)})")

    def __and__(self, other: Any) -> Column:
        return self._with("AND", other)

    def __or__(self, other: Any) -> Column:
        return self._with("OR", other)

    def __eq__(self, other: Any) -> Column:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: Any) -> Column:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Any) -> Column:
        return self._with("<", other)

    def __le__(self, other: Any) -> Column:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Column:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Column:
        return self._with(">=", other)

    def __add__(self, other: Any) -> Column:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Column:
        return self._with("-", other)

    def __mul__(self, other: Any) -> Column:
        return self._with("*", other)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    return repr(value)


def _value(value: Any) -> str:
    return value.text if isinstance(value, Column) else _literal(value)


def _named(value: Any) -> str:
    """Return a column's text; as in PySpark, a string is a column's name."""
    return quoted(value) if isinstance(value, str) else _value(value)


# -- functions ---------------------------------------------------------------------------------------------------------


def col(name: str) -> Column:
    """A column by name; ``a.b`` is field ``b`` of ``a``, and is named ``b``."""
    return Column(quoted(name), name.rpartition(".")[2])


def lit(value: Any) -> Column:
    """A constant: None, bool, number or text; a column stays as it is."""
    return value if isinstance(value, Column) else Column(_literal(value))


def expr(text: str) -> Column:
    """An expression in Spark SQL, which is translated when a frame takes it."""
    return Column(text)


def when(condition: Column, value: Any) -> Column:
    """A CASE with one branch; ``Column.when`` and ``otherwise`` add more."""
    return Column(f"CASE WHEN {condition.text} THEN {_value(value)} END")


def count(column: Any) -> Column:
    """The number of rows for ``"*"``, otherwise of rows whose column is not null."""
    every = isinstance(column, str) and column == "*"  # a Column's == makes an expression, which is true
    return Column("count(*)" if every else f"count({_named(column)})")


def countDistinct(*columns: Any) -> Column:
    """The number of different combinations of values; exact."""
    return Column(f"count(DISTINCT {', '.join(map(_named, columns))})")


def struct(*columns: Any) -> Column:
    """A struct whose fields have the columns' names."""
    fields = ", ".join(
        f"'{each.rpartition('.')[2] if isinstance(each, str) else each.name}', {_named(each)}" for each in columns
    )
    return Column(f"named_struct({fields})")


def first(column: Any, ignorenulls: bool = False) -> Column:
    """The first value in a window's order; in an aggregate, of any row."""
    return Column(f"first_value({_named(column)})", nulls_ignored=ignorenulls)


def last(column: Any, ignorenulls: bool = False) -> Column:
    """The last value in a window's order; in an aggregate, of any row."""
    return Column(f"last_value({_named(column)})", nulls_ignored=ignorenulls)


def concat_ws(separator: str, *columns: Any) -> Column:
    """The texts with the separator between them; nulls are left out."""
    return Column(f"concat_ws({_literal(separator)}, {', '.join(map(_named, columns))})")


def broadcast(frame: Any) -> Any:
    """The frame itself: the hint has no effect within one process."""
    return frame


def desc(column: Any) -> Column:
    """Descending; nulls last, as in Spark."""
    return Column(_named(column), order="DESC NULLS LAST")


desc_nulls_last = desc


def __getattr__(name: str) -> Callable[..., Column]:
    if name.startswith("_"):
        raise AttributeError(name)

    def function(*arguments: Any) -> Column:
        return Column(f"{name}({', '.join(map(_named, arguments))})")

    return function


# -- windows -----------------------------------------------------------------------------------------------------------

_FAR: Final = 1 << 62


def ordering(column: Any) -> str:
    """Return the ordering; nulls come first by default, as in Spark."""
    order = column.order if isinstance(column, Column) and column.order else "ASC NULLS FIRST"
    return f"{_named(column)} {order}"


@dataclass(frozen=True)
class WindowSpec:
    """A window; each method returns another one."""

    partitions: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    rows: tuple[int, int] | None = None
    unit: str = "ROWS"

    def orderBy(self, *columns: Any) -> WindowSpec:
        """Replace the order; ascending with nulls first by default."""
        return replace(self, orders=tuple(map(ordering, columns)))

    def rowsBetween(self, start: int, end: int) -> WindowSpec:
        """From ``start`` to ``end`` rows after the current one, both inclusive; negative: before it."""
        return replace(self, rows=(start, end))

    def rangeBetween(self, start: int, end: int) -> WindowSpec:
        """The same by differences of the ordering column, in its unit."""
        return replace(self, rows=(start, end), unit="RANGE")

    def text(self) -> str:
        """The clause for DuckDB, without its parentheses; empty for a window over all rows."""
        parts = [f"PARTITION BY {', '.join(self.partitions)}"] if self.partitions else []
        if self.orders:
            parts.append(f"ORDER BY {', '.join(self.orders)}")
        if self.rows is not None:
            parts.append(f"{self.unit} BETWEEN {_bound(self.rows[0])} AND {_bound(self.rows[1])}")
        return " ".join(parts)


def _bound(rows: int) -> str:
    if abs(rows) >= _FAR:
        return f"UNBOUNDED {'PRECEDING' if rows < 0 else 'FOLLOWING'}"
    if rows == 0:
        return "CURRENT ROW"
    return f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}"


class Window:
    """The entry point for windows, and the bounds of their frames."""

    unboundedPreceding, unboundedFollowing, currentRow = -_FAR, _FAR, 0

    @staticmethod
    def partitionBy(*columns: Any) -> WindowSpec:
        """A window over the rows with equal columns; over all rows without columns."""
        return WindowSpec(tuple(map(_named, columns)))
