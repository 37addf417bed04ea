"""Real brokers that forbid deletion and rebalancing, and allow unclean elections: a controller outside obeys that."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.net.ports import World
from tests.integration.cli.program import aiocontroller
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]
POLICY = {
    "delete.topic.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "leader.imbalance.check.interval.seconds": "2",
    "unclean.leader.election.enable": "true",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "1500",
}
WATCHED_S = 10.0
"""Twice the time after which a controller first looks for leaders to move."""


@asynccontextmanager
async def brokers(zk_connect: str, folder: Path, version: str) -> AsyncIterator[RealKafkaCluster]:
    missing = kafka_missing(version)
    if missing:
        pytest.skip(missing)
    cluster = RealKafkaCluster(3, zk_connect, folder, version=version, overrides=POLICY)
    try:
        await cluster.start_async()
        yield cluster
    finally:
        cluster.kill()


@asynccontextmanager
async def controller(zk_connect: str, folder: Path, *options: str) -> AsyncIterator[None]:
    """Start a process that stands by."""
    folder.mkdir()
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", zk_connect, "--listen", "127.0.0.1:0"]
    child = Child("aiocontroller", [*command, "--http-port", "0", "--data", str(folder), *options], log=folder / "log")
    try:
        await child.wait_until_async((folder / "controller.json").exists, 60)
        yield
    finally:
        child.kill()


async def run_command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command in a thread, so that our own session keeps its heartbeats."""
    return await asyncio.to_thread(aiocontroller, *arguments, code=code)


async def led_by(cluster: Cluster, topic: str, leader: int, isr: set[int]) -> None:
    async def reached() -> bool:
        (state,) = await cluster.states(topic, 1)
        return state is not None and (state.leader, set(state.isr)) == (leader, isr)

    await until(reached, f"{topic} is led by {leader} with ISR {isr}", 60)


async def test_cluster_goes_on_as_its_brokers_are_configured(
    world: World, zk_connect: str, tmp_path: Path, kafka_version: str
) -> None:
    """Finding 7: leaders were moved, topics that must not be deleted could be, and a partition stayed offline until
    the role was given back."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    here, there = ("--data", str(ours)), ("--data", str(other))
    async with running(world, zk_connect) as cluster, brokers(zk_connect, tmp_path, kafka_version) as kafka:
        await cluster.create_topic("precious", {0: [1, 2]})
        await cluster.create_topic("spread", {0: [2, 3]})
        await led_by(cluster, "spread", 2, {2, 3})

        contradicting = ("--property", "delete.topic.enable=true", "--property", "num.partitions=8")
        async with controller(zk_connect, other, *contradicting):
            refused = await run_command("takeover", *there, code=1)
            assert [line.split() for line in refused.stdout.splitlines() if line] == [
                ["setting", "brokers", "ours"],
                ["delete.topic.enable", "false", "true"],
                ["num.partitions", "1", "8"],
            ]
            assert "(--keep-ours delete.topic.enable)" in refused.stderr
            found = json.loads((await run_command("takeover", "--json", *there, code=1)).stdout)["settings"]
            assert [(each["setting"], each["brokers"], each["ours"]) for each in found] == [
                ("delete.topic.enable", {"false": [1, 2, 3]}, "true"),
                ("num.partitions", {"1": [1, 2, 3]}, "8"),
            ]
            assert (await cluster.zk.get_controller(watch=False)).controller_id in (1, 2, 3)  # type: ignore[union-attr]

        async with controller(zk_connect, ours):
            taken = (await run_command("takeover", *here)).stdout
            rows = [tuple(line.split(None, 2)) for line in taken.splitlines()]
            for name in ("delete.topic.enable", "auto.leader.rebalance.enable", "unclean.leader.election.enable"):
                assert (name, POLICY[name], "brokers") in rows
            shown = (await run_command("settings", *here)).stdout
            assert ["delete.topic.enable", "false", "brokers", "false"] in [line.split() for line in shown.splitlines()]

            address = json.loads((ours / "controller.json").read_text())["listeners"][0].removeprefix("PLAINTEXT://")
            admin = AdminClient({"bootstrap.servers": address})
            with pytest.raises(KafkaException) as caught:
                await asyncio.to_thread(admin.delete_topics(["precious"], request_timeout=20)["precious"].result, 30)
            assert caught.value.args[0].name() == "TOPIC_DELETION_DISABLED"
            await cluster.client.create("/admin/delete_topics/precious", data=b"")
            await until(lambda: _gone(cluster, "/admin/delete_topics/precious"), "what asks for deletion is removed")
            assert await cluster.client.exists("/brokers/topics/precious")

            kafka.brokers[1].kill()
            await led_by(cluster, "precious", 2, {2})
            kafka.brokers[2].kill()
            await led_by(cluster, "spread", 3, {3})
            await led_by(cluster, "precious", -1, {2})
            kafka.brokers[1].launch()
            registered_s = await _registered(cluster, 1)
            await led_by(cluster, "precious", 1, {1})  # broker 2 has records that only it had, and is down
            took_s = time.monotonic() - registered_s
            assert took_s < 5, f"the unclean election came {took_s:.2f} s after its broker"
            logging.getLogger(__name__).info("An unclean election, %.3f s after its broker registered", took_s)

            await kafka.brokers[2].start_async()
            await led_by(cluster, "spread", 3, {2, 3})
            watched_until_s = time.monotonic() + WATCHED_S
            while time.monotonic() < watched_until_s:
                assert await cluster.leaders("spread", 1) == [3]  # broker 2 is preferred, and back
                await world.clock.sleep(0.1)

            assert (await run_command("release", *here)).stdout.startswith("Controller 1000001 has given the role back")


async def _gone(cluster: Cluster, path: str) -> bool:
    return not await cluster.client.exists(path)


async def _registered(cluster: Cluster, broker: int) -> float:
    await until(lambda: cluster.client.exists(f"/brokers/ids/{broker}"), f"broker {broker} is there", 60)
    return time.monotonic()
