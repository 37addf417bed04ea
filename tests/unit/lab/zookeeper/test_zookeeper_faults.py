"""Schedules are a function of their seed."""

from __future__ import annotations

import os
import subprocess
import sys

from aiocontroller.lab.zookeeper.zookeeper_faults import (
    LEADER_KILLED,
    SILENCE_WITHIN_S,
    SILENT,
    WEIGHTS,
    Schedule,
    draw_schedule,
)


def faults_of(schedule: Schedule) -> list[str]:
    return [fault.kind for segment in schedule.segments for fault in segment]


def test_the_same_seed_draws_the_same_schedule_under_any_hash_seed() -> None:
    program = (
        "import aiocontroller.lab.zookeeper.zookeeper_faults as f; print(f.draw_schedule(7, 60, ensemble=True).digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    ]
    assert digests == [draw_schedule(7, 60, ensemble=True).digest] * 2
    assert draw_schedule(8, 60, ensemble=True).digest not in digests


def test_every_kind_of_fault_is_drawn_and_falls_into_its_segment() -> None:
    schedule = draw_schedule(3, 120, ensemble=True)
    assert {*faults_of(schedule)} == {*WEIGHTS, *SILENT, LEADER_KILLED}
    assert sum(schedule.lengths_s) == 120
    for segment, length_s in zip(schedule.segments, schedule.lengths_s, strict=True):
        assert list(segment) == sorted(segment)
        assert all(0 <= fault.at_s <= length_s for fault in segment)
        silent = [fault for fault in segment if fault.kind in SILENT]
        assert len({fault.side for fault in silent}) == len(silent)
        assert all(fault.at_s <= SILENCE_WITHIN_S for fault in silent)


def test_only_an_ensemble_has_a_leader_to_kill() -> None:
    assert LEADER_KILLED not in faults_of(draw_schedule(3, 120))
    assert faults_of(draw_schedule(3, 120, ensemble=True)).count(LEADER_KILLED) == 20
