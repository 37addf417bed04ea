"""Bugs that Kafka's controller has had, played against this one; docs/known-bugs.md says which is which."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from aiocontroller.core.events import ListPartitionReassignments
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, journal_of, until
from tests.integration.controller.test_reassignment import (
    T0,
    ask,
    assignment,
    catch_up,
    finished,
    reassign,
    request_by_znode,
)
from tests.integration.controller.test_topic_deletion import delete, gone

# -- epochs ------------------------------------------------------------------------------------------------------------


async def test_epoch_that_partitions_have_overtaken_is_raised_above_them(cluster: Cluster) -> None:
    """After a rollback from KRaft the states have its epochs: with a lower one no broker obeys the controller."""
    first = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, controller_epoch=100))
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    for broker in cluster.brokers.values():
        broker.take()
    second = await cluster.add_controller()
    await until(lambda: second.shell.context.epoch == 101)
    await idle(second)
    found = await cluster.zk.get_controller_epoch()
    assert found is not None
    assert found[0] == 101
    await cluster.kill_broker(1)
    assert (await cluster.until_state("t", 2, (2,))).controller_epoch == 101
    listened = cluster.brokers[2].of(ApiKey.LEADER_AND_ISR)
    assert {request.controller_epoch for request in listened} == {101}
    assert [r.controller_epoch for r in journal_of(second).of_kind("outranked")] == [100]
    assert journal_of(second).of_kind("fault") == []


# -- terms -------------------------------------------------------------------------------------------------------------


async def test_undone_reassignment_stays_undone_when_the_first_controller_is_elected_again(cluster: Cluster) -> None:
    """KAFKA-5310: A is stuck in a reassignment and loses the role, B takes it back, A is elected again."""
    a = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await reassign(a, {T0: (2,)})
    b = await cluster.add_controller(aiocontroller_id=7_000_000)
    stands, a.shell.config = (
        a.shell.config,
        msgspec.structs.replace(a.shell.config, aiocontroller_takeover_policy="observe"),
    )
    await expire_session(a.client)
    await until(lambda: b.controller.election.active)
    a.shell.config = stands
    await until(lambda: list(b.shell.context.partitions_being_reassigned) == [0])
    await reassign(b, {T0: None})
    await finished(cluster, b, (1,))
    await cluster.stop_controller(b)
    cluster.services.remove(b)
    await until(lambda: a.controller.election.active)
    await idle(a)
    assert await assignment(cluster) == ReplicaAssignment((1,))
    listed = await ask(a, lambda reply: ListPartitionReassignments(partitions=None, reply=reply))
    assert listed == {}


async def test_nothing_of_a_lost_term_reaches_the_next(cluster: Cluster) -> None:
    """KAFKA-12315: the request batch is left full when the role is lost between filling and sending it."""
    service = await cluster.add_controller()
    await until(lambda: service.shell.context.epoch == 1)
    await idle(service)
    for lost in range(3):
        epoch, version = await cluster.zk.get_controller_epoch() or (0, 0)
        await cluster.client.set_data("/controller_epoch", str(epoch + 1).encode(), version)
        await cluster.create_topic(f"t{lost}", {0: [1, 2]})
        await cluster.until_leaders(f"t{lost}", [1])
        await until(lambda epoch=epoch: service.shell.context.epoch == epoch + 2)
    await idle(service)
    assert journal_of(service).of_kind("fault") == []


# -- reassignment ------------------------------------------------------------------------------------------------------


async def test_reassignment_whose_target_is_down_at_failover_goes_on(cluster: Cluster) -> None:
    """KAFKA-4214, KAFKA-6193: controller and new replica bounce; the request stays until it is done."""
    first = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await request_by_znode(cluster, {T0: [2]})
    await until(lambda: first.shell.context.table.leader_epoch[0] >= 1, str(journal_of(first).records[-30:]))
    await cluster.kill_broker(2)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    second = await cluster.add_controller()
    await until(lambda: list(second.shell.context.partitions_being_reassigned) == [0])
    await idle(second)
    assert await cluster.client.exists("/admin/reassign_partitions")
    await cluster.add_broker(2)
    await until(lambda: cluster.brokers[2].of(ApiKey.LEADER_AND_ISR))
    await catch_up(cluster, second, (1, 2))
    await finished(cluster, second, (2,))

    async def request_is_gone() -> bool:
        return not await cluster.client.exists("/admin/reassign_partitions")

    await until(request_is_gone)


async def test_metadata_sent_during_a_reassignment_has_the_new_epoch(cluster: Cluster) -> None:
    """KAFKA-9212: brokers were told old leader epochs, and their clients retried endlessly."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    await reassign(service, {T0: (2,)})
    await idle(service)
    epoch = (await cluster.state("t")).leader_epoch
    assert service.shell.context.table.leader_epoch[0] == epoch == 1
    for broker in cluster.brokers.values():
        requests = broker.of(ApiKey.UPDATE_METADATA)
        assert {p.leader_epoch for r in requests for t in r.topic_states for p in t.partition_states} == {epoch}


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_topic_deleted_during_its_reassignment_goes_when_that_ends(cluster: Cluster) -> None:
    """KAFKA-8249: neither the reassignment nor the deletion ended."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await reassign(service, {T0: (2,)})
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await catch_up(cluster, service, (1, 2))
    await gone(cluster, "t")
    assert service.shell.context.partitions_being_reassigned == {}


PARTLY_DELETED = {
    "nothing yet": [],
    "one state": ["partitions/0/state"],
    "all states": ["partitions/0/state", "partitions/1/state"],
    "one partition": ["partitions/0/state", "partitions/0"],
    "all partitions": ["partitions/0/state", "partitions/0", "partitions/1/state", "partitions/1", "partitions"],
    "the topic": ["partitions/0/state", "partitions/0", "partitions/1/state", "partitions/1", "partitions", ""],
}


@pytest.mark.parametrize("removed", PARTLY_DELETED.values(), ids=PARTLY_DELETED.keys())
async def test_partly_deleted_topic_is_deleted_by_the_next_controller(cluster: Cluster, removed: list[str]) -> None:
    """KAFKA-6650, KAFKA-1681: a controller that dies at any step of the deletion leaves it to the next."""
    first = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    await cluster.until_leaders("t", [1, 2])
    await idle(first)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    await delete(cluster, "t")
    for path in removed:
        await cluster.client.delete(f"/brokers/topics/t/{path}".rstrip("/"))
    second = await cluster.add_controller()
    await gone(cluster, "t")
    await idle(second)
    assert journal_of(second).of_kind("fault") == []
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])


# -- the last of an ISR ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))), ids=str)
async def test_last_in_sync_replica_stays_whatever_the_order_of_deaths(
    cluster: Cluster, order: tuple[int, int, int]
) -> None:
    """KAFKA-708, 1097, 1170, 5083: ISRs that became empty, or held a replica that had missed records."""
    await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3]})
    await cluster.until_leaders("t", [1])
    alive = [1, 2, 3]
    for lost in order[:2]:
        await cluster.kill_broker(lost)
        alive.remove(lost)
        await cluster.until_state("t", alive[0], tuple(alive))
    await cluster.kill_broker(order[2])
    await cluster.until_state("t", -1, (order[2],))
    for first in order[:2]:
        await cluster.add_broker(first)
    await idle(cluster.services[0])
    state = await cluster.state("t")
    assert (state.leader, state.isr) == (-1, (order[2],)), "the others missed what it holds"
    await cluster.add_broker(order[2])
    await cluster.until_state("t", order[2], (order[2],))
