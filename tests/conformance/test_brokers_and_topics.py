"""Kafka's ControllerIntegrationTest: the controller itself, metadata, topics, shutdown, features, bounces, preemption.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aiocontroller.controller.event_handlers import HANDLERS
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Request
from aiocontroller.core.ids import Endpoint, TopicPartition
from aiocontroller.core.request_content import ElectionType
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import FEATURES_DISABLED, FEATURES_ENABLED, FeatureZNode
from aiocontroller.zookeeper.znodes import encode_broker
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.harness import idle, running, until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


# -- the controller itself ---------------------------------------------------------------------------------------------


async def test_empty_cluster(on: Setting) -> None:
    async with on(1) as stage:
        assert await stage.zk.get_controller_epoch() == (1, 1)
        assert stage.service.controller.election.active


async def test_controller_epoch_persists_when_all_brokers_down(on: Setting) -> None:
    async with on(1) as stage:
        await stage.stop_broker(0)
        await stage.stop_controller(stage.service)
        assert await stage.zk.get_controller(watch=False) is None
        assert await stage.zk.get_controller_epoch() == (1, 1)


async def test_controller_move_increments_controller_epoch(on: Setting) -> None:
    async with on(1) as stage:
        await stage.stop_controller(stage.service)
        await stage.add_controller()
        await until(lambda: stage.service.shell.context.epoch == 2)
        assert await stage.zk.get_controller_epoch() == (2, 2)


# -- metadata ----------------------------------------------------------------------------------------------------------


async def test_metadata_propagation_on_control_plane(world: World, zk_connect: str) -> None:
    """Nothing goes to the data plane; one connection and one request to the control plane."""
    async with running(world, zk_connect) as cluster:
        data, control = (RecordingBroker(world, zk_connect, 0) for _ in range(2))
        control.settings["control.plane.listener.name"] = "CONTROLLER"
        await data.listen()
        await control.listen()
        endpoints = (
            Endpoint("PLAINTEXT", "127.0.0.1", data.port),
            Endpoint("CONTROLLER", "127.0.0.1", control.port),
        )
        info = data.info
        both = msgspec.structs.replace(info, broker=msgspec.structs.replace(info.broker, endpoints=endpoints))
        await cluster.client.create("/brokers/ids/0", data=encode_broker(both))
        service = await cluster.add_controller(control_plane_listener_name="CONTROLLER")
        await until(lambda: control.received)
        await idle(service)
        assert {r.api for r in control.received} == {ApiKey.UPDATE_METADATA}
        await cluster.create_topic("t", {0: [0]})
        await cluster.until_leaders("t", [0])
        await idle(service)
        (request,) = control.of(ApiKey.LEADER_AND_ISR)
        (leader,) = request.live_leaders
        assert leader.port == data.port, "followers fetch where brokers speak to each other"
        assert data.received == []
        await cluster.client.delete("/brokers/ids/0")
        for listening in (data, control):
            listening.deafen()


async def test_metadata_propagation_on_broker_change(on: Setting) -> None:
    async with on(3) as stage:
        await stage.create_topic("t", {0: [0, 1], 1: [0, 2]})
        await stage.until_cached("t", 1, leader=0, isr=(0, 2))
        await stage.stop_broker(1)
        await stage.until_cached("t", 0, leader=0, leader_epoch=1, replicas=(0, 1), isr=(0,), offline=(1,))
        await stage.until_cached("t", 1, leader=0, leader_epoch=0, replicas=(0, 2), isr=(0, 2), offline=())
        await stage.start_broker(1)
        await stage.until_cached("t", 0, replicas=(0, 1), offline=())
        await stage.until_cached("t", 1, replicas=(0, 2), offline=())


async def test_metadata_propagation_for_offline_replicas(on: Setting) -> None:
    async with on(3) as stage:
        await stage.create_topic("t", {0: [1]})
        await stage.until_cached("t", 0, leader=1)
        for broker in (2, 1, 0):
            await stage.stop_broker(broker)
        for broker in (0, 2):
            await stage.start_broker(broker)
            await stage.until_cached("t", 0, leader=-1, replicas=(1,), isr=(1,), offline=(1,))


async def test_metadata_propagation_on_broker_shutdown_with_no_replicas(on: Setting) -> None:
    async with on(3) as stage:
        await stage.create_topic("t", {0: [1]})
        await stage.until_cached("t", 0, leader=1)
        await stage.stop_broker(1)
        await stage.stop_broker(2)
        alive = stage.simulated[0].metadata.alive
        await until(lambda: set(stage.simulated[0].metadata.alive) == {0, stage.service.shell.id}, f"alive: {alive}")


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_topic_creation(on: Setting) -> None:
    async with on(1) as stage:
        await stage.create_topic("t", {0: [0]})
        await stage.wait_for_partition_state("t", 0, 0, 0)
        await stage.until_cached("t", 0, leader=0)


async def test_topic_creation_with_offline_replica(on: Setting) -> None:
    async with on(2) as stage:
        await stage.stop_broker(1)
        await stage.create_topic("t", {0: [1, 0]})
        state = await stage.wait_for_partition_state("t", 0, 0, 0)
        assert state.isr == (0,)


async def test_topic_partition_expansion(on: Setting) -> None:
    async with on(1) as stage:
        await stage.create_topic("t", {0: [0]})
        await stage.wait_for_partition_state("t", 0, 0, 0)
        await stage.expand("t", {1: [0]})
        await stage.wait_for_partition_state("t", 1, 0, 0)
        await stage.until_cached("t", 1, leader=0)


async def test_topic_partition_expansion_with_offline_replica(on: Setting) -> None:
    async with on(2) as stage:
        await stage.create_topic("t", {0: [1, 0]})
        await stage.wait_for_partition_state("t", 0, 1, 0)
        await stage.stop_broker(1)
        await stage.expand("t", {1: [1, 0]})
        await stage.wait_for_partition_state("t", 1, 0, 0)
        await stage.until_cached("t", 1, leader=0)


# -- no replica in sync -----------------------------------------------------------------------------------------------


async def entire_isr_dies(stage: SimulatedCluster) -> None:
    await stage.create_topic("t", {0: [1]})
    await stage.wait_for_partition_state("t", 0, 1, 0)
    await stage.stop_broker(1)
    state = await stage.wait_for_partition_state("t", 0, -1, 1)
    assert state.isr == (1,)


async def test_leader_and_isr_when_entire_isr_offline_and_unclean_leader_election_disabled(on: Setting) -> None:
    async with on(2) as stage:
        await entire_isr_dies(stage)


async def test_leader_and_isr_when_entire_isr_offline_and_unclean_leader_election_enabled(on: Setting) -> None:
    async with on(2, unclean_leader_election_enable=True) as stage:
        await entire_isr_dies(stage)


# -- controlled shutdown -----------------------------------------------------------------------------------------------


async def test_controlled_shutdown(on: Setting) -> None:
    async with on(3) as stage:
        await stage.create_topic("t", {0: [0, 1, 2]})
        await stage.until_cached("t", 0, leader=0, isr=(0, 1, 2))
        for broker, isr, left in ((2, (0, 1), []), (1, (0,), []), (0, (0,), [T0])):
            epoch = stage.simulated[broker].epoch
            assert await stage.ask(ev.ControlledShutdown, broker=broker, broker_epoch=epoch) == left
            await stage.until_cached("t", 0, leader=0, isr=isr)


async def test_controller_reject_controlled_shutdown_request_with_stale_broker_epoch(on: Setting) -> None:
    async with on(2) as stage:
        stale = stage.simulated[1].epoch - 1
        answer = await stage.ask(ev.ControlledShutdown, broker=1, broker_epoch=stale)
        assert answer == KafkaErrorCode.STALE_BROKER_EPOCH
        assert stage.service.shell.context.shutting_down == {}


# -- features ----------------------------------------------------------------------------------------------------------


async def feature_znode_setup(on: Setting, found: FeatureZNode | None, protocol: str, expected: FeatureZNode) -> None:
    """A znode that is as it should be is not written: its version tells."""
    async with on(0) as stage:
        await stage.stop_controller(stage.service)
        epoch = await stage.zk.get_controller_epoch()
        assert epoch is not None
        if await stage.client.exists("/feature"):
            await stage.client.delete("/feature")
        if found is not None:
            assert await stage.zk.set_feature(found, -1, fence=epoch[1])
        await stage.add_controller(inter_broker_protocol_version=protocol)
        await stage.active()

        async def written() -> bool:
            return (await stage.zk.get_feature())[0] == expected

        await until(written, str(expected))
        await idle(stage.service)
        writes = 0 if found is None or found == expected else 1
        assert await stage.zk.get_feature() == (expected, writes)
        assert stage.service.controller.election.active


def znode(status: int, *, version: int = 1, **levels: int) -> FeatureZNode:
    return FeatureZNode(version, status, levels)


ON, OFF = FEATURES_ENABLED, FEATURES_DISABLED


async def test_controller_feature_z_node_setup_when_feature_versioning_is_enabled_with_non_existing_feature_z_node(
    on: Setting,
) -> None:
    await feature_znode_setup(on, None, "2.7-IV0", znode(ON))


async def test_controller_feature_z_node_setup_when_feature_versioning_is_enabled_with_disabled_existing_feature_z_node(
    on: Setting,
) -> None:
    await feature_znode_setup(on, znode(OFF, f=3), "2.7-IV0", znode(ON))


async def test_controller_feature_z_node_setup_when_feature_versioning_is_enabled_with_enabled_existing_feature_z_node(
    on: Setting,
) -> None:
    await feature_znode_setup(on, znode(ON, f=3), "3.9-IV0", znode(ON, version=2, f=3))


async def test_controller_feature_z_node_setup_when_feature_versioning_is_disabled_with_non_existing_feature_z_node(
    on: Setting,
) -> None:
    await feature_znode_setup(on, None, "2.6-IV0", znode(OFF))


async def test_controller_feature_z_node_setup_when_feature_versioning_is_disabled_with_disabled_existing_feature_z_node(  # noqa: E501  (Kafka's name)
    on: Setting,
) -> None:
    await feature_znode_setup(on, znode(OFF), "2.6-IV0", znode(OFF))


async def test_controller_feature_z_node_setup_when_feature_versioning_is_disabled_with_enabled_existing_feature_z_node(
    on: Setting,
) -> None:
    await feature_znode_setup(on, znode(ON, f=3), "2.6-IV0", znode(OFF))


# -- bounces and preemption --------------------------------------------------------------------------------------------


class Stuck:
    """Holds the consumer in a topic event until ``release``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self._released = asyncio.Event(), asyncio.Event()
        self._real = HANDLERS[ev.TopicChange]
        monkeypatch.setitem(HANDLERS, ev.TopicChange, self._handle)

    async def _handle(self, *arguments: Any) -> None:
        self.entered.set()
        await self._released.wait()
        await self._real(*arguments)

    def release(self) -> None:
        self._released.set()


def requests_waiting(service: Service) -> int:
    """Signals may come meanwhile."""
    return sum(isinstance(queued.event, Request) for queued in service.queue._events)


async def test_controller_detects_bounced_brokers(on: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(2) as stage:
        await stage.create_topic("t", {0: [0, 1]})
        await stage.wait_for_partition_state("t", 0, 0, 0)
        await idle(stage.service)
        stuck = Stuck(monkeypatch)
        stage.service.queue.append(ev.TopicChange())
        await stuck.entered.wait()
        old = stage.simulated.pop(1)
        old.stop(controlled=False)
        await asyncio.wait_for(stage._lives.pop(1), 10)
        restarting = asyncio.create_task(stage.start_broker(1))
        await until(lambda: 1 in stage.simulated and stage.simulated[1].epoch > old.epoch)
        assert stage.cached(1, "t") is None
        assert stage.simulated[1].status().replicas == []
        stuck.release()
        await restarting
        await stage.until_cached("t", 0, leader=0)
        await until(lambda: len(stage.simulated[1].status().replicas) == 1)
        assert set(stage.simulated[1].metadata.alive) == {0, 1, stage.service.shell.id}
        assert set(stage.simulated[1].metadata.topics) == {"t"}


async def test_preemption_on_controller_shutdown(on: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(1) as stage:
        stuck = Stuck(monkeypatch)
        service = stage.service
        service.queue.append(ev.TopicChange())
        await stuck.entered.wait()
        answers = [asyncio.create_task(stage.ask(ev.ListPartitionReassignments, partitions=None)) for _ in range(2)]
        await until(lambda: requests_waiting(service) == 2)
        service.stop()
        assert await asyncio.gather(*answers) == [KafkaErrorCode.NOT_CONTROLLER] * 2
        stuck.release()
        await stage.stop_controller(service)


async def test_preemption_with_callbacks(on: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's four, and the three that it leaves unanswered."""
    async with on(1) as stage:
        stuck = Stuck(monkeypatch)
        service = stage.service
        service.queue.append(ev.TopicChange())
        await stuck.entered.wait()
        asked: list[tuple[type[Request], dict[str, Any]]] = [
            (ev.ApiPartitionReassignment, {"targets": {T0: (0,)}}),
            (ev.ListPartitionReassignments, {"partitions": (T0,)}),
            (ev.ReplicaLeaderElection, {"partitions": (T0,), "election_type": ElectionType.PREFERRED}),
            (ev.ControlledShutdown, {"broker": 0, "broker_epoch": 0}),
            (ev.AlterPartitionReceived, {"broker": 0, "broker_epoch": 0, "version": 3, "partitions": ()}),
            (ev.AllocateProducerIds, {"broker": 0, "broker_epoch": 0}),
            (ev.UpdateFeatures, {"updates": {"f": 1}}),
        ]
        answers = [asyncio.create_task(stage.ask(kind, **fields)) for kind, fields in asked]
        await until(lambda: requests_waiting(service) == len(asked))
        service.queue.clear_and_put(ev.Expire())
        assert await asyncio.gather(*answers) == [KafkaErrorCode.NOT_CONTROLLER] * len(asked)
        stuck.release()
        await until(lambda: not service.controller.election.active)
