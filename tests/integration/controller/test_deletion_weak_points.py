"""Topic deletion where Kafka's gets stuck or fails: each test says what Kafka does there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.states import ReplicaState
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, journal_of, running, until
from tests.integration.controller.owing import deleted_on
from tests.integration.controller.test_reassignment import T0, catch_up, reassign
from tests.integration.controller.test_topic_deletion import delete, gone


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        await cluster.add_controller(auto_leader_rebalance_enable=False)
        await cluster.create_topic("t", {0: [1, 2]})
        await cluster.until_leaders("t", [1])
        yield cluster


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "llegal change to" in r.getMessage()]


async def test_broker_that_dies_after_its_replica_was_deleted(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka tries to make the deleted replica ineligible, which is not a valid transition, and halts the topic."""
    service = await cluster.active()
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "t")
    table = service.shell.context.table
    await until(lambda: table.replica_state(0, 1) is ReplicaState.ReplicaDeletionSuccessful)
    await cluster.kill_broker(1)
    await until(lambda: 1 not in service.shell.context.brokers)
    await cluster.kill_broker(2)
    await gone(cluster, "t")  # broker 2's replica is a debt
    await cluster.add_broker(2)
    await until(lambda: not service.shell.context.debts)
    assert refusals(caplog) == []


async def test_broker_that_dies_before_the_deletion_begins(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The topic waits for a reassignment; Kafka leaves the dead broker's replica OnlineReplica, with an error."""
    service = await cluster.active()
    table = service.shell.context.table
    await reassign(service, {T0: (1, 3)})
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    await idle(service)
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await idle(service)
    assert table.replica_state(0, 2) is not ReplicaState.OnlineReplica
    assert refusals(caplog) == []
    with caplog.at_level(logging.INFO):
        await cluster.add_broker(2)
        await idle(service)
    assert refusals(caplog) == []


async def test_reassignment_that_a_deletion_waits_for_can_be_cancelled(cluster: Cluster) -> None:
    """Its target has died, so it would not end; Kafka, which deletes without waiting, refuses to cancel it."""
    service = await cluster.active()
    await reassign(service, {T0: (1, 3)})
    await cluster.kill_broker(3)
    await until(lambda: 3 not in service.shell.context.brokers)
    await delete(cluster, "t")
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    assert (await reassign(service, {T0: (2, 1)}))[T0][0] == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await reassign(service, {T0: None}))[T0] == (KafkaErrorCode.NONE, "")
    await gone(cluster, "t")
    assert deleted_on(cluster.brokers[1]) == deleted_on(cluster.brokers[2]) == [("t", 0)]
    await idle(service)
    assert [(debt.broker, debt.topic) for debt in service.shell.context.debts] == [(3, "t")]
    assert journal_of(service).of_kind("fault") == []


async def test_broker_that_starts_does_not_resume_the_deletion_of_what_is_being_moved(cluster: Cluster) -> None:
    """Kafka resumes it, and the reassignment moves replicas that are already deleted."""
    service = await cluster.active()
    context = service.shell.context
    await reassign(service, {T0: (1, 3)})
    await delete(cluster, "t")
    await until(lambda: "t" in context.topics_ineligible_for_deletion)
    for broker in (2, 1):
        epoch = await cluster.bounce_broker(broker)
        await until(lambda broker=broker, epoch=epoch: epoch in {b.epoch for b in context.brokers.values()})
        await idle(service)
        assert list(context.topics_ineligible_for_deletion) == ["t"]
        assert list(context.topics_with_deletion_started) == []
    assert (await cluster.state("t")).leader == 1, "it still gets leaders, so that the reassignment can end"
    await catch_up(cluster, service, (2, 1, 3))
    await gone(cluster, "t")
    assert context.partitions_being_reassigned == {}


@pytest.mark.parametrize("with_ids", [True, False])
async def test_stop_replica_that_is_refused_as_a_whole(cluster: Cluster, with_ids: bool) -> None:
    """Kafka does not notice it: the replicas stay ReplicaDeletionStarted until the broker bounces or a failover."""
    service = await cluster.active()
    service.shell.owner = None  # damage done on purpose
    service.shell.context.topic_ids_supported = with_ids
    broker = cluster.brokers[2]
    respond = broker.respond
    refused = []

    def once(api: ApiKey, version: int, request: object) -> bytes:
        if api is ApiKey.STOP_REPLICA and not refused:
            refused.append(request)
            from aiocontroller.wire import cold

            answer = cold.response(api, version, error_code=77, partition_errors=[])
            return cold.encode_response(api, version, answer)
        return respond(api, version, request)

    broker.respond = once  # type: ignore[method-assign]
    await delete(cluster, "t")
    await until(lambda: refused)
    if with_ids:
        await gone(cluster, "t")
        await until(lambda: len(broker.of(ApiKey.STOP_REPLICA)) == 2, "asked again for what is a debt by then")
        await until(lambda: not service.shell.context.debts)
        return
    table = service.shell.context.table
    await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
    assert table.replica_state(0, 2) is not ReplicaState.ReplicaDeletionStarted
    await cluster.bounce_broker(2)
    await gone(cluster, "t")


@pytest.mark.parametrize("with_ids", [True, False])
async def test_stop_replica_whose_answer_leaves_partitions_out(cluster: Cluster, with_ids: bool) -> None:
    """Kafka waits for it until the broker bounces; it must not count as deleted."""
    service = await cluster.active()
    service.shell.owner = None  # damage done on purpose
    service.shell.context.topic_ids_supported = with_ids
    broker = cluster.brokers[2]
    broker.stop_replica_omits = 1
    await delete(cluster, "t")
    if not with_ids:
        await until(lambda: "t" in service.shell.context.topics_ineligible_for_deletion)
        await cluster.bounce_broker(2)
    await gone(cluster, "t")
    await until(lambda: len(deleted_on(broker)) == 2, "it is asked once more")
    await until(lambda: not service.shell.context.debts)
