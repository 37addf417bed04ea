"""What waits for a slow broker merges: it hears in few requests what it missed, and in an order that is right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiocontroller.controller import request_queue
from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.request_queue import MERGED_FROM, Outgoing
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.lab.scripted_peer import Peer, after, answer, hang_up, silence
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.apis import ApiKey
from tests.builders import add_topics, leadership
from tests.unit.controller.senders import Channels, cluster, decoded, seconds

LISR, UMR, STOP = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA


class Scene:
    """Broker 1, which has fallen silent, and three partitions on it: t-0, t-1 and u-0 (rows 0, 1 and 2)."""

    def __init__(self, channels: Channels, peer: Peer, context: ControllerContext, sender: BrokerRequestSender) -> None:
        self.channels = channels
        self.peer = peer
        self.context = context
        self.sender = sender
        self.acknowledged: list[int] = []

    async def send_states(self, epoch: int, *rows: int, is_new: bool = False, stop: int | None = None) -> None:
        for row in rows:
            self.context.table.set_leadership(row, leadership(1, (1,), leader_epoch=epoch))
        batch = RequestBatch(self.context)
        batch.add_leader_and_isr_request_for_brokers((1,), rows, is_new=is_new)
        if stop is not None:
            batch.add_stop_replica_request_for_brokers((1,), (stop,), delete=True)
        sent = await self.sender.send(batch.take())
        sent.control.when_all(lambda: self.acknowledged.append(epoch))

    def epochs_sent(self) -> list[tuple[ApiKey, dict[tuple[str, int], int]]]:
        """Each request: its API, and leader epochs by partition (of a StopReplica whatever it says)."""
        return [(api, {} if api is STOP else _epochs(request)) for api, request in decoded(self.peer)]


def _epochs(request: object) -> dict[tuple[str, int], int]:
    topics = request.topic_states  # type: ignore[attr-defined]
    return {(t.topic_name, p.partition_index): p.leader_epoch for t in topics for p in t.partition_states}


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with anyio.create_task_group() as tasks:
        channels = Channels(tasks)
        peer = await channels.peer(1)
        context, sender = cluster(channels, {1: 1})
        await seconds(1)
        peer.reactions.append(silence)
        yield Scene(channels, peer, context, sender)
        tasks.cancel_scope.cancel()


@virtual_time
async def test_a_broker_that_missed_fifty_batches_hears_the_last_state_in_few_requests() -> None:
    async with scene() as it:
        for epoch in range(1, 51):
            await it.send_states(epoch, 0, 1)
            await seconds(0.1)
        assert len(it.peer.arrived) == 1
        assert it.channels.manager.statistics()[0].queued <= MERGED_FROM
        await seconds(60)
        epochs_sent = it.epochs_sent()
        assert len(epochs_sent) == 5, "the first one twice, and what was merged"
        assert epochs_sent[-2:] == [(LISR, {("t", 0): 50, ("t", 1): 50}), (UMR, {("t", 0): 50, ("t", 1): 50})]
        assert it.acknowledged == list(range(1, 51)), "no sender waits for ever"


@virtual_time
async def test_what_is_merged_begins_with_the_broker_list() -> None:
    async with scene() as it:
        for epoch in range(1, 20):
            await it.send_states(epoch, 0)
        it.context.add_brokers([it.channels.broker(7, 7)])
        await it.send_states(20, 0)
        await seconds(60)
        (_, first), (api, _), _ = decoded(it.peer)[-3:]
        assert api is LISR
        assert 7 in {broker.id_ for broker in first.live_brokers}  # type: ignore[attr-defined]
        assert it.epochs_sent()[-3] == (UMR, {})


@virtual_time
async def test_what_is_merged_can_be_encoded_before_it_is_sent() -> None:
    """What the context holds then is in ZooKeeper, what it holds later perhaps not; a retry says the same."""
    async with scene() as it:
        for epoch in range(1, 31):
            await it.send_states(epoch, 0, 1)
        it.channels.manager.encode_merged()
        for row in (0, 1):
            it.context.table.set_leadership(row, leadership(1, (1,), leader_epoch=99))
        it.peer.reactions.extend([answer, answer, hang_up])
        await seconds(60)
        last = {("t", 0): 30, ("t", 1): 30}
        assert it.epochs_sent()[2:] == [(UMR, {}), (LISR, last), (LISR, last), (UMR, last)]
        assert it.acknowledged == list(range(1, 31))
        await it.send_states(100, 0)
        await seconds(1)
        assert it.epochs_sent()[-1] == (UMR, {("t", 0): 100})


def test_what_is_encoded_where_it_waits_can_be_encoded_again_and_for_another_version() -> None:
    late = request_queue.LateEncoding(lambda version, broker_epoch: [(f"{state} v{version} e{broker_epoch}".encode(),)])
    state = "first"
    late.encode_now(7, 3)
    state = "second"
    assert late(7, 3) == [(b"first v7 e3",)]
    assert late(6, 3) == [(b"second v6 e3",)]
    late.encode_now(7, 3)
    assert late(7, 3) == [(b"second v7 e3",)]


@virtual_time
async def test_a_broker_that_keeps_up_hears_everything() -> None:
    async with scene() as it:
        it.peer.reactions.clear()
        it.peer.reactions.extend([after(0.1)] * 60)
        for epoch in range(1, 31):
            await it.send_states(epoch, 0)
            await seconds(0.2)
        assert it.epochs_sent() == [(api, {("t", 0): epoch}) for epoch in range(1, 31) for api in (LISR, UMR)]


@virtual_time
async def test_stop_replica_keeps_its_place() -> None:
    """What was said before it is said before it, what comes after it after it."""
    async with scene() as it:
        for epoch in range(1, 31):
            await it.send_states(epoch, 0, stop=2 if epoch == 20 else None)
        for epoch in range(31, 61):
            await it.send_states(epoch, 1)
        await seconds(60)
        epochs_sent = it.epochs_sent()
        at = next(i for i, (api, _) in enumerate(epochs_sent) if api is STOP)
        assert [api for api, _ in epochs_sent].count(STOP) == 1
        assert all(("t", 1) not in epochs for _, epochs in epochs_sent[:at])
        assert any(epochs == {("t", 0): 30} for api, epochs in epochs_sent[:at] if api is LISR)
        assert epochs_sent[-1] == (UMR, {("t", 0): 30, ("t", 1): 60})
        assert len(epochs_sent) <= MERGED_FROM + 9


@virtual_time
async def test_pieces_of_a_large_batch_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disjoint, and together not little: they share their bytes with what other brokers get."""
    monkeypatch.setattr(request_queue, "LITTLE", 10)
    async with scene() as it:
        add_topics(it.context.table, {"large": [[1]] * 400}, online=True)
        rows = it.context.table.topic_by_name["large"].partitions()
        for start in range(0, 400, 20):
            await it.send_states(1, *rows[start : start + 20])
        assert it.channels.manager.statistics()[0].queued == 40
        await seconds(90)
        assert len(it.epochs_sent()) == 41, "the first one was sent twice"


@virtual_time
async def test_new_replicas_stay_new_and_rows_that_went_are_left_out() -> None:
    async with scene() as it:
        for epoch in range(1, 20):
            await it.send_states(epoch, 0)
        await it.send_states(20, 1, is_new=True)
        await it.send_states(21, 1, 2)
        it.context.remove_topic(it.context.table.topic_by_name["u"])
        await seconds(60)
        [request] = [r for api, r in decoded(it.peer)[-2:] if api is LISR]
        flags = {p.partition_index: p.is_new for t in request.topic_states for p in t.partition_states}  # type: ignore[attr-defined]
        assert flags == {0: False, 1: True}


@virtual_time
async def test_nothing_may_be_left_of_what_is_merged() -> None:
    """The broker turns out to owe the deletion of an earlier topic of that name."""
    async with scene() as it:
        for epoch in range(1, 20):
            await it.send_states(epoch, 0)
        it.context.debts.set(1, "t", {0: b"an earlier topic"}, 0)
        it.context.hold_back([0])
        await seconds(60)
        assert it.acknowledged == list(range(1, 20))
        assert [epochs for api, epochs in it.epochs_sent() if api is LISR][-1] == {("t", 0): 1}, "the first request"


@virtual_time
async def test_requests_of_a_topic_that_goes_are_sent_unmerged() -> None:
    """Its rows may be forgotten before its turn comes."""
    async with scene() as it:
        for epoch in range(1, 20):
            await it.send_states(epoch, 0)
        it.context.topics_to_be_deleted["u"] = None
        it.context.table.set_topic_deleting(it.context.table.topic_by_name["u"], True)
        batch = RequestBatch(it.context)
        batch.add_update_metadata_request_for_brokers((1,), (2,))
        await it.sender.send(batch.take())
        it.context.remove_topic(it.context.table.topic_by_name["u"])
        await seconds(60)
        _, last = decoded(it.peer)[-1]
        [partition] = [p for t in last.topic_states for p in t.partition_states]  # type: ignore[attr-defined]
        assert partition.leader == -2


@virtual_time
async def test_a_broker_that_goes_gives_up_what_was_merged() -> None:
    async with scene() as it:
        for epoch in range(1, 31):
            await it.send_states(epoch, 0)
        it.channels.manager.remove_brokers([1])
        assert sorted(it.acknowledged) == list(range(1, 31))


def test_merged_requests_are_as_old_as_the_first_of_them() -> None:
    merged = request_queue.Merged()
    for enqueued_s in (1.0, 2.0):
        merged.add(Outgoing(LISR, lambda *_: [], [0], enqueued_s, None, encode_current=lambda *_: []))
    assert merged.outgoing().enqueued_s == 1.0
