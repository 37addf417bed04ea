"""Brokers bounce, move, change racks, cannot be reached or cannot be read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aiocontroller.controller.controller_eligibility import ACL_AUTHORIZERS
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.codec import Delete
from aiocontroller.zookeeper.znodes import encode_broker
from tests.integration.controller.harness import Cluster, idle, journal_of, running, until


def partitions(request: Any) -> list[tuple[str, int]]:
    return [(t.topic_name, p.partition_index) for t in request.topic_states for p in t.partition_states]


async def test_bounced_broker_fails_and_starts_again(cluster: Cluster) -> None:
    """Same id, new registration: Kafka's failure and startup in one event; no state of the old process is trusted."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1], 2: [2]})
    await cluster.until_leaders("t", [1, 2, 2])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    epoch = await cluster.bounce_broker(2)
    first = await cluster.until_state("t", 1, (1, 3), 0)
    second = await cluster.until_state("t", 3, (3, 1), 1)
    await idle(service)  # the third ends with the leader and ISR with which it began
    third = await cluster.until_state("t", 2, (2,), 2)
    assert (first.leader_epoch, second.leader_epoch, third.leader_epoch) == (1, 1, 2)
    await idle(service)
    bounced = cluster.brokers[2]
    assert {r.request.broker_epoch for r in bounced.received} == {epoch}
    assert service.shell.context.brokers[2].epoch == epoch
    full = bounced.of(ApiKey.UPDATE_METADATA)[0]
    assert partitions(full) == [("t", 0), ("t", 1), ("t", 2)], "the new process learns everything"
    led = {
        (t.topic_name, p.partition_index): p.leader
        for r in bounced.of(ApiKey.LEADER_AND_ISR)
        for t in r.topic_states
        for p in t.partition_states
    }
    assert led == {("t", 0): 1, ("t", 1): 3, ("t", 2): 2}
    assert [r.detail for r in journal_of(service).of_kind("broker") if r.broker == 2] == ["bounced"]


async def test_brokers_that_die_at_once_cost_one_change_and_one_request(cluster: Cluster) -> None:
    """Kafka shrinks ISRs broker by broker, keeps one member where all die, and separates elections from shrinks."""
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.create_topic("t", {0: [3, 1, 2], 1: [1, 2, 3], 2: [1, 2], 3: [1, 3]})
    await cluster.until_leaders("t", [3, 1, 1, 1])
    await idle(service)
    left = cluster.brokers[3]
    left.take()
    await cluster.client.multi([Delete("/brokers/ids/1"), Delete("/brokers/ids/2")])
    await cluster.until_leaders("t", [3, 3, -1, 3])
    await until(lambda: left.of(ApiKey.LEADER_AND_ISR))
    await idle(service)
    states = await cluster.states("t", 4)
    assert [s.isr for s in states if s] == [(3,), (3,), (1, 2), (3,)]
    assert [(s.leader_epoch, s.partition_epoch) for s in states if s] == [(1, 1)] * 4
    (request,) = left.of(ApiKey.LEADER_AND_ISR)
    assert sorted(partitions(request)) == [("t", 0), ("t", 1), ("t", 3)]


async def test_moved_broker_is_found_at_its_new_port(cluster: Cluster) -> None:
    """Kafka keeps talking to the old endpoint until the broker bounces."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    moving = cluster.brokers[2]
    old = moving.port
    moving.deafen()
    await moving.listen()
    assert moving.port != old
    for broker in cluster.brokers.values():
        broker.take()
    await moving.client.set_data("/brokers/ids/2", encode_broker(moving.info))
    for broker in cluster.brokers.values():
        await until(lambda broker=broker: broker.of(ApiKey.UPDATE_METADATA), f"broker {broker.id} hears of it")
        live = broker.of(ApiKey.UPDATE_METADATA)[0].live_brokers
        assert {b.id_: b.endpoints[0].port for b in live}[2] == moving.port
    assert (await cluster.state("t")).leader_epoch == 0, "nothing else happens to it"


async def test_changed_rack_is_sent_to_all(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await until(lambda: len(service.shell.context.brokers) == 3)
    await idle(service)
    other = cluster.brokers[1]
    other.take()
    cluster.brokers[2].rack = "r7"
    await cluster.brokers[2].client.set_data("/brokers/ids/2", encode_broker(cluster.brokers[2].info))
    await until(lambda: service.shell.context.brokers[2].rack == "r7")
    await until(lambda: other.of(ApiKey.UPDATE_METADATA))
    assert "r7" in [b.rack for b in other.of(ApiKey.UPDATE_METADATA)[0].live_brokers]


async def test_brokers_that_are_slow_to_listen_get_everything_when_they_do(world: World, zk_connect: str) -> None:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2):
            await cluster.add_broker(broker)
        slow = cluster.brokers[2]
        port = slow.port
        slow.deafen()
        # without an authorizer of its own it would wait until the broker reports that it has none, and for its settings
        service = await cluster.add_controller(
            authorizer_class_name=ACL_AUTHORIZERS[0], super_users=("User:ANONYMOUS",), aiocontroller_keep_ours=("all",)
        )
        await cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
        await cluster.until_leaders("t", [1, 2])
        await until(lambda: cluster.brokers[1].of(ApiKey.LEADER_AND_ISR))
        assert slow.received == []
        await slow.listen(port)
        await until(lambda: len(slow.of(ApiKey.LEADER_AND_ISR)) == 2)
        await idle(service)
        assert slow.received[0].api is ApiKey.UPDATE_METADATA
        leads, follows = slow.of(ApiKey.LEADER_AND_ISR)
        assert (partitions(leads), partitions(follows)) == ([("t", 1)], [("t", 0)])


async def test_unreadable_broker_is_left_out_and_comes_in_when_repaired(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.client.create("/brokers/ids/9", data=b'{"no": "broker"}')
    with caplog.at_level(logging.ERROR):
        service = await cluster.add_controller()
        await cluster.create_topic("t", {0: [1, 9]})
        state = await cluster.until_state("t", 1, (1,))
        assert state.leader_epoch == 0
    assert any("Ignoring the znode /brokers/ids/9: found" in r.getMessage() for r in caplog.records)
    assert service.shell.counts.bad_znodes.value == 1
    assert "BadZNodes".lower() in service.metrics.render()
    assert sorted(service.shell.context.brokers) == [1, 2, 3]
    repaired = RecordingBroker(cluster.world, cluster.zk_connect, 9)
    await repaired.listen()
    await cluster.client.set_data("/brokers/ids/9", encode_broker(repaired.info))
    try:
        await until(lambda: 9 in service.shell.context.brokers, "broker 9 is known")
        await until(lambda: repaired.of(ApiKey.LEADER_AND_ISR))
    finally:
        repaired.deafen()
        await cluster.client.delete("/brokers/ids/9")


async def test_known_broker_that_becomes_unreadable_stays(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [2, 1]})
    await cluster.until_leaders("t", [2])
    good = encode_broker(cluster.brokers[2].info)
    await cluster.brokers[2].client.set_data("/brokers/ids/2", b"\xff\xfe")
    await until(lambda: service.shell.counts.bad_znodes.value == 1)
    await cluster.kill_broker(3)
    await until(lambda: sorted(service.shell.context.brokers) == [1, 2])
    await cluster.brokers[2].client.set_data("/brokers/ids/2", good)
    await idle(service)
    assert await cluster.leaders("t", 1) == [2]


async def test_name_that_is_no_broker_id_is_reported_once_for_each_look(cluster: Cluster) -> None:
    await cluster.client.create("/brokers/ids/nonsense", data=b"")
    service = await cluster.add_controller()
    await until(lambda: sorted(service.shell.context.brokers) == [1, 2, 3])
    assert service.shell.counts.bad_znodes.value == 1


async def test_dead_brokers_are_taken_out_at_failover(cluster: Cluster) -> None:
    """There was no controller when the leader died: two steps, as Kafka counts them (ISR removal, election)."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3], 1: [3]})
    await cluster.until_leaders("t", [1, 3])
    await idle(service)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    await cluster.kill_broker(1)
    await cluster.kill_broker(3)
    await cluster.add_controller()
    first = await cluster.until_state("t", 2, (2,), 0)
    second = await cluster.until_state("t", -1, (3,), 1)
    assert (first.leader_epoch, second.leader_epoch) == (2, 1)


async def test_log_directory_failure_takes_the_replica_offline(cluster: Cluster) -> None:
    cluster.brokers[1].errors[("t", 0)] = KafkaErrorCode.KAFKA_STORAGE_ERROR
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3], 1: [1, 2, 3]})
    state = await cluster.until_state("t", 2, (2, 3), 0)
    assert state.leader_epoch == 1
    await idle(service)
    assert await cluster.leaders("t", 2) == [2, 1], "the other directory works"
    metadata = cluster.brokers[3].of(ApiKey.UPDATE_METADATA)[-1]
    offline = {p.partition_index: p.offline_replicas for t in metadata.topic_states for p in t.partition_states}
    assert offline[0] == (1,)


async def test_broker_whose_disk_was_repaired_starts_anew(cluster: Cluster) -> None:
    cluster.brokers[1].errors[("t", 0)] = KafkaErrorCode.KAFKA_STORAGE_ERROR
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_state("t", -1, (1,))
    cluster.brokers[1].errors.clear()
    await cluster.bounce_broker(1)
    await cluster.until_state("t", 1, (1,))
    await idle(service)
    assert service.shell.context.offline_dirs == {}


async def test_endpoint_is_that_of_the_control_plane_listener(cluster: Cluster) -> None:
    for each in cluster.brokers.values():
        each.settings["control.plane.listener.name"] = "CONTROL"
    service = await cluster.add_controller(control_plane_listener_name="CONTROL")
    await until(lambda: len(service.shell.context.brokers) == 3)
    broker = service.shell.context.brokers[1]
    assert service.shell.endpoint_of(broker) == broker.endpoints[0], "brokers without it are reached as ever"
    two = type(broker)(1, 1, (*broker.endpoints, Endpoint("CONTROL", "h", 1)))
    assert service.shell.endpoint_of(two) == Endpoint("CONTROL", "h", 1)
