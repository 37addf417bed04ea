"""What Kafka's own controller did in each scenario, kept in a file: a mutant then needs to be played on our side only.

python -m tests.mutation.kafkas_moments FILE        plays all scenarios on real Kafka, which takes a minute or two
"""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.real_kafka import kafka_missing
from aiocontroller.lab.recording_brokers.recording_broker import SERVED
from aiocontroller.net.real import real_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests import differential
from tests.conftest import create_znode
from tests.differential.observed_cluster import Moment, ObservedCluster, Scenario
from tests.differential.random_scenarios import random_scenario
from tests.differential.scenarios import NAMED
from tests.differential.subjects import VARIANTS, KafkasOwn

SEEDS = range(1, 21)


def scenarios() -> list[Scenario]:
    return [*NAMED, *map(random_scenario, SEEDS)]


def edition() -> str:
    """Of the scenarios and of how they are played; what was kept of another is of no use."""
    folder = Path(differential.__file__).parent
    files = sorted((*folder.glob("*.py"), *folder.glob("*.txt")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def load(path: Path) -> dict[str, list[Moment]]:
    """Scenario -> what was seen after each step; empty where nothing is kept of this edition."""
    if not path.exists():
        return {}
    kept = pickle.loads(path.read_bytes())
    if kept["edition"] != edition():
        return {}
    by_name = {scenario.name: scenario for scenario in scenarios()}
    return {
        name: [Moment(step, **moment) for step, moment in zip(by_name[name].steps, moments, strict=True)]
        for name, moments in kept["moments"].items()
    }


async def record(path: Path) -> None:
    cold.preload([ApiKey(api) for api in SERVED])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        await zookeeper.start_async()
        try:
            moments: dict[str, list[dict[str, Any]]] = {}
            wanted = {scenario.variant for scenario in scenarios()}
            for variant in (name for name in VARIANTS if name in wanted):
                root = f"/kafka-{variant}".replace(" ", "-")
                create_znode(zookeeper.port, root)
                moments |= await _of_variant(variant, f"{zookeeper.address}{root}", folder / f"kafka {variant}")
        finally:
            zookeeper.stop()
    path.write_bytes(pickle.dumps({"edition": edition(), "moments": moments}))


async def _of_variant(variant: str, connect: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    stage = ObservedCluster(real_world(), connect, KafkasOwn(connect, folder, variant))
    try:
        await stage.start()
        wanted = [scenario for scenario in scenarios() if scenario.variant == variant]
        return {
            scenario.name: list(map(_plain, await stage.play(scenario, number)))
            for number, scenario in enumerate(wanted, 1)
        }
    finally:
        await stage.stop()


def _plain(moment: Moment) -> dict[str, Any]:
    """Without the step, which is a function."""
    return {name: getattr(moment, name) for name in msgspec.structs.asdict(moment) if name != "step"}


if __name__ == "__main__":
    missing = kafka_missing()
    if missing:
        sys.exit(missing)
    asyncio.run(record(Path(sys.argv[1])))
