"""The hour that local times skip: what all logs are silent for, exactly, and only where some zone skips it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.lost_hours import _skips, lost_hours, zone_that_skips
from aiocontroller.analytics.small.session import SmallSession

COLUMNS = "ts long, node int, cluster string, file string"


def us(moment: str) -> int:
    return int(datetime.fromisoformat(f"{moment}+00:00").timestamp() * 1_000_000)


@pytest.fixture
def small() -> Iterator[Any]:
    with computing_by(DUCKDB):
        yield SmallSession()


def found(
    small: Any, *moments: str, zoneless: tuple[str, ...] = ("a.log",), file: str = "a.log"
) -> list[tuple[str, int]]:
    rows = [(us(moment), 1, "c", file) for moment in moments]
    return [(row[0], row[2]) for row in lost_hours(small.createDataFrame(rows, COLUMNS), zoneless)]


BEFORE, AFTER = "2026-03-29 01:59:30", "2026-03-29 03:00:20"


def test_the_hour_is_found_where_all_logs_are_silent_for_it(small: Any) -> None:
    assert found(small, BEFORE, AFTER) == [("c", us("2026-03-29 02:00:00"))]


@pytest.mark.parametrize(
    "moments",
    [
        (BEFORE, "2026-03-29 02:30:00", AFTER),  # a log goes on
        ("2026-03-29 01:50:00", AFTER),  # it was silent before
        (BEFORE, "2026-03-29 03:10:00"),  # and after
        (BEFORE, "2026-03-29 04:00:20"),  # for two hours
        ("2026-03-31 14:59:30", "2026-03-31 16:00:20"),  # when no zone skips an hour
    ],
)
def test_another_silence_is_none(small: Any, moments: tuple[str, ...]) -> None:
    assert found(small, *moments) == []


def test_logs_with_a_zone_skip_nothing(small: Any) -> None:
    assert found(small, BEFORE, AFTER, zoneless=()) == []
    assert found(small, BEFORE, AFTER, file="with-a-zone.log") == []


def test_the_silences_of_two_clusters_are_not_one(small: Any) -> None:
    rows = [(us(BEFORE), 1, "a", "a.log"), (us(AFTER), 1, "b", "a.log")]
    assert lost_hours(small.createDataFrame(rows, COLUMNS), ["a.log"]) == []


@pytest.mark.parametrize(
    "moment, zone",
    [
        ("2026-03-29 02:00:00", "Europe/Berlin"),
        ("2026-03-29 01:00:00", "Europe/London"),
        ("2026-03-08 02:00:00", "America/New_York"),
        ("2026-10-04 02:00:00", "Australia/Sydney"),
        ("2026-03-29 03:00:00", "any"),  # Athens, for example
        ("2026-10-25 02:00:00", None),  # comes twice
        ("2026-05-12 02:00:00", None),
    ],
)
def test_a_zone_that_skips_the_hour_is_named(moment: str, zone: str | None) -> None:
    named = zone_that_skips(us(moment))
    assert named is not None if zone == "any" else named == zone


def test_a_zone_that_skips_half_an_hour_does_not_count() -> None:
    local = datetime.fromisoformat("2026-10-04 02:00:00")
    assert _skips(local, "Australia/Sydney")
    assert not _skips(local, "Australia/Lord_Howe")
