"""Prints the structure of a commit as a table: rooms, their sizes, what they import: scripts/structure [COMMIT]

Rooms are the folders of the package; "(top)" has the modules beside them.  The last column has all rooms that a room
imports, even inside functions.  A cycle is a group of rooms that import each other; there each module of the top is a
room of its own, since most rooms import one of them (``config``), and another (``service``) imports most rooms.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "aiocontroller"
TOP = "(top)"


class Room(NamedTuple):
    files: int
    lines: int
    largest: int
    """Lines of the largest file."""
    imports: frozenset[str]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def sources(commit: str) -> dict[str, str]:
    """Path below the package -> text."""
    paths = [path for path in git("ls-tree", "-r", "--name-only", commit, PACKAGE).splitlines() if path.endswith(".py")]
    return {path.removeprefix(f"{PACKAGE}/"): git("show", f"{commit}:{path}") for path in paths}


def room_of(path: str) -> str:
    return path.partition("/")[0] if "/" in path else TOP


def part_of(path: str) -> str:
    """The folder, or the module of the top."""
    return path.partition("/")[0].removesuffix(".py")


def rooms(files: Mapping[str, str]) -> dict[str, Room]:
    """Name -> what is in the room."""
    room = {part_of(path): room_of(path) for path in files}
    imports: dict[str, set[str]] = {name: set() for name in room.values()}
    for part, targets in parts(files).items():
        imports[room[part]].update(room[target] for target in targets)
    found: dict[str, Room] = {}
    for name in sorted(imports):
        lines = [len(text.splitlines()) for path, text in files.items() if room_of(path) == name]
        found[name] = Room(len(lines), sum(lines), max(lines), frozenset(imports[name] - {name}))
    return found


def parts(files: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Folder or module of the top -> those that it imports."""
    found: dict[str, set[str]] = {part_of(path): set() for path in files}
    for path, text in files.items():
        found[part_of(path)] |= imported_parts(text) & found.keys()
    return {part: frozenset(targets - {part}) for part, targets in found.items()}


def imported_parts(text: str) -> set[str]:
    """What directly below the package a module's text imports."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            package, _, rest = module.partition(".")
            if package == PACKAGE and rest:
                found.add(rest.partition(".")[0])
    return found


def cycles(imports: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the groups of parts that import each other, directly or through others."""
    reached = {name: set(targets) for name, targets in imports.items()}
    for middle, beyond in reached.items():
        for targets in reached.values():
            if middle in targets:
                targets |= beyond
    groups = {tuple(sorted(a for a in reached if a in reached[name] and name in reached[a])) for name in reached}
    return [list(group) for group in sorted(groups) if group]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD")
    files_of_commit = sources(parser.parse_args().commit)
    found = rooms(files_of_commit)
    print("| room | files | lines | largest file | imports |\n|---|---|---|---|---|")
    for name, room in found.items():
        print(f"| {name} | {room.files} | {room.lines:,} | {room.largest} | {', '.join(sorted(room.imports))} |")
    total = sum(room.lines for room in found.values())
    files = sum(room.files for room in found.values())
    print(f"| all | {files} | {total:,} | {max(room.largest for room in found.values())} | |")
    print("cycles:", "; ".join(", ".join(group) for group in cycles(parts(files_of_commit))) or "none")


if __name__ == "__main__":
    main()
