"""Every scenario is played on Kafka's own controller and on ours, and the two must agree (docs/differential.md).

pytest -m differential                                        the named scenarios and 200 random ones
pytest -m differential --differential-seeds 20 --seed 4711    20 random ones, from that seed on
pytest -m differential -k reassignment                        those whose name says so
"""

from __future__ import annotations

import asyncio

import pytest

from tests.differential.agreement import disagreements
from tests.differential.conftest import Pairs
from tests.differential.observed_cluster import Scenario
from tests.differential.random_scenarios import random_scenario
from tests.differential.report import side_by_side
from tests.differential.scenarios import IN_ALL_RELEASES, NAMED
from tests.differential.subjects import OursWarm

pytestmark = [
    pytest.mark.differential,
    pytest.mark.kafka,
    pytest.mark.timeout(240),  # the first of them starts three JVMs
    pytest.mark.asyncio(loop_scope="package"),
]


async def check(pairs: Pairs, scenario: Scenario) -> None:
    clusters = await pairs.of(scenario.variant)
    pairs.played += 1
    # All to the end, also where one fails: the next scenario must find no handler at work.
    played = await asyncio.gather(
        *(cluster.play(scenario, pairs.played) for cluster in clusters), return_exceptions=True
    )
    whole = []
    for cluster, moments in zip(clusters, played, strict=True):
        if isinstance(moments, BaseException):
            name = cluster.subject.name
            raise AssertionError(f"{scenario.name} could not be played to its end on {name}") from moments
        whole.append(moments)
    shown = []
    for cluster, ours in zip(clusters[1:], whole[1:], strict=True):
        found = disagreements(whole[0], ours, pairs.ledger, warm=isinstance(cluster.subject, OursWarm))
        if found:
            shown.append(f"{cluster.subject.name}: {side_by_side(scenario, found)}")
    if shown:
        pytest.fail("\n".join(shown), pytrace=False)


@pytest.mark.parametrize("scenario", NAMED, ids=lambda scenario: scenario.name)
async def test_named_scenario(pairs: Pairs, scenario: Scenario) -> None:
    await check(pairs, scenario)


async def test_every_release_by_every_protocol(pairs: Pairs, differential_variant: str) -> None:
    await check(pairs, IN_ALL_RELEASES[differential_variant])


async def test_random_scenario(pairs: Pairs, differential_seed: int) -> None:
    await check(pairs, random_scenario(differential_seed))
