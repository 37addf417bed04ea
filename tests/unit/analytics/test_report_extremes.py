"""Numbers that no clock or counter gives must not cost the page, nor must very many rows."""

from __future__ import annotations

import pytest

from aiocontroller.analytics.report.page import page
from aiocontroller.analytics.summary import moment
from tests.unit.analytics.report_content import DAY_US, HOUR_US, cluster, content, row


@pytest.mark.parametrize(
    "us, shown",
    [
        (0, "1970-01-01 00:00:00.000"),
        (1_790_000_000_123_000, "2026-09-21 14:13:20.123"),
        (2**63 - 1, "9999-12-31 23:59:59.999"),
        (-(2**63), "0001-01-01 00:00:00.000"),
    ],
)
def test_times_beyond_the_calendar_are_shown_as_its_ends(us: int, shown: str) -> None:
    assert moment(us) == shown


@pytest.mark.parametrize("to_us", [2**63 - 1, 4_000_000_000_000_000])
def test_a_span_of_ages_has_a_page_and_few_ticks(to_us: int) -> None:
    ages = cluster()
    ages.from_us, ages.to_us = -(2**40), to_us
    ages.bin_us = (to_us - ages.from_us) // 600
    assert len(page(content(clusters=[ages]))) < 200_000


@pytest.mark.parametrize("by_hour", [True, False])
def test_changes_of_leaders_of_a_month_or_of_thousands_of_brokers_stay_small(by_hour: bool) -> None:
    many = cluster()
    many.churn_by_hour = by_hour
    xs = [DAY_US + hour * HOUR_US for hour in range(3000)] if by_hour else range(3000)
    many.churn = [row(topic=f"topic-{topic}", x=x, changes=2) for topic in range(30) for x in xs]
    html = page(content(clusters=[many]))
    assert len(html) < 1_000_000
    assert "126 changes of leader" in html  # 63 neighbours in a cell
