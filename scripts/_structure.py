"""Prints the structure of a commit as a table: rooms, their sizes, what they import: scripts/structure [COMMIT]

Rooms are the folders of the package.  A cycle is a group of rooms that import each other.  The last column has all
rooms that a room imports, even inside functions.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "aiocontroller"


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
    return path.partition("/")[0] if "/" in path else "(top)"


def rooms(files: Mapping[str, str]) -> dict[str, Room]:
    """Name -> what is in the room."""
    known = {room_of(path) for path in files}
    found: dict[str, Room] = {}
    for name in sorted(known):
        own = {path: text for path, text in files.items() if room_of(path) == name}
        lines = [len(text.splitlines()) for text in own.values()]
        imported = {target for text in own.values() for target in imported_rooms(text) if target in known}
        found[name] = Room(len(own), sum(lines), max(lines), frozenset(imported - {name}))
    return found


def imported_rooms(text: str) -> set[str]:
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


def cycles(found: Mapping[str, Room]) -> list[list[str]]:
    """Return the groups of rooms that import each other, directly or through others."""
    reached = {name: set(room.imports) for name, room in found.items()}
    for middle, beyond in reached.items():
        for targets in reached.values():
            if middle in targets:
                targets |= beyond
    groups = {tuple(sorted(a for a in reached if a in reached[name] and name in reached[a])) for name in reached}
    return [list(group) for group in sorted(groups) if group]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD")
    found = rooms(sources(parser.parse_args().commit))
    print("| room | files | lines | largest file | imports |\n|---|---|---|---|---|")
    for name, room in found.items():
        print(f"| {name} | {room.files} | {room.lines:,} | {room.largest} | {', '.join(sorted(room.imports))} |")
    total = sum(room.lines for room in found.values())
    files = sum(room.files for room in found.values())
    print(f"| all | {files} | {total:,} | {max(room.largest for room in found.values())} | |")
    print("cycles:", "; ".join(", ".join(group) for group in cycles(found)) or "none")


if __name__ == "__main__":
    main()
