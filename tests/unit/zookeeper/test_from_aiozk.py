"""aiozk is a component behind one module: which of its names are used, and that none of them is private."""

from __future__ import annotations

import ast
from pathlib import Path

from aiocontroller.zookeeper import from_aiozk

PACKAGE = Path(from_aiozk.__file__).resolve().parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))

USED = {
    "ACL": "of a znode",
    "AUTH_XID": "of credentials",
    "AuthRequest": "message",
    "CloseRequest": "message",
    "ConnectRequest": "message, of the handshake",
    "ConnectResponse": "message, of the handshake",
    "PING_XID": "of pings",
    "PingRequest": "message",
    "SyncRequest": "message",
    "WATCH_XID": "of watch events",
    "UNRESTRICTED_ACCESS": "the ACL of znodes by default",
    "Create2Request": "message",
    "DeleteRequest": "message",
    "ExistsRequest": "message",
    "GetACLRequest": "message",
    "GetChildren2Request": "message",
    "GetDataRequest": "message",
    "SetDataRequest": "message",
    "Stat": "of a znode",
    "exc": "the exceptions, by the server's codes",
    "response_xref": "operation code -> the message of the reply",
}


def imports(path: Path) -> set[tuple[str, str]]:
    """(module, name) of everything that the file imports from aiozk."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aiozk":
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "aiozk"}
    return found


def test_one_module_imports_aiozk() -> None:
    assert [path.name for path in SOURCES if "aiozk" in path.read_text() and imports(path)] == ["from_aiozk.py"]


def test_the_names_used_are_listed_and_public() -> None:
    names = imports(Path(from_aiozk.__file__))
    assert {name for _, name in names} == set(from_aiozk.__all__) == USED.keys()
    assert [part for module, name in names for part in [*module.split("."), name] if part.startswith("_")] == []


def test_only_errors_inherit_from_aiozk() -> None:
    """What inherits from a class breaks when its internals change; an exception has none."""
    foreign = set(from_aiozk.__all__)
    heirs = set()
    for path in SOURCES:
        text = path.read_text()
        if "from_aiozk" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split(".")[0] for base in node.bases}
                heirs |= {(path.name, base) for base in bases & foreign}
    assert heirs == {("errors.py", "exc")}
