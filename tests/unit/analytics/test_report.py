"""The report's words, charts and page, from values made by hand; no Spark needed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from aiocontroller.analytics import summary
from aiocontroller.analytics.report import charts, words
from aiocontroller.analytics.report.gather import Cluster, Content
from aiocontroller.analytics.report.page import page
from tests.unit.analytics.report_content import DAY_US, S, cluster, content, incident, row


def nothing() -> Cluster:
    """A quiet cluster: one partition that was always led."""
    return Cluster("quiet", DAY_US, DAY_US + 1, 1, 0, 1.0)


class Balanced(HTMLParser):
    """Every element that needs an end has one, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def without_scripts(html: str) -> str:
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def text_of(html: str) -> str:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return " ".join("".join(parser.text).split())


def test_the_page_says_what_happened_and_shows_the_evidence() -> None:
    text = text_of(without_scripts(page(content())))
    assert "2 incidents; available 99.98 %" in text
    assert "The longest time without a leader: orders<b>-7, 31.0 s" in text
    assert "and was still open when the records end. Cause: controller failover." in text
    assert "Brokers died once: broker 2 at" in text
    assert "led 400, longest without a leader 11.0 s" in text
    assert "1000001-1:88" in text
    assert "1 line could not be read" in text
    assert '{"v":1,"seq":9' in text
    assert "times without a zone were taken as UTC70/server.log, 1/server.log" in text


def test_the_first_screen_tells_what_when_how_long_whom_why_and_how_certain() -> None:
    text = text_of(without_scripts(page(content())))
    first = text[text.index("The worst incident") : text.index("Partitions affected, at most")]
    for phrase in (
        "Broker 2, the controller, was killed",
        "15:14:20.000 ± 45.0 ms, when another broker lost its connection to it",
        "6.9 s until the last partition was led again",
        "400 partitions of 14 topics without a leader, each for up to 6.9 s",
        "the broker's process ended",
        "certain. Several independent records agree.",
    ):
        assert phrase in first


def test_known_problems_stand_above_all_charts_with_evidence_and_advice() -> None:
    html = page(content())
    text = text_of(without_scripts(html))
    assert "2 incidents; available 99.98 %; 2 known problems" in text
    for phrase in (
        "unclean election",
        "got a leader from outside the ISR after broker 2 was lost",
        "Compare offsets.",
        "broker-3/state-change.log:2026-11-23 02:09:58,094",
        "consumer group <billing> rebalanced 40 times",
    ):
        assert phrase in text, phrase
    assert html.index("Known problems") < html.index("Each incident")
    many = cluster()
    many.problems_count = 900
    assert "(the first 2 of 900)" in page(content(clusters=[many]))
    assert "Known problems" not in page(content(clusters=[nothing()]))


def test_an_incident_has_its_course_and_its_records() -> None:
    text = text_of(without_scripts(page(content())))
    assert "+6.0 s: noticed by the controller+6.2 s: another controller elected" in text
    assert "+6.9 s: the last partition led again+6.7 min: all in sync again" in text
    assert "Evidence: broker-3/server.log:812, broker-3/controller.log:77" in text
    assert "until the records end: still without a leader" in text


def test_links_to_incidents_lead_somewhere() -> None:
    html = page(content())
    targets = set(re.findall(r'href="#([^"]+)"', html))
    assert {"c0-i1", "c0-i2"} <= targets <= set(re.findall(r'id="([^"]+)"', html))


def test_where_records_are_missing_availability_is_unknown_and_what_is_missing_is_named() -> None:
    blind = cluster()
    blind.availability = blind.onset_availability = None
    blind.completeness = [
        row(what="term", name="2", known=False, words="no record of the controller of epoch 2"),
        row(what="availability", name="cluster", known=False, words="terms are missing"),
    ]
    text = text_of(without_scripts(page(content(clusters=[blind]))))
    assert "availability unknown" in text
    assert "how available they were is unknown. Missing: no record of the controller of epoch 2." in text
    assert "available 100 %" not in text


def test_an_onset_that_is_hardly_known_does_not_lead() -> None:
    vague = cluster()
    vague.onset_availability, vague.onset_unavailable_us, vague.onset_error_us = 0.309, 4_000 * S, 2_100 * S
    text = text_of(without_scripts(page(content(clusters=[vague]))))
    assert "2 incidents; available 99.99 %" in text
    assert "available, from when brokers failed (± 35.0 min in sum)30.90 %" in text


def test_a_page_of_ten_thousand_incidents_stays_small() -> None:
    many = cluster()
    many.incidents = [incident(number, partitions=number * 7 % 300) for number in range(1, 101)]
    many.incidents_count = 10_000
    html = page(content(clusters=[many]))
    assert len(html) < 1_000_000
    assert "the worst 100 of 10,000" in html


def test_deaths_are_counted_where_not_all_turns_are_shown() -> None:
    many = cluster()
    many.turns = {"died": 1234}
    text = text_of(without_scripts(page(content(clusters=[many]))))
    assert "brokers died1,234" in text
    assert "Brokers died 1,234 times: broker 2 at" in text
    assert "and others." in text


def test_tables_have_headers_for_screen_readers_and_charts_have_words() -> None:
    html = page(content())
    assert html.count("<table>") == html.count("<caption>") == html.count("<thead>") > 8
    assert html.count("<svg ") == len(re.findall(r'<svg [^>]*aria-label="[^"]{20,}"', html)) >= 6
    assert 'lang="en"' in html


def test_names_from_outside_are_text_and_never_markup() -> None:
    html = without_scripts(page(content()))
    assert "orders&lt;b&gt;-7" in html
    assert "orders<b>" not in html


def test_nothing_is_fetched() -> None:
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page(content()))


def test_a_quiet_cluster_has_a_page_without_empty_sections() -> None:
    html = without_scripts(page(content(clusters=[nothing()], quality=[], quarantine=[], quarantined=0, whole_files=4)))
    assert "No partition was seen without a leader" in html
    assert "No incident; available 100 %" in html
    assert "every file is whole" in html
    for heading in ("When", "Incidents", "The longest times", "Failovers", "Changes", "Violations of invariants"):
        assert f"<h3>{heading}" not in html


def test_where_records_are_missing_nothing_is_said_not_to_have_happened() -> None:
    """The headline was "No incident; availability unknown", and the first sentences "No broker came or went"."""
    quiet = nothing()
    quiet.availability = quiet.onset_availability = None
    assert words.headline(content(clusters=[quiet])) == "No incident known; availability unknown"
    assert words.headline(content(clusters=[nothing(), quiet])).startswith("No incident known; ")
    text = " ".join(words.story(quiet))
    assert "No broker is known to have come or gone." in text
    assert "No broker came or went" not in text


def test_no_record_at_all_is_said() -> None:
    empty = Content([], 0, [], [], 0, 0, 1, 1)
    assert "Nothing is known" in page(empty)


def test_several_clusters_each_have_their_section() -> None:
    html = page(content(clusters=[cluster("a", hours=1), cluster("b")], more_clusters=3))
    assert '<section id="c1"' in html
    assert "5 clusters, the worst (a) available" in html
    assert "3 more clusters" in html


def test_violations_are_counted_in_the_headline_and_proved_below() -> None:
    broken = cluster()
    broken.violated = [row(invariant="I1", count=2)]
    broken.violations = [
        row(
            invariant="I1", topic="t", partition=0, node=1, epoch=4, ts_us=DAY_US, words="two leaders", evidence=["x:1"]
        )
    ]
    html = without_scripts(page(content(clusters=[broken])))
    assert "2 violations of invariants" in html
    assert "two leaders" in html
    assert "<code>x:1</code>" in html


@pytest.mark.parametrize(
    "share,phrase",
    [(1.0, "100 %"), (0.999999, "99.9999 %"), (0.99987, "99.99 %"), (0.5, "50.00 %"), (0.9999999, "99.99999 %")],
)
def test_percentages_have_the_digits_that_tell_them_from_whole(share: float, phrase: str) -> None:
    assert words.percent(share) == phrase


def test_the_timeline_has_the_same_size_for_any_number_of_partitions() -> None:
    small, large = cluster(), cluster()
    large.partitions = 1_000_000
    large.without_leader = [n * 1000 for n in large.without_leader]
    drawn = [charts.timeline(one, {}) for one in (small, large)]
    assert all(chart is not None and len(chart) < 20_000 for chart in drawn)


def test_phases_are_stacked_in_their_order() -> None:
    chart = charts.phases(cluster())
    assert chart is not None
    assert re.findall(r"<title>(\w+): ", chart)[:4] == ["brokers", "topics", "states", "requests"]
    first = [float(x) for x in re.findall(r'<rect x="([0-9.]+)"', chart)[:4]]
    assert first == sorted(first)


def test_the_course_of_an_incident_is_drawn_to_scale() -> None:
    chart = charts.incident(incident(1))
    assert chart is not None
    bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([0-9.]+)" y="12" width="([0-9.]+)"', chart)]
    assert [round(width / bars[-1][1], 2) for _, width in bars] == [0.02, 0.0, 0.0, 1.0]
    assert "+400.0 s" in chart or "+5.0 min" in chart
    assert charts.incident(incident(1, noticed_us=None, elected_us=None, led_again_us=None, in_sync_us=None)) is None


def test_an_incident_of_no_time_at_all_needs_no_axis() -> None:
    start = DAY_US + S
    moments = dict.fromkeys(("onset_us", "noticed_us", "elected_us", "led_again_us", "in_sync_us"), start)
    assert charts.incident(incident(1, **moments)) is None


def test_brokers_that_died_often_are_named_once_and_evidence_names_a_journal_once() -> None:
    often = cluster()
    often.life = [
        {**often.life[0], "broker": broker, "partitions_led": led} for broker, led in ((2, 5), (3, 9), (2, 7))
    ]
    often.turns = {"died": 3}
    phrase = "Brokers died 3 times: broker 2, 2 times, led up to 7, longest without a leader 11.0 s; broker 3 at"
    assert phrase in " ".join(words.story(often))
    assert summary.evidence(["1-5:7", "1-5:9", "2-6:9", "a.log:10:00", "a.log:10:01 x"]) == (
        "1-5:7, 9, 2-6:9, a.log:10:00, a.log:10:01 x"
    )


def test_nothing_to_draw_is_no_figure() -> None:
    drawn = (charts.phases, charts.percentiles, charts.churn, charts.imbalance)
    assert [draw(nothing()) for draw in drawn] == [None] * 4
    assert charts.timeline(nothing(), {}) is None
