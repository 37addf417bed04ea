"""A real broker is killed under load and replaced before its session expires, and may return before that, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.journal.records import Record, decode_record
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster, cluster_on
from aiocontroller.lab.kafka.view import led_by, moved_off
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, released, take_over, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

VICTIM = 2
EARLY = {
    "aiocontroller.early.broker.detection": "refused",
    "aiocontroller.early.fast.bounce.ms": "1000",
}


async def test_a_killed_broker_is_succeeded_before_its_session_expires(kafka: KafkaCluster, tmp_path: Path) -> None:
    """The order of records proves it: if its session had expired first, it would be dead before there was an alarm."""
    brokers = kafka.brokers.brokers
    async with cluster_on(kafka.zookeeper.address, brokers, tmp_path, session_ms=6000, properties=EARLY) as stage:
        await stage.heal()
        try:
            await take_over(stage)
            await under_load(stage, kafka)
            await kill(stage)
            await until(lambda: detected(tmp_path, "dead"), "the controller takes it for dead")
            await stage.load.settled()
            await stage.heal()
            assert detections(tmp_path) == ["suspected", "alarm", "registration removed", "dead", "added"]
            assert await check_nothing_lost(stage)
        finally:
            await stage.heal()
            await released(stage)


async def test_a_broker_that_hangs_is_ended_by_the_operators_command(kafka: KafkaCluster, tmp_path: Path) -> None:
    """Its process is suspended, so it keeps its connections until the command kills it."""
    brokers = kafka.brokers.brokers
    (tmp_path / f"pid-{VICTIM}").write_text(str(brokers[VICTIM].pid))
    fence = {
        "aiocontroller.early.broker.detection": "full",
        "aiocontroller.fence.command": f"sh -c 'kill -9 $(cat {tmp_path}/pid-{{broker}}) && echo done'",
    }
    async with cluster_on(kafka.zookeeper.address, brokers, tmp_path, session_ms=6000, properties=fence) as stage:
        await stage.heal()
        try:
            await take_over(stage)
            await under_load(stage, kafka)
            assert led_by(await stage.view(), VICTIM)
            stage.freeze(VICTIM)
            await until(lambda: fenced(tmp_path, "ended"), "the command has ended")
            assert fences(tmp_path) == [("begins", None), ("ended", 0)]
            assert detections(tmp_path)[:2] == ["suspected", "alarm"]
            stage.frozen.discard(VICTIM)  # it is gone
            await stage.load.settled()
            await stage.heal()
            assert await check_nothing_lost(stage)
        finally:
            await stage.heal()
            await released(stage)


def fences(folder: Path) -> list[tuple[str | None, int | None]]:
    return [(r.event, r.count) for r in records(folder) if r.kind == "fence"]


async def fenced(folder: Path, how: str) -> bool:
    return any(event == how for event, _ in fences(folder))


async def kill(stage: PlayedCluster) -> None:
    assert led_by(await stage.view(), VICTIM)
    stage.brokers[VICTIM].kill()
    await stage.until(lambda view: moved_off(view, frozenset((VICTIM,))), "everything has moved off it")


def records(folder: Path) -> list[Record]:
    files = sorted((folder / "aiocontroller" / "journal").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    return [decode_record(line) for line in lines if line.endswith(b"\n")]


def detections(folder: Path) -> list[str]:
    """Return the detections of the victim, in order."""
    about = [r for r in records(folder) if r.broker == VICTIM and r.kind in ("suspicion", "broker")]
    return [str(r.event if r.kind == "suspicion" else r.detail) for r in about]


async def detected(folder: Path, what: str) -> bool:
    return what in detections(folder)
