"""The controllers, started once for all scenarios; the rules' ledger, shown at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiocontroller.java import JavaMissingError, find_java
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.real_kafka import kafka_missing
from aiocontroller.lab.recording_brokers.recording_broker import SERVED
from aiocontroller.net.real import real_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.conftest import DIFFERENTIAL_LEDGER, create_znode
from tests.differential.agreement import Ledger
from tests.differential.observed_cluster import ObservedCluster
from tests.differential.random_scenarios import variant_of
from tests.differential.report import of_a_run
from tests.differential.subjects import KafkasOwn, Ours, OursWarm


class Pairs:
    """The clusters of one variant at a time, and a number for each scenario that is played on them."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, folder: Path, ledger: Ledger) -> None:
        self.ledger = ledger
        self.played = 0
        self._zookeeper = zookeeper
        self._folder = folder
        self._variant: str | None = None
        self._clusters: list[ObservedCluster] = []

    async def of(self, variant: str) -> list[ObservedCluster]:
        """Kafka's, then each of ours, with these settings; those that were up with others are stopped."""
        if variant != self._variant:
            await self.stop()
            name = f"{variant}-{self.played}".replace(" ", "-")
            for kind in (KafkasOwn, Ours, OursWarm):
                create_znode(self._zookeeper.port, f"/{kind.name}-{name}")
                connect = f"{self._zookeeper.address}/{kind.name}-{name}"
                self._clusters.append(
                    ObservedCluster(real_world(), connect, kind(connect, self._folder / name, variant))
                )
            await asyncio.gather(*(cluster.start() for cluster in self._clusters))
            self._variant = variant
        return self._clusters

    async def stop(self) -> None:
        clusters, self._clusters, self._variant = self._clusters, [], None
        for cluster in clusters:
            await cluster.stop()


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest) -> Ledger:
    found = Ledger()
    request.config.stash[DIFFERENTIAL_LEDGER] = found
    return found


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def pairs(tmp_path_factory: pytest.TempPathFactory, ledger: Ledger) -> AsyncIterator[Pairs]:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    cold.preload([ApiKey(api) for api in SERVED])
    folder: Path = tmp_path_factory.mktemp("differential")
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
    await zookeeper.start_async()
    made = Pairs(zookeeper, folder, ledger)
    try:
        yield made
    finally:
        await made.stop()
        zookeeper.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Scenarios of one variant together: each variant has controllers of its own, which take a while to start."""
    places = [n for n, item in enumerate(items) if "pairs" in getattr(item, "fixturenames", ())]
    ordered = sorted((items[n] for n in places), key=_variant)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _variant(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    given: Mapping[str, Any] = item.callspec.params
    if "differential_seed" in given:
        return variant_of(given["differential_seed"])
    return str(given["differential_variant"] if "differential_variant" in given else given["scenario"].variant)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ledger = config.stash.get(DIFFERENTIAL_LEDGER, None)
    if ledger is not None and ledger.scenarios:
        terminalreporter.section("Kafka's own controller against ours")
        terminalreporter.write_line(of_a_run(ledger))
