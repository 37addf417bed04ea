"""What only a whole controller shows, on the network in memory: order of requests, settings, producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import topic_admin
from aiocontroller.controller.failover import FIRST_GROUP
from aiocontroller.core import events as ev
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.ownership import NotTheOwnerError
from aiocontroller.core.request_content import NewPartitions, Released
from aiocontroller.core.states import PartitionState
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock
from aiocontroller.zookeeper.codec import Create, SetData
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.state_settling import settle_partition_state
from tests.unit.controller.virtual_cluster import Stage, is_active, stage, terms

T0 = TopicPartition("t", 0)


async def begin(it: Stage, brokers: int, **settings: Any) -> Service:
    for broker in range(1, brokers + 1):
        await it.add_broker(broker)
    service = await it.add_controller(auto_leader_rebalance_enable=False, **settings)
    await it.until(lambda: is_active(service))
    return service


async def with_topic(it: Stage, replicas: list[int], leader: int) -> None:
    await it.create("/brokers/topics/t", msgspec.json.encode({"version": 1, "partitions": {"0": replicas}}))
    await until_leader(it, leader)


async def state(it: Stage) -> LeaderAndIsr | None:
    (found,) = await it.zk.get_topic_partition_states(["t"], [0])
    return found if isinstance(found, LeaderAndIsr) else None


async def until_leader(it: Stage, leader: int) -> LeaderAndIsr:
    while (found := await state(it)) is None or found.leader != leader:
        await it.sleep(0.1)
    await it.sleep(1)
    return found


async def ask(service: Service, kind: type[ev.Request], **fields: Any) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(kind(reply=ev.Reply(answer.set_result), **fields))
    return await asyncio.wait_for(answer, 30)


# -- the order of requests ---------------------------------------------------------------------------------------------


def leaderships(broker: RecordingBroker) -> list[int]:
    """The leader in each LeaderAndIsr that it has heard."""
    return [
        p.leader
        for request in broker.of(ApiKey.LEADER_AND_ISR)
        for t in request.topic_states
        for p in t.partition_states
    ]


@virtual_time
async def test_followers_are_told_when_the_leader_has_answered() -> None:
    """The leader has the highest id and is slow: an order by ids, or followers first, is seen."""
    async with stage() as it:
        await begin(it, 3)
        it.brokers[3].unanswered.add(ApiKey.LEADER_AND_ISR)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,1,2]}}')
        await it.until(lambda: leaderships(it.brokers[3]))
        await it.sleep(0.3)
        assert [leaderships(it.brokers[n]) for n in (1, 2)] == [[], []]
        await it.until(lambda: leaderships(it.brokers[1]) == leaderships(it.brokers[2]) == [3], 1)


# -- settings ----------------------------------------------------------------------------------------------------------


async def lose_the_isr(it: Stage) -> None:
    """t-0 on 1 and 2: 2 falls out of the ISR and is back, then 1 dies."""
    await with_topic(it, [1, 2], 1)
    await it.kill_broker(2)
    await it.until(lambda: 2 not in it.brokers)
    await it.sleep(10)
    found = await state(it)
    assert found is not None
    assert found.isr == (1,)
    await it.add_broker(2)
    await it.sleep(5)
    await it.kill_broker(1)
    await it.sleep(20)


@virtual_time
async def test_a_topic_may_forbid_what_is_allowed_by_default() -> None:
    for default, own, leader in (
        (True, None, 2),
        (True, "false", -1),
        (True, " FALSE ", -1),
        (True, "true", 2),
        (False, None, -1),
        (False, "true", 2),
        (False, "false", -1),
    ):
        async with stage() as it:
            await begin(it, 2, unclean_leader_election_enable=default)
            if own is not None:
                config = {"version": 1, "config": {"unclean.leader.election.enable": own}}
                await it.create("/config/topics/t", msgspec.json.encode(config))
            await lose_the_isr(it)
            found = await state(it)
            assert found is not None
            assert found.leader == leader, (default, own)


# -- reassignments -----------------------------------------------------------------------------------------------------


def stopped(broker: RecordingBroker) -> list[bool]:
    """The delete flag of each StopReplica."""
    return [
        p.delete_partition for r in broker.of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states
    ]


async def dropped_after(it: Stage, service: Service, target: tuple[int, ...] | None) -> None:
    await with_topic(it, [1, 2], 1)
    await ask(service, ev.ApiPartitionReassignment, targets={T0: (3, 2)})
    await it.sleep(1)
    assert stopped(it.brokers[3]) == []
    await ask(service, ev.ApiPartitionReassignment, targets={T0: target})
    await it.sleep(1)
    assert True in stopped(it.brokers[3])
    assert [stopped(it.brokers[n]) for n in (1, 2)] == [[], []]


@virtual_time
async def test_a_cancel_stops_and_deletes_the_replica_that_it_drops() -> None:
    async with stage() as it:
        await dropped_after(it, await begin(it, 3), None)


@virtual_time
async def test_an_override_stops_and_deletes_the_replica_that_it_drops() -> None:
    async with stage() as it:
        await dropped_after(it, await begin(it, 4), (4, 2))


# -- producer ids ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_producer_id_blocks_do_not_overlap() -> None:
    """Nor those of one term and the next, nor with one that another controller takes meanwhile."""
    async with stage() as it:
        service = await begin(it, 2)
        given: list[tuple[int, int]] = []

        async def take(broker: int) -> None:
            epoch = it.brokers[broker].epoch
            given.append(await ask(service, ev.AllocateProducerIds, broker=broker, broker_epoch=epoch))

        for broker in (1, 2, 1):
            await take(broker)
        service.queue.append(ev.Expire())
        service.queue.append(ev.Reelect())
        await it.until(lambda: is_active(service) and terms(service) == 2)
        await take(2)
        foreign = await taken_by_a_broker_meanwhile(it, service, lambda: take(1))
        ids = [first + i for first, count in [*given, (foreign.block_start, 1000)] for i in range(count)]
        assert len(ids) == len(set(ids)) == 6 * 1000


async def taken_by_a_broker_meanwhile(it: Stage, service: Service, take: Callable[[], Any]) -> ProducerIdBlock:
    """Between the controller's reading and its writing, as an old controller in a broker might."""
    zk = service.shell.zk
    real = zk.get_latest_producer_id_block
    taken: list[ProducerIdBlock] = []

    async def then_another_takes_it() -> Any:
        last, version = await real()
        if not taken:
            assert isinstance(last, ProducerIdBlock)
            taken.append(ProducerIdBlock(2, last.block_end + 1, last.block_end + 1000))
            epoch = await zk.get_controller_epoch()
            assert epoch is not None
            assert await zk.set_latest_producer_id_block(taken[0], version, fence=epoch[1])
        return last, version

    zk.get_latest_producer_id_block = then_another_takes_it  # type: ignore[method-assign]
    try:
        await take()
    finally:
        zk.get_latest_producer_id_block = real  # type: ignore[method-assign]
    return taken[0]


# -- the role ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_holder_of_the_znode_that_is_not_active_contends_for_it() -> None:
    """An expiry that is handled after the role has been won anew ends that term, and leaves ``/controller`` ours."""
    async with stage() as it:
        service = await begin(it, 1)
        session = service.client.session_id
        service.queue.append(ev.Expire())
        service.queue.append(ev.Reelect())
        await it.until(lambda: terms(service) == 2 and is_active(service), 30)
        holder = await it.zk.get_controller(watch=False)
        assert service.client.session_id == session == getattr(holder, "owner_session", None)


@virtual_time
async def test_all_requests_for_a_release_are_answered_when_the_role_is_given_back() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        epoch = service.shell.context.epoch
        answers = await asyncio.gather(ask(service, ev.Release), ask(service, ev.Release))
        assert [answer.epoch for answer in answers] == [epoch, epoch]
        assert not is_active(service)
        assert await ask(service, ev.Release) == Released(0)


# -- topics ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_deletion_is_answered_as_soon_as_all_topics_are_gone() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        for name in ("t", "u"):
            await it.create(f"/brokers/topics/{name}", msgspec.json.encode({"version": 1, "partitions": {"0": [1, 2]}}))
        await it.until(lambda: len(service.shell.context.table) == 2)
        await it.sleep(1)
        began_s = it.world.clock.monotonic()
        answer = await ask(service, ev.DeleteTopics, topics=("t", "u"), timeout_ms=25_000)
        assert it.world.clock.monotonic() - began_s < topic_admin.HEARD_WITHIN_S
        assert [result.error_code for result in answer.values()] == [KafkaErrorCode.NONE] * 2
        assert await it.zk.get_all_topics_in_cluster(watch=False) == []


@virtual_time
async def test_partitions_that_never_had_a_leader_are_not_counted_as_offline() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await it.create("/brokers/topics/new", msgspec.json.encode({"version": 1, "partitions": {"0": [9], "1": [9]}}))
        await with_topic(it, [2], 2)
        assert service.controller.status()["offline_partitions"] == 0
        await it.kill_broker(2)
        await until_leader(it, -1)
        assert service.controller.status()["offline_partitions"] == 1


@virtual_time
async def test_a_repair_is_written_under_the_fence_only() -> None:
    async with stage() as it:
        await begin(it, 1)
        await with_topic(it, [1], 1)
        before = await state(it)
        assert before is not None
        _, fence = await it.zk.get_controller_epoch() or (0, 0)
        for wrong in (fence - 1, fence + 1):
            with pytest.raises(ControllerMovedError):
                await settle_partition_state(it.client, T0, before, 7, fence=wrong)
        assert await state(it) == before
        assert await settle_partition_state(it.client, T0, before, 7, fence=fence) == 8


# -- bulk writes -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_writes_that_are_refused_take_no_others_with_them() -> None:
    async with stage() as it:
        assert (await it.client.write_many([Create("/a"), Create("/b"), Create("/c")], fence=None)).ok
        ops = [Create("/a"), SetData("/b", b"", 7), SetData("/c", b"new", 0), Create("/no/parent"), Create("/a/child")]
        found = await it.client.write_many(ops, fence=None)
        assert list(found.code) == [Code.NODE_EXISTS, Code.BAD_VERSION, Code.OK, Code.NO_NODE, Code.OK]
        assert (await it.client.get_many(["/c"])).data == [b"new"]


@virtual_time
async def test_topics_of_a_large_cluster_are_taken_in_by_the_consumer_alone() -> None:
    """More than a group of them: three are read at once, and the guard of debug mode says which task takes them in."""
    async with stage() as it:
        for number in range(3 * FIRST_GROUP + 5):
            await it.create(f"/brokers/topics/t{number}", msgspec.json.encode({"version": 1, "partitions": {"0": [1]}}))
        service = await begin(it, 1)
        context = service.controller.shell.context
        assert len(context.table) == 3 * FIRST_GROUP + 5
        assert not service.journal.of_kind("fault")  # type: ignore[attr-defined]
        with pytest.raises(NotTheOwnerError, match="changes the context"):
            context.table.set_state([0], PartitionState.OfflinePartition)


@virtual_time
async def test_changes_are_handled_while_clients_are_refused() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await with_topic(it, [1, 2], 1)
        service.queue._max_client_requests = 0
        listing = await ask(service, ev.ListPartitionReassignments, partitions=None)
        assert listing == KafkaErrorCode.REQUEST_TIMED_OUT
        await it.kill_broker(1)
        assert await until_leader(it, 2) is not None
        refused = service.metrics.get("aiocontroller", "EventQueue", "RefusedClientRequests")
        assert refused is not None
        assert refused.value == 1


@virtual_time
async def test_new_partitions_are_asked_for_once_and_of_a_topic_that_there_is() -> None:
    """Kafka's ``CreatePartitions``: each topic that is refused is refused by itself."""
    async with stage() as it:
        service = await begin(it, 1)
        await with_topic(it, [1], 1)
        for names, expected in (
            (("none",), {"none": KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
            (("t", "t"), {"t": KafkaErrorCode.INVALID_REQUEST}),
            (("t",), {"t": KafkaErrorCode.NONE}),
        ):
            topics = tuple(NewPartitions(name, 2, None) for name in names)
            answer = await ask(service, ev.CreatePartitions, topics=topics, timeout_ms=5000, validate_only=False)
            assert {name: result.error_code for name, result in answer.items()} == expected
