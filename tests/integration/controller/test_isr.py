"""ISRs change by request (AlterPartition over TCP), by notification znodes, and by writers of state znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.znodes import BadZNode
from tests.integration.controller.asking import asking, change
from tests.integration.controller.harness import Cluster, held, idle, journal_of, until

VERSIONS = (0, 1, 2, 3)


async def active_controller(cluster: Cluster) -> Service:
    """Start a controller, and create ``t`` with one partition on all brokers."""
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    return service


def named(service: Service, version: int) -> str | bytes:
    """Return ``t`` as a request of this version names it."""
    return service.shell.context.table.topic_by_name["t"].id if version >= 2 else "t"


@pytest.mark.parametrize("version", VERSIONS)
async def test_shrink_and_expand(cluster: Cluster, version: int) -> None:
    service = await active_controller(cluster)
    topic, epoch = named(service, version), cluster.brokers[1].epoch
    for broker in cluster.brokers.values():
        broker.take()
    async with asking(service) as broker1:
        first = await cluster.state("t")
        for isr in ((1, 2), (1,), (1, 3, 2)):
            before = await cluster.state("t")
            answer = await broker1.alter_partition(version, 1, epoch, change(topic, 0, before, isr))
            after = await cluster.state("t")
            assert answer.error_code == 0
            (result,) = answer.results
            assert (result.topic, result.partition, result.error_code) == (topic, 0, 0)
            assert result.leadership is not None
            assert (after.leader, after.leader_epoch, after.isr) == (1, first.leader_epoch, isr)
            assert after.partition_epoch == before.partition_epoch + 1 == result.leadership.partition_epoch
    await idle(service)
    for broker in cluster.brokers.values():
        isrs = [p.isr for r in broker.of(ApiKey.UPDATE_METADATA) for t in r.topic_states for p in t.partition_states]
        assert isrs == [(1, 2), (1,), (1, 3, 2)]
        assert broker.of(ApiKey.LEADER_AND_ISR) == []
    assert [r.isr for r in journal_of(service).of_kind("isr")] == [(1, 2), (1,), (1, 3, 2)]


async def test_an_update_metadata_that_is_taken_is_no_event(cluster: Cluster) -> None:
    """Otherwise ten brokers' answers would be queued before the next request; a refusal does become an event."""
    service = await active_controller(cluster)
    handled = [r.event for r in journal_of(service).of_kind("event")]
    assert "LeaderAndIsrResponseReceived" in handled
    assert "UpdateMetadataResponseReceived" not in handled
    broker = cluster.brokers[2]
    respond = broker.respond

    def refusing(api: ApiKey, version: int, request: object) -> bytes:
        if api is ApiKey.UPDATE_METADATA:
            return cold.encode_response(api, version, cold.response(api, version, error_code=77))
        return respond(api, version, request)

    broker.respond = refusing  # type: ignore[method-assign]
    await cluster.create_topic("u", {0: [1]})
    await until(
        lambda: "UpdateMetadataResponseReceived" in [r.event for r in journal_of(service).of_kind("event")],
        "the refusal is looked at",
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_errors_one_partition_each(cluster: Cluster, version: int) -> None:
    service = await active_controller(cluster)
    await cluster.create_topic("gone", {0: [1]})
    await cluster.until_leaders("gone", [1])
    topic, epoch = named(service, version), cluster.brokers[1].epoch
    state = await cluster.state("t")
    ineligible = KafkaErrorCode.INELIGIBLE_REPLICA if version >= 2 else KafkaErrorCode.OPERATION_NOT_ATTEMPTED
    unknown = (
        (bytes(range(16)), KafkaErrorCode.UNKNOWN_TOPIC_ID)
        if version >= 2
        else ("unknown", KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )
    cases = [
        (change(unknown[0], 0, state, (1,)), unknown[1]),
        (change(topic, 7, state, (1,)), KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(topic, 0, state, (1,), partition_epoch=state.partition_epoch + 1), KafkaErrorCode.NOT_CONTROLLER),
        (change(topic, 0, state, (1,), leader_epoch=state.leader_epoch + 1), KafkaErrorCode.NOT_CONTROLLER),
        (change(topic, 0, state, (1,), leader_epoch=state.leader_epoch - 1), KafkaErrorCode.FENCED_LEADER_EPOCH),
        (
            change(topic, 0, state, (1,), partition_epoch=state.partition_epoch - 1),
            KafkaErrorCode.INVALID_UPDATE_VERSION,
        ),
        (change(topic, 0, state, (1, 9)), ineligible),
        (change(topic, 0, state, ()), KafkaErrorCode.INVALID_REQUEST),
        (change(topic, 0, state, (2, 3)), KafkaErrorCode.INVALID_REQUEST),
    ]
    if version >= 1:
        cases.append((change(topic, 0, state, (1, 2), recovery_state=1), KafkaErrorCode.INVALID_REQUEST))
    async with asking(service) as broker1:
        for asked, error in cases:
            answer = await broker1.alter_partition(version, 1, epoch, asked)
            assert (answer.error_code, [r.error_code for r in answer.results]) == (0, [error]), asked
    assert await cluster.state("t") == state


@pytest.mark.parametrize("version", VERSIONS)
async def test_stale_broker_epoch_is_an_error_of_the_whole_request(cluster: Cluster, version: int) -> None:
    service = await active_controller(cluster)
    state = await cluster.state("t")
    async with asking(service) as client:
        for broker, epoch in ((1, cluster.brokers[1].epoch - 1), (1, cluster.brokers[1].epoch + 1), (99, 5)):
            answer = await client.alter_partition(
                version, broker, epoch, change(named(service, version), 0, state, (1,))
            )
            assert (answer.error_code, answer.results) == (KafkaErrorCode.STALE_BROKER_EPOCH, ())
    assert await cluster.state("t") == state


@pytest.mark.parametrize("version", VERSIONS)
async def test_repeated_request_is_answered_as_the_first_was(cluster: Cluster, version: int) -> None:
    """The first answer was lost with the connection; the znode is not written again."""
    service = await active_controller(cluster)
    state, epoch = await cluster.state("t"), cluster.brokers[1].epoch
    asked = change(named(service, version), 0, state, (1, 2))
    async with asking(service) as broker1:
        first = await broker1.alter_partition(version, 1, epoch, asked)
    async with asking(service) as broker1:
        second = await broker1.alter_partition(version, 1, epoch, asked)
    assert first == second
    assert (await cluster.state("t")).partition_epoch == state.partition_epoch + 1


async def test_shutting_down_replica_may_not_join(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    async with asking(service) as client:
        await client.controlled_shutdown(3, cluster.brokers[3].epoch)
        state = await cluster.state("t")
        assert state.isr == (1, 2)
        asked = change(named(service, 3), 0, state, (1, 2, 3))
        answer = await client.alter_partition(3, 1, cluster.brokers[1].epoch, asked)
        assert [r.error_code for r in answer.results] == [KafkaErrorCode.INELIGIBLE_REPLICA]


async def test_good_and_bad_partitions_of_one_request(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    await cluster.create_topic("u", {0: [1, 2], 1: [1, 3]})
    await cluster.until_leaders("u", [1, 1])
    t, u = (service.shell.context.table.topic_by_name[name].id for name in "tu")
    state = await cluster.state("t")
    zero, one = await cluster.states("u", 2)
    assert zero is not None
    assert one is not None
    async with asking(service) as broker1:
        answer = await broker1.alter_partition(
            3,
            1,
            cluster.brokers[1].epoch,
            change(t, 0, state, (1,)),
            change(u, 0, zero, (1,), leader_epoch=-1),
            change(u, 1, one, (1,)),
        )
    assert [(r.topic, r.partition, r.error_code) for r in answer.results] == [
        (t, 0, 0),
        (u, 0, KafkaErrorCode.FENCED_LEADER_EPOCH),
        (u, 1, 0),
    ]
    assert [s.isr for s in await cluster.states("u", 2) if s] == [(1, 2), (1,)]


async def test_znode_that_changed_meanwhile_is_not_overwritten(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    state, epoch = await cluster.state("t"), cluster.brokers[1].epoch
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 3)))
    topic = named(service, 3)
    async with asking(service) as broker1:
        answer = await broker1.alter_partition(3, 1, epoch, change(topic, 0, state, (1, 2)))
        assert [r.error_code for r in answer.results] == [KafkaErrorCode.INVALID_UPDATE_VERSION]
        current = await cluster.state("t")
        assert current.isr == (1, 3)
        answer = await broker1.alter_partition(3, 1, epoch, change(topic, 0, current, (1,)))
        assert [r.error_code for r in answer.results] == [0], "the controller has read what is there"


async def test_standby_says_that_it_is_none(cluster: Cluster) -> None:
    await active_controller(cluster)
    standby = await cluster.add_controller(aiocontroller_id=107)
    state = await cluster.state("t")
    async with asking(standby) as client:
        answer = await client.alter_partition(3, 1, cluster.brokers[1].epoch, change(bytes(16), 0, state, (1,)))
        assert answer.error_code == KafkaErrorCode.NOT_CONTROLLER
        shutdown = await client.controlled_shutdown(1, cluster.brokers[1].epoch)
        assert shutdown.error_code == KafkaErrorCode.NOT_CONTROLLER


async def test_deposed_controller_does_not_judge_topics_that_it_does_not_know(cluster: Cluster) -> None:
    """They may be newer than its term; a broker that is told "unknown" waits forever (Kafka's controller does that)."""
    service = await active_controller(cluster)
    state = await cluster.state("t")
    epoch, _ = await cluster.zk.get_controller_epoch() or (0, 0)
    async with asking(service) as client:
        asked = (3, 1, cluster.brokers[1].epoch, change(bytes(range(16)), 0, state, (1,)))
        (result,) = (await client.alter_partition(*asked)).results
        assert result.error_code == KafkaErrorCode.UNKNOWN_TOPIC_ID
        await cluster.client.set_data("/controller_epoch", str(epoch + 5).encode())
        answer = await client.alter_partition(*asked)
        assert (answer.error_code, answer.results) == (KafkaErrorCode.NOT_CONTROLLER, ())
    await until(lambda: service.shell.context.epoch == epoch + 6)


# -- brokers that write ISRs themselves --------------------------------------------------------------------------------


def leaderships(broker: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    return [
        (t.topic_name, p.partition_index, p.isr)
        for r in broker.of(ApiKey.UPDATE_METADATA)
        for t in r.topic_states
        for p in t.partition_states
    ]


async def test_isr_written_by_a_broker_is_read_and_sent(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    for broker in cluster.brokers.values():
        broker.take()
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 2)))
    await cluster.brokers[1].zk.propagate_isr_changes([TopicPartition("t", 0), TopicPartition("unknown", 3)])
    for broker in cluster.brokers.values():
        await until(lambda broker=broker: leaderships(broker) == [("t", 0, (1, 2))])

    async def removed() -> bool:
        return not await cluster.zk.get_all_isr_change_notifications(watch=False)

    await until(removed, "the notification is removed")
    await idle(service)
    table = service.shell.context.table
    assert (table.isr(0), table.partition_epoch[0]) == ((1, 2), state.partition_epoch + 1)
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1,), partition_epoch=1))
    await cluster.brokers[1].zk.propagate_isr_changes([TopicPartition("t", 0)])
    await until(lambda: table.isr(0) == (1,), "the next notification is heard, too")


async def test_unreadable_notification_is_reported_and_removed(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    await cluster.client.create("/isr_change_notification/isr_change_", data=b"{", ephemeral=False, sequential=True)

    async def removed() -> bool:
        return not await cluster.zk.get_all_isr_change_notifications(watch=False)

    await until(removed)
    assert service.shell.counts.bad_znodes.value == 1


async def test_notifications_of_the_time_without_controller_are_discarded(cluster: Cluster) -> None:
    """The failover reads everything anyway."""
    service = await active_controller(cluster)
    await cluster.stop_controller(service)
    cluster.services.remove(service)
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 3)))
    await cluster.brokers[1].zk.propagate_isr_changes([TopicPartition("t", 0)])
    successor = await cluster.add_controller()
    await until(lambda: len(successor.shell.context.table) == 1)
    await idle(successor)
    assert successor.shell.context.table.isr(0) == (1, 3)
    assert await cluster.zk.get_all_isr_change_notifications(watch=False) == []


async def test_election_over_a_foreign_write_is_decided_anew(cluster: Cluster) -> None:
    """By the cached ISR broker 2 would lead, which the leader has removed from it since."""
    service = await active_controller(cluster)
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 3)))
    await cluster.kill_broker(1)
    after = await cluster.until_state("t", 3, (3,))
    assert after.leader_epoch == state.leader_epoch + 1
    await idle(service)


async def test_state_is_read_only_where_the_write_was_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka reads every state znode before it writes it."""
    service = await active_controller(cluster)
    await cluster.create_topic("u", {0: [1, 2, 3]})
    await cluster.until_leaders("u", [1])
    await idle(service)
    read: list[str] = []
    real = service.shell.zk.get_topic_partition_states

    async def recorded(topics: Sequence[str], partitions: Sequence[int]) -> list[LeaderAndIsr | BadZNode | None]:
        read.extend(topics)
        return await real(topics, partitions)

    monkeypatch.setattr(service.shell.zk, "get_topic_partition_states", recorded)
    await cluster.write_state("u", msgspec.structs.replace(await cluster.state("u"), isr=(1, 3)))
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2, 3))
    await cluster.until_state("u", 3, (3,))
    await idle(service)
    assert read == ["u"]


async def test_state_of_a_later_controller_ends_the_term(cluster: Cluster) -> None:
    """The write is refused by its version, and we do not decide over the state; Kafka stays, and leaves it so."""
    service = await active_controller(cluster)
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, controller_epoch=99, isr=(1, 2)))
    await cluster.kill_broker(1)
    after = await cluster.until_state("t", 2, (2,))
    assert after.controller_epoch == service.shell.context.epoch == 100
    epochs = [r.controller_epoch for r in journal_of(service).of_kind("partition") if r.leader == 2]
    assert epochs == [100]


@pytest.mark.parametrize("version", VERSIONS)
async def test_leader_that_does_not_know_its_replicas_hears_them_anew(cluster: Cluster, version: int) -> None:
    """A controller wrote an assignment and ended.  Kafka accepts the former replica into the ISR."""
    service = await active_controller(cluster)
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_leaders("u", [1])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    state = await cluster.state("u")
    topic = service.shell.context.table.topic_by_name["u"].id if version >= 2 else "u"
    async with asking(service) as broker1:
        answer = await broker1.alter_partition(version, 1, cluster.brokers[1].epoch, change(topic, 0, state, (1, 2, 3)))
    assert [r.error_code for r in answer.results] == [KafkaErrorCode.INVALID_REQUEST]
    await until(lambda: cluster.brokers[3].of(ApiKey.STOP_REPLICA))
    (stopped,) = cluster.brokers[3].of(ApiKey.STOP_REPLICA)
    assert [(t.topic_name, p.delete_partition) for t in stopped.topic_states for p in t.partition_states] == [
        ("u", True)
    ]
    await until(lambda: cluster.brokers[2].of(ApiKey.LEADER_AND_ISR))
    (request,) = cluster.brokers[1].of(ApiKey.LEADER_AND_ISR)
    (partition,) = [p for t in request.topic_states for p in t.partition_states]
    assert (partition.leader_epoch, partition.isr, partition.replicas) == (state.leader_epoch + 1, (1, 2), (1, 2))
    after = await cluster.state("u")
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2), state.leader_epoch + 1)


async def test_state_znode_that_is_removed_under_a_leader(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_leaders("u", [1])
    await cluster.client.delete("/brokers/topics/t/partitions/0/state")
    await cluster.kill_broker(1)
    await cluster.until_state("u", 2, (2,))
    await idle(service)
    assert service.controller.election.active
    assert isinstance(service.shell.context.table.leadership(0), LeaderAndIsr)


async def test_requests_that_wait_together_are_one_batch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers' changes are written together; a second one for the same partition is judged after the first."""
    service = await active_controller(cluster)
    await cluster.create_topic("u", {0: [2, 3, 1]})
    await cluster.until_leaders("u", [2])
    await idle(service)
    entered, release = held(monkeypatch, ev.TopicChange)
    t, u = (service.shell.context.table.topic_by_name[name].id for name in "tu")
    epochs = {number: broker.epoch for number, broker in cluster.brokers.items()}
    state_t, state_u = await cluster.state("t"), await cluster.state("u")
    service.queue.append(ev.TopicChange())
    await entered.wait()
    async with asking(service) as broker1, asking(service) as broker2, asking(service) as broker1_again:
        asked = [
            asyncio.ensure_future(one.alter_partition(3, number, epochs[number], change(topic, 0, state, isr)))
            for one, number, topic, state, isr in (
                (broker1, 1, t, state_t, (1, 2)),
                (broker2, 2, u, state_u, (2, 3)),
                (broker1_again, 1, t, state_t, (1, 3)),
            )
        ]
        await until(lambda: len(service.queue) == 3)
        release.set()
        answers = [await one for one in asked]
    codes = sorted(answer.results[0].error_code for answer in answers)
    assert codes == [KafkaErrorCode.NONE, KafkaErrorCode.NONE, KafkaErrorCode.INVALID_UPDATE_VERSION]
    assert (await cluster.state("u")).isr == (2, 3)
    assert (await cluster.state("t")).isr in ((1, 2), (1, 3))
    await idle(service)
    (record,) = [r for r in journal_of(service).of_kind("event") if r.event == "AlterPartitionReceived"]
    assert record.count == 3
