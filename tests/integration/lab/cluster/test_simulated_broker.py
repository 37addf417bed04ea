"""Simulated brokers on a real ZooKeeper, driven by a controller made by hand and read by real Kafka clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from confluent_kafka.admin import AdminClient

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.simulated_broker import (
    BrokerConfig,
    BrokerStatus,
    SimulatedBroker,
    broker_command,
    read_ready,
    read_status,
)
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import (
    encode_request_header,
)
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.builders import leadership, table, topic_id
from tests.integration.lab.cluster.by_hand import CONTROLLER_ID, ControllerByHand, eventually


class Brokers:
    """Simulated brokers in this process."""

    def __init__(self, world: World, zk_connect: str, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.world, self.zk_connect, self.folder, self.tasks = world, zk_connect, folder, tasks
        self.running: dict[int, tuple[SimulatedBroker, asyncio.Task[None]]] = {}

    async def start(self, *ids: int, lag_ms: int = 30_000) -> None:
        for broker_id in ids:
            folder = self.folder / f"{broker_id}"
            folder.mkdir(exist_ok=True)
            (folder / "broker.json").unlink(missing_ok=True)
            config = BrokerConfig(
                broker_id,
                self.zk_connect,
                folder,
                zookeeper_session_timeout_ms=4000,
                replica_lag_time_max_ms=lag_ms,
                controlled_shutdown_retry_backoff_ms=10,
            )
            broker = SimulatedBroker(config, self.world)
            self.running[broker_id] = broker, self.tasks.create_task(broker.run())
        for broker_id in ids:
            await eventually(lambda folder=self.folder / f"{broker_id}": read_ready(folder))

    async def stop(self, *ids: int) -> None:
        for broker_id in ids:
            broker, task = self.running.pop(broker_id)
            broker.stop()
            await task

    def port(self, broker_id: int) -> int:
        return self.running[broker_id][0].port

    def status(self, broker_id: int) -> BrokerStatus:
        return self.running[broker_id][0].status()

    def replica(self, broker_id: int, partition: int = 0) -> Any:
        return next((r for r in self.status(broker_id).replicas if r.partition == partition), None)


@pytest.fixture
async def brokers(world: World, zk_connect: str, tmp_path: Path) -> AsyncIterator[Brokers]:
    async with asyncio.TaskGroup() as tasks:
        brokers = Brokers(world, zk_connect, tmp_path, tasks)
        yield brokers
        await brokers.stop(*list(brokers.running))


@pytest.fixture
async def controller(world: World, zk_connect: str) -> AsyncIterator[ControllerByHand]:
    client = ZooKeeperClient(zk_connect, world=world)
    await client.start(10)
    controller = ControllerByHand(world, KafkaZkClient(client))
    await controller.serve()
    yield controller
    controller.close()
    await client.close()


def lead(controller: ControllerByHand, partition: int, leader: int, isr: tuple[int, ...], epoch: int) -> None:
    row = controller.table.row("t", partition)
    old = controller.table.leadership(row)
    zk_version = old.partition_epoch + 1 if old else 0
    controller.table.set_leadership(
        row, leadership(leader, isr, leader_epoch=epoch, partition_epoch=zk_version, controller_epoch=controller.epoch)
    )


async def test_registers_and_checks_epochs_as_kafka_does(brokers: Brokers, controller: ControllerByHand) -> None:
    await brokers.start(1)
    (broker,) = await controller.brokers()
    assert (broker.id, broker.epoch) == (1, brokers.status(1).epoch)
    controller.table = table({"t": [[1, 2]], "u": [[2]]})
    for topic in ("t", "u"):
        row = controller.table.row(topic, 0)
        controller.table.set_leadership(row, leadership(1 if topic == "t" else 2, [1], leader_epoch=5))
    controller.epoch = 3

    assert await controller.update_metadata(broker, epoch=broker.epoch - 1) == 77
    assert await controller.update_metadata(broker, epoch=-1) == 0
    assert await controller.update_metadata(broker, epoch=broker.epoch + 1) == 0
    assert (await controller.leader_and_isr(broker, epoch=broker.epoch - 1)).error_code == 77

    answer = await controller.leader_and_isr(broker)
    assert answer.error_code == 0
    assert [code for _, _, code in answer.partitions] == [3]  # no replica of u; where all is well is left out
    again = await controller.leader_and_isr(broker)
    assert [code for _, _, code in again.partitions] == [11, 3]  # the same leader epoch: nothing new

    controller.epoch = 2
    stale = await controller.leader_and_isr(broker)
    assert stale.error_code == 11
    assert {code for _, _, code in stale.partitions} == {11}
    assert await controller.update_metadata(broker) == 11
    assert brokers.status(1).controller_epoch == 3


async def test_another_topic_of_the_same_name_is_refused(brokers: Brokers, controller: ControllerByHand) -> None:
    await brokers.start(1)
    (broker,) = await controller.brokers()
    for epoch, (given, code) in enumerate([(topic_id("first"), 0), (topic_id("other"), 103), (bytes(16), 0)]):
        controller.table = table({"t": [[1]]})
        controller.table.set_topic_id(controller.table.topic_by_name["t"], given)
        controller.table.set_leadership(0, leadership(1, [1], leader_epoch=epoch))
        answer = await controller.leader_and_isr(broker)
        assert [each for _, _, each in answer.partitions] == ([code] if code else [])


@pytest.mark.parametrize("version", [0, 2, 4])
async def test_stop_replica(brokers: Brokers, controller: ControllerByHand, version: int) -> None:
    await brokers.start(1)
    (broker,) = await controller.brokers()
    controller.table = table({"t": [[1]]})
    controller.table.set_leadership(0, leadership(1, [1], leader_epoch=5))
    await controller.leader_and_isr(broker)

    async def stop(leader_epoch: int) -> list[int]:
        error, codes = await controller.stop_replica(broker, leader_epoch, delete=True, version=version)
        assert error == 0
        return codes

    if version >= 3:
        assert await stop(4) == [74]
        assert brokers.replica(1)
    assert await stop(-2) == [0]
    assert not brokers.replica(1)
    assert await stop(-2) == [0]


async def test_a_follower_that_returns_rejoins_and_one_that_vanishes_is_dropped(
    brokers: Brokers, controller: ControllerByHand
) -> None:
    await brokers.start(1, 2, lag_ms=800)
    controller.table = table({"t": [[1, 2], [1, 2]]})
    for partition in (0, 1):
        lead(controller, partition, 1, (1,), 0)
    await controller.send_all()
    await eventually(lambda: len(controller.altered) == 2)
    assert sorted(controller.altered) == [(0, 0, (1, 2)), (1, 0, (1, 2))]
    await eventually(lambda: brokers.replica(1, 1).isr == (1, 2) and brokers.replica(1, 1).partition_epoch == 1)
    assert brokers.replica(1, 1).pending_isr is None

    controller.altered.clear()
    await brokers.stop(2)
    await eventually(lambda: len(controller.altered) == 2)
    assert sorted(controller.altered) == [(0, 0, (1,)), (1, 0, (1,))]

    # it comes back: a new incarnation, recognized by a higher leader epoch
    await brokers.start(2, lag_ms=800)
    controller.altered.clear()
    for partition in (0, 1):
        lead(controller, partition, 1, (1,), 1)
        controller.table.set_leadership(partition, LeaderAndIsr(1, 1, (1,), 1, 9))
    await controller.send_all()
    await eventually(lambda: sorted(controller.altered) == [(0, 1, (1, 2)), (1, 1, (1, 2))])


async def test_isr_changes_are_asked_again_until_granted(brokers: Brokers, controller: ControllerByHand) -> None:
    await brokers.start(1, 2)
    controller.table = table({"t": [[1, 2]]})
    lead(controller, 0, 1, (1,), 0)
    controller.answer_with = 41  # NOT_CONTROLLER: the channel looks the controller up again
    await controller.send_all()
    await eventually(lambda: brokers.replica(1).pending_isr == (1, 2))
    controller.answer_with = 77  # STALE_BROKER_EPOCH
    await asyncio.sleep(0)
    controller.answer_with = 0
    await eventually(lambda: brokers.replica(1).isr == (1, 2))


async def test_stopping_asks_the_controller_and_then_leaves_at_once(
    brokers: Brokers, controller: ControllerByHand
) -> None:
    await brokers.start(1, 2)
    await controller.send_all()
    await brokers.stop(2)
    assert controller.shutdowns == [2]
    assert [broker.id for broker in await controller.brokers()] == [1]


async def test_an_expired_session_registers_again_under_a_new_epoch(
    brokers: Brokers, controller: ControllerByHand
) -> None:
    await brokers.start(1)
    (before,) = await controller.brokers()
    await expire_session(brokers.running[1][0]._client)

    async def another() -> bool:
        return any(broker.epoch > before.epoch for broker in await controller.brokers())

    await eventually(another)
    await eventually(lambda: brokers.status(1).epoch > before.epoch)


async def test_damaged_frames_end_one_connection_only(
    brokers: Brokers, controller: ControllerByHand, world: World
) -> None:
    await brokers.start(1)
    (broker,) = await controller.brokers()
    header = encode_request_header(ApiKey.LEADER_AND_ISR, 7, 1, "x")
    bad = (
        [header, b"\x00\x00"],  # cut short
        [encode_request_header(ApiKey.LEADER_AND_ISR, 99, 1, "x")],  # no such version
        [encode_request_header(ApiKey.PRODUCE, 9, 1, "x")],  # not offered
        [b"\x7f\xff\x00\x00\x00\x00\x00\x01"],  # no such API
        [b""],
    )
    for frame in bad:
        _, connection = await world.network.connect(BrokerConnection, "127.0.0.1", brokers.port(1), timeout_s=5)
        with pytest.raises(ConnectionError):
            await connection.request(frame)
    assert await controller.update_metadata(broker) == 0


async def test_api_versions_of_any_version_is_answered(brokers: Brokers, controller: ControllerByHand) -> None:
    await brokers.start(1)
    (broker,) = await controller.brokers()
    body = b"\x05test\x021\x00"
    for version in range(5):
        answer = await controller.send(ApiKey.API_VERSIONS, version, broker, body if version >= 3 else b"")
        entity = cold.decode_response(ApiKey.API_VERSIONS, version, answer)
        assert {each.api_key: each.max_version for each in entity.api_keys}[ApiKey.LEADER_AND_ISR] == 7
    entity = cold.decode_response(ApiKey.API_VERSIONS, 0, await controller.send(ApiKey.API_VERSIONS, 5, broker, body))
    assert int(entity.error_code) == 35


async def test_real_clients_see_the_leaders(brokers: Brokers, controller: ControllerByHand) -> None:
    await brokers.start(1, 2)
    controller.table = table({"t": [[1, 2], [2, 1]]})
    lead(controller, 0, 1, (1, 2), 4)
    lead(controller, 1, 2, (2,), 5)
    controller.port = brokers.port(1)  # librdkafka may ask the controller too, and this one serves no Metadata
    await controller.send_all()
    bootstrap = f"127.0.0.1:{brokers.port(1)}"

    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = await asyncio.to_thread(admin.list_topics, timeout=10)
    assert sorted(listed.brokers) == [1, 2, CONTROLLER_ID]
    assert listed.controller_id == CONTROLLER_ID
    seen = {n: (p.leader, p.isrs, p.replicas) for n, p in listed.topics["t"].partitions.items()}
    assert seen == {0: (1, [1, 2], [1, 2]), 1: (2, [2], [2, 1])}

    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        metadata = await client.fetch_all_metadata()
        assert metadata.topics() == {"t"}
        leaders = [metadata.leader_for_partition(TopicPartition("t", partition)) for partition in (0, 1)]
        assert leaders == [1, 2]
    finally:
        await client.close()


async def test_as_a_process(zk_connect: str, tmp_path: Path, world: World, controller: ControllerByHand) -> None:
    """SIGKILL leaves the registration to its session, for which a new process waits; SIGTERM takes it away."""
    config = BrokerConfig(4, zk_connect, tmp_path, zookeeper_session_timeout_ms=2000)
    command = [sys.executable, *broker_command(config)]
    broker = Child("broker 4", command, log=tmp_path / "log")
    try:
        await broker.wait_until_async(lambda: read_ready(tmp_path) is not None, 20)
        ready = read_ready(tmp_path)
        assert ready is not None
        assert ready.pid == broker.pid
        assert (await read_status(world, "127.0.0.1", ready.port)).epoch == ready.epoch
        broker.kill()
        assert [each.epoch for each in await controller.brokers()] == [ready.epoch]
        again = Child("broker 4", command, log=tmp_path / "log")
        broker = again
        await broker.wait_until_async(lambda: (r := read_ready(tmp_path)) is not None and r.pid == again.pid, 20)
        (registered,) = await controller.brokers()
        assert registered.epoch > ready.epoch
        await controller.update_metadata(registered)
        os.kill(broker.pid, signal.SIGTERM)
        assert await broker.ended(10)
        assert broker.exit_code == 0, broker.log_tail()
        assert controller.shutdowns == [4]
        assert await controller.brokers() == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            broker.kill()
