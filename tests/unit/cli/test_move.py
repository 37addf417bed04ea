"""Rates that can be said, and what a person sees of a move."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aiocontroller.cli.move import _Rate, duration, move, progress_line
from aiocontroller.moves.progress import Progress


@pytest.mark.parametrize("text, rate", [("1", 1), ("50M", 50_000_000), ("7k", 7_000), ("2G", 2_000_000_000)])
def test_rates_are_bytes_a_second(text: str, rate: int) -> None:
    assert _Rate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "M", "1T", "1 M", "٣", "9" * 13, "999999999999G"])
def test_a_wrong_rate_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"found .*, expected bytes a second such as 50M"):
        _Rate().convert(text, None, None)


@pytest.mark.parametrize("seconds, text", [(0, "0 s"), (89, "89 s"), (720, "12 min"), (12_600, "3.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_progress_is_a_line() -> None:
    whole = Progress(12, 5, 183, 120_000_000, 1_000_000_000, 9.8e6, 90, 10_000_000, ())
    assert progress_line(whole) == (
        "12 moved, 5 moving, 183 waiting; 120 MB of 1.0 GB, 9.8 MB/s, 2 min left; throttle 10.0 MB/s"
    )
    held = Progress(0, 0, 3, 0, 0, 0.0, None, 0, ("brokers away: 3 (at most 0)",))
    assert progress_line(held) == "0 moved, 0 moving, 3 waiting; held: brokers away: 3 (at most 0)"


def test_stop_and_reverse_exclude_each_other(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    for arguments, said in (
        (["--stop", "--reverse"], "--stop and --reverse exclude each other"),
        (["--reverse", "--zookeeper", "127.0.0.1:1"], "no move by"),
        (["--stop", "--zookeeper", "127.0.0.1:1"], "no move by"),
    ):
        done = CliRunner().invoke(move, ["--plan", str(plan), *arguments])
        assert done.exit_code != 0
        assert said in done.output + str(done.exception)
