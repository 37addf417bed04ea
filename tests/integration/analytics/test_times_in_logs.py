"""Times that jump within a log, or in all logs at once: what is known stays known, and the rest is named."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.summary import summarise
from tests.integration.analytics.test_missing_records import as_recorded, unpacked, whole_of

SUMMER = datetime.fromisoformat("2026-03-29 01:50:00") - datetime.fromisoformat("2026-11-23 02:00:00")


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
    return summarise(spark, str(folder / "out"))


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
