"""The pages for people: docs/README.md lists each of them once, and every link leads somewhere."""

from __future__ import annotations

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
    """Return the anchors that GitHub makes from headings."""
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


def test_every_fault_of_aiozk_is_played_on_our_client() -> None:
    """Tests cite the faults by their numbers in docs/zookeeper.md."""
    listed = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "zookeeper.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [str(n) for n in range(1, len(listed) + 1)]
    cited: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests" / "integration" / "zookeeper").glob("test_*.py")):
        found = re.findall(r"\bFaults? (\d+(?: and \d+)*)", path.read_text(encoding="utf-8"))
        cited[path.stem] = set(re.findall(r"\d+", " ".join(found)))
    of_aiozk = cited.pop("test_plain_aiozk")
    assert set().union(*cited.values()) == set(listed)
    assert of_aiozk
    assert of_aiozk <= set(listed)


def test_the_glossary_is_sorted_and_each_term_is_used_where_it_says() -> None:
    page = ROOT / "docs" / "glossary.md"
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) > 50
    for term, where in rows:
        linked = [page.parent / link for link in re.findall(r"\]\(([^)]+)\)", where)]
        places = [*linked, *(ROOT / "aiocontroller" / path for path in re.findall(r"`([^`]+)`", where))]
        assert places, term
        word = re.compile(r"[ _-]?".join(map(re.escape, re.split(r"[ -]", term))), re.IGNORECASE)
        for place in places:
            files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
            assert any(word.search(file.read_text(encoding="utf-8")) for file in files), f"{term}: not in {place}"


def rows(page: str) -> list[str]:
    """Return the invariants that have a row in a table of the page."""
    return re.findall(r"^\| (I\d+) \|", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)


def named_in(folder: str) -> set[str]:
    """Return the invariants that texts of these modules begin with: ``I2`` or ``I2: epoch 3``."""
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "aiocontroller" / folder).rglob("*.py"))
    return {name for source in sources for name in re.findall(r"[\"'](I\d+)\b", source)}


def test_there_is_one_list_of_invariants() -> None:
    """docs/chaos.md has it; the pipeline's own rules in docs/gold.md have words for names, and other ones."""
    listed = rows("chaos.md")
    assert len(listed) == len(set(listed))
    assert named_in("lab") == set(listed)
    assert rows("gold.md") == []
    assert named_in("analytics/gold") <= set(listed)
    of_pipeline = (
        (ROOT / "docs" / "gold.md").read_text(encoding="utf-8").partition("\n## Invariants\n")[2].partition("\n## ")[0]
    )
    words = set(re.findall(r"^\| `(\w+)` \|", of_pipeline, re.MULTILINE))
    named = re.findall(r"^\| ([a-z ]+) \|", (ROOT / "docs" / "chaos.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert words & set(named) == {"leaderless"}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "aiocontroller/analytics/gold").glob("*.py"))
    assert {word for word in words if f"'{word}'" in sources or f'"{word}"' in sources} == words
    assert rows("exploration.md") == []
