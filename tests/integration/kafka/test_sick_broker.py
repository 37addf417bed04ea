"""A real broker gets a slow disk, or hardly any processor time, under load: the others do not wait for it for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiocontroller.journal.records import Record
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, RealKafkaCluster, archive_classes, kafka_missing
from aiocontroller.lab.cluster.slowness import Slowness, compiler_missing
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster, cluster_on, make_slowable
from aiocontroller.lab.kafka.view import whole
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, released, take_over, under_load
from tests.integration.kafka.test_early_detection import records

log = logging.getLogger(__name__)

VERSION = "3.9.1"
SICK = 2
SETTINGS = {
    "zookeeper.session.timeout.ms": "18000",
    "replica.lag.time.max.ms": "30000",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
}
DELAY_MS = 2000
JUDGED_WITHIN_S = 120
FLOWS_AFTER_S, FLOWS_FOR_S, LONGEST_GAP_S = 12, 15, 6
"""On a busy machine.  Without treatment, producers wait for half a minute or more, as long as the disk is slow."""

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(400),
]


class SickCluster:
    def __init__(self, folder: Path) -> None:
        archive_classes(VERSION)
        self.folder = folder
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        self.brokers = RealKafkaCluster(3, "", folder, version=VERSION, overrides=SETTINGS).brokers
        make_slowable(self.brokers.values(), folder)

    def start(self) -> None:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.zookeeper = self.zookeeper.address
            broker.start()

    @property
    def patient(self) -> RealKafkaBroker:
        return self.brokers[SICK]

    @property
    def slowness(self) -> Slowness:
        found = self.patient.slowness
        assert found is not None
        return found

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()


@pytest.fixture(scope="module")
def cluster(kafka_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickCluster]:
    if kafka_version != VERSION:
        pytest.skip(f"measured on {VERSION} only")
    if missing := kafka_missing(VERSION):
        pytest.skip(missing)
    if missing := compiler_missing():
        pytest.skip(missing)
    made = SickCluster(tmp_path_factory.mktemp("sick"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@asynccontextmanager
async def played(cluster: SickCluster, folder: Path, mode: str) -> AsyncIterator[PlayedCluster]:
    """Run aiocontroller in this mode, and put the cluster under load."""
    properties = {"aiocontroller.sickness.mode": mode, "aiocontroller.sickness.healthy.ms": "30000"}
    async with cluster_on(
        cluster.zookeeper.address, cluster.brokers, folder, session_ms=6000, properties=properties
    ) as stage:
        await stage.heal()
        try:
            await take_over(stage)
            await under_load(stage, KafkaCluster(VERSION, cluster.zookeeper, None, cluster.folder))  # type: ignore[arg-type]
            yield stage
        finally:
            cluster.slowness.heal()
            cluster.patient.resume()
            await stage.heal()
            await released(stage)


def verdicts(folder: Path) -> list[Record]:
    return [record for record in records(folder) if record.kind == "sickness"]


async def happens(folder: Path, event: str) -> None:
    async def happened() -> bool:
        assert {r.broker for r in verdicts(folder)} <= {SICK, None}, "a healthy broker was judged"
        return any(r.event == event for r in verdicts(folder))

    await until(happened, f"{event} is recorded", JUDGED_WITHIN_S)


@pytest.mark.slow_kafka
async def test_a_slow_disk_holds_nobody_back_for_long(cluster: SickCluster, tmp_path: Path) -> None:
    async with played(cluster, tmp_path, "act") as stage:
        await asyncio.sleep(5)  # only a broker with traffic is found
        assert not verdicts(tmp_path), "a healthy broker was judged"
        cluster.slowness.slow_disk(DELAY_MS)
        began_s = time.time()
        await happens(tmp_path, "relieved")
        relieved_us = now_us()
        await happens(tmp_path, "unlisted")
        view = await stage.view()
        assert all(seen.leader != SICK and SICK not in seen.isr for seen in view.values())
        flows_us = relieved_us + FLOWS_AFTER_S * 1_000_000
        await asyncio.sleep(FLOWS_AFTER_S + FLOWS_FOR_S - (now_us() - relieved_us) / 1e6)
        others = {key: replicas for key, replicas in stage.made().items() if replicas[0] != SICK}
        gaps_us = stage.load.longest_gaps_us(flows_us, now_us())
        log.info("longest gaps: %s", {key: f"{us / 1e6:.2f} s" for key, us in gaps_us.items()})
        assert max(gaps_us[key] for key in others) < LONGEST_GAP_S * 1_000_000
        [verdict] = [r for r in verdicts(tmp_path) if r.event == "sick"]
        log.info("judged %s after %.2f s: %s", verdict.state, verdict.ts / 1e6 - began_s, verdict.detail)
        assert verdict.state in ("disk", "network in")
        cluster.slowness.heal()
        await happens(tmp_path, "taken back")
        await stage.until(whole, "it is in all ISRs again")
        await stage.load.settled()
        assert await check_nothing_lost(stage)


async def test_advice_changes_nothing(cluster: SickCluster, tmp_path: Path) -> None:
    async with played(cluster, tmp_path, "advise") as stage:
        await asyncio.sleep(5)
        cluster.slowness.slow_disk(DELAY_MS)
        await happens(tmp_path, "sick")
        view = await stage.view()
        assert {key: seen.leader for key, seen in view.items()} == {k: made[0] for k, made in stage.made().items()}
        cluster.slowness.heal()
        await happens(tmp_path, "well again")
        assert {r.event for r in verdicts(tmp_path)} == {"sick", "well again"}
        await stage.load.settled()
        assert await check_nothing_lost(stage)


async def test_a_broker_that_hardly_runs_is_found_by_its_answers(cluster: SickCluster, tmp_path: Path) -> None:
    """It is suspended for nine tenths of the time."""
    async with played(cluster, tmp_path, "act") as stage:
        await asyncio.sleep(5)

        async def starve() -> None:
            while True:
                cluster.patient.suspend()
                await asyncio.sleep(0.45)
                cluster.patient.resume()
                await asyncio.sleep(0.05)

        starving = asyncio.ensure_future(starve())
        try:
            await happens(tmp_path, "relieved")
        finally:
            starving.cancel()
            cluster.patient.resume()
        await happens(tmp_path, "taken back")
        await stage.until(whole, "it is in all ISRs again")
        await stage.load.settled()
        assert await check_nothing_lost(stage)
