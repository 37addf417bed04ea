"""The controller changes its context only by values of core; the few exceptions are listed here with their reasons."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Ledger
from aiocontroller.core.partitions import Interner, PartitionTable

PACKAGE = Path(__file__).resolve().parents[2] / "aiocontroller"

CONTAINER_CHANGES = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "sort"),
    "update",
}
PARTS = {"context": ControllerContext, "table": PartitionTable, "debts": Ledger, "ledger": Ledger, "isrs": Interner}
"""The names of a context's parts in the controller."""
ATTRIBUTES = {"asked", "fenced", "deleting"}
"""Attributes of a debt or a topic that may change, whatever the variable is called."""
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


def chain_of(value: ast.expr) -> list[str]:
    """Return the names in an expression such as ``shell.context.held_back[1]``, up to its first call."""
    return re.split(r"[.\[]", ast.unparse(value).partition("(")[0])


def changes_of_context(body: ast.AST) -> Iterator[str]:
    """Yield statements that change a context or a part of it other than by functions of core."""
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value if isinstance(node, ast.Subscript) else node
            of = chain_of(target.value if isinstance(target, ast.Attribute) else target)
            named = target.attr if isinstance(target, ast.Attribute) else ""
            if not PARTS.keys().isdisjoint(of) or named in ATTRIBUTES:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = chain_of(node.func.value)
            part = of[-1]
            if node.func.attr in CHANGES.get(part, ()) or (
                node.func.attr in CONTAINER_CHANGES and not PARTS.keys().isdisjoint(of)
            ):
                yield ast.unparse(node.func)


def test_the_controller_changes_its_context_through_core_alone() -> None:
    """Changes are values of core (``core/effects.py``, ``core/context_changes.py``), and ``core.apply`` makes them."""
    found = {
        (path.name, change)
        for path in sorted((PACKAGE / "controller").glob("*.py"))
        for change in changes_of_context(ast.parse(path.read_text(), str(path)))
    }
    assert found == set(CHANGED_BY_CONTROLLER)


def test_changes_of_a_context_are_recognised() -> None:
    assert {"set_leaderships", "set_leadership", "add_topic", "set_state", "remove_topic"} <= TABLE_CHANGES
    assert {"add_brokers", "let_go", "hold_back", "leave_behind", "add_partitions"} <= CHANGES["context"]
    assert "set" in CHANGES["debts"]
    assert not {"replicas", "row", "partitions_on_broker", "leadership"} & TABLE_CHANGES
    assert not {"is_replica_online", "may_be_deleted"} & CHANGES["context"]
    for text in (
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
    ):
        assert list(changes_of_context(ast.parse(text))), text
    for text in ("shell.context = made", "channels.add_brokers(new)", "table.replicas(row)", "wanted[row] = 1"):
        assert not list(changes_of_context(ast.parse(text))), text
