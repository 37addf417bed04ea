"""``aiocontroller roll`` on real brokers under load: one after the other, killed and resumed, nothing lost."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest

from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_tree import read_cluster_tree
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(600)]
RESTART = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
asked, done = folder / f"asked-{sys.argv[2]}", folder / f"done-{sys.argv[2]}"
asked.touch()
while not done.exists():
    time.sleep(0.05)
done.unlink()
"""
"""The operator's command, which asks the test to restart the broker, since the process is the test's child."""


class Operator:
    """Restarts brokers when the command asks for it."""

    def __init__(self, stage: PlayedCluster, folder: Path) -> None:
        self.stage, self.folder = stage, folder
        self.restarted: list[int] = []
        script = folder / "restart.py"
        script.write_text(RESTART)
        self.command = f"{sys.executable} {script} {folder} {{id}}"

    async def work(self) -> None:
        while True:
            for broker in sorted(self.stage.brokers):
                asked = self.folder / f"asked-{broker}"
                if asked.exists():
                    asked.unlink()
                    self.restarted.append(broker)
                    await self.stage.brokers[broker].stop_async()
                    await self.stage.brokers[broker].start_async()
                    (self.folder / f"done-{broker}").touch()
            await asyncio.sleep(0.05)


async def test_brokers_are_restarted_under_load_and_a_killed_roll_goes_on(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    await under_load(stage, kafka)
    operator = Operator(stage, tmp_path)
    audit = tmp_path / "roll.jsonl"
    own = ["--zookeeper", kafka.zookeeper.address, "--command", operator.command, "--audit", str(audit), "--elect"]

    async def start(*arguments: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "aiocontroller", "roll", *own, *arguments]
        return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    async def ended(process: asyncio.subprocess.Process, code: int = 0) -> str:
        out, _ = await process.communicate()
        assert process.returncode == code, out.decode()
        return out.decode()

    before = {broker.id: broker.epoch for broker in (await read_cluster_tree(ours.zk)).brokers.values()}

    async def foresees() -> str | None:
        found = await ended(await start("--dry-run"))
        logging.getLogger(__name__).info(found)  # what keeps a gate closed
        return found if found.count(" open") == 3 else None

    foreseen = await until(foresees, "each broker may be restarted")
    assert foreseen.endswith("Nothing was run.\n")
    assert not audit.exists()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(operator.work())
        process = await start()

        async def first_is_back() -> bool:
            return audit.exists() and '"restarted"' in audit.read_text()

        await until(first_is_back, "the first broker is back", within_s=200)
        process.kill()
        await process.wait()
        output = await ended(await start())
        work.cancel()
    after = {broker.id: broker.epoch for broker in (await read_cluster_tree(ours.zk)).brokers.values()}
    assert all(after[broker] > before[broker] for broker in before)
    assert sorted(operator.restarted) == [1, 2, 3], "none was restarted twice"
    assert "The record is in" in output
    assert json.loads(audit.read_text().splitlines()[-1])["result"] == "rolled"
    await check_nothing_lost(stage)


async def test_a_broker_that_must_not_go_stays(stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    admin = AdminZkClient(ours.zk)
    await admin.create_topic("alone-to-roll", {0: (2,)})

    async def led() -> bool:
        return all(each.state is not None for each in (await read_cluster_tree(ours.zk)).partitions)

    await until(led, "the topic is led")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiocontroller", "roll", "--zookeeper", kafka.zookeeper.address, "--wait", "1"),
            *("--command", "false", "--brokers", "2", "--audit", str(tmp_path / "roll.jsonl")),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 3
        assert "1 partitions that would have no leader (alone-to-roll-0)" in out.decode()
    finally:
        await admin.delete_topic("alone-to-roll")
