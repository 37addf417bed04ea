"""The table in docs/architecture.md of what each room imports; and there are no cycles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from _structure import Room, cycles, imported_rooms, rooms  # noqa: E402


def here() -> dict[str, Room]:
    package = ROOT / "aiocontroller"
    return rooms({str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")})


def test_the_page_says_what_each_room_imports() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.partition("## What each room imports")[2].partition("\n## ")[0]
    documented = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if len(cells) == 2 and cells[0] not in ("room", "---"):
            documented[cells[0]] = frozenset(cells[1].split(", ")) - {""}
    assert documented == {name: room.imports for name, room in here().items()}


def test_no_rooms_import_each_other() -> None:
    assert cycles(here()) == []


@pytest.mark.parametrize(
    "imports, expected",
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
    ],
)
def test_cycles_are_found(imports: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert cycles({name: Room(1, 1, 1, frozenset(targets)) for name, targets in imports.items()}) == expected


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        "import aiocontroller.wire.apis\ndef f():\n  from aiocontroller.core import ids\nfrom aiocontroller import net"
    )
    assert imported_rooms(text) == {"wire", "core", "net"}
