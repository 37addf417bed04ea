"""The pages for people: docs/README.md lists each of them once, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def without_code(page: Path) -> str:
    return re.sub(
        r"^```.*?^```$|^    .*?$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def links(page: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ +(.+?) *$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_lists_every_page_once() -> None:
    listed = [(INDEX.parent / link.partition("#")[0]).resolve() for link in links(INDEX)]
    assert sorted([*listed, INDEX]) == sorted(PAGES)


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in links(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: found no file"
        assert not anchor or anchor in anchors(target), f"{link}: found no heading, expected one of {anchors(target)}"


PORTS = {
    "net/ports.py",
    "journal/journal.py",
    "metrics.py",
    "authorizer/authorizer.py",
    "zookeeper/client.py",
    "zookeeper/kafka_zk_client.py",
    "zookeeper/admin_zk_client.py",
    "zookeeper/reads.py",
    "zookeeper/request_znodes.py",
    "zookeeper/session.py",
}
"""Modules that others program against: each public method of theirs has a docstring too, unless it overrides one."""
ROOMS = FUNCTIONS = ("core", "wire", "authorizer", "net", "zookeeper", "journal", "controller", "server", "pages")
"""Rooms each of whose public functions has a docstring: shapes, units, errors, source."""
METHODS = ("core", "wire", "zookeeper", "controller", "server")
"""Rooms whose classes' public methods have one, as those of ports do."""


def test_public_modules_classes_and_functions_have_docstrings() -> None:
    package = ROOT / "aiocontroller"
    lacking = []
    for path in sorted([*package.glob("*.py"), *(path for room in ROOMS for path in package.glob(f"{room}/*.py"))]):
        name = path.relative_to(package).as_posix()
        lacking += [f"{name}: {each}" for each in undocumented(name, path.read_text(encoding="utf-8"))]
    assert lacking == []


@pytest.mark.parametrize(
    "name, source, expected",
    [
        ("wire/new.py", '"""."""\ndef encode(): ...', ["encode"]),
        ("server/new.py", '"""."""\nasync def answer(): ...', ["answer"]),
        ("server/new.py", '"""."""\ndef _inner(): ...', []),
        ("zookeeper/new.py", '"""."""\ndef read(): ...', ["read"]),
        ("cli/new.py", '"""."""\ndef run(): ...', []),
        ("wire/new.py", '"""."""\nclass Encoder:\n    """."""\n    def body(self): ...', ["Encoder.body"]),
        ("wire/new.py", '"""."""\nclass Encoder(Base):\n    """."""\n    def body(self): ...', []),
        ("net/new.py", "class Port: ...", ["the module", "Port"]),
    ],
)
def test_what_lacks_a_docstring_is_named(name: str, source: str, expected: list[str]) -> None:
    assert undocumented(name, source) == expected


def undocumented(name: str, source: str) -> list[str]:
    """Public names of the module ``name`` (from the package on) that need a docstring and have none."""
    room, tree = name.partition("/")[0], ast.parse(source)
    lacking = ["the module"] if tree.body and not ast.get_docstring(tree) else []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and (isinstance(node, ast.ClassDef) or room in FUNCTIONS):
            lacking.append(node.name)
        if isinstance(node, ast.ClassDef) and (name in PORTS or room in METHODS):
            lacking += [f"{node.name}.{method}" for method in _undocumented_methods(node)]
    return lacking


def _undocumented_methods(class_: ast.ClassDef) -> list[str]:
    """Of public methods; those of subclasses have the docstring of what they override, and setters their getter's."""
    no_ports = {ast.unparse(base) for base in class_.bases} - {"Protocol", "Collector", "Counter", "RequestZNodes"}
    if no_ports:
        return []
    return [
        method.name
        for method in class_.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and not ast.get_docstring(method)
        and not any(ast.unparse(decorator).endswith(".setter") for decorator in method.decorator_list)
    ]
