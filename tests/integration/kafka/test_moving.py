"""``aiocontroller move`` on real brokers, under Kafka's own controller and ours: no throttle is ever left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_tree import ClusterTree, read_cluster_tree
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, take_over, under_load
from tests.integration.kafka.releases import number
from tests.integration.kafka.test_cancelled_move import write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]
THROTTLES = {LEADER_REPLICAS, FOLLOWER_REPLICAS, *RATES}
WITHIN_S = 120.0
PATIENT = ("--answer-ms", "60000")
"""A bound that answers do not exceed even on a busy machine."""


class Cluster:
    """The cluster under test, and the program as a user runs it."""

    def __init__(self, stage: PlayedCluster, zookeeper: str, folder: Path, zk: KafkaZkClient) -> None:
        self.stage, self.zookeeper, self.folder, self.zk = stage, zookeeper, folder, zk
        self.plan = folder / "plan.json"
        self.audit = folder / "plan.json.moves.jsonl"

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "aiocontroller", *arguments, "--zookeeper", self.zookeeper]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)

    async def run(self, *arguments: str, code: int = 0) -> str:
        return await ended(await self.start(*arguments), code)

    async def move(self, *arguments: str, code: int = 0) -> str:
        return await self.run("move", "--plan", str(self.plan), *PATIENT, *arguments, code=code)

    async def tree(self) -> ClusterTree:
        return await read_cluster_tree(self.zk)

    async def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        (found,) = (await self.zk.get_topic_assignments([topic], watch=False)).found
        assert not any(each.being_reassigned for each in found.partitions.values())
        return {number: each.replicas for number, each in found.partitions.items()}

    async def moving(self) -> bool:
        return any(each.assignment.being_reassigned for each in (await self.tree()).partitions)

    async def throttles(self) -> set[str]:
        """Return the names of all throttles that are set on any topic or broker."""
        tree = await self.tree()
        found = (*tree.topic_configs.values(), *tree.broker_configs.values())
        return {name for settings in found for name in settings if name in THROTTLES}

    def records(self) -> list[str]:
        return [json.loads(line)["what"] for line in self.audit.read_text().splitlines()]


async def ended(process: asyncio.subprocess.Process, code: int = 0) -> str:
    async with asyncio.timeout(WITHIN_S):
        out, _ = await process.communicate()
    assert process.returncode == code, f"exit code {process.returncode}:\n{out.decode()}"
    assert "Traceback" not in out.decode(), out.decode()
    return out.decode()


@pytest.fixture(params=["kafka", "aiocontroller"])
async def cluster(stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    if request.param == "kafka" and number(kafka.version) < (2, 4):
        pytest.skip("its own controller serves no reassignments")
    if request.param == "aiocontroller":
        await take_over(stage)
    cluster = Cluster(stage, kafka.zookeeper.address, tmp_path, ours.zk)
    yield cluster
    assert await cluster.throttles() == set()


async def filled(cluster: Cluster, topic: str, partitions: int, replicas: tuple[int, ...]) -> None:
    """Create a topic with six megabytes in its first partition."""
    await AdminZkClient(cluster.zk).create_topic(topic, dict.fromkeys(range(partitions), replicas))

    async def led() -> bool:
        found = [each for each in (await cluster.tree()).partitions if each.name.topic == topic]
        return len(found) == partitions and all(each.state is not None for each in found)

    await until(led, "the topic is led")
    await asyncio.to_thread(write, cluster.stage.bootstrap, topic)


async def test_an_old_controller_is_refused_before_anything_is_set(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    if number(kafka.version) >= (2, 4):
        pytest.skip("its own controller serves reassignments")
    cluster = Cluster(stage, kafka.zookeeper.address, tmp_path, ours.zk)
    await AdminZkClient(ours.zk).create_topic("kept", {0: (1,)})
    cluster.plan.write_text('{"version": 1, "partitions": [{"topic": "kept", "partition": 0, "replicas": [3]}]}')
    for mode in ("--dry-run", "--keep-leaders"):
        output = await cluster.move(mode, code=1)
        assert "a broker of an old release: LIST_PARTITION_REASSIGNMENTS(46): peer offers versions none" in output
    assert await cluster.replicas("kept") == {0: (1,)}
    assert await cluster.throttles() == set()


async def test_a_broker_is_drained_under_load_and_gets_everything_back(
    cluster: Cluster, kafka: KafkaCluster, request: pytest.FixtureRequest
) -> None:
    topic = f"drained-{request.node.callspec.id}"
    await filled(cluster, topic, 4, (1, 2))
    await under_load(cluster.stage, kafka)
    before = await cluster.tree()
    output = await cluster.run("plan", "--drain", "1", "--topic", topic, "--out", str(cluster.plan))
    assert "4 replicas to copy (6." in output, "the brokers tell their bytes"
    foretold = await cluster.move("--dry-run")
    assert f"would write /config/topics/{topic}:\n  {LEADER_REPLICAS} = 0:1,0:2,1:1" in foretold
    assert f"would send AlterPartitionReassignments for 4 partitions:\n  {topic}-0 to 3,2\n" in foretold
    assert (await cluster.tree()).partitions == before.partitions or cluster.stage.load is not None
    assert not cluster.audit.exists()

    output = await cluster.move("--at-once", "2")
    assert "Result: moved. In place: 4 partitions." in output
    assert await cluster.replicas(topic) == dict.fromkeys(range(4), (3, 2))
    led = {each.state.leader for each in (await cluster.tree()).partitions if each.name.topic == topic and each.state}
    assert led == {3}, "preferred leaders lead"
    assert await cluster.throttles() == set()
    assert cluster.records()[:5] == ["open", "cluster", "begin", "move", "throttle"]
    assert cluster.records()[-2:] == ["unthrottled", "end"]

    assert "Result: moved. In place: 4 partitions." in await cluster.move(), "there is nothing more to do"
    assert "Result: reversed." in await cluster.move("--reverse")
    assert await cluster.replicas(topic) == dict.fromkeys(range(4), (1, 2))
    await check_nothing_lost(cluster.stage)
    await AdminZkClient(cluster.zk).delete_topic(topic)


async def begun(cluster: Cluster) -> asyncio.subprocess.Process:
    """Begin a move that takes very long, since its rate is low."""
    slow = ("--rate", "1k", "--least-rate", "1k", *PATIENT)
    process = await cluster.start("move", "--plan", str(cluster.plan), *slow)
    await until(cluster.moving, "a partition moves")
    assert await cluster.throttles() == THROTTLES
    return process


@pytest.mark.parametrize(
    "ending",
    [
        "resume",
        pytest.param("--stop", marks=pytest.mark.slow_kafka),
        pytest.param("--reverse", marks=pytest.mark.slow_kafka),
    ],
)
async def test_after_sigkill_nothing_is_left_whichever_way_it_goes_on(
    cluster: Cluster, ending: str, request: pytest.FixtureRequest
) -> None:
    topic = f"killed-{request.node.callspec.id.replace('--', '')}"
    await filled(cluster, topic, 3, (1, 2))
    await cluster.run("plan", "--drain", "2", "--topic", topic, "--out", str(cluster.plan))
    process = await begun(cluster)
    process.kill()
    await process.wait()
    assert await cluster.throttles() == THROTTLES, "a killed process removes nothing"
    await cluster.move(*([] if ending == "resume" else [ending]))
    moved = (await cluster.replicas(topic))[0]
    assert moved == ((1, 3) if ending == "resume" else (1, 2))
    assert await cluster.throttles() == set()
    await AdminZkClient(cluster.zk).delete_topic(topic)


@pytest.mark.slow_kafka
@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGHUP", "--stop", "--reverse"])
async def test_a_running_move_is_stopped(cluster: Cluster, how: str, request: pytest.FixtureRequest) -> None:
    topic = f"stopped-{request.node.callspec.id.replace('--', '')}"
    await filled(cluster, topic, 3, (1, 2))
    await cluster.run("plan", "--drain", "2", "--topic", topic, "--out", str(cluster.plan))
    process = await begun(cluster)
    if how.startswith("--"):
        output = await cluster.move(how)
        assert "Result: stopped" in output if how == "--stop" else "Result: reversed" in output
    else:
        process.send_signal(signal.Signals[how])
    assert "Result: stopped." in await ended(process, 3), "not everything has moved"
    assert (await cluster.replicas(topic))[0] == (1, 2)
    assert await cluster.throttles() == set()
    await AdminZkClient(cluster.zk).delete_topic(topic)


@pytest.mark.slow_kafka
async def test_a_destination_that_dies_holds_up_its_own_moves_only_and_gets_them_when_it_returns(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = f"died-{request.node.callspec.id}"
    await filled(cluster, topic, 2, (1, 2))
    await cluster.run("plan", "--drain", "2", "--topic", topic, "--out", str(cluster.plan))
    process = await cluster.start(
        "move",
        "--plan",
        str(cluster.plan),
        "--rate",
        "1k",
        "--least-rate",
        "1k",
        "--patience",
        "2",
        "--hold",
        "5",
        *PATIENT,
    )
    await until(cluster.moving, "a partition moves")
    await asyncio.to_thread(cluster.stage.brokers[3].kill)
    output = await ended(process, 3)
    assert "brokers away: 3" in output
    assert "Result: incomplete." in output
    tree = await cluster.tree()
    assert 3 not in tree.live
    assert (await cluster.replicas(topic))[0] == (1, 2), "what could not end is taken back"
    assert await cluster.throttles() == set(), "also of the dead broker"
    await cluster.stage.heal()
    assert "Result: moved." in await cluster.move()
    assert await cluster.replicas(topic) == {0: (1, 3), 1: (1, 3)}
    await AdminZkClient(cluster.zk).delete_topic(topic)


@pytest.mark.slow_kafka
async def test_a_controller_that_dies_in_the_middle_changes_nothing(
    cluster: Cluster, kafka: KafkaCluster, request: pytest.FixtureRequest
) -> None:
    if "aiocontroller" not in request.node.callspec.id:
        pytest.skip("Kafka's own controller dies with its broker, which is a source or a destination here")
    topic = f"headless-{request.node.callspec.id}"
    await filled(cluster, topic, 6, (1, 2))
    await cluster.run("plan", "--drain", "2", "--topic", topic, "--out", str(cluster.plan))
    process = await cluster.start("move", "--plan", str(cluster.plan), "--at-once", "1", *PATIENT)
    await until(cluster.moving, "a partition moves")
    await cluster.stage.controller.kill()
    await cluster.stage.controller.succeeded()
    if number(kafka.version) < (2, 4):
        assert "the active controller is a broker of an old release" in await ended(process, 1)
        assert await cluster.throttles() == set()
        await take_over(cluster.stage)
        assert "Result: moved." in await cluster.move()
    else:
        assert "Result: moved." in await ended(process)
    assert set((await cluster.replicas(topic)).values()) == {(1, 3)}
    assert await cluster.throttles() == set()
    await AdminZkClient(cluster.zk).delete_topic(topic)


async def test_settings_of_others_stay_and_another_plan_is_refused(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    topic = f"settings-{request.node.callspec.id}"
    await filled(cluster, topic, 1, (1, 2))
    admin = AdminZkClient(cluster.zk)
    own = {"retention.ms": "600000", FOLLOWER_REPLICAS: "*"}
    await admin.change_entity_configs("topics", topic, own)
    try:
        await cluster.run("plan", "--drain", "2", "--topic", topic, "--out", str(cluster.plan))
        await cluster.move()
        assert await admin.get_entity_configs("topics", topic) == own
        assert TopicPartition(topic, 0) in {each.name for each in (await cluster.tree()).partitions}
        cluster.plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 1]}]})
        )
        assert "the audit file is of another plan" in await cluster.move(code=1)
    finally:
        await admin.change_entity_configs("topics", topic, {})
        await admin.delete_topic(topic)
