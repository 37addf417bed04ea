"""The differential's scenarios on our controller alone, in this process, against what Kafka's own did.

For mutants: no JVM has to start for each, and which lines a scenario runs can be recorded.  Not collected by a plain
``pytest``, since ``tests/differential`` plays the same on both.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiocontroller.net.ports import World
from tests.differential.agreement import Ledger, disagreements
from tests.differential.observed_cluster import ObservedCluster, Scenario
from tests.differential.report import side_by_side
from tests.differential.subjects import OursHere
from tests.mutation.kafkas_moments import load, scenarios

KEPT = load(Path(os.environ["KAFKAS_MOMENTS"])) if "KAFKAS_MOMENTS" in os.environ else {}


@pytest.mark.parametrize("scenario", [s for s in scenarios() if s.name in KEPT], ids=lambda scenario: scenario.name)
async def test_scenario_as_kafka_played_it(world: World, zk_connect: str, scenario: Scenario) -> None:
    subject = OursHere(zk_connect, world, scenario.variant)
    stage = ObservedCluster(world, zk_connect, subject)
    try:
        await stage.start()
        found = disagreements(KEPT[scenario.name], await stage.play(scenario, 1), Ledger())
    finally:
        await stage.stop()
        await subject.ended()
    if found:
        pytest.fail(side_by_side(scenario, found), pytrace=False)
