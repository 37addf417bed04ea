"""The report's words, figures and page, from figures made by hand; no Spark needed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from aiocontroller.analytics import summary
from aiocontroller.analytics.report import figures, words
from aiocontroller.analytics.report.gather import Cluster, Content
from aiocontroller.analytics.report.page import page
from tests.unit.analytics.report_content import DAY_US, cluster, content, row


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

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def without_scripts(html: str) -> str:
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_the_page_says_what_happened_and_shows_the_evidence() -> None:
    html = without_scripts(page(content()))
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    text = " ".join("".join(parser.text).split())
    assert "Available 99.9875 %" in text or "Available 99.99 %" in text
    assert "The longest gap: orders<b>-7, 31.0 s" in text
    assert "and had not ended when the records did; cause: controller failover." in text
    assert "Brokers died once: broker 2 at" in text
    assert "led 400, longest gap 11.0 s" in text
    assert "1000001-1:88" in text
    assert "1 line could not be understood" in text
    assert '{"v":1,"seq":9' in text
    assert "times without a zone were taken as UTC70/server.log, 1/server.log" in text


def test_names_from_outside_are_text_and_never_markup() -> None:
    html = without_scripts(page(content()))
    assert "orders&lt;b&gt;-7" in html
    assert "orders<b>" not in html


def test_the_library_stands_in_the_page_once_and_nothing_is_fetched() -> None:
    html = page(content())
    assert html.count("plotly.js v") <= 2  # its banner; a second copy would double the page
    assert len(html) < 8_000_000
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=['\"]?https?:", html)


def test_a_quiet_cluster_has_a_page_without_empty_sections() -> None:
    html = without_scripts(page(content(clusters=[nothing()], quality=[], quarantine=[], quarantined=0, whole_files=4)))
    assert "none was ever seen without a leader" in html
    assert "every file is whole" in html
    for heading in ("The worst gaps", "Failovers", "Churn", "Violations of invariants"):
        assert f"<h3>{heading}" not in html


def test_no_record_at_all_is_said() -> None:
    empty = Content([], 0, [], [], 0, 0, 1, 1)
    assert "Nothing is known" in page(empty)


def test_several_clusters_each_have_their_section() -> None:
    html = page(content(clusters=[cluster("a", hours=1), cluster("b")], more_clusters=3))
    assert "<section id='c1'>" in html
    assert "5 clusters, the worst (a)" in html
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
    "share,told",
    [(1.0, "100 %"), (0.999999, "99.9999 %"), (0.99987, "99.99 %"), (0.5, "50.00 %"), (0.9999999, "99.99999 %")],
)
def test_percentages_have_the_digits_that_tell_them_from_whole(share: float, told: str) -> None:
    assert words.percent(share) == told


def test_figures_have_the_same_size_for_any_number_of_partitions() -> None:
    small, large = cluster(), cluster()
    large.partitions = 1_000_000
    large.without_leader = [n * 1000 for n in large.without_leader]
    drawn = [figures.timeline(one) for one in (small, large)]
    assert all(figure is not None and len(figure.data[0].x) == 600 for figure in drawn)


def test_phases_are_stacked_in_their_order() -> None:
    figure = figures.phases(cluster())
    assert figure is not None
    assert [bar.name for bar in figure.data] == ["brokers", "topics", "states", "requests"]
    assert list(figure.data[0].x) == [20.0, 40.0, 60.0]


def test_brokers_that_died_often_are_named_once_and_evidence_names_a_journal_once() -> None:
    often = cluster()
    often.life = [
        {**often.life[0], "broker": broker, "partitions_led": led} for broker, led in ((2, 5), (3, 9), (2, 7))
    ]
    assert "Brokers died 3 times: broker 2, 2 times, led up to 7, longest gap 11.0 s; broker 3 at" in " ".join(
        words.story(often)
    )
    assert summary.evidence(["1-5:7", "1-5:9", "2-6:9", "a.log:10:00", "a.log:10:01 x"]) == (
        "1-5:7, 9, 2-6:9, a.log:10:00, a.log:10:01 x"
    )


def test_nothing_to_draw_is_no_figure() -> None:
    drawn = (figures.phases, figures.percentiles, figures.churn, figures.imbalance)
    assert [draw(nothing()) for draw in drawn] == [None] * 4
