"""Both controllers, started once for all scenarios; the rules' ledger, shown at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.cluster.java import JavaMissingError, find_java
from aiocontroller.cluster.real_kafka import kafka_missing
from aiocontroller.net.real import real_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.conftest import DIFFERENTIAL_LEDGER, create_znode
from tests.differential.agreement import Ledger
from tests.differential.report import of_a_run
from tests.differential.stage import Stage
from tests.differential.subjects import KafkasOwn, Ours
from tests.recording_broker import SERVED


class Pair:
    """The two stages, and a number for each scenario that is played on them."""

    def __init__(self, kafka: Stage, ours: Stage, ledger: Ledger) -> None:
        self.kafka = kafka
        self.ours = ours
        self.ledger = ledger
        self.played = 0


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest) -> Ledger:
    found = Ledger()
    request.config.stash[DIFFERENTIAL_LEDGER] = found
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pair(tmp_path_factory: pytest.TempPathFactory, ledger: Ledger) -> AsyncIterator[Pair]:
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
    stages = []
    for kind in (KafkasOwn, Ours):
        create_znode(zookeeper.port, f"/{kind.name}")
        connect = f"{zookeeper.address}/{kind.name}"
        stages.append(Stage(real_world(), connect, kind(connect, folder)))
    try:
        await asyncio.gather(*(stage.start() for stage in stages))
        kafka, ours = stages
        yield Pair(kafka, ours, ledger)
    finally:
        for stage in stages:
            await stage.stop()
        zookeeper.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ledger = config.stash.get(DIFFERENTIAL_LEDGER, None)
    if ledger is not None and ledger.scenarios:
        terminalreporter.section("Kafka's own controller against ours")
        terminalreporter.write_line(of_a_run(ledger))
