"""The page that a controller serves, in a real browser: at three widths, in light and dark, by keyboard, under axe."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from aiocontroller.net.ports import World
from aiocontroller.property_values import Secret
from aiocontroller.server import actions
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.service import Service
from tests.integration.analytics.test_page import BROWSER, COLLAPSED, SPILLED
from tests.integration.cli.test_broken import broken, cluster
from tests.integration.controller.harness import Cluster, until

__all__ = ["cluster"]
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")]
WIDTHS = (360, 1280, 2560)
NAME = '"><img src=x onerror=alert(1)>'


async def acting(cluster: Cluster) -> Service:
    """``broken``, where whoever knows a password may act."""
    return await broken(cluster, aiocontroller_http_actor_password=Secret("sesame"))


@pytest.fixture
async def chromium() -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        await browser.close()


async def shown(chromium: Any, service: Service, width: int = 1280, theme: str = "light") -> Any:
    """The page, once it has heard; whatever the browser complains of is in ``complaints``."""
    context = await chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = await context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on(
        "request",
        lambda request: page.complaints.append(request.url) if str(service.http_port) not in request.url else None,
    )
    await page.goto(f"http://127.0.0.1:{service.http_port}/")
    await page.wait_for_selector("#brokers table")
    return page


async def test_it_fits_and_loads_nothing_else(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    for theme in ("light", "dark"):
        for width in WIDTHS:
            page = await shown(chromium, service, width, theme)
            assert await page.evaluate(SPILLED) == [], (theme, width)
            assert await page.evaluate(COLLAPSED) == [], (theme, width)
            assert page.complaints in ([], ["data:,"])
            await page.context.close()


async def test_it_says_what_is_broken_and_goes_on_saying_it(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    page = await shown(chromium, service)
    verdict = page.locator("#verdict")
    assert "Partitions: 1 offline, 1 below min.insync.replicas, 2 under-replicated." in await verdict.inner_text()
    row = page.get_by_role("table", name="Offline").get_by_role("row").nth(1)
    assert "no in-sync replica is alive; broker 3 dead since" in await row.inner_text()
    assert "broker 3 died" in await page.locator("#incidents").inner_text()
    await cluster.add_broker(3)
    await page.wait_for_selector("#verdict:not(:text('offline'))")
    await page.wait_for_selector("#incidents li:has-text('every partition has a leader')")


async def test_a_topic_is_found_with_the_keyboard_alone(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    page = await shown(chromium, service)
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("Tab")
    await page.keyboard.type("t-0")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#found table")
    assert await page.evaluate("document.activeElement.id") == "found-heading"
    await page.keyboard.press("Tab")  # what scrolls
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#found h2:text('Topic t')")
    assert "Offline: no in-sync replica is alive" in await page.locator("#found").inner_text()


async def test_names_from_outside_stay_text(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    service.controller.story.chronicle.events.append(
        type(service.controller.story.chronicle.events[0])(1_700_000_000_000_000, f"{NAME} \u202eevil")
    )
    page = await shown(chromium, service)
    await page.wait_for_selector("#events li:text('onerror')")
    assert "\\u202eevil" in await page.locator("#events").inner_text()
    assert await page.locator("#events img").count() == 0
    await page.fill("#text", NAME)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#found:has-text('Nothing has this in its name')")
    assert page.complaints in ([], ["data:,"])


async def test_a_long_list_is_folded_and_stays_open_once_opened(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    page = await shown(chromium, service)
    one = {"topic": "t", "reason": [], "since_us": None, "leader": 1, "isr": [1], "replicas": [1, 2]}
    lost = {"under-replicated": [one | {"partition": n} for n in range(25)], "offline": [], "under-min-isr": []}

    async def hears(before: str = "") -> None:
        await page.evaluate(
            f"data => {{ {before}; hear(data) }}", {"now_us": 1, "broken": lost | {"offline_by_topic": []}}
        )

    rest = page.locator("#broken details table")
    await page.evaluate("source.close()")
    await hears()
    assert await page.locator("#broken summary").inner_text() == "15 more"
    assert not await rest.is_visible()
    await page.locator("#broken summary").focus()
    await page.keyboard.press("Enter")
    assert await rest.is_visible()
    await hears()
    assert await rest.is_visible()
    assert await page.evaluate("document.activeElement.textContent") == "15 more", "the focus was lost"
    assert await page.locator("#broken details tbody tr").count() == 15
    for is_open in (False, True):  # redrawn at once, before the browser tells of it
        await hears("document.querySelector('#broken summary').click()")
        assert await rest.is_visible() == is_open


MANY = [
    {"id": n, "state": "live", "since_us": None, "leaders": 333, "replicas": 1000, "queued": 0, "in_flight": False}
    | {"answered_us": 1_700_000_000_000_000, "retries": 0, "evidence": [], "failed_replicas": 0, "owed": 0}
    | {"owed_topics": [], "address": f"kafka-{n}.rack-{n % 9}.example.com:9092", "rack": f"rack-{n % 9}"}
    for n in range(1, 301)
]
CUT_NUMBERS = """() => [...document.querySelectorAll(".tiles dd")].filter(
  (each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"""
DEAD = {"state": "gone", "since_us": 1_700_000_000_000_000, "queued": None, "answered_us": None}


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_of_three_hundred_brokers_those_with_something_to_say_come_first(
    cluster: Cluster, chromium: Any, theme: str
) -> None:
    from axe_playwright_python.async_playwright import Axe

    service = await broken(cluster)
    found = [*MANY]
    found[149] = MANY[149] | DEAD
    found[298] = MANY[298] | {"evidence": ["cannot be reached: [Errno 111] Connect call failed ('10.0.0.9', 9092)"]}
    for width in WIDTHS:
        page = await shown(chromium, service, width, theme)
        await page.evaluate("source.close()")
        counts = {**await page.evaluate("state.counts"), "partitions": 1_999_999, "under-replicated": 1_999_999}
        await page.evaluate("data => hear(data)", {"now_us": 1, "brokers": found, "counts": counts})
        assert await page.evaluate(CUT_NUMBERS) == []
        rows = page.get_by_role("table", name="Brokers", exact=True).get_by_role("row")
        assert (await rows.nth(1).inner_text()).split()[:2] == ["150", "gone"]
        assert (await rows.nth(2).inner_text()).split()[0] == "299"
        assert (await rows.nth(3).inner_text()).split()[0] == "1"
        assert await rows.count() == 25
        assert await page.locator("#brokers summary").inner_text() == "276 more"
        await page.locator("#brokers summary").click()
        assert await page.locator("#brokers details tbody tr").count() == 276
        assert await page.evaluate(SPILLED) == []
        assert await page.evaluate(COLLAPSED) == []
        if width == WIDTHS[1]:
            results = await Axe().run(page)
            assert [violation["id"] for violation in results.response["violations"]] == []
        await page.context.close()


async def test_a_check_says_how_far_it_has_come(cluster: Cluster, chromium: Any) -> None:
    page = await shown(chromium, await broken(cluster))
    await page.evaluate("source.close()")
    check = {"at_us": None, "took_ms": None, "error": "", "running_since_us": 1_700_000_000_000_000, "counts": None}
    for progress, text in (
        (None, " …"),
        ({"read": 20_000, "of": 100_000, "again": False}, ": 20,000 of 100,000 partitions read …"),
        ({"read": 20_000, "of": 100_000, "again": True}, ": 20,000 of 100,000 partitions read a second time …"),
    ):
        await page.evaluate("data => hear(data)", {"now_us": 1, "check": check | {"progress": progress}})
        assert (await page.locator("#check-message").inner_text()).endswith(text)


async def test_moves_and_deletions_say_when_they_end_or_that_nobody_can_say(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    page = await shown(chromium, service)
    await page.evaluate("source.close()")
    move = {"topic": "t", "partition": 0, "replicas": [1, 2], "adding": [2], "removing": [], "in_sync": []}
    moves = {"count": 3, "partitions": [move | {"cancelled": False, "waits_for": [2]}]}
    gone = {"count": 1, "topics": [{"topic": NAME, "partitions": 5, "state": "halted", "replicas_left": 9}]}
    pace = {"ended": 1200, "since_us": 1_700_000_000_000_000, "expected_us": 1_700_000_600_000_000}
    data = {"now_us": 1, "reassignments": moves | {"pace": pace}}
    await page.evaluate("data => hear(data)", data | {"deletions": gone | {"pace": pace | {"expected_us": None}}})
    text = await page.locator("#reassignments").inner_text()
    assert "1,200 of 1,203 partitions done since 2023-11-1" in text
    assert "At this pace, the rest will be done at about 2023-11-1" in text
    assert "waits for broker 2" in text
    text = await page.locator("#deletions").inner_text()
    assert "Too few have ended lately to estimate when the rest will." in text
    assert NAME in text


async def test_a_check_is_run_from_the_page_and_its_findings_stay(cluster: Cluster, chromium: Any) -> None:
    service = await broken(cluster)
    page = await shown(chromium, service)
    await page.locator("#check-now").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#check h3:has-text('critical')", timeout=120_000)
    text = await page.locator("#check").inner_text()
    for part in ("Checked at", " critical, ", "Why", "What follows", "What to do", "t-0"):
        assert part in text, text
    assert await page.evaluate(SPILLED) == []
    await page.locator("#check summary").first.click()
    assert "/brokers/topics/t" in await page.locator("#check table").first.inner_text()
    other = await shown(chromium, service, 360, "dark")
    await other.wait_for_selector("#check h3:has-text('critical')")
    assert await other.evaluate(SPILLED) == []
    assert await other.evaluate(COLLAPSED) == []


async def test_an_action_is_shown_first_and_done_after_a_second_look(cluster: Cluster, chromium: Any) -> None:
    service = await acting(cluster)
    page = await shown(chromium, service, 360, "dark")
    await page.locator("#instances button").focus()
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.closest('dialog').id") == "act"
    await page.fill("#act-name", "anna")
    await page.fill("#act-password", "wrong")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('a wrong one')")
    await page.fill("#act-password", "sesame")

    async def has_lines() -> int:
        await page.keyboard.press("Enter")  # the server takes no password within a second of a wrong one
        return int(await page.locator("#act-lines li").count())

    await until(has_lines)
    assert "Nothing is done yet. The journal will say: 'anna'" in await page.locator("#act").inner_text()
    assert await page.evaluate(SPILLED) == []
    await page.keyboard.press("Enter")  # the heading has the focus: nothing is confirmed by accident
    assert service.controller.election.active
    await page.locator("#act-go").click()
    await page.wait_for_selector("#act-message:has-text('Done.')", timeout=60_000)
    assert not service.controller.election.active
    await page.keyboard.press("Escape")
    assert not await page.locator("#act").is_visible()
    await page.wait_for_function("() => document.getElementById('act-password').value === ''")  # by a later task
    await page.wait_for_selector("#instances:not(:has(button))")
    assert all("403" in complaint or "data:" in complaint for complaint in page.complaints), page.complaints


async def shows_first(page: Any, *titles: str) -> str:
    """By keyboard alone: open the dialog of the button of this title, and come as far as the dry run."""
    await page.get_by_role("button", name=titles[0], exact=True).focus()
    await page.keyboard.press("Enter")
    for field, text in (("#act-name", "anna"), ("#act-password", "sesame"), ("#act-replicas", ", ".join(titles[1:]))):
        if await page.locator(field).is_visible():
            await page.fill(field, text)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:not(:empty)")
    return str(await page.locator("#act").inner_text())


async def test_replicas_are_moved_and_leaders_elected_from_the_page(cluster: Cluster, chromium: Any) -> None:
    service = await acting(cluster)
    table = service.shell.context.table
    page = await shown(chromium, service, 360, "dark")
    await page.fill("#text", "t")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="t", exact=True).click()
    label = "Move the replicas of t-1"
    assert "Replicas: found '2, x', expected the ids of brokers" in await shows_first(page, label, "2", "x")
    await page.fill("#act-replicas", "2 7")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('brokers 7 are not live (live: 1, 2)')")
    await page.evaluate("hear({ now_us: state.now_us, controller: state.controller })")  # buttons are drawn again
    await page.keyboard.press("Escape")
    text = await shows_first(page, label, "2", "1")
    for line in ("t-1: replicas 1, 2, 3 → 2, 1", "leader 1 stays", "deleted from 3", "Nothing is done yet."):
        assert line in text
    assert await page.evaluate(SPILLED) == []
    assert await page.evaluate("document.activeElement.id") == "act-title"
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('Done.')")
    await until(lambda: table.replicas(table.row("t", 1)) == (2, 1))
    await page.keyboard.press("Escape")
    label = "Elect the preferred leaders of the cluster"
    assert "t-1: leader 1 → 2" in await shows_first(page, label)
    await page.evaluate("hear({ now_us: state.now_us, controller: state.controller })")
    await page.get_by_role("button", name="Do it").click()
    await page.wait_for_selector("#act-message:has-text('Done.')")
    assert table.leader[table.row("t", 1)] == 2
    await page.keyboard.press("Escape")
    # The focus is given back by the event "close", in a later task of the browser's.
    await page.wait_for_function("label => document.activeElement.getAttribute('aria-label') === label", arg=label)
    assert "found 2 replicas for 1 brokers" in await shows_first(page, "Move all replicas off broker 2")
    assert all("409" in complaint or "data:" in complaint for complaint in page.complaints), page.complaints


async def test_of_two_operators_who_move_one_partition_the_second_begins_again(
    cluster: Cluster, chromium: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look before either acts.  Whoever looks for too long, or at a controller that ends, begins again as well."""
    service = await acting(cluster)
    standby = await cluster.add_controller(aiocontroller_id=1002, aiocontroller_http_actor_password=Secret("sesame"))
    label, ready = "Move the replicas of t-1", "Nothing is done yet. The journal will say: 'anna'"

    async def looking(at: Service, *replicas: str) -> Any:
        page = await shown(chromium, at)
        await page.fill("#text", "t")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="t", exact=True).click()
        assert ready in await shows_first(page, label, *replicas)
        return page

    async def going_on(page: Any) -> str:
        await page.locator("#act-go").click()
        await page.wait_for_function("() => !waiting")
        return str(await page.locator("#act-message").inner_text())

    pages = [await looking(service, "2", "1"), await looking(service, "1", "2")]
    said = await asyncio.gather(*map(going_on, pages))
    assert said.count("Done.") == 1, said
    [(refusal, loser)] = [(text, page) for text, page in zip(said, pages, strict=True) if text != "Done."]
    assert re.match("another action is being|what it would do has changed|t-1 is being", refusal), refusal
    table = service.shell.context.table
    one, other = table.replicas(table.row("t", 1))

    monkeypatch.setattr(actions, "CONFIRMED_WITHIN_S", 0.0)
    assert (await going_on(loser)).startswith(ready)
    assert f"t-1: replicas {one}, {other} → {other}, {one}" in await loser.locator("#act-lines").inner_text()
    assert (await going_on(loser)).startswith("this confirmation is unknown, used, too old")
    monkeypatch.undo()
    assert (await going_on(loser)).startswith(ready)

    await cluster.stop_controller(service)
    assert (await going_on(loser)).startswith("This controller does not answer. It may have done it or not")
    await until(lambda: in_charge(standby.shell))
    table = standby.shell.context.table
    assert table.replicas(table.row("t", 1)) == (one, other)
    page = await looking(standby, str(other), str(one))
    assert await going_on(page) == "Done."
    assert table.replicas(table.row("t", 1)) == (other, one)


async def test_a_late_answer_is_not_taken_for_that_to_another_action(cluster: Cluster, chromium: Any) -> None:
    page, late = await shown(chromium, await acting(cluster)), list[Any]()
    title = page.locator("#act-title")
    await page.route("**/dry-run", lambda route: late.append(route))
    await page.get_by_role("button", name="Release the role", exact=True).click()
    await page.fill("#act-name", "anna")
    await page.fill("#act-password", "sesame")
    await page.keyboard.press("Enter")
    await until(lambda: late)
    await page.keyboard.press("Escape")
    label = "Elect the preferred leaders of the cluster"
    await page.get_by_role("button", name=label, exact=True).click()
    async with page.expect_response("**/dry-run") as answered:
        await late[0].continue_()
    await (await answered.value).finished()
    await page.fill("#act-name", "anna")  # a round trip through the page
    assert await title.inner_text() == label
    assert await page.locator("#act-lines li").count() == 0
    await page.unroute("**/dry-run")
    await page.fill("#act-password", "sesame")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('no leader of the cluster would change')")


async def test_an_action_that_begins_as_the_dialog_closes_is_not_forgotten(cluster: Cluster, chromium: Any) -> None:
    """The browser tells of the end of a dialog in a later task, before which the next one may be open."""
    page = await shown(chromium, await acting(cluster))
    await page.get_by_role("button", name="Release the role", exact=True).click()
    await page.fill("#act-password", "sesame")
    again = "() => { dialog.close(); act('Release the role', { action: 'release' }); return part('password').value; }"
    assert await page.evaluate(again) == ""
    await page.evaluate("() => new Promise(done => setTimeout(done, 0))")
    await page.fill("#act-name", "anna")
    await page.fill("#act-password", "sesame")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('Nothing is done yet.')")
    assert [complaint for complaint in page.complaints if "data:" not in complaint] == []


async def test_a_tab_of_an_exchanged_controller_says_so(cluster: Cluster, chromium: Any) -> None:
    """The browser connects again by itself, and an old page may not understand what a new controller tells."""
    page = await shown(chromium, await broken(cluster))
    assert not await page.locator("#outdated").is_visible()
    await page.evaluate("() => hear({ now_us: state.now_us, page: state.page })")
    assert not await page.locator("#outdated").is_visible()
    await page.evaluate("() => hear({ now_us: state.now_us, page: 'another' })")
    assert "reload the page" in await page.locator("#outdated").inner_text()


async def test_one_page_more_than_there_may_be_asks_instead_of_hearing(cluster: Cluster, chromium: Any) -> None:
    """What it showed was that the controller gave no word, as if it were dead."""
    service = await broken(cluster)
    page = await (await chromium.new_context()).new_page()
    await page.route("**/events", lambda route: route.fulfill(status=503, body="there are 24 streams, expected fewer"))
    await page.goto(f"http://127.0.0.1:{service.http_port}/")
    await page.wait_for_selector("#verdict:has-text('Partitions: 1 offline')")
    await cluster.add_broker(3)
    await page.wait_for_selector("#verdict:not(:text('offline'))")
    assert not await page.locator("#link").is_visible()


async def test_an_action_asked_of_a_controller_that_has_died_says_what_became_of_it(
    cluster: Cluster, chromium: Any
) -> None:
    page = await shown(chromium, await acting(cluster))
    await page.route("**/dry-run", lambda route: route.abort())
    text = await shows_first(page, "Release the role")
    assert "This controller does not answer. Nothing was done. Another one may be active" in text
    await page.unroute("**/dry-run")
    await page.fill("#act-password", "sesame")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#act-message:has-text('Nothing is done yet.')")
    await page.route("**/confirm", lambda route: route.abort())
    await page.get_by_role("button", name="Do it").click()
    unsure = "It may have done it or not: see the events of the active controller"
    await page.wait_for_selector(f"#act-message:has-text('{unsure}')")


async def test_axe_finds_nothing(cluster: Cluster, chromium: Any) -> None:
    from axe_playwright_python.async_playwright import Axe

    service = await acting(cluster)
    for theme in ("light", "dark"):
        page = await shown(chromium, service, theme=theme)
        if theme == "dark":
            await page.locator("#instances button").click()
        results = await Axe().run(page)
        assert [violation["id"] for violation in results.response["violations"]] == []


async def test_a_standby_says_what_it_is_and_a_dead_controller_is_noticed(
    cluster: Cluster, chromium: Any, world: World
) -> None:
    await broken(cluster)
    standby = await cluster.add_controller(aiocontroller_id=1002)
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(f"http://127.0.0.1:{standby.http_port}/")
    await page.wait_for_selector("h1:text('Controller 1002')")
    await until(
        lambda: standby.controller.election.mirror is not None and standby.controller.election.mirror.state == "warm"
    )
    await page.wait_for_selector("#term:has-text('This standby is warm')")
    row = page.get_by_role("table", name="Controllers").get_by_role("row").nth(2)
    await page.wait_for_selector("#instances td:has-text('warm')", timeout=60_000)
    await page.wait_for_selector("#instances td:has-text('active')", timeout=60_000)  # each tells of itself in turn
    assert "1002 (this one)" in await row.inner_text()
    assert f"http://127.0.0.1:{standby.http_port}" in await row.inner_text()
    assert "active" in await page.get_by_role("table", name="Controllers").get_by_role("row").nth(1).inner_text()
    async with aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{standby.http_port}/overview") as answer:
            assert not (await answer.json())["controller"]["active"]
    await cluster.stop_controller(standby)
    await asyncio.wait_for(page.wait_for_selector("#link:not([hidden])", timeout=60_000), 60)
    assert "No word from the controller" in await page.locator("#link").inner_text()
