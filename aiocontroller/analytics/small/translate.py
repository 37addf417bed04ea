"""Translates Spark SQL's expressions to DuckDB's.

sqlglot does most of the work; this module adds what it lacks or does differently from Spark.  ``MACROS`` are functions
that DuckDB lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import sqlglot
from sqlglot import exp

from aiocontroller.core.errors import AioControllerError

MACROS: Final = (
    "pmod(a, b) AS ((a % b) + b) % b",
    "array_distinct_in_order(a) AS list_filter(a, lambda x, i: list_position(a, x) = i)",
    # Most rows do not need the lambda over each element, which costs ten times as much.
    """array_union(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL
       WHEN list_has_all(a, b) AND list_count(b) = len(b) AND len(list_distinct(a)) = len(a) THEN a
       ELSE array_distinct_in_order(list_concat(a, b)) END""",
    """array_except_in_order(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL
       WHEN list_has_all(b, a) THEN []
       ELSE list_filter(a, lambda x, i: NOT list_contains(b, x) AND list_position(a, x) = i) END""",
    "sorted_list(a) AS list_sort(a, 'ASC', 'NULLS LAST')",
    # As in Spark, to the last bit: equal neighbours are not interpolated, which would round.
    """percentile_of(a, p) AS CASE WHEN len(a) = 0 THEN NULL
       WHEN list_sort(a)[floor((len(a) - 1) * p)::INT + 1] = list_sort(a)[ceil((len(a) - 1) * p)::INT + 1]
       THEN list_sort(a)[floor((len(a) - 1) * p)::INT + 1]::DOUBLE
       ELSE (ceil((len(a) - 1) * p) - (len(a) - 1) * p) * list_sort(a)[floor((len(a) - 1) * p)::INT + 1]
          + ((len(a) - 1) * p - floor((len(a) - 1) * p)) * list_sort(a)[ceil((len(a) - 1) * p)::INT + 1] END""",
)
"""Nulls in arrays are dropped where Spark keeps one; no transformation has any."""

_SPARK, _DUCKDB = (sqlglot.Dialect.get_or_raise(name) for name in ("spark", "duckdb"))
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_OURS: Final = frozenset(
    {"pmod", "array_union", "array_except_in_order", "sorted_list", "percentile_of", "struct_insert", "arg_max_null",
     "arg_min_null", "trunc"}
)  # fmt: skip


class NotCarriedError(AioControllerError):
    """An expression or operation that the small engine does not support."""


@lru_cache(maxsize=10_000)
def translated(text: str, functions: frozenset[str]) -> tuple[str, str]:
    """Return an expression without its alias, and the name of its column ("" for none).

    ``functions`` are DuckDB's functions, in lower case.  Raises NotCarriedError for any other.
    """
    try:
        # A doubled quote is a quote in Spark, but ends a string in sqlglot.
        plain = _TEXT.sub(lambda found: "'" + found[0][1:-1].replace("''", "\\'") + "'", text)
        select: Any = _SPARK.parse(f"SELECT {plain}")[0]
        tree = select.expressions[0]
    except sqlglot.errors.SqlglotError as error:
        raise NotCarriedError(f"the DuckDB engine cannot read this expression: {text}: {error}") from None
    name = tree.alias_or_name
    tree = tree.unalias()
    if isinstance(tree, exp.Cast) and _is_wide(tree):
        tree.set("this", _turned(tree.this))
    else:
        tree = _turned(tree)
    for function in tree.find_all(exp.Anonymous):
        wanted = str(function.this).lower()
        if wanted not in _OURS and wanted not in functions:
            raise NotCarriedError(
                f"the DuckDB engine has no function {wanted} (docs/pipeline.md says what it has): {text}"
            )
    return _DUCKDB.generate(tree, copy=False), name if name != "*" else ""


def _turned(tree: Any) -> Any:
    """Translate from the leaves up: the translation of a node uses those of its parts."""
    for node in reversed(list(tree.walk())):
        made = _turn(node)
        if made is not node:
            if node is tree:
                return made
            node.replace(made)
    return tree


def _is_wide(node: Any) -> bool:
    return isinstance(node, exp.Cast) and node.to.sql().upper().startswith("DECIMAL(38")


def _turn(node: Any) -> Any:
    turn = _TURNS.get(type(node))
    return node if turn is None else turn(node)


def _call(name: str, *arguments: Any) -> Any:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _anonymous(node: Any) -> Any:
    name, arguments = str(node.this).lower(), node.expressions
    if name == "get":
        return exp.Bracket(this=arguments[0], expressions=[arguments[1]])
    if name == "xxhash64":  # the hash only spreads keys evenly for Spark's sort
        return exp.Literal.number(0)
    return node


def _cast(node: Any) -> Any:
    if _is_wide(node):  # arithmetic on DuckDB's decimals overflows where Spark's does not
        return exp.Cast(this=node.this, to=exp.DataType.build("HUGEINT", dialect="duckdb"))
    inner = node.this
    if isinstance(inner, exp.Anonymous) and inner.this == "percentile_of":  # Spark truncates, DuckDB rounds
        return exp.Cast(this=_call("trunc", inner), to=node.to)
    return node


def _struct(node: Any) -> Any:
    first = node.expressions[0] if node.expressions else None
    star = first.expression if isinstance(first, exp.PropertyEQ) else first
    if isinstance(star, exp.Column) and isinstance(star.this, exp.Star):
        fields = [
            exp.PropertyEQ(this=exp.to_identifier(each.this.name), expression=each.expression)
            for each in node.expressions[1:]
        ]
        return _call("struct_insert", exp.column(star.args["table"]), *fields)
    return node


def _empty_as(*nothing: Any) -> Callable[[Any], Any]:
    """Over no rows, Spark returns zero or an empty array, DuckDB null."""

    def turn(node: Any) -> Any:
        if isinstance(node.parent, (exp.Window, exp.Filter)):
            return node
        return exp.Coalesce(this=node.copy(), expressions=[each.copy() for each in nothing])

    return turn


def _percentile(node: Any) -> Any:
    share = exp.Cast(this=node.args["quantile"], to=exp.DataType.build("DOUBLE"))
    return _call("percentile_of", _call("list", node.this), share)


_TURNS: Final[dict[type, Callable[[Any], Any]]] = {
    exp.Anonymous: _anonymous,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Struct: _struct,
    exp.ArrayAgg: _empty_as(exp.Array()),
    exp.ArrayUniqueAgg: _empty_as(exp.Array()),
    exp.CountIf: _empty_as(exp.Literal.number(0)),
    exp.ArrayExcept: lambda node: _call("array_except_in_order", node.this, node.expression),
    exp.ArraySort: lambda node: _call("sorted_list", node.this),
    exp.ArgMax: lambda node: _call("arg_max_null", node.this, node.expression),
    exp.ArgMin: lambda node: _call("arg_min_null", node.this, node.expression),
    exp.Quantile: _percentile,
}
