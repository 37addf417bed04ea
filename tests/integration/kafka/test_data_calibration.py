"""The same stories in the simulation and on real brokers lose the same records."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from aiocontroller.lab.checkers.records import Records
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.scenarios.shapes import Given
from aiocontroller.lab.scenarios.verbs import method_of, parse_line
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]

SETTINGS = {"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "1500"}

UNCLEAN = """
create-topic orders 1,2 then=3
produce orders-0 10 all
kill-broker 2
expect isr orders-0 1
produce orders-0 5 1
kill-broker 1
expect leader orders-0 none
start-broker 2
allow-unclean orders true
expect leader orders-0 2
produce orders-0 3 all
start-broker 1
expect isr orders-0 1,2
"""
CLEAN = """
create-topic orders 1,2 then=3
produce orders-0 10 all
kill-broker 2
expect isr orders-0 1
produce orders-0 5 1
kill-broker 1
expect leader orders-0 none
start-broker 2 then=5
expect leader orders-0 none
start-broker 1
expect leader orders-0 1
produce orders-0 3 all
expect isr orders-0 1,2
"""
STORIES = {UNCLEAN: [*range(10), 15, 16, 17], CLEAN: [*range(18)]}
"""Story -> the batches that remain, in order; all batches were acknowledged."""


def simulated(story: str) -> list[int]:
    made = Simulation(parse_scenario("cluster brokers=2 controllers=1 data\n" + story))
    assert run(made.run()).violations == []
    assert made.data is not None
    logs = made.data.logs(("orders", 0))
    assert sorted(logs) == [1, 2]
    acknowledged = [Records(t.epoch, t.leader, t.base, t.base + 1) for t in made.data.acknowledged]
    kept = [[number for number, each in enumerate(acknowledged) if each.are_in(runs)] for runs in logs.values()]
    assert len(acknowledged) == 18
    assert kept[0] == kept[1]
    return kept[0]


class RealBrokers:
    """Plays a story's lines on two real brokers."""

    def __init__(self, cluster: Cluster, brokers: RealKafkaCluster) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._sent = 0

    async def play(self, story: str) -> None:
        for line in story.strip().splitlines():
            read = parse_line(" ".join(word for word in line.split() if not word.startswith("then=")))
            await getattr(self, method_of(read.verb))(read.given)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._brokers.brokers.values() if broker.running)

    async def step_create_topic(self, given: Given) -> None:
        topic, (replicas,) = given["topic"], given["placed"]
        await self._cluster.create_topic(topic, {0: list(replicas)})
        await self._expect("isr", f"{topic}-0", ",".join(map(str, replicas)))

    async def step_produce(self, given: Given) -> None:
        await asyncio.to_thread(self._produce, given["partition"].topic, given["batches"], given["acks"])

    def _produce(self, topic: str, batches: int, acks: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": acks, "message.timeout.ms": 60_000})
        for _ in range(batches):
            failed: list[object] = []

            def answered(error: object, _: Message, failed: list[object] = failed) -> None:
                failed.append(error)

            producer.produce(topic, str(self._sent).encode(), partition=0, on_delivery=answered)
            assert producer.flush(90) == 0
            assert failed == [None], f"record {self._sent}: {failed}"
            self._sent += 1

    async def step_kill_broker(self, given: Given) -> None:
        for broker in given["brokers"]:
            self._brokers.brokers[broker].kill()

    async def step_start_broker(self, given: Given) -> None:
        for broker in given["brokers"]:
            await self._brokers.brokers[broker].start_async()

    async def step_allow_unclean(self, given: Given) -> None:
        change = {"unclean.leader.election.enable": given["value"]}
        await AdminZkClient(self._cluster.zk).change_topic_configs(given["topic"], change)

    async def step_expect(self, given: Given) -> None:
        await self._expect(*given["fact"])

    async def _expect(self, what: str, partition: str, expected: str) -> None:
        topic = partition.removesuffix("-0")

        async def reached() -> bool:
            (state,) = await self._cluster.states(topic, 1)
            if state is None:
                return False
            if what == "isr":
                return set(state.isr) == {int(replica) for replica in expected.split(",")}
            return state.leader == (-1 if expected == "none" else int(expected))

        await until(reached, f"{what} of {partition} is {expected}", 90)

    def kept(self, topic: str) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "calibration"})
        try:
            place = TopicPartition(topic, 0, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=60)
            consumer.assign([place])
            found: list[int] = []
            while len(found) < end:
                message = consumer.poll(60)
                assert message is not None, f"found {len(found)} records, expected {end}"
                assert message.error() is None, message.error()
                found.append(int(message.value() or b""))
            return found
        finally:
            consumer.close()


@pytest.mark.parametrize("story", STORIES, ids=["unclean", "clean"])
async def test_the_same_story_loses_the_same_records(story: str, world: World, zk_connect: str, tmp_path: Path) -> None:
    assert await asyncio.to_thread(simulated, story) == STORIES[story]
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path / "controller"
    folder.mkdir()
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", zk_connect, "--listen", "127.0.0.1:0"]
    child = Child("aiocontroller", [*command, "--http-port", "0", "--data", str(folder)], log=folder / "log")
    brokers = RealKafkaCluster(2, zk_connect, tmp_path, overrides=SETTINGS)
    try:
        async with running(world, zk_connect) as cluster:
            await child.wait_until_async((folder / "controller.json").exists, 60)
            await brokers.start_async()
            real = RealBrokers(cluster, brokers)
            await real.play(story)
            assert await asyncio.to_thread(real.kept, "orders") == STORIES[story]
    finally:
        brokers.kill()
        child.kill()
