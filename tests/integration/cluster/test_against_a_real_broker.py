"""One conversation, two brokers: a real Kafka 3.9 and a simulated one must say the same, word for word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.cluster.java import JavaMissingError, find_java
from aiocontroller.cluster.real_kafka import RealKafkaBroker, kafka_missing
from aiocontroller.cluster.simulated_broker import BrokerConfig, SimulatedBroker, read_ready
from aiocontroller.core.ids import Broker
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.cluster.by_hand import CONTROLLER_ID, ControllerByHand, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

T, U = b"T" * 16, b"U" * 16
NONE = bytes(16)
Said = list[tuple[str, Any]]


class Conversation:
    """Asks one broker (id 1, plain text on loopback) and writes down what it answers."""

    def __init__(self, controller: ControllerByHand, broker: Broker) -> None:
        self.controller, self.broker, self.said = controller, broker, Said()
        self.epoch = 3

    async def ask(self, api: ApiKey, version: int, **fields: Any) -> Any:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        return cold.decode_response(api, version, await self.controller.send(api, version, self.broker, body))

    def note(self, what: str, answer: Any) -> None:
        self.said.append((what, answer))

    def head(self, stale_broker: bool = False) -> dict[str, Any]:
        epoch = self.broker.epoch - 1 if stale_broker else self.broker.epoch
        return {"controller_id": CONTROLLER_ID, "controller_epoch": self.epoch, "broker_epoch": epoch}

    async def update_metadata(self, what: str, version: int = 8, *states: dict[str, Any], **head: Any) -> None:
        endpoint = self.broker.endpoints[0]
        me = {"id_": 1, "v0_host": endpoint.host, "v0_port": endpoint.port, "endpoints": [self.endpoint(endpoint.port)]}
        ours = {"id_": CONTROLLER_ID, "v0_host": "127.0.0.1", "v0_port": 9, "endpoints": [self.endpoint(9)]}
        partitions = [{"topic_name": "t", **state} for state in states]
        grouped = [{"topic_name": "t", "topic_id": T, "partition_states": list(states)}] if states else []
        where = {"topic_states": grouped} if version >= 5 else {"ungrouped_partition_states": partitions}
        answer = await self.ask(ApiKey.UPDATE_METADATA, version, **self.head(**head), live_brokers=[me, ours], **where)
        self.note(f"update metadata {version}: {what}", int(answer.error_code))

    @staticmethod
    def endpoint(port: int) -> dict[str, Any]:
        return {"port": port, "host": "127.0.0.1", "listener": "PLAINTEXT", "security_protocol": 0}

    async def leader_and_isr(
        self,
        what: str,
        version: int,
        topics: list[tuple[str, bytes, list[dict[str, Any]]]],
        **head: Any,
    ) -> None:
        if version < 2:
            where = {"ungrouped_partition_states": [{"topic_name": t, **s} for t, _, states in topics for s in states]}
        else:
            where = {"topic_states": [{"topic_name": t, "topic_id": i, "partition_states": s} for t, i, s in topics]}
        answer = await self.ask(ApiKey.LEADER_AND_ISR, version, **self.head(**head), **where)
        if version >= 5:
            codes = sorted(
                (each.topic_id.bytes if each.topic_id else NONE, p.partition_index, int(p.error_code))
                for each in answer.topics
                for p in each.partition_errors
            )
        else:
            codes = sorted((p.topic_name, p.partition_index, int(p.error_code)) for p in answer.partition_errors)
        self.note(f"leader and isr {version}: {what}", (int(answer.error_code), codes))

    async def stop_replica(
        self, what: str, version: int, epoch: int, delete: bool, topic: str = "t", **head: Any
    ) -> None:
        where: dict[str, Any]
        if version == 0:
            where = {"ungrouped_partitions": [{"topic_name": topic, "partition_index": 0}]}
        elif version <= 2:
            where = {"topics": [{"name": topic, "partition_indexes": (0,)}]}
        else:
            state = {"partition_index": 0, "leader_epoch": epoch, "delete_partition": delete}
            where = {"topic_states": [{"topic_name": topic, "partition_states": [state]}]}
        if version <= 2:
            where["delete_partitions"] = delete
        answer = await self.ask(ApiKey.STOP_REPLICA, version, **self.head(**head), **where)
        codes = [(p.topic_name, p.partition_index, int(p.error_code)) for p in answer.partition_errors]
        self.note(f"stop replica {version}: {what}", (int(answer.error_code), codes))

    async def metadata(self, what: str, version: int, **fields: Any) -> None:
        answer = await self.ask(ApiKey.METADATA, version, allow_auto_topic_creation=False, **fields)
        brokers = sorted((b.node_id, b.host, getattr(b, "rack", None)) for b in answer.brokers)
        topics = sorted(
            (
                int(t.error_code),
                t.name,
                t.topic_id.bytes if getattr(t, "topic_id", None) else NONE,
                sorted(
                    (
                        int(p.error_code),
                        p.partition_index,
                        p.leader_id,
                        getattr(p, "leader_epoch", None),
                        p.replica_nodes,
                        p.isr_nodes,
                        getattr(p, "offline_replicas", None),
                    )
                    for p in t.partitions
                ),
            )
            for t in answer.topics
        )
        self.note(f"metadata {version}: {what}", (brokers, getattr(answer, "controller_id", None), topics))


def state(leader: int, epoch: int, *, replicas: tuple[int, ...] = (1, 2), partition: int = 0) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "controller_epoch": 3,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": replicas,
        "replicas": replicas,
    }


async def hold(c: Conversation) -> Said:
    for version in range(5):
        answer = await c.ask(ApiKey.API_VERSIONS, version, client_software_name="t", client_software_version="1")
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        c.note("api versions", (int(answer.error_code), [offered[key] for key in (3, 4, 5, 6, 18)]))

    await c.update_metadata("of an older incarnation", stale_broker=True)
    for version in range(9):
        await c.update_metadata("nothing but brokers", version)
    await c.leader_and_isr("of an older incarnation", 7, [("t", T, [state(1, 5)])], stale_broker=True)
    await c.leader_and_isr("first", 7, [("t", T, [state(1, 5)])])
    await c.leader_and_isr("not its own", 7, [("u", U, [state(2, 5, replicas=(2, 3))])])
    for version in range(8):
        await c.leader_and_isr("equal", version, [("t", T, [state(1, 5 + version)])])
        await c.leader_and_isr("older", version, [("t", T, [state(1, 4)])])
        await c.leader_and_isr("newer", version, [("t", T, [state(1, 6 + version)])])
    await c.leader_and_isr("another id", 7, [("t", U, [state(1, 20)])])
    await c.leader_and_isr("another id, older", 7, [("t", U, [state(1, 2)])])
    await c.leader_and_isr("no id, newer", 7, [("t", NONE, [state(1, 30)])])
    await c.leader_and_isr("no id, equal", 7, [("t", NONE, [state(1, 30)])])
    await c.leader_and_isr("id again", 7, [("t", T, [state(1, 30)])])
    await c.leader_and_isr("u without an id", 4, [("u", NONE, [state(1, 1)])])
    await c.leader_and_isr("u gets its id", 7, [("u", U, [state(1, 1)])])
    await c.leader_and_isr("u has its id", 7, [("u", U, [state(1, 1)])])
    await c.leader_and_isr("follower of a dead broker", 7, [("t", T, [state(2, 31)])])
    await c.leader_and_isr("nobody leads", 7, [("t", T, [state(-1, 32)])])
    await c.leader_and_isr("a topic twice", 7, [("t", T, [state(1, 33)]), ("t", T, [state(1, 33, partition=1)])])
    await c.leader_and_isr("two partitions", 7, [("t", T, [state(1, 34), state(1, 34, partition=1)])])

    deleted = {**state(-2, 0, partition=1)}
    await c.update_metadata("two partitions", 8, state(1, 34), state(2, 34, partition=1))
    for version in range(13):
        await c.metadata("one led by a dead broker", version, topics=None if version else [])
    await c.metadata("named", 9, topics=[{"name": "t"}, {"name": "no"}])
    await c.metadata("by id", 12, topics=[{"topic_id": T, "name": None}, {"topic_id": b"N" * 16, "name": None}])
    await c.metadata("none", 12, topics=[])
    await c.update_metadata("deletes one", 8, deleted)
    await c.metadata("one left", 12, topics=[{"name": "t"}])

    c.epoch = 2
    await c.update_metadata("of an older controller")
    await c.leader_and_isr("of an older controller", 7, [("t", T, [state(1, 50)])])
    await c.leader_and_isr("of an older controller", 4, [("t", T, [state(1, 50)])])
    await c.stop_replica("of an older controller", 4, 50, True)
    c.epoch = 3
    await c.stop_replica("of an older incarnation", 4, 50, True, stale_broker=True)
    await c.stop_replica("older leader epoch", 4, 33, True)
    await c.stop_replica("equal", 4, 34, False)
    await c.stop_replica("equal, again", 3, 34, False)
    await c.stop_replica("unknown", 4, 3, True, topic="nobody")
    for version in range(5):
        await c.stop_replica("delete", version, -2, True)
        await c.leader_and_isr(f"after deletion {version}", 7, [("t", T, [state(1, version)])])
    return c.said


async def introduce(
    world: World, connect: str, start: Callable[[], Any], stop: Callable[[], Any]
) -> AsyncIterator[Conversation]:
    client = ZooKeeperClient(connect, world=world)
    await client.start(10)
    zk = KafkaZkClient(client)
    # a controller in office, so that a real broker does not become one
    await client.write_many(
        [
            Create(paths.CONTROLLER, znodes.encode_controller(CONTROLLER_ID, 0)),
            Create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(1)),
        ],
        fence=None,
    )
    await start()
    controller = ControllerByHand(world, zk)
    try:
        (broker,) = await controller.brokers()
        yield Conversation(controller, broker)
    finally:
        await stop()
        await client.close()


async def test_a_simulated_broker_answers_as_a_real_one(
    world: World, zookeeper: EmbeddedZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    try:
        find_java()
        missing = kafka_missing()
    except JavaMissingError as error:
        missing = str(error)
    if missing:
        pytest.skip(f"real Kafka: {missing}")
    real = RealKafkaBroker(1, f"{zk_connect}-real", tmp_path / "real")
    simulated = SimulatedBroker(BrokerConfig(1, f"{zk_connect}-simulated", tmp_path), world)
    running: list[asyncio.Task[None]] = []

    async def start_simulated() -> None:
        running.append(asyncio.create_task(simulated.run()))
        await eventually(lambda: read_ready(tmp_path))

    async def stop_simulated() -> None:
        simulated.stop(controlled=False)
        await running[0]

    async def kill_real() -> None:
        real.kill()

    said: list[Said] = []
    for connect, start, stop in (
        (real.zookeeper, real.start_async, kill_real),
        (f"{zk_connect}-simulated", start_simulated, stop_simulated),
    ):
        async for conversation in introduce(world, connect, start, stop):
            said.append(await hold(conversation))
    differences = [(real_one, ours) for real_one, ours in zip(*said, strict=True) if real_one != ours]
    assert not differences, "\n".join(f"real {real_one}\nours {ours}\n" for real_one, ours in differences)
