"""When a broker dies, few calls lie between the consumer's task and the rule that elects: a reader walks them all."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from aiocontroller.core import election
from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.virtual_cluster import begin, stage, until_leader, with_topic

MOST_FRAMES = 16
MOST_FILES = 7


def frames_to_here() -> list[tuple[str, str]]:
    """(file, function) of each frame of the program, from the task's coroutine to the caller's caller."""
    found = []
    frame = sys._getframe(2)
    while frame.f_code.co_name != "run" or not frame.f_code.co_filename.endswith("kafka_controller.py"):
        found.append((frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_qualname))
        assert frame.f_back is not None, "the rule runs in another task"
        frame = frame.f_back
    found.append(("kafka_controller.py", frame.f_code.co_qualname))
    return found[::-1]


@virtual_time
async def test_a_dead_broker_is_few_calls_away_from_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, seen = election.offline_partition_leader_election, list[list[tuple[str, str]]]()

    def watched(*args: Any) -> Any:
        seen.append([*frames_to_here(), ("election.py", rule.__qualname__)])
        return rule(*args)

    async with stage() as it:
        await begin(it, 3)
        await with_topic(it, [1, 2, 3], 1)
        monkeypatch.setattr(election, "offline_partition_leader_election", watched)
        await it.kill_broker(1)
        await until_leader(it, 2)
    assert seen
    for calls in seen:
        assert len(calls) <= MOST_FRAMES, calls
        assert len({file for file, _ in calls}) <= MOST_FILES, calls
