"""The table in docs/architecture.md of what each room imports; and there are no cycles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from _structure import cycles, imported_parts, parts, rooms  # noqa: E402


def here() -> dict[str, str]:
    package = ROOT / "aiocontroller"
    return {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}


def test_the_page_says_what_each_room_imports() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.partition("## What each room imports")[2].partition("\n## ")[0]
    documented = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if len(cells) == 2 and cells[0] not in ("room", "---"):
            documented[cells[0]] = frozenset(cells[1].split(", ")) - {""}
    assert documented == {name: room.imports for name, room in rooms(here()).items()}


def test_no_rooms_import_each_other() -> None:
    """Nor do modules of the top and rooms."""
    assert cycles(parts(here())) == []


@pytest.mark.parametrize(
    "imports, expected",
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
    ],
)
def test_cycles_are_found(imports: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert cycles(imports) == expected


def test_imports_are_found_wherever_they_stand() -> None:
    text = (
        "import aiocontroller.wire.apis\ndef f():\n  from aiocontroller.core import ids\nfrom aiocontroller import net"
    )
    assert imported_parts(text) == {"wire", "core", "net"}


def test_modules_beside_the_rooms_count() -> None:
    """Each by itself where cycles are sought, together as one room in the table."""
    files = {
        "config.py": "from aiocontroller.core import ids",
        "service.py": "from aiocontroller import config\nimport aiocontroller.server.http",
        "core/ids.py": "",
        "server/http.py": "from aiocontroller.config import Config",
    }
    assert parts(files) == {"config": {"core"}, "service": {"config", "server"}, "core": set(), "server": {"config"}}
    assert {name: room.imports for name, room in rooms(files).items()} == {
        "(top)": {"core", "server"},
        "core": set(),
        "server": {"(top)"},
    }
    files["config.py"] = "import aiocontroller.server.http"
    assert cycles(parts(files)) == [["config", "server"]]
