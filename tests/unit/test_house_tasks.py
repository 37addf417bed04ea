"""The project's rule for background work: each task belongs to a task group, each timer's handle is kept.

A task outside a group may die unnoticed, and may outlive its owner; so may what a timer starts.
The exceptions are listed here, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import dotted, imports

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "aiocontroller").rglob("*.py"))

BARE_TASKS = {
    "net/tasks.py LooseTasks.start_soon": "tells the loop's exception handler of a death; for commands and tests",
    "net/real.py RealListener._enter": "the loop accepts, not a task; ``close`` cancels what still opens",
    "controller/guard.py Guard._look": "gather: awaited on the spot; after an error the other reads end by themselves",
    "migration/asking.py Asker.ask": "gather: awaited on the spot; no question raises an error",
    "migration/asking.py Asker._ask_all": "gather: awaited on the spot; no question raises an error",
}
"""Tasks outside a group, and their reasons; without the laboratory."""
BARE_TIMERS = {
    "net/real.py RealClock.call_later": "is the clock",
    "net/real.py RealListener._accept": "asks whether the listener was closed meanwhile",
}
"""Timers that bypass the clock of ``net/ports.py``, outside the laboratory."""
UNKEPT_TIMERS = {
    "controller/topic_admin.py _answer_when_known": "asks whether the request was answered meanwhile",
    "controller/topic_admin.py _call_when.look": "asks whether the request was answered meanwhile",
    "controller/topic_admin.py _answer_when_gone": "asks whether the request was answered meanwhile",
    "net/complaints.py Complaints.warn": "at most one for each kind of complaint; only logs",
    "net/complaints.py Complaints._sum_up": "at most one for each kind of complaint; only logs",
    "server/commands.py Commands.release": "ends the process a moment after the answer",
    "server/kafka_channel.py KafkaChannel._answer": "asks whether the connection was closed meanwhile",
    "server/kafka_channel.py KafkaChannel._authenticate": "asks whether the connection was closed meanwhile",
    "server/socket_server.py SocketServer.connection": "one at a time; ends with the last connection",
    "server/socket_server.py SocketServer._sweep": "one at a time; ends with the last connection",
}
"""Timers whose handle is not kept, so that they cannot be cancelled, outside the laboratory."""
LABORATORY = {
    "lab/recording_brokers/isr.py": "sends what waits for one broker; ``close`` ends it with its connections",
    "lab/scripted_peer.py": "a late answer by the world's clock; dropped where the connection has ended",
    "lab/cli/up.py": "waits for the first of two and cancels the other; what hangs must not be awaited",
    "lab/zookeeper/fault_proxy.py": "each connection awaits its pumps, and ends with the first",
    "lab/checkers/leaderless.py": "looks again and again; the simulation's loop ends with the plan",
    "lab/processes/observed_broker.py": "begun by a signal handler of a process that a storm kills",
    "lab/processes/steps.py": "its timers are cancelled when the storm heals everything",
    "lab/rehearsal/meter.py": "it looks until the simulation ends, and its clock with it",
    "lab/rehearsal/rehearsal.py": "the controller's second death, which the event awaits",
    "lab/simulation/data.py": "a client that ends by itself is a bug; all are cancelled when the faults end",
    "lab/simulation/simulation.py": "a simulated process: its end is checked for bugs; to cancel its task kills it",
    "lab/simulation/steps/brokers.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/controllers.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/hostile.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/network.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/refusals.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/steps.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/simulation/steps/base.py": "a fault's end; the simulation's loop ends with the plan",
    "lab/storms/alarms.py": "a case cancels its watch and awaits its strike",
    "lab/storms/hostile.py": "probes and attacks are awaited before the round's verdict",
    "lab/scenarios/background.py": "a plan goes on while what it has begun lasts, and waits for it at its end",
    "lab/zookeeper/zookeeper_faults.py": "faults heal later; ``calm`` awaits or cancels them",
    "lab/zookeeper/zookeeper_follower.py": "a follower applies what the leader wrote, in order",
    "lab/storms/zookeeper_history.py": "the reader and the faults of a segment are awaited at its end",
}


WORDS = ("create_task", "ensure_future", "gather", "call_later", "call_at")


STARTS = ("create_task", "ensure_future")


def calls(module: ast.Module) -> Iterator[tuple[str, str, str, bool]]:
    """Yield (function, method called, what it is a method of, whether its result is dropped); imports are resolved.

    A method that starts tasks counts where it is only named, too: it may be called by another name.
    """
    names = imports(module)

    def walk(node: ast.AST, owner: str) -> Iterator[tuple[str, str, str, bool]]:
        for child in ast.iter_child_nodes(node):
            scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{owner}.{child.name}".lstrip(".") if scope else owner
            called = isinstance(child, ast.Call)
            target = child.func if called else child
            if isinstance(target, ast.Attribute | ast.Name) and (called or not is_called(node, child)):
                of, _, method = (dotted(target, names) or ast.unparse(target)).rpartition(".")
                if called or method in STARTS:
                    yield name, method, of, isinstance(node, ast.Expr)
            yield from walk(child, name)

    yield from walk(module, "")


def is_called(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and parent.func is child


def kinds(module: ast.Module, *, laboratory: bool) -> Iterator[tuple[str, str]]:
    """Yield (kind of exception, function)."""
    for function, method, of, dropped in calls(module):
        if (method == "gather" and of == "asyncio" and not laboratory) or (
            method in STARTS and not of.endswith("tasks")
        ):
            yield "tasks", function
        elif method in ("call_later", "call_at") and not of.lower().endswith("clock") and of != "self":
            yield "timers", function
        elif method in ("call_later", "call_at") and dropped:
            yield "unkept", function


def found(*, laboratory: bool) -> dict[str, set[str]]:
    """Return kind of exception -> places."""
    places: dict[str, set[str]] = {"tasks": set(), "timers": set(), "unkept": set()}
    for path in SOURCES:
        file = str(path.relative_to(ROOT / "aiocontroller"))
        lab = file.startswith("lab/")
        if lab is not laboratory or not any(word in path.read_text() for word in WORDS):
            continue
        for kind, function in kinds(ast.parse(path.read_text()), laboratory=lab):
            places[kind].add(file if lab else f"{file} {function}")
    return places


@pytest.mark.parametrize("kind, allowed", [("tasks", BARE_TASKS), ("timers", BARE_TIMERS), ("unkept", UNKEPT_TIMERS)])
def test_background_work_has_an_owner(kind: str, allowed: dict[str, str]) -> None:
    places = found(laboratory=False)[kind]
    assert sorted(places - allowed.keys()) == [], "use the owner's task group, or a kept timer of the clock"
    assert sorted(allowed.keys() - places) == [], "the list names what is no longer there"


def test_background_work_of_the_laboratory_has_a_reason() -> None:
    places = set().union(*found(laboratory=True).values())
    assert sorted(places - LABORATORY.keys()) == []
    assert sorted(LABORATORY.keys() - places) == [], "the list names what is no longer there"


@pytest.mark.parametrize(
    "text, kind",
    [
        ("import asyncio\nasyncio.create_task(f())", "tasks"),
        ("import asyncio as a\na.ensure_future(f())", "tasks"),
        ("from asyncio import create_task as spawn\nspawn(f())", "tasks"),
        ("from asyncio import gather\nasync def g(): await gather(f())", "tasks"),
        ("spawn = loop.create_task\nspawn(f())", "tasks"),
        ("start(loop.create_task)", "tasks"),
        ("loop.call_later(1, f)", "timers"),
        ("from asyncio import get_running_loop as loop\nloop().call_at(1, f)", "timers"),
        ("self.clock.call_later(1, f)", "unkept"),
    ],
)
def test_background_work_without_an_owner_is_found(text: str, kind: str) -> None:
    assert kind in {found for found, _ in kinds(ast.parse(text), laboratory=False)}


def test_background_work_with_an_owner_is_none() -> None:
    text = "self._tasks.create_task(f())\ntimer = clock.call_later(1, f)\ndef create_task(): ..."
    assert list(kinds(ast.parse(text), laboratory=False)) == []
