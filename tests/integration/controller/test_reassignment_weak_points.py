"""Reassignments where Kafka's go wrong: each test says what Kafka does there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import steps
from aiocontroller.core import reassignment as core_reassignment
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import ReplicaLeaderElection
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import ElectionType
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.owing import topic_t
from tests.integration.controller.test_reassignment import (
    T0,
    ask,
    assignment,
    catch_up,
    finished,
    reassign,
    request_by_znode,
)


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with topic_t(world, zk_connect) as cluster:
        yield cluster


async def test_override_that_takes_the_leader_away_elects_another(cluster: Cluster) -> None:
    """Kafka leaves the partition without a leader: the new target has no replica from which it could catch up."""
    service = await cluster.active()
    await reassign(service, {T0: (2, 3)})
    await catch_up(cluster, service, (1, 2))
    await ask(
        service,
        lambda reply: ReplicaLeaderElection(partitions=(T0,), election_type=ElectionType.PREFERRED, reply=reply),
    )
    await cluster.until_state("t", 2, (1, 2))
    await reassign(service, {T0: (3, 4)})
    await idle(service)
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (1, (1,))
    assert await assignment(cluster) == ReplicaAssignment((3, 4, 1), (3, 4), (1,))
    await catch_up(cluster, service, (1, 3, 4))
    await finished(cluster, service, (3, 4))


async def test_override_by_znode_that_would_lose_data_is_taken_out_of_it(cluster: Cluster) -> None:
    """Broker 2 was added and is the only one in sync; Kafka deletes its replica."""
    service = await cluster.active()
    await reassign(service, {T0: (2, 3)})
    await catch_up(cluster, service, (1, 2))
    await ask(
        service,
        lambda reply: ReplicaLeaderElection(partitions=(T0,), election_type=ElectionType.PREFERRED, reply=reply),
    )
    await catch_up(cluster, service, (2,))
    before = await cluster.until_state("t", 2, (2,))
    await request_by_znode(cluster, {T0: [4]})

    async def taken_out() -> bool:
        return not await cluster.client.exists("/admin/reassign_partitions")

    await until(taken_out, "the request is removed")
    await idle(service)
    assert await cluster.state("t") == before
    assert await assignment(cluster) == ReplicaAssignment((2, 3, 1), (2, 3), (1,))
    assert cluster.brokers[2].of(ApiKey.STOP_REPLICA) == []


async def test_cancel_that_takes_the_leader_away_elects_the_origin(cluster: Cluster) -> None:
    service = await cluster.active()
    await reassign(service, {T0: (2, 3)})
    await catch_up(cluster, service, (1, 2))
    await ask(
        service,
        lambda reply: ReplicaLeaderElection(partitions=(T0,), election_type=ElectionType.PREFERRED, reply=reply),
    )
    before = await cluster.until_state("t", 2, (1, 2))
    await reassign(service, {T0: None})
    await finished(cluster, service, (1,))
    state = await cluster.until_state("t", 1, (1,))
    assert state.leader_epoch == before.leader_epoch + 2, "out of the ISR, and elected: as Kafka counts"


async def half_moved(cluster: Cluster) -> tuple[Service, ReplicaAssignment]:
    """Begin to move from 1 to (2, 3), of which 2 is in sync; return the controller and the new assignment."""
    service = await cluster.active()
    await reassign(service, {T0: (2, 3)})
    await catch_up(cluster, service, (1, 2))
    return service, await assignment(cluster)


async def test_dropped_replica_leaves_the_isr_before_the_assignment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that ends in between leaves a partition for which its successor can elect a leader."""
    service, before = await half_moved(cluster)
    isrs = []
    write = steps.write_assignments

    async def recorded(*args: Any) -> dict[int, str]:
        isrs.append((await cluster.state("t")).isr)
        assert await assignment(cluster) == before
        return await write(*args)

    monkeypatch.setattr(steps, "write_assignments", recorded)
    await reassign(service, {T0: (3, 4)})
    assert isrs == [(1,)]


async def test_assignment_that_cannot_be_written_keeps_its_brokers_informed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that was to be dropped is sent the epoch of the shrink, and may catch up again."""
    service, before = await half_moved(cluster)

    async def refused(shell: Any, wanted: dict[int, Any], removed: object) -> dict[int, str]:
        return dict.fromkeys(wanted, "its topic znode changed")

    monkeypatch.setattr(steps, "write_assignments", refused)
    cluster.brokers[2].take()
    assert await reassign(service, {T0: (3, 4)}) == {
        T0: (KafkaErrorCode.UNKNOWN_SERVER_ERROR, "its topic znode changed")
    }
    await idle(service)
    state = await cluster.state("t")
    assert (state.isr, await assignment(cluster)) == ((1,), before)
    assert service.shell.context.table.assignment(0) == before
    await until(lambda: cluster.brokers[2].of(ApiKey.LEADER_AND_ISR))
    (request,) = cluster.brokers[2].of(ApiKey.LEADER_AND_ISR)
    (partition,) = [p for t in request.topic_states for p in t.partition_states]
    assert (partition.leader_epoch, partition.replicas) == (state.leader_epoch, before.replicas)
    assert cluster.brokers[2].of(ApiKey.STOP_REPLICA) == []
    await catch_up(cluster, service, (1, 2))


async def test_leader_that_cannot_move_keeps_everything(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ISR shrank without the controller's knowledge: Kafka ends the reassignment anyway, without a leader."""
    service = await cluster.active()
    with monkeypatch.context() as patch:
        patch.setattr(core_reassignment, "is_complete", lambda *_: False)
        await reassign(service, {T0: (2,)})
        await catch_up(cluster, service, (1, 2))
        await idle(service)
        state = await cluster.state("t")
        await cluster.write_state("t", msgspec.structs.replace(state, isr=(1,)))
    await request_by_znode(cluster, {T0: [2]})
    await until(lambda: service.shell.context.table.isr(0) == (1,), "the ISR is read again")
    await idle(service)
    after = await cluster.state("t")
    assert (after.leader, after.isr) == (1, (1,))
    assert await assignment(cluster) == ReplicaAssignment((2, 1), (2,), (1,))
    assert service.shell.context.table.assignment(0) == ReplicaAssignment((2, 1), (2,), (1,))
    assert cluster.brokers[1].of(ApiKey.STOP_REPLICA) == []
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))


async def test_failover_goes_through_a_phase_once(cluster: Cluster) -> None:
    """A reassignment that is in both the request znode and the topic znode is resumed once, as in Kafka."""
    first = await cluster.active()
    await request_by_znode(cluster, {T0: [2]})
    await until(lambda: first.shell.context.table.leader_epoch[0] == 1)
    await idle(first)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    second = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await until(lambda: len(second.shell.context.partitions_being_reassigned) == 1)
    await idle(second)
    assert (await cluster.state("t")).leader_epoch == 2
    await catch_up(cluster, second, (1, 2))
    await finished(cluster, second, (2,))


async def test_failover_removes_former_replicas_from_the_isr(cluster: Cluster) -> None:
    """A controller ended after writing the assignment; Kafka leaves the ISR as it is while the broker follows."""
    first = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    await idle(first)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    (written,) = (await cluster.zk.get_topic_assignments(["u"], watch=False)).found
    shorter = msgspec.structs.replace(written, partitions={0: ReplicaAssignment((1,))})
    _, fence = await cluster.zk.get_controller_epoch() or (0, 0)
    assert (await cluster.zk.set_topic_assignments([shorter], fence=fence)).ok
    await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.until_state("u", 1, (1,))
    await until(lambda: cluster.brokers[2].of(ApiKey.STOP_REPLICA))
    (request,) = cluster.brokers[2].of(ApiKey.STOP_REPLICA)
    (topic,) = request.topic_states
    assert topic.topic_name == "u"
    assert [(p.partition_index, p.delete_partition) for p in topic.partition_states] == [(0, True)]


async def test_added_replica_leads_a_partition_that_never_had_a_leader(cluster: Cluster) -> None:
    """Kafka answers with an unknown error."""
    service = await cluster.active()
    await cluster.create_topic("u", {0: [9]})
    await until(lambda: "u" in service.shell.context.table.topic_by_name)
    u0 = TopicPartition("u", 0)
    assert await reassign(service, {u0: (2,)}) == {u0: (KafkaErrorCode.NONE, "")}
    await cluster.until_state("u", 2, (2,))
    await until(lambda: not service.shell.context.partitions_being_reassigned)
    assert await assignment(cluster, "u") == ReplicaAssignment((2,))
