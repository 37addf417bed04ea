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
    "zookeeper/session.py",
}
"""Modules that others program against: each public method of theirs has a docstring too, unless it overrides one."""
ROOMS = ("net", "wire", "authorizer", "zookeeper", "journal", "server", "pages")


def test_public_modules_and_classes_have_docstrings() -> None:
    package = ROOT / "aiocontroller"
    lacking = []
    for path in sorted([*package.glob("*.py"), *(path for room in ROOMS for path in package.glob(f"{room}/*.py"))]):
        name = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and not ast.get_docstring(tree):
            lacking.append(name)
        for class_ in tree.body:
            if isinstance(class_, ast.ClassDef) and not class_.name.startswith("_"):
                if not ast.get_docstring(class_):
                    lacking.append(f"{name}: {class_.name}")
                if name in PORTS:
                    lacking += [f"{name}: {class_.name}.{method}" for method in _undocumented_methods(class_)]
    assert lacking == []


def _undocumented_methods(class_: ast.ClassDef) -> list[str]:
    """Of public methods; those of subclasses have the docstring of what they override, and setters their getter's."""
    if [ast.unparse(base) for base in class_.bases if ast.unparse(base) not in ("Protocol", "Collector", "Counter")]:
        return []
    return [
        method.name
        for method in class_.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and not ast.get_docstring(method)
        and not any(ast.unparse(decorator).endswith(".setter") for decorator in method.decorator_list)
    ]
