"""The page in a real browser: widths, themes, print, the keyboard, a screen reader's view, and names that attack it.

Each page is of a journal or logs that went the whole way: bronze, gold, ``gather``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest, read_manifest
from aiocontroller.analytics.report import write_report
from tests.integration.analytics import lives
from tests.integration.analytics.test_recorded import RECORDED

BROWSER = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")]
WIDTHS: Final = (360, 1300, 2560)
A4_PX: Final = 718
"""A4 without margins of 1 cm, in CSS pixels."""
MOST_BYTES: Final = 1_000_000


def _recorded(folder: Path) -> None:
    shutil.copytree(RECORDED / "3.9" / "logs", folder)


def _hostile(folder: Path) -> None:
    lives.write(folder, lives.life(300, 3_000, lives.NAMES))
    (folder / b"\xff\xfe<b>.log".decode(errors="surrogateescape")).write_text("of another program")
    (folder.parent / "manifest.json").write_text('{"files": [{"glob": "*", "cluster": "<h1>prod\\u202e"}]}')


MADE: Final[dict[str, Callable[[Path], None]]] = {
    "no incident": lambda folder: lives.write(folder, lives.life(0)),
    "ten incidents": lambda folder: lives.write(folder, lives.life(10)),
    "10,000 incidents": lambda folder: lives.write(folder, lives.life(10_000, 60)),
    "real logs": _recorded,
    "hostile names": _hostile,
}


@pytest.fixture(scope="module")
def pages(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by their names."""
    made = {}
    for name, write in MADE.items():
        folder = tmp_path_factory.mktemp("page")
        write(folder / "in")
        manifest = folder / "manifest.json"
        given = read_manifest(manifest) if manifest.exists() else Manifest()
        batch.run(spark, [str(folder / "in")], str(folder / "out"), manifest=given)
        made[name] = folder / "page.html"
        write_report(spark, str(folder / "out"), made[name])
    return made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end, no script may have failed and nothing may have been loaded."""
    opened: list[Any] = []
    wrong: list[str] = []

    def opening(name: str, width: int = 1300, theme: str = "light") -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda asked: asked.url.startswith("file:") or wrong.append(asked.url))
        page.goto(pages[name].as_uri())
        return page

    yield opening
    for context in opened:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("name", MADE)
def test_it_has_less_than_a_megabyte(pages: dict[str, Path], name: str) -> None:
    assert 5_000 < pages[name].stat().st_size < MOST_BYTES


def test_of_many_incidents_it_tells_all_and_details_the_worst(show: Callable[..., Any]) -> None:
    page = show("10,000 incidents")
    assert page.inner_text("h1").startswith("10,000 incidents; available 99.")
    assert "the worst 100 of 10,000" in page.inner_text("main")
    assert page.locator("details").count() == 100


WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [
  document.documentElement.scrollWidth, ...[...document.querySelectorAll("table, svg")].filter(
  (each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent.slice(0, 150))]"""
SPILLED = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !each.closest(".scroll, .chart, caption, .skip");
}).map((each) => each.outerHTML.slice(0, 120))"""
"""What stands beyond the right edge and is not within something that scrolls."""
COLLAPSED = """() => [...document.querySelectorAll("td, th, dd, dt, li, p, summary, h1, h2, h3")].filter((each) => {
  if (!each.getClientRects().length || each.closest("caption")) return false;
  const text = document.createRange();
  text.selectNodeContents(each);
  const lines = new Set([...text.getClientRects()].filter((box) => box.width).map((box) => Math.round(box.bottom / 9)));
  if (lines.size < 3) return false;  // to lay its text out as words takes longest
  const words = each.innerText.split(/\\s+/).filter(Boolean);
  return words.length > 2 && lines.size >= words.length && Math.max(...words.map((word) => word.length)) < 24;
}).map((each) => each.outerHTML.slice(0, 120))"""
"""What has a line for each word, though no word is long."""
WALK = """() => {
  const it = document.activeElement, style = getComputedStyle(it), box = it.getBoundingClientRect();
  return it === document.body ? null : {
    place: [...document.querySelectorAll("*")].indexOf(it), what: it.outerHTML.slice(0, 80),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
}"""
REACHABLE = """() => [...document.querySelectorAll("a[href], summary, .scroll, .chart")].filter((each) =>
  each.checkVisibility() && (each.matches("a, summary") || each.scrollWidth > each.clientWidth)
).map((each) => [...document.querySelectorAll("*")].indexOf(each))"""


@pytest.mark.parametrize("name", MADE)
def test_nothing_spills_and_no_column_collapses(show: Callable[..., Any], name: str) -> None:
    page = show(name)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in (*WIDTHS, A4_PX):
        page.set_viewport_size({"width": width, "height": 900})
        if width == A4_PX:
            page.emulate_media(media="print")
        assert page.evaluate(WIDE) == [], width
        assert page.evaluate(SPILLED) == [], width
        assert page.evaluate(COLLAPSED) == [], width


@pytest.mark.parametrize("width", [360, 1300])
@pytest.mark.parametrize("name", ["no incident", "real logs"])
def test_the_keyboard_alone_reaches_everything_in_order(show: Callable[..., Any], name: str, width: int) -> None:
    page = show(name, width)
    walked = []
    for _ in range(300):
        page.keyboard.press("Tab")
        at = page.evaluate(WALK)
        if at is None:
            break
        walked.append(at)
    assert walked[0]["what"].startswith('<a class="skip"')
    assert [at["what"] for at in walked if not at["ring"]] == []
    assert [at["what"] for at in walked if not at["seen"]] == []
    assert [at["place"] for at in walked] == page.evaluate(REACHABLE)  # all of them, once, as they stand


def test_the_keyboard_follows_links_to_incidents_and_opens_them(show: Callable[..., Any]) -> None:
    page = show("real logs")
    number = page.locator("details:not([open]) summary").first.get_attribute("id")
    incident = f"document.getElementById('{number}')"
    page.locator(f'table a[href="#{number}"]').focus()
    page.keyboard.press("Enter")
    # A page opens an incident in its own time, after the key.
    page.wait_for_function(f"{incident}.closest('details').open")
    page.wait_for_function(f"Math.abs({incident}.getBoundingClientRect().top) < 300")
    page.locator(f"#{number}").focus()
    page.keyboard.press("Space")
    page.wait_for_function(f"!{incident}.closest('details').open")


@pytest.mark.parametrize(
    "name, theme", [*((name, "light") for name in MADE), ("real logs", "dark"), ("no incident", "dark")]
)
def test_axe_finds_nothing(show: Callable[..., Any], name: str, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = show(name, 360 if theme == "dark" else 1300, theme)
    page.evaluate("document.querySelectorAll('details').forEach((each, n) => { each.open = n < 5; })")
    found = Axe().run(page).response["violations"]
    violations = [(rule["impact"], rule["id"], [node["html"][:150] for node in rule["nodes"]][:3]) for rule in found]
    assert violations == []


def test_a_screen_reader_hears_landmarks_headings_tables_and_charts(show: Callable[..., Any]) -> None:
    page = show("real logs")
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    heard: dict[str, list[str]] = {}
    for node in tree:
        if not node["ignored"]:
            heard.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert heard["heading"][:3] == [page.inner_text("h1"), "Cluster default", "The worst incident"]
    assert {"banner", "navigation", "main"} <= set(heard)
    assert "note" not in heard  # nothing is missing
    for role in ("link", "table", "columnheader", "rowheader", "image", "heading", "DisclosureTriangle"):
        assert heard[role], role
        assert all(heard[role]), f"a {role} without a name"
    assert any("Course of the incident: Broker 2, the controller, was killed. " in name for name in heard["image"])
    assert [name for name in heard["link"] if name == "Broker 1 hung"]
    levels = [
        int(each[1]) for each in page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => h.tagName)")
    ]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_first_screen_tells_it_all(show: Callable[..., Any]) -> None:
    for width in WIDTHS:
        page = show("real logs", width)
        for term in ("What", "When (UTC)", "How long", "Impact", "Why", "How certain"):
            box = page.locator(".worst dt", has_text=term).first.bounding_box()
            assert 0 < box["y"] < 900 - box["height"], (term, width)


def test_printing_opens_every_incident(show: Callable[..., Any]) -> None:
    page = show("real logs", theme="dark")
    assert page.locator("details:not([open])").count() > 3
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0
    page.emulate_media(media="print")
    ink, paper = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    assert (ink, paper) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")  # also of a reader with a dark theme


def test_names_are_text_and_cannot_hide_or_turn_others(show: Callable[..., Any], pages: dict[str, Path]) -> None:
    page = show("hostile names")
    assert page.title() == page.inner_text("h1")
    assert page.inner_text("h2 >> nth=0") == "Cluster <h1>prod\\u202e"
    text = page.text_content("body")
    assert "300 incidents" in page.inner_text("h1")
    for name in (lives.MARKUP, lives.LONG, lives.RTL, "{{ 7 * 7 }}", "&amp;", "\\u202edlrow\\u2066\\u200b\\u0007"):
        assert name in text, name
    assert not set("\u202e\u2066\u200b\x07") & set(pages["hostile names"].read_text())
    assert page.locator("h1").count() == 1
    assert page.locator("img").count() == 0
