"""List, verify and cancel by Kafka's own tool, while a broker that is down still owes the deletion of a replica."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.command_line import CommandLine
from tests.integration.kafka.conftest import KafkaCluster, take_over
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
VICTIM = 2
TOOL = "reassign-partitions"


class Topic:
    """Partition 0 of a topic, as the tool, ZooKeeper and the victim's disk show it."""

    def __init__(self, name: str, controller: OurController, tools: CommandLine, broker_folder: Path) -> None:
        self.name = name
        self._zk = controller.zk
        self._tools = tools
        self._broker_folder = broker_folder

    async def tool(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._tools.run, TOOL, *arguments)

    async def verified(self, *replicas: int) -> bool:
        return await asyncio.to_thread(self._tools.verified, self.plan(*replicas))

    async def listed(self) -> bool:
        """Whether ``--list`` shows it."""
        return f"{self.name}-0" in await self.tool("--list")

    def plan(self, *replicas: int) -> str:
        plan = {"version": 1, "partitions": [{"topic": self.name, "partition": 0, "replicas": replicas}]}
        return self._tools.file(f"to-{replicas}.json", json.dumps(plan))

    async def replicas(self) -> ReplicaAssignment:
        (found,) = (await self._zk.get_topic_assignments([self.name], watch=False)).found
        return found.partitions[0]

    async def owed(self) -> list[tuple[int, str]]:
        return [(one.broker, one.topic) for one in (await self._zk.debts.load()).owed]

    async def in_sync(self, *isr: int) -> bool:
        (state,) = await self._zk.get_topic_partition_states([self.name], [0])
        return isinstance(state, LeaderAndIsr) and state.leader >= 0 and set(state.isr) == set(isr)

    def directories(self) -> list[str]:
        """Return the victim's directories for it, including one that waits to be removed."""
        return [folder.name for folder in (self._broker_folder / "logs").glob(f"{self.name}-0*")]

    def has_log(self) -> bool:
        """Return whether the victim's replica has a log; one that is frozen before leaves a directory for good."""
        return any((self._broker_folder / "logs" / f"{self.name}-0").glob("*.log"))


@pytest.mark.parametrize("away", ["killed", pytest.param("frozen", marks=pytest.mark.slow_kafka)])
async def test_list_verify_and_cancel_tell_the_truth(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path, away: str
) -> None:
    controller = await take_over(stage)
    answering = ",".join(broker.address for broker in stage.brokers.values() if broker.id != VICTIM)
    zookeeper = kafka.zookeeper.address
    tools = await asyncio.to_thread(CommandLine, kafka.version, answering, tmp_path, zookeeper=zookeeper)
    topic = Topic(f"owed-{away}", controller, tools, kafka.folder / f"broker-{VICTIM}")
    lists = number(kafka.version) >= (2, 6)
    """Earlier tools neither list nor cancel, and write the plan to ZooKeeper."""
    await AdminZkClient(controller.zk).create_topic(topic.name, {0: (1, VICTIM)})

    async def made() -> bool:
        return await topic.in_sync(1, VICTIM) and topic.has_log()

    async def alone() -> bool:
        return await topic.in_sync(1) and not await controller.zk.client.exists(f"/brokers/ids/{VICTIM}")

    await until(made, "both replicas are there")
    victim = stage.brokers[VICTIM]
    if away == "killed":
        await asyncio.to_thread(victim.kill)
    else:
        stage.freeze(VICTIM)
    await until(alone, "the broker's session is over")  # until then tools ask that broker, and wait

    async def debt_stands() -> None:
        assert await topic.owed() == [(VICTIM, topic.name)]
        assert topic.directories() == [f"{topic.name}-0"]
        assert await topic.replicas() == ReplicaAssignment((1, 3))

    await topic.tool("--reassignment-json-file", topic.plan(1, 3), "--execute")
    await until(lambda: topic.verified(1, 3), "the move is over, although its broker is away")
    assert await topic.in_sync(1, 3)
    await debt_stands()
    if lists:
        assert not await topic.listed()
        output = await topic.tool("--reassignment-json-file", topic.plan(1, 3), "--cancel")
        assert "None of the specified partition reassignments are active." in output
        await debt_stands()
        assert await topic.verified(1, 3)

    if away == "killed":
        await stage.start(victim)
    else:
        stage.thaw(VICTIM)

    async def paid() -> bool:
        return not await topic.owed() and not topic.directories()

    await until(paid, "the broker has deleted what it owed", 60)
    assert await topic.replicas() == ReplicaAssignment((1, 3))
    assert await topic.verified(1, 3)
    assert not lists or not await topic.listed()
