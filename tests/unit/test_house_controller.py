"""What the controller's room may not do: touch sockets, start threads, write without the fence, encode znodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import dotted, imports, modules

MAY_IMPORT = {
    "__future__", "aiocontroller", "anyio", "asyncio", "bisect", "collections", "contextlib", "enum", "functools",
    "itertools", "logging", "math", "msgspec", "operator", "typing",
}  # fmt: skip
OF_ASYNCIO = {
    "BaseTransport", "Event", "Future", "Protocol", "Task", "Transport", "current_task", "gather", "get_running_loop",
}  # fmt: skip
OF_ANYIO = {"CancelScope", "Event", "Lock", "abc", "create_task_group", "move_on_after"}
OF_LOOP = {
    "add_reader", "add_writer", "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe",
    "create_connection", "create_datagram_endpoint", "create_server", "create_unix_connection", "create_unix_server",
    "getaddrinfo", "getnameinfo", "run_in_executor", "sendfile", "sock_accept", "sock_connect", "sock_recv",
    "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto",
    "start_tls", "subprocess_exec", "subprocess_shell",
}  # fmt: skip
"""Methods of an event loop that reach a socket, a process or a thread."""
BUILTINS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
UNFENCED = {
    "controller/mutation_quotas.py AdminZkClient": "only reads",
}
"""Calls without the fence: what writes nothing that a controller decides by."""


def io(module: ast.Module) -> Iterator[str]:
    """Yield what reaches a socket, a file, a process or a thread, or encodes a znode."""
    names = imports(module)
    yield from filter(is_io, names.values())
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            full = dotted(node, names)
            if node.attr in OF_LOOP or (is_imported(node, names) and is_io(full)):
                yield full or node.attr
        elif isinstance(node, ast.Name) and node.id in BUILTINS and node.id not in names:
            yield node.id


def is_imported(value: ast.expr, names: dict[str, str]) -> bool:
    """Whether ``a.b.c`` begins with a name that was imported."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in names


def is_io(full: str) -> bool:
    """Whether a name, in full, is of a forbidden package, or a forbidden one of a package that may be imported."""
    package, _, rest = full.partition(".")
    name = rest.partition(".")[0]
    if package in ("asyncio", "anyio"):
        return name not in (OF_ASYNCIO | {""} if package == "asyncio" else OF_ANYIO | {""})
    encodes = package == "aiocontroller" and name == "zookeeper" and full.rpartition(".")[2].startswith("encode")
    return encodes or package not in MAY_IMPORT or full.startswith("msgspec.json")


def fenced_functions() -> dict[str, set[int]]:
    """Return the functions and classes of ``zookeeper`` that have ``fence``: name -> where, if it need not be named."""
    found: dict[str, set[int]] = {}
    for module in modules("zookeeper").values():
        for owner in ast.walk(module):
            for node in ast.iter_child_nodes(owner):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "fence" in named(node.args):
                    method = isinstance(owner, ast.ClassDef)
                    name = owner.name if method and node.name == "__init__" else node.name
                    positional = [each.arg for each in node.args.args][int(method) :]
                    found.setdefault(name, set()).update(n for n, each in enumerate(positional) if each == "fence")
    return found


def named(arguments: ast.arguments) -> list[str]:
    return [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]


def without_fence(module: ast.Module, fenced: dict[str, set[int]]) -> Iterator[str]:
    """Yield the names of functions that are called without their ``fence``, or with one that may be None."""
    names, nothing = imports(module), may_be_none(module)
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func, names).rpartition(".")[2]
        if called not in fenced:
            continue
        given = [each.value for each in node.keywords if each.arg == "fence"]
        if not given:
            given = [node.args[n] for n in sorted(fenced[called], reverse=True) if n < len(node.args)]
        if not given or is_none(given[0], nothing):
            yield called


def may_be_none(module: ast.Module) -> set[str]:
    """Return the names to which the module somewhere assigns None, as a value or as a default."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value and is_none(node.value, set()):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.arguments):
            last = node.args[len(node.args) - len(node.defaults) :]
            defaults = [*zip(last, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            found |= {each.arg for each, default in defaults if default is not None and is_none(default, set())}
    return found


def is_none(value: ast.expr, nothing: set[str]) -> bool:
    if isinstance(value, ast.IfExp):
        return is_none(value.body, nothing) or is_none(value.orelse, nothing)
    return (isinstance(value, ast.Constant) and value.value is None) or (
        isinstance(value, ast.Name) and value.id in nothing
    )


CONTROLLER = modules("controller")
FENCED = fenced_functions()


@pytest.mark.parametrize("path", CONTROLLER)
def test_the_controller_touches_neither_sockets_nor_znodes(path: str) -> None:
    assert list(io(CONTROLLER[path])) == [], "use the ports of net/ports.py, and the typed clients of zookeeper/"


def test_the_controller_writes_under_the_fence() -> None:
    found = {f"{path} {called}" for path, module in CONTROLLER.items() for called in without_fence(module, FENCED)}
    assert found == UNFENCED.keys()


@pytest.mark.parametrize("room", ["check", "migration"])
def test_what_only_looks_at_a_cluster_writes_nothing(room: str) -> None:
    writing = FENCED.keys() - {"write"} | {"multi", "set_data"}  # streams have a ``write``, too
    found = [
        f"{path}: {node.func.attr}"
        for path, module in modules(room).items()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writing
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import socket",
        "import socket as words",
        "from asyncio import open_connection as fetch",
        "import asyncio as a\nasync def f(): await a.open_connection('h', 1)",
        "import asyncio\nasync def f(): await asyncio.get_running_loop().create_connection(g, 'h', 1)",
        "async def f(loop): await loop.sock_connect(1, 2)",
        "from anyio import connect_tcp",
        "import anyio as a\nasync def f(): await a.to_thread.run_sync(g)",
        "import threading",
        "def f():\n    import subprocess",
        "def f(): return open('file')",
        "from aiocontroller.zookeeper.znodes import encode_topic as note",
        "from aiocontroller.zookeeper import znodes as z\nz.encode_topic(1)",
        "import msgspec\nmsgspec.json.encode(1)",
    ],
)
def test_io_in_a_handler_is_found(text: str, tmp_path: Path) -> None:
    assert list(io(planted(text, tmp_path))), text


def test_ports_are_no_io(tmp_path: Path) -> None:
    text = (
        "import asyncio\nfrom aiocontroller.net.ports import World as W\n"
        "async def f(w: W): await w.network.connect('h', 1); asyncio.current_task()"
    )
    assert list(io(planted(text, tmp_path))) == []


@pytest.mark.parametrize(
    "text",
    [
        "await shell.zk.set_feature(feature, 1, fence=None)",
        "await shell.zk.set_feature(feature, 1)",
        "await client.delete_recursive('/a', None)",
        "await client.delete_recursive('/a')",
        "await shell.zk.set_feature(feature, 1, fence=version if sure else None)",
        "unfenced = None\nawait shell.zk.set_feature(feature, 1, fence=unfenced)",
        "def f(fence=None): zk.set_feature(feature, 1, fence=fence)",
        "from aiocontroller.zookeeper.admin_zk_client import AdminZkClient as Admin\nAdmin(shell.zk)",
        "from aiocontroller.zookeeper import admin_zk_client as a\na.AdminZkClient(shell.zk)",
    ],
)
def test_a_write_without_the_fence_is_found(text: str, tmp_path: Path) -> None:
    assert list(without_fence(planted(text, tmp_path), FENCED)), text


def test_a_write_under_the_fence_is_none(tmp_path: Path) -> None:
    text = "fence = context.epoch_zk_version\nzk.set_feature(feature, 1, fence=fence)\nzk.delete_controller(fence)"
    assert list(without_fence(planted(text, tmp_path), FENCED)) == []


def planted(text: str, folder: Path) -> ast.Module:
    """Return the module as it is found in a subfolder of the room."""
    (folder / "controller/inner").mkdir(parents=True)
    (folder / "controller/inner/planted.py").write_text(text)
    return modules("controller", of=folder)["controller/inner/planted.py"]
