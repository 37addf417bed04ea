"""Replicas move: by znode and by request, with dead, changed or cancelled targets, and across failovers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterPartitionReceived, ApiPartitionReassignment, ListPartitionReassignments
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, until

T0 = TopicPartition("t", 0)


async def ask(service: Service, make: Any) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(make(Reply(answer.set_result)))
    return await asyncio.wait_for(answer, 10)


async def reassign(service: Service, targets: dict[TopicPartition, tuple[int, ...] | None]) -> Any:
    return await ask(service, lambda reply: ApiPartitionReassignment(targets=targets, reply=reply))


async def request_by_znode(cluster: Cluster, targets: dict[TopicPartition, list[int]]) -> None:
    partitions = [{"topic": tp.topic, "partition": tp.partition, "replicas": r} for tp, r in targets.items()]
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await cluster.client.create("/admin/reassign_partitions", data=data)


async def catch_up(cluster: Cluster, service: Service, isr: tuple[int, ...]) -> None:
    """Have the leader of t-0 report these as in sync, as it does when the added replicas have caught up."""

    async def accepted() -> bool:
        (state,) = await cluster.states("t", 1)
        assert state is not None
        change = AlterPartition("t", 0, state.leader_epoch, isr, state.partition_epoch)
        results = await ask(
            service,
            lambda reply: AlterPartitionReceived(
                broker=state.leader,
                broker_epoch=service.shell.context.brokers[state.leader].epoch,
                version=0,
                partitions=(change,),
                reply=reply,
            ),
        )
        return bool(results[0].error_code == KafkaErrorCode.NONE)

    await until(accepted, f"ISR {isr}")  # fenced while the epoch is being raised, as a real leader would be


async def assignment(cluster: Cluster, topic: str = "t") -> ReplicaAssignment:
    found = await cluster.zk.get_topic_assignments([topic], watch=False)
    return found.found[0].partitions[0]


async def finished(cluster: Cluster, service: Service, target: tuple[int, ...]) -> None:
    async def check() -> bool:
        return await assignment(cluster) == ReplicaAssignment(target)

    await until(check, f"reassigned to {target}")
    await until(lambda: not service.shell.context.partitions_being_reassigned)


async def started(cluster: Cluster, replicas: list[int], **settings: Any) -> Service:
    service = await cluster.add_controller(**settings)
    await cluster.create_topic("t", {0: replicas})
    await cluster.until_leaders("t", [replicas[0]])
    await idle(service)  # the brokers have been told
    return service


async def test_reassignment_by_request_ends_at_leader_epoch_3(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    assert await reassign(service, {T0: (2,)}) == {T0: (KafkaErrorCode.NONE, "")}
    assert await assignment(cluster) == ReplicaAssignment((2, 1), (2,), (1,))
    listed = await ask(service, lambda reply: ListPartitionReassignments(partitions=None, reply=reply))
    assert listed == {T0: ReplicaAssignment((2, 1), (2,), (1,))}
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    (state,) = await cluster.states("t", 1)
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 3)
    await until(lambda: cluster.brokers[1].of(ApiKey.STOP_REPLICA))
    stops = [p for r in cluster.brokers[1].of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states]
    assert [p.delete_partition for p in stops] == [True]


async def test_added_replica_is_new_on_its_broker_only(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    for broker in cluster.brokers.values():
        broker.take()
    await reassign(service, {T0: (1, 2)})
    await until(lambda: cluster.brokers[2].of(ApiKey.LEADER_AND_ISR) and cluster.brokers[1].of(ApiKey.LEADER_AND_ISR))
    is_new = {
        broker: [
            p.is_new
            for r in cluster.brokers[broker].of(ApiKey.LEADER_AND_ISR)
            for t in r.topic_states
            for p in t.partition_states
        ]
        for broker in (1, 2)
    }
    assert is_new == {1: [False], 2: [True]}


async def test_reassignment_by_znode(cluster: Cluster) -> None:
    service = await started(cluster, [1, 2])
    await request_by_znode(cluster, {T0: [2, 3], TopicPartition("unknown", 0): [1]})
    await until(lambda: service.shell.context.partitions_being_reassigned)
    await catch_up(cluster, service, (1, 2, 3))
    await finished(cluster, service, (2, 3))

    async def znode_gone() -> bool:
        return await cluster.zk.get_partition_reassignment(watch=False) is None

    await until(znode_gone)
    # The watch is armed again: a second request is noticed.
    await request_by_znode(cluster, {T0: [3, 2]})
    await finished(cluster, service, (3, 2))


async def test_reassignment_to_a_dead_broker_waits_and_resumes_at_epoch_4(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await request_by_znode(cluster, {T0: [2]})
    await until(lambda: service.shell.context.partitions_being_reassigned)
    await until(lambda: service.shell.context.table.leader_epoch[0] == 1)
    assert await assignment(cluster) == ReplicaAssignment((2, 1), (2,), (1,))
    await cluster.add_broker(2)
    await until(lambda: service.shell.context.table.leader_epoch[0] == 2)
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    (state,) = await cluster.states("t", 1)
    assert state is not None
    assert (state.leader, state.leader_epoch) == (2, 4)


async def test_requests_that_cannot_be_are_refused(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    for target, code in (
        ((), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((2, 2), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, service.shell.id), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        answers = await reassign(service, {T0: target})
        assert answers[T0][0] == code, target
    unknown = TopicPartition("t", 7)
    assert (await reassign(service, {unknown: (1,)}))[unknown][0] == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await assignment(cluster) == ReplicaAssignment((1,))


async def test_cancel_restores_the_origin(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    await reassign(service, {T0: (2, 3)})
    await reassign(service, {T0: None})
    await finished(cluster, service, (1,))


def epochs_sent(cluster: Cluster, broker: int, api: ApiKey) -> list[int]:
    """Return the epochs of t-0 in the order in which the broker got them."""
    requests = cluster.brokers[broker].of(api)
    return [p.leader_epoch for r in requests for t in r.topic_states for p in t.partition_states]


@pytest.mark.parametrize("target", [None, (1, 3)], ids=["cancelled", "overridden"])
async def test_dropped_replica_is_stopped_under_a_higher_epoch(
    cluster: Cluster, target: tuple[int, ...] | None
) -> None:
    """Brokers of 2.6 to 3.4.0 ignore a StopReplica with the leader epoch that they already have (KAFKA-13972)."""
    service = await started(cluster, [1])
    await reassign(service, {T0: (1, 2)})
    await until(lambda: epochs_sent(cluster, 2, ApiKey.LEADER_AND_ISR))
    await reassign(service, {T0: target})
    await until(lambda: epochs_sent(cluster, 2, ApiKey.STOP_REPLICA))
    await idle(service)
    (stopped_at,) = epochs_sent(cluster, 2, ApiKey.STOP_REPLICA)
    assert stopped_at > max(epochs_sent(cluster, 2, ApiKey.LEADER_AND_ISR))
    state = await cluster.state("t")
    assert stopped_at == state.leader_epoch, "raised once, with everything else"


async def test_dropped_replica_is_stopped_under_a_higher_epoch_without_a_leader(cluster: Cluster) -> None:
    """No phase raises the epoch of a partition whose in-sync replicas are down; it has to be raised anyway."""
    service = await started(cluster, [1])
    await reassign(service, {T0: (1, 2)})
    await cluster.kill_broker(1)
    await cluster.until_state("t", -1, (1,))
    await idle(service)
    await reassign(service, {T0: None})
    await until(lambda: epochs_sent(cluster, 2, ApiKey.STOP_REPLICA))
    assert epochs_sent(cluster, 2, ApiKey.STOP_REPLICA)[0] > max(epochs_sent(cluster, 2, ApiKey.LEADER_AND_ISR))


async def test_override_drops_the_first_target(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    await reassign(service, {T0: (2,)})
    await reassign(service, {T0: (3,)})
    assert await assignment(cluster) == ReplicaAssignment((3, 1), (3,), (1,))
    await catch_up(cluster, service, (1, 3))
    await finished(cluster, service, (3,))


async def test_pure_reorder_needs_no_catching_up(cluster: Cluster) -> None:
    service = await started(cluster, [1, 2])
    await reassign(service, {T0: (2, 1)})
    await finished(cluster, service, (2, 1))


async def test_failover_resumes_a_running_reassignment(cluster: Cluster) -> None:
    first = await started(cluster, [1])
    await reassign(first, {T0: (2,)})
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    second = await cluster.add_controller()
    await cluster.active()
    await until(lambda: list(second.shell.context.table.leader_epoch) == [2])
    await catch_up(cluster, second, (1, 2))
    await finished(cluster, second, (2,))


async def test_removed_replica_that_refuses_is_asked_again(cluster: Cluster) -> None:
    service = await started(cluster, [1])
    cluster.brokers[1].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR]
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until(lambda: len(cluster.brokers[1].of(ApiKey.STOP_REPLICA)) == 2)


async def test_partitions_added_meanwhile_stay(cluster: Cluster) -> None:
    """Kafka overwrites the whole topic znode from memory."""
    service = await started(cluster, [1])
    await reassign(service, {T0: (2,)})
    found = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found[0]
    grown = found.partitions | {1: ReplicaAssignment((3,))}
    _, fence = await cluster.zk.get_controller_epoch() or (0, 0)
    await cluster.zk.set_topic_assignments([msgspec.structs.replace(found, partitions=grown)], fence=fence)
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    after = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found[0]
    assert sorted(after.partitions) == [0, 1]
    await cluster.until_leaders("t", [2, 3])
