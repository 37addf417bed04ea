"""What brokers are sent where Kafka's controller sends more, or something else; tests/differential found each case."""

from __future__ import annotations

from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.asking import asking
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.test_reassignment import (
    T0,
    catch_up,
    finished,
    reassign,
    request_by_znode,
    started,
)

T1 = TopicPartition("t", 1)


def states(cluster: Cluster, broker: int, api: ApiKey, topic: str = "t") -> list[Any]:
    """Return every partition of the topic in every request of this kind, in order."""
    requests = cluster.brokers[broker].of(api)
    return [p for r in requests for t in r.topic_states if t.topic_name == topic for p in t.partition_states]


def forget(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.take()


async def without_broker(cluster: Cluster, service: Service, broker: int) -> None:
    await cluster.kill_broker(broker)
    await until(lambda: broker not in service.shell.context.brokers)
    await idle(service)
    forget(cluster)


async def test_broker_that_starts_and_leads_is_sent_its_state_once(cluster: Cluster) -> None:
    """Kafka first sends that there is no leader, then who it is."""
    service = await started(cluster, [1])
    await without_broker(cluster, service, 1)
    await cluster.add_broker(1)
    await cluster.until_leaders("t", [1])
    await idle(service)
    assert [p.leader for p in states(cluster, 1, ApiKey.LEADER_AND_ISR)] == [1]
    assert [p.leader for p in states(cluster, 2, ApiKey.UPDATE_METADATA)] == [1]


async def test_end_of_a_reassignment_is_sent_once(cluster: Cluster) -> None:
    """Kafka first sends the new leader with the old ISR, then shrinks the ISR by one replica per leader epoch."""
    service = await started(cluster, [1, 2])
    await reassign(service, {T0: (3,)})
    await idle(service)
    forget(cluster)
    await catch_up(cluster, service, (1, 2, 3))
    await finished(cluster, service, (3,))
    await idle(service)
    assert [(p.leader, p.isr, p.leader_epoch) for p in states(cluster, 3, ApiKey.LEADER_AND_ISR)] == [(3, (3,), 3)]
    assert [(p.leader_epoch, p.delete_partition) for p in states(cluster, 1, ApiKey.STOP_REPLICA)] == [(3, True)]


async def test_stopped_replica_hears_the_epoch_after_the_shrink(cluster: Cluster) -> None:
    """Kafka sends the epoch before the shrink, once ahead of the change and once with it."""
    service = await started(cluster, [1, 2])
    forget(cluster)
    async with asking(service) as broker2:
        await broker2.controlled_shutdown(2, cluster.brokers[2].epoch)
    await idle(service)
    assert [(p.leader_epoch, p.delete_partition) for p in states(cluster, 2, ApiKey.STOP_REPLICA)] == [(1, False)]


async def test_state_keeps_the_term_in_which_it_was_written(cluster: Cluster) -> None:
    """Kafka sends the present term when a replica outside the ISR goes, although nothing is written."""
    service = await started(cluster, [1, 2])
    await catch_up(cluster, service, (1,))
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    await without_broker(cluster, service, 2)
    assert (await cluster.state("t")).controller_epoch == 1
    leadership = service.shell.context.table.leadership(service.shell.context.table.row("t", 0))
    assert leadership is not None
    assert leadership.controller_epoch == 1


async def test_reassignment_that_ends_does_not_begin_the_others_of_its_znode_again(cluster: Cluster) -> None:
    """The znode changes when one ends; each beginning raises the epoch and sends requests to all replicas."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1], 1: [1]})
    await cluster.until_leaders("t", [1, 1])
    await request_by_znode(cluster, {T0: [2], T1: [3]})
    await until(lambda: len(service.shell.context.partitions_being_reassigned) == 2)
    await idle(service)
    before = await cluster.state("t", 1)
    forget(cluster)
    await catch_up(cluster, service, (1, 2))
    await until(lambda: len(service.shell.context.partitions_being_reassigned) == 1)
    await idle(service)
    assert await cluster.state("t", 1) == before
    assert [p for p in states(cluster, 3, ApiKey.LEADER_AND_ISR) if p.partition_index == 1] == []
    assert await cluster.zk.get_partition_reassignment(watch=False) == {T1: (3,)}


async def test_znode_that_names_another_target_is_followed(cluster: Cluster) -> None:
    """Kafka reads the znode again only after it has been deleted and created."""
    service = await started(cluster, [1])
    await request_by_znode(cluster, {T0: [2]})
    await until(lambda: service.shell.context.partitions_being_reassigned)
    await cluster.client.set_data(
        "/admin/reassign_partitions",
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3]}]}',
    )

    def overridden() -> bool:
        table = service.shell.context.table
        return table.assignment(table.row("t", 0)) == ReplicaAssignment((3, 1), (3,), (1,))

    await until(overridden, "the new target")


async def deletion_that_waits(cluster: Cluster) -> None:
    """Delete ``t`` while broker 1, which has a replica, is down."""
    service = await started(cluster, [1, 2], inter_broker_protocol_version="2.7")  # without topic ids
    await without_broker(cluster, service, 1)
    await cluster.client.create("/admin/delete_topics/t")
    await until(lambda: states(cluster, 2, ApiKey.STOP_REPLICA))
    await idle(service)


async def test_isr_of_a_topic_that_is_deleted_is_left(cluster: Cluster) -> None:
    """Kafka removes each replica as it is stopped, until there is no leader."""
    await deletion_that_waits(cluster)
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 1)


async def test_broker_that_starts_hears_of_deleted_topics_only_what_deletes_them(cluster: Cluster) -> None:
    await deletion_that_waits(cluster)
    broker = await cluster.add_broker(1)
    await until(lambda: states(cluster, 1, ApiKey.STOP_REPLICA))
    topics = [topic for request in broker.of(ApiKey.UPDATE_METADATA) for topic in request.topic_states]
    assert {(t.topic_name, p.leader) for t in topics for p in t.partition_states} == {("t", -2)}


async def test_unknown_partition_is_refused_for_its_target_first(cluster: Cluster) -> None:
    """As by Kafka."""
    service = await started(cluster, [1])
    unknown = TopicPartition("t", 7)
    for target, code in (
        ((9,), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((1,), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        answers = await reassign(service, {unknown: target})
        assert answers[unknown][0] == code, target
