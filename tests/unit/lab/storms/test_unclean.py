"""The stories of the storm of unclean elections, and its verdict."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from aiocontroller.lab.storms.kafka import KAFKAS, OURS
from aiocontroller.lab.storms.unclean import AT_ONCE, Report, Trial, show, stories

BROKERS = (1, 2, 3)


@pytest.mark.parametrize("trials", [1, AT_ONCE, AT_ONCE + 1, 50])
def test_a_seed_tells_the_same_stories_with_so_many_trials(trials: int) -> None:
    made = stories(7, trials, BROKERS)
    assert made == stories(7, trials, BROKERS)
    assert sum(len(story.partitions) for story in made) == trials
    for story in made:
        assert sorted(story.deaths) == list(BROKERS)
        for replicas, written in story.partitions:
            assert sorted(replicas) == list(BROKERS)
            assert len(written) == len(BROKERS)


def test_in_half_of_the_trials_the_shortest_log_is_that_of_the_first_replica() -> None:
    partitions = [(story.deaths, replicas) for story in stories(7, 50, BROKERS) for replicas, _ in story.partitions]
    assert all(deaths[0] == replicas[0] for deaths, replicas in partitions[1::2])
    assert stories(7, 50, BROKERS) != stories(8, 50, BROKERS)


def trial(controller: str, lost: int) -> Trial:
    return Trial(controller, (1, 2, 3), (1, 2, 3), {1: 100, 2: 250, 3: 450}, 2, lost)


@pytest.mark.parametrize(
    "trials, unfinished, ok",
    [
        ([trial(OURS, 200), trial(KAFKAS, 350)], "", True),
        ([trial(OURS, 350), trial(KAFKAS, 200)], "", False),
        ([trial(OURS, 200)], "not within 120 s", False),
    ],
)
def test_losing_more_than_the_logs_that_are_left_make_necessary_is_a_violation(
    trials: list[Trial], unfinished: str, ok: bool
) -> None:
    report = Report(1, "3.9.1", trials, unfinished)
    assert trials[0].least == 200
    assert report.ok is ok
    shown = io.StringIO()
    show(report, Console(file=shown, width=120))
    assert f"{trials[0].lost}" in shown.getvalue()
