"""An interrupted campaign: nothing is lost, and it goes on where it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.limits import SMALL, draw_limits, in_force
from aiocontroller.lab.simulation.campaign import Stop, run_seeds
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.results import Results, merge
from aiocontroller.zookeeper import writes

WAIT_S = 300.0


def report(seed: int, *violations: str) -> SimulationReport:
    return SimulationReport(
        seed, list(violations), 1.0, 2, 3, 4, 5, {"wait": 1}, {"event/BrokerChange/done/-": 1}, "digest"
    )


def kept(file: Path, first: int, *reports: SimulationReport) -> Path:
    with Results(file, first, 3) as results:
        for each in reports:
            results.add(each)
    return file


def test_results_of_several_machines_are_merged(tmp_path: Path) -> None:
    one = kept(tmp_path / "one", 10, report(12), report(10, "I3 t-0: wrong"))
    other = kept(tmp_path / "other", 12, report(12), report(14))
    merged = merge([one, other])
    assert merged.seeds == 5
    assert [each.seed for each in merged.reports] == [10, 12, 14]
    summary, coverage = run_seeds((), 1, earlier=merged.reports)
    assert (summary.seeds, summary.failures) == (3, {"10": ["I3 t-0: wrong"]})
    assert coverage.tuples() == 1


def test_results_that_contradict_each_other_are_not_merged(tmp_path: Path) -> None:
    one, other = kept(tmp_path / "one", 10, report(11)), kept(tmp_path / "other", 11, report(11, "I3 t-0: wrong"))
    with pytest.raises(BadInputError, match="seed 11"):
        merge([one, other])
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(BadInputError, match="no whole line"):
        merge([tmp_path / "empty"])


def test_results_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "results"
    with Results(file, 10, 3) as first:
        assert first.missing() == [10, 11, 12]
        first.add(report(11, "I3 t-0: wrong"))
        assert file.read_bytes().count(b"\n") == 2, "each result is written as it arrives"
    with Results(file, 1, None) as again:
        assert (again.campaign.first, again.campaign.seeds, again.missing()) == (10, 3, [10, 12])
        assert list(again.reports) == [report(11, "I3 t-0: wrong")]
        again.add(report(10))
    with Results(file, 10, 5, asked=True) as more:
        assert more.missing() == [12, 13, 14]


def test_a_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "results"
    with Results(file, 1, 2) as first:
        first.add(report(1))
    file.write_bytes(file.read_bytes() + b'{"seed":2,"viol')
    with Results(file, 1, None) as again:
        assert again.missing() == [2]
        again.add(report(2))
    with Results(file, 1, None) as whole:
        assert whole.missing() == []


@pytest.mark.parametrize("content", [b"something\n", b'{"seed":1}\n', b'{"first":1,"seeds":2}\nsomething\n'])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "results"
    file.write_bytes(content)
    with pytest.raises(BadInputError):
        Results(file, 1, None)
    assert file.read_bytes() == content


def test_results_of_other_seeds_are_left_alone(tmp_path: Path) -> None:
    with Results(tmp_path / "results", 10, 3):
        pass
    with pytest.raises(BadInputError, match="found results from seed 10 on, expected 1"):
        Results(tmp_path / "results", 1, 3, asked=True)


def test_a_campaign_of_restarts_has_its_seeds_only(tmp_path: Path) -> None:
    file = tmp_path / "results"
    with Results(file, 2, 3, restarts=True) as results:
        assert results.missing() == [13, 25, 37]
        results.add(report(25))
    with Results(file, 1, None, restarts=True) as again:
        assert again.missing() == [13, 37]
    assert merge([file]).seeds == 3
    with pytest.raises(BadInputError, match="found results with --restarts, expected them without it"):
        Results(file, 13, 3)
    with Results(tmp_path / "others", 13, 3):
        pass
    with pytest.raises(BadInputError, match="found results without --restarts, expected them with it"):
        Results(tmp_path / "others", 13, 3, restarts=True)


def test_a_campaign_without_a_file_keeps_nothing() -> None:
    with Results(None, 1, None) as results:
        results.add(report(1))
        assert (results.campaign.seeds, results.missing()[-1]) == (100, 100)


def test_earlier_results_count() -> None:
    summary, coverage = run_seeds([], 1, earlier=[report(1), report(2, "I3 t-0: wrong")])
    assert (summary.seeds, summary.seeds_now, summary.failures) == (2, 0, {"2": ["I3 t-0: wrong"]})
    assert coverage.tuples() == 1


def test_no_seed_begins_after_the_deadline() -> None:
    assert run_seeds([1, 2], 1, stop=Stop(0.0))[0].seeds == 0
    assert run_seeds([1], 1, stop=Stop(60.0))[0].seeds == 1


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_a_campaign_with_its_summary(tmp_path: Path, number: int, code: int) -> None:
    file = tmp_path / "results"
    command = [sys.executable, "-m", "aiocontroller", "simulate", "--jobs", "2", "--json", "--results", str(file)]
    with subprocess.Popen(
        [*command, "--seeds", "100000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        deadline_s = time.monotonic() + WAIT_S
        while not file.exists() or file.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        os.kill(process.pid, number)
        out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == code
    result = json.loads(out)
    done = file.read_bytes().count(b"\n") - 1
    assert result["seeds"] == done >= 2
    assert result["seeds_left"] == 100_000 - done
    with Results(file, 1, None) as results:
        assert len(results.missing()) == 100_000 - done


# -- small limits ------------------------------------------------------------------------------------------------------


def test_limits_hold_inside_the_block_only() -> None:
    before = writes.MAX_OPS
    with in_force([("zookeeper.writes.MAX_OPS", "2")]):
        assert writes.MAX_OPS == 2
    assert before == writes.MAX_OPS == 500
    with pytest.raises(KeyError), in_force([("zookeeper.writes.MAX_OPS", "2"), ("zookeeper.writes.NONE", "2")]):
        pass
    assert before == writes.MAX_OPS


def test_every_limit_is_one_of_the_program() -> None:
    with in_force((name, str(values[0])) for name, values in SMALL.items()):
        pass


def test_limits_are_drawn_from_the_seed() -> None:
    drawn = [draw_limits(seed) for seed in range(100)]
    assert drawn == [draw_limits(seed) for seed in range(100)]
    assert 30 < sum(not limits for limits in drawn) < 70
    assert {name for limits in drawn for name, _ in limits} == set(SMALL)
