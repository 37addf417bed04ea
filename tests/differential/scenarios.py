"""The scenarios that have a name: those of ``scenarios.txt``, and one that every release takes part in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.scenarios.fleet import Version, knows
from aiocontroller.lab.scenarios.plan import Plan
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.scenarios.verbs import verb_of
from tests.differential.observed_cluster import BROKERS, Scenario
from tests.differential.steps import step
from tests.differential.subjects import OLDER_PROTOCOLS, protocol_of, variant_with

FILE = Path(__file__).with_name("scenarios.txt")


def scenario(name: str, text: str) -> Scenario:
    """A scenario from the lines of a scenario file.

    Of ``cluster`` it takes the brokers' releases, their protocol and their settings; there are always five brokers.
    """
    plan = parse_scenario(text, name)
    versions = [Version(release, plan.protocol) for release in plan.releases.split(",") if release]
    steps = [step(" ".join((verb_of(each.kind), *each.arguments))) for each in plan.steps]
    return Scenario(name, steps, _variant(plan), versions)


def _variant(plan: Plan) -> str:
    return variant_with(dict(plan.settings), plan.protocol)


def _named() -> Iterator[Scenario]:
    """The blocks of the file, each with its name behind ``#`` above it."""
    for block in FILE.read_text(encoding="utf-8").strip().split("\n\n"):
        name, _, lines = block.partition("\n")
        yield scenario(name.removeprefix("# "), lines)


SHARED = [
    scenario(path.stem, path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parents[1] / "scenarios" / "maintenance.txt",)
]
"""Files of ``tests/scenarios``, which the simulation plays and transcripts, too."""
NAMED = [*_named(), *SHARED]


def in_all_releases(variant: str) -> Scenario:
    """Everything that brokers are sent, to those of the oldest releases that know the controllers' protocol; two of
    them are rolled."""
    protocol = protocol_of(variant)
    releases = [release for release in GENERATIONS if knows(release, protocol)]
    versions = [Version(releases[n % len(releases)], protocol) for n in range(len(BROKERS))]
    newest = f"release={releases[-1]} protocol={protocol}"
    lines = f"""
        request-topics a 1,2,3 2,3,1 3,1,2 4,5,1
        add-partitions a 2,3
        reassign a-0 4,5
        alter-partition leader a-0 isr=1,2,3,4
        cancel-reassignment a-0
        reassign a-3 2,1
        alter-partition leader a-3 isr=live
        kill-broker 1
        start-broker 1 {newest}
        alter-partition leader a-0 isr=live
        alter-partition leader a-1 isr=live
        elect-preferred a-0
        controlled-shutdown 2
        bounce-broker 2 {newest}
        allocate-producer-ids 1
        delete-controller-znode
        request-deletion a
        create-topic b 1,2 5,4
        fail-log-dir 1 b-0
    """
    name = f"what brokers of all releases are sent, {variant or 'the newest protocol'}"
    return Scenario(name, [step(line) for line in lines.strip().splitlines()], variant, versions)


IN_ALL_RELEASES = {variant: in_all_releases(variant) for variant in ["", *OLDER_PROTOCOLS]}
