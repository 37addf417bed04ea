"""Weak points of Kafka 3.9's controller found by reading, as listed in docs/known-bugs.md, that no other file tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import AlterPartition, ElectionType
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, journal_of, running, until
from tests.integration.controller.test_reassignment import ask

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2):
            await cluster.add_broker(broker)
        service = await cluster.add_controller(auto_leader_rebalance_enable=False)
        await cluster.create_topic("t", {0: [1, 2]})
        await cluster.until_leaders("t", [1])
        await idle(service)
        yield cluster


REQUESTS: dict[str, Any] = {
    "AlterPartition": lambda cluster, state, reply: ev.AlterPartitionReceived(
        broker=1,
        broker_epoch=cluster.brokers[1].epoch,
        version=0,
        partitions=(AlterPartition("t", 0, state.leader_epoch, (1,), state.partition_epoch),),
        reply=reply,
    ),
    "ControlledShutdown": lambda cluster, _, reply: ev.ControlledShutdown(
        broker=1, broker_epoch=cluster.brokers[1].epoch, reply=reply
    ),
    "AllocateProducerIds": lambda cluster, _, reply: ev.AllocateProducerIds(
        broker=1, broker_epoch=cluster.brokers[1].epoch, reply=reply
    ),
    "ElectLeaders": lambda cluster, _, reply: ev.ReplicaLeaderElection(
        partitions=(T0,), election_type=ElectionType.PREFERRED, reply=reply
    ),
    "AlterPartitionReassignments": lambda cluster, _, reply: ev.ApiPartitionReassignment(
        targets={T0: (2, 1)}, reply=reply
    ),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
async def test_lost_role_ends_the_term_whatever_was_asked(cluster: Cluster, request_: Any) -> None:
    """The write is refused: the client gets NOT_CONTROLLER, the term ends, nothing was written."""
    service = await cluster.active()
    if request_ is REQUESTS["ElectLeaders"]:
        await cluster.bounce_broker(1)
        await cluster.until_state("t", 2, (2,))
        await idle(service)
        state = await cluster.state("t")
        service.shell.owner = None  # damage done on purpose
        service.shell.context.table.set_leadership(0, type(state)(2, 1, (2, 1), 1, state.partition_epoch))
    before = await cluster.state("t")
    epoch, version = await cluster.zk.get_controller_epoch() or (0, 0)
    await cluster.client.set_data("/controller_epoch", str(epoch + 1).encode(), version)
    answer = await ask(service, lambda reply: request_(cluster, before, reply))
    assert answer == KafkaErrorCode.NOT_CONTROLLER
    await until(lambda: service.shell.context.epoch == epoch + 2)
    await idle(service)
    after = await cluster.state("t")
    assert (after.leader, after.isr, after.leader_epoch) == (before.leader, before.isr, before.leader_epoch)
    assert (await cluster.zk.get_latest_producer_id_block())[0] is None
    assert journal_of(service).of_kind("fault") == []


async def test_election_for_a_partition_that_never_had_a_leader_is_answered(cluster: Cluster) -> None:
    service = await cluster.active()
    await cluster.create_topic("dead", {0: [9]})
    await until(lambda: "dead" in service.shell.context.table.topic_by_name)
    await idle(service)
    dead, absent = TopicPartition("dead", 0), TopicPartition("absent", 0)
    for kind in ElectionType:
        answers = await ask(
            service,
            lambda reply, kind=kind: ev.ReplicaLeaderElection(
                partitions=(dead, absent, T0), election_type=kind, reply=reply
            ),
        )
        assert {tp: code for tp, (code, _) in answers.items()} == {
            dead: KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            absent: KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            T0: KafkaErrorCode.ELECTION_NOT_NEEDED,
        }


async def test_election_of_all_leaves_out_what_brokers_do_not_know_of(cluster: Cluster) -> None:
    """Kafka takes all partitions from its metadata cache: brokers do not know one that never had a leader."""
    service = await cluster.active()
    await cluster.create_topic("dead", {0: [9]})
    await until(lambda: "dead" in service.shell.context.table.topic_by_name)
    await idle(service)
    for kind in ElectionType:
        answers = await ask(
            service,
            lambda reply, kind=kind: ev.ReplicaLeaderElection(partitions=None, election_type=kind, reply=reply),
        )
        assert answers == {}


async def test_election_is_answered_before_the_brokers_have_answered(cluster: Cluster) -> None:
    """ZooKeeper has the new leader, and the requests are queued; Kafka waits for a broker's metadata."""
    service = await cluster.active()
    await ask(service, lambda reply: ev.ApiPartitionReassignment(targets={T0: (2, 1)}, reply=reply))
    await until(lambda: not service.shell.context.partitions_being_reassigned)
    await idle(service)
    assert (await cluster.state("t")).leader == 1
    for broker in cluster.brokers.values():
        broker.take()
        broker.unanswered = {ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA}
    answers = await ask(
        service,
        lambda reply: ev.ReplicaLeaderElection(partitions=(T0,), election_type=ElectionType.PREFERRED, reply=reply),
    )
    assert answers == {T0: (KafkaErrorCode.NONE, "")}
    assert (await cluster.state("t")).leader == 2
    assert service.shell.channels is not None
    assert all(s.queued or s.in_flight for s in service.shell.channels.statistics())


async def test_leaders_of_several_brokers_go_home_in_one_request(cluster: Cluster) -> None:
    """Kafka sends a batch for each preferred broker."""
    service = await cluster.active()
    third = await cluster.add_broker(3)
    await cluster.create_topic("away", {0: [3, 1], 1: [3, 2]})
    await cluster.until_leaders("away", [3, 3])
    home = {TopicPartition("away", 0): (1, 3), TopicPartition("away", 1): (2, 3)}
    await ask(service, lambda reply: ev.ApiPartitionReassignment(targets=home, reply=reply))
    await until(lambda: not service.shell.context.partitions_being_reassigned)
    await idle(service)
    assert await cluster.leaders("away", 2) == [3, 3]
    third.take()
    service.shell.policy = msgspec.structs.replace(service.shell.policy, auto_leader_rebalance_enable=True)
    service.queue.append(ev.AutoPreferredReplicaLeaderElection())
    await cluster.until_leaders("away", [1, 2])
    await until(lambda: third.of(ApiKey.LEADER_AND_ISR))
    await idle(service)
    (request,) = third.of(ApiKey.LEADER_AND_ISR)
    (topic,) = request.topic_states
    assert sorted((p.partition_index, p.leader) for p in topic.partition_states) == [(0, 1), (1, 2)]


async def test_malformed_request_znodes_are_named(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    service = await cluster.active()
    await cluster.client.create("/admin/reassign_partitions", data=b'{"version": 9}')
    await cluster.client.create("/admin/preferred_replica_election", data=b"[")
    await until(lambda: service.shell.counts.bad_znodes.value == 2)

    async def election_gone() -> bool:
        return not await cluster.client.exists("/admin/preferred_replica_election")

    await until(election_gone)
    assert await cluster.client.exists("/admin/reassign_partitions"), "left for its writer"
    messages = [r.getMessage() for r in caplog.records]
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
        assert any(f"Ignoring the znode {path}: found" in line for line in messages)
    await cluster.client.delete("/admin/reassign_partitions")
    await cluster.client.create(
        "/admin/reassign_partitions",
        data=b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}',
    )
    await until(lambda: service.shell.context.table.replicas(0) == (2, 1), "the watch still works")
