"""The controller changes its context only by values of core; the few exceptions are listed here with their reasons."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Ledger
from aiocontroller.core.partitions import Interner, PartitionTable
from tests.sources import dotted, imports, modules

CONTAINER_CHANGES = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "sort"),
    "update",
}
PARTS = {"context": ControllerContext, "table": PartitionTable, "debts": Ledger, "ledger": Ledger, "isrs": Interner}
"""The names of a context's parts in the controller."""
ATTRIBUTES = {"asked", "fenced", "deleting"}
"""Attributes of a debt or a topic that may change, whatever the variable is called."""
BY_NAME = {"setattr", "delattr", "vars", "object.__setattr__", "object.__delattr__"}
"""Functions that change an object of which only the name is known; on a part of the context they count as changes."""
VIEWS = {"memoryview", "frombuffer", "asarray"}
"""Last names of functions whose result shares its memory with their argument."""
CHANGED_BY_CONTROLLER = {
    ("shell.py", "self.context.topic_ids_supported"): "a term begins: its context is new",
    ("shell.py", "self.context.controllers"): "the same",
    ("topics.py", "shell.context.add_partitions"): "new rows, whose numbers the table chooses",
}


def changing_methods(part: type) -> set[str]:
    """Return the methods that change their object: they store into ``self``, or call a method or function that does."""
    functions = {
        name: ast.parse(textwrap.dedent(inspect.getsource(value)))
        for name, value in vars(part).items()
        if inspect.isfunction(value) and name != "__init__"
    }
    changing: set[str] = set()
    while more := {n for n, body in functions.items() if n not in changing and changes_self(body, changing)}:
        changing |= more
    return changing


def changes_self(body: ast.AST, changing: Collection[str]) -> bool:
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute) or "self" in ast.unparse(node):
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CONTAINER_CHANGES | {"id"} and "self" in ast.unparse(node.func.value):
                return True
            if node.func.attr in changing or node.func.attr in TABLE_CHANGES:
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("put", "insort"):
            return True
    return False


TABLE_CHANGES: set[str] = set()
TABLE_CHANGES = changing_methods(PartitionTable)
CHANGES = {name: {*changing_methods(part), *CONTAINER_CHANGES} for name, part in PARTS.items()}


def chain_of(value: ast.expr, aliases: Mapping[str, list[str]]) -> list[str]:
    """Return the names in an expression such as ``shell.context.held_back[1]``, up to its first call.

    A first name that stands for a part of a context is replaced by that part, and a view by what it views.
    """
    first, *rest = re.split(r"[.\[]", ast.unparse(viewed(value)).partition("(")[0])
    return [*aliases.get(first, [first]), *rest]


def viewed(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Call) and value.args and ast.unparse(value.func).rpartition(".")[2] in VIEWS:
        value = value.args[0]
    return value


def aliases_in(body: ast.AST) -> dict[str, list[str]]:
    """Return the names that are bound to a part of a context, or to a view of it: ``rows = table.leader``.

    Anywhere in the module: the same name may mean something else in another function.
    """
    found: dict[str, list[str]] = {}
    while True:
        before = len(found)
        for node in ast.walk(body):
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                pairs = [(node.target, node.value)]
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                pairs = [(node.optional_vars, node.context_expr)]
            else:
                continue
            for target, value in pairs:
                inside = zip(target.elts, value.elts, strict=False) if is_tuples(target, value) else [(target, value)]
                for name, given in inside:
                    if isinstance(name, ast.Name) and isinstance(viewed(given), ast.Name | ast.Attribute):
                        chain = chain_of(given, found)
                        if name.id not in PARTS and not PARTS.keys().isdisjoint(chain):
                            found[name.id] = chain
        if len(found) == before:
            return found


def is_tuples(target: ast.expr, value: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)


def changes_of_context(body: ast.AST) -> Iterator[str]:
    """Yield statements that change a context or a part of it other than by functions of core."""
    names, aliases = imports(body), aliases_in(body)
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value if isinstance(node, ast.Subscript) else node
            of = chain_of(target.value if isinstance(target, ast.Attribute) else target, aliases)
            named = target.attr if isinstance(target, ast.Attribute) else ""
            if not PARTS.keys().isdisjoint(of) or named in ATTRIBUTES:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and dotted(node.func, names) in BY_NAME and is_of_context(node.args, aliases):
            yield ast.unparse(node.func)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = chain_of(node.func.value, aliases)
            part = of[-1]
            if node.func.attr in CHANGES.get(part, ()) or (
                node.func.attr in CONTAINER_CHANGES and not PARTS.keys().isdisjoint(of)
            ):
                yield ast.unparse(node.func)


def is_of_context(arguments: list[ast.expr], aliases: Mapping[str, list[str]]) -> bool:
    return bool(arguments) and not PARTS.keys().isdisjoint(chain_of(arguments[0], aliases))


def test_the_controller_changes_its_context_through_core_alone() -> None:
    """Changes are values of core (``core/effects.py``, ``core/context_changes.py``), and ``core.apply`` makes them."""
    found = {
        (path.removeprefix("controller/"), change)
        for path, module in modules("controller").items()
        for change in changes_of_context(module)
    }
    assert found == set(CHANGED_BY_CONTROLLER)


def test_changes_of_a_context_are_recognised() -> None:
    assert {"set_leaderships", "set_leadership", "add_topic", "set_state", "remove_topic"} <= TABLE_CHANGES
    assert {"add_brokers", "release_hold", "hold_back", "leave_behind", "add_partitions"} <= CHANGES["context"]
    assert "set" in CHANGES["debts"]
    assert not {"replicas", "row", "partitions_on_broker", "leadership"} & TABLE_CHANGES
    assert not {"is_replica_online", "may_be_deleted"} & CHANGES["context"]


@pytest.mark.parametrize(
    "text",
    [
        "shell.context.loaded = True",
        "context.held_back[1].add(5)",
        "del context.brokers[3]",
        "context.debt_parents |= codes",
        "table.count_by_state[0] += 1",
        "table.isrs.id(isr)",
        "debt.asked = False",
        "topic.deleting = True",
        "context.table.set_state(rows, state)",
        "ledger.set(1, name, {}, 0)",
        "shell.context.debts.give_up(gone)",
        "context.begin_shutdown(3)",
        "it = shell.context\nit.loaded = True",
        "rows = shell.context.table\nrows.set_state(some, state)",
        "a, b = table.leader, 1\na[3] = 2",
        "held = context.held_back\nmore = held\nmore.clear()",
        "if (live := shell.context.brokers):\n    live.pop(3)",
        "memoryview(table.leader)[0] = 1",
        "column = memoryview(table.leader)\ncolumn[0] = 1",
        "import numpy as np\ncolumn = np.frombuffer(table.leader)\ncolumn[0] = 1",
        "with memoryview(table.leader) as column:\n    column[0] = 1",
        "setattr(shell.context, 'loaded', True)",
        "object.__setattr__(context, 'loaded', True)",
        "vars(shell.context).update(loaded=True)",
    ],
)
def test_a_change_of_a_context_is_found(text: str, tmp_path: Path) -> None:
    inner = tmp_path / "controller/inner"
    inner.mkdir(parents=True)
    (inner / "planted.py").write_text(text)
    [module] = modules("controller", of=tmp_path).values()
    assert list(changes_of_context(module))


@pytest.mark.parametrize(
    "text",
    [
        "shell.context = made",
        "channels.add_brokers(new)",
        "table.replicas(row)",
        "wanted[row] = 1",
        "leader = table.leader[row]\nleader += 1",
        "rows = table.partitions_on_broker(1)\nrows.append(2)",
        "setattr(shell, 'name', 1)",
    ],
)
def test_no_change_of_a_context(text: str) -> None:
    assert not list(changes_of_context(ast.parse(text)))
