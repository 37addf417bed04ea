"""The stories of the storm of power losses, what it does to a log, and its verdict."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from aiocontroller.lab.storms.kafka import KAFKAS, OURS
from aiocontroller.lab.storms.power_loss import (
    AT_ONCE,
    KRAFT,
    LONGEST_CUT,
    Report,
    Trial,
    cut_off,
    played,
    show,
    stories,
)

BROKERS = (1, 2, 3)


@pytest.mark.parametrize("trials", [1, AT_ONCE, AT_ONCE + 1, 40])
def test_a_seed_tells_the_same_stories_with_so_many_trials(trials: int) -> None:
    made = stories(7, trials, BROKERS)
    assert made == stories(7, trials, BROKERS)
    assert sum(len(story.partitions) for story in made) == trials
    for story in made:
        assert sorted(story.order) == list(BROKERS)
        for planned in story.partitions:
            assert sorted(planned.replicas) == list(BROKERS)
            assert 0 < planned.cut <= LONGEST_CUT
    assert stories(7, 40, BROKERS) != stories(8, 40, BROKERS)


def test_the_end_of_the_last_segment_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "t-0"
    log.mkdir(parents=True)
    for name in ("00000000000000000000.log", "00000000000000000100.log"):
        (log / name).write_bytes(bytes(1000))
    cut_off(cast(Any, SimpleNamespace(data_dir=tmp_path)), "t-0", 0.25)
    assert [file.stat().st_size for file in sorted(log.iterdir())] == [1000, 750]


@pytest.mark.parametrize(
    "trials, unfinished, ok",
    [
        ([Trial(OURS, (1, 2, 3), 500, 2, 0), Trial(KAFKAS, (1, 2, 3), 500, 3, 120)], "", True),
        ([Trial(OURS, (1, 2, 3), 500, 2, 0), Trial(KRAFT, (1, 2, 3), 500, 3, 90)], "", True),
        ([Trial(OURS, (1, 2, 3), 500, 2, 1)], "", False),
        ([Trial(OURS, (1, 2, 3), 500, 2, 0)], "not within 120 s", False),
    ],
)
def test_an_acknowledged_record_lost_is_a_violation(trials: list[Trial], unfinished: str, ok: bool) -> None:
    report = Report(1, "3.9.1", trials, unfinished)
    assert report.ok is ok
    shown = io.StringIO()
    show(report, Console(file=shown, width=120))
    assert all(trial.controller in shown.getvalue() for trial in trials)


def test_a_release_is_played_under_the_controllers_that_it_has() -> None:
    assert played("3.9.1") == played("3.3.2") == [OURS, KAFKAS, KRAFT]
    assert played("3.2.3") == played("2.8.2") == [OURS, KAFKAS]
    assert played("3.9.1", (KRAFT, OURS)) == [OURS, KRAFT]
    with pytest.raises(ValueError, match=r"found 'kraft', expected one of aiocontroller, kafka with Kafka 3\.0\.2"):
        played("3.0.2", (KRAFT,))
