"""Times that jump within a log, or in all logs at once: what is known stays known, and the rest is named."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.report import write_report
from aiocontroller.analytics.summary import sections, summarise
from tests.integration.analytics.test_missing_records import as_recorded, unpacked, whole_of

SUMMER = datetime.fromisoformat("2026-03-29 01:50:00") - datetime.fromisoformat("2026-11-23 02:00:00")
SKIPPED_US = int(datetime.fromisoformat("2026-03-29 02:30:00+00:00").timestamp() * 1e6)
"""Within the hour."""


def parts_in_another_order(to: Path) -> None:
    """``cat state-change.log*``: the newest first."""
    unpacked(to)
    log = to / "broker-2" / "state-change.log"
    lines = log.read_text().splitlines(keepends=True)
    half = next(n for n, line in enumerate(lines) if line[12:20] > "02:09:00")
    log.write_text("".join([*lines[half:], *lines[:half]]))


def summer_time_begins(to: Path) -> None:
    """At 02:00, where nobody gave the zone."""
    unpacked(to)
    for log in to.rglob("*.log"):
        lines = [line for line in log.read_text().splitlines(keepends=True) if line.startswith("[20")]
        moments = [datetime.fromisoformat(line[1:20]) + SUMMER for line in lines]
        later = [each + timedelta(hours=each.hour >= 2) for each in moments]
        log.write_text("".join(f"[{moment}{line[20:]}" for moment, line in zip(later, lines, strict=True)))


@pytest.fixture(scope="module")
def analyzed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("times")
    cases = (as_recorded, parts_in_another_order, summer_time_begins)
    for case in cases:
        (folder / "in" / case.__name__).mkdir(parents=True)
        case(folder / "in" / case.__name__)
    entries = [{"glob": f"{case.__name__}/*", "cluster": case.__name__} for case in cases]
    batch.run(spark, [str(folder / "in")], str(folder / "out"), manifest=Manifest(entries))
    windows = [row.asDict() for row in spark.read.parquet(f"{folder}/out/gold/windows").collect()]
    write_report(spark, str(folder / "out"), folder / "page.html")
    more = {"all_windows": windows, "page": (folder / "page.html").read_text()}
    return {**summarise(spark, str(folder / "out")), **more}


def clocks_of(analyzed: dict[str, Any], cluster: str) -> tuple[dict[str, Any], list[str]]:
    availability, rows = whole_of(analyzed, cluster)
    return availability, [row["words"] for row in rows if row["what"] == "clock"]


def test_parts_of_a_log_in_another_order_are_named_and_change_nothing(analyzed: dict[str, Any]) -> None:
    whole, none = clocks_of(analyzed, as_recorded.__name__)
    availability, (named,) = clocks_of(analyzed, parts_in_another_order.__name__)
    assert not none
    assert re.match(r"the times of .*broker-2/state-change.log go back by 0:0\d:\d\d, to before its earlier", named)
    assert availability == {**whole, "cluster": availability["cluster"], "name": availability["name"]}


def test_availability_is_unknown_where_an_hour_may_have_been_skipped(analyzed: dict[str, Any]) -> None:
    """The outage in between took an hour more, and availability was called known."""
    availability, (named,) = clocks_of(analyzed, summer_time_begins.__name__)
    assert "silent for the hour from 2026-03-29 02:00, which no clock shows in Europe/Berlin, for example" in named
    assert (availability["availability"], availability["onset_availability"]) == (None, None)


def test_what_lasts_across_a_skipped_hour_takes_an_unknown_time(analyzed: dict[str, Any]) -> None:
    """It took an hour more than the same outages without the hour."""
    whole, skipping = (
        sorted(row["duration_us"] or 0 for row in analyzed["all_windows"] if row["cluster"] == case.__name__)
        for case in (as_recorded, summer_time_begins)
    )
    rows = [row for row in analyzed["all_windows"] if row["cluster"] == summer_time_begins.__name__]
    across = [row for row in rows if row["start_us"] < SKIPPED_US <= row["end_us"]]
    assert {row["kind"] for row in across} == {"dead_leader", "no_leader", "under_replicated"} - {"dead_leader"}
    assert [row for row in rows if row["duration_us"] is None] == across
    known = [us for us in skipping if us]
    assert len(skipping) == len(whole)
    assert not Counter(known) - Counter(whole)


def test_the_report_says_that_it_is_unknown_and_why(analyzed: dict[str, Any]) -> None:
    incidents = [row for row in analyzed["incidents"] if row["cluster"] == summer_time_begins.__name__]
    across = [row for row in incidents if row["onset_us"] < SKIPPED_US <= (row["led_again_us"] or 0)]
    assert across
    assert {(row["unavailable_us"], row["longest_us"]) for row in across} == {(None, None)}
    assert all(row["unavailable_us"] is not None for row in incidents if row not in across)
    first, *_ = [row for row in analyzed["longest_windows"] if row["cluster"] == summer_time_begins.__name__]
    assert first["duration_us"] is None
    shown = {title: rows for title, rows in pairwise(sections(analyzed)) if isinstance(title, str)}
    windows = shown["\nThe longest without a leader:"]
    assert isinstance(windows, tuple)
    assert windows[1][0][windows[0].index("for")] == "unknown"
    _, missing = clocks_of(analyzed, summer_time_begins.__name__)
    assert "how long anything lasted across it is unknown" in missing[0]
    table = next(part for part in sections(analyzed) if isinstance(part, tuple) and "led again" in part[0])
    led = [row[table[0].index("led again")] for row in table[1]]
    assert led.count("unknown") == len(across)
    in_sync = [row[table[0].index("in sync")] for row in table[1]]
    assert "unknown" in in_sync
    assert not any("1.0 h" in text or "60." in text for text in [*led, *in_sync])


def test_what_a_broker_left_without_a_leader_across_it_took_an_unknown_time(analyzed: dict[str, Any]) -> None:
    rows = [row for row in analyzed["brokers"] if row["cluster"] == summer_time_begins.__name__ and row["windows"]]
    before = [row for row in rows if 0 <= SKIPPED_US - row["ts_us"] < 2_000_000_000]
    assert None in [row["longest_window_us"] for row in before]
    assert None not in [row["longest_window_us"] for row in rows if row not in before]


def test_the_page_says_that_it_is_unknown(analyzed: dict[str, Any]) -> None:
    page = analyzed["page"]
    assert "unknown: it lasted across an hour that the logs&#39; clocks may have skipped" in page
    of_cluster = page[page.index(f'<h2 id="c0-name">Cluster {summer_time_begins.__name__}') :]
    worst = of_cluster[of_cluster.index('<div class="worst">') :].partition("</div>")[0]
    assert "without a leader, for an unknown time" in worst
    assert "1.0 h" not in page
