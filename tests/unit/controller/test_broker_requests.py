"""What a batch becomes: which requests each broker hears, in which order, and the state that they show."""

from __future__ import annotations

import pytest

from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.request_queue import MERGED_FROM
from aiocontroller.core.apply import apply
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import TopicsGone, TopicsRemoved
from aiocontroller.core.ids import LEADER_DURING_DELETE
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.lab.scripted_peer import NEWEST, Peer, after
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.apis import ApiKey, VersionRange
from tests.builders import add_topics, leadership
from tests.unit.controller.senders import at_first_listener, channels, cluster, decoded, seconds


@virtual_time
async def test_update_metadata_is_encoded_once_for_all_brokers_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiocontroller.controller import broker_requests

    encoded: list[int] = []
    real = broker_requests.UpdateMetadataEncoder

    def counting(version: int, **fields: object) -> object:
        encoded.append(version)
        return real(version, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(broker_requests, "UpdateMetadataEncoder", counting)
    async with channels() as it:
        peers = {b: await it.peer(b) for b in (1, 2, 3)}
        peers[4] = await it.peer(4, offers={**NEWEST, ApiKey.UPDATE_METADATA: VersionRange(0, 6)})
        context, sender = cluster(it, dict.fromkeys(peers, 1))
        await seconds(1)
        batch = RequestBatch(context)
        batch.add_update_metadata_request_for_brokers(context.brokers, list(context.table.rows()))
        await sender.send(batch.take())
        await seconds(1)
        assert encoded == [8, 6]
        epochs = {b: [request.broker_epoch for _, request in decoded(peer)] for b, peer in peers.items()}  # type: ignore[attr-defined]
        assert epochs == {1: [7], 2: [7], 3: [7], 4: [7]}, "the epoch of the sender's incarnation"


@virtual_time
async def test_batch_leaves_in_kafkas_order_and_is_acknowledged_once() -> None:
    async with channels() as it:
        peer = await it.peer(1)
        context, sender = cluster(it, {1: 1})
        await seconds(1)
        batch = RequestBatch(context)
        batch.add_stop_replica_request_for_brokers((1,), [2], delete=False)
        batch.add_leader_and_isr_request_for_brokers((1,), [0], is_new=True)
        sent = await sender.send(batch.take())
        heard: list[str] = []
        sent.control.when_all(lambda: heard.append("all"))
        await seconds(1)
        assert [api for api, _ in decoded(peer)] == [
            ApiKey.LEADER_AND_ISR,
            ApiKey.UPDATE_METADATA,
            ApiKey.STOP_REPLICA,
        ]
        assert heard == ["all"]


@virtual_time
async def test_a_broker_that_is_behind_hears_the_end_of_a_topic_that_another_has_deleted() -> None:
    async with channels() as it:
        peer = Peer(it.world)
        it.manager.add_brokers([it.broker(1, 9092)])
        context, sender = cluster(it, {1: 9092, 2: 1})
        topic = context.table.topic_by_name["u"]
        batch = RequestBatch(context)
        for _ in range(MERGED_FROM + 2):
            batch.add_update_metadata_request_for_brokers((1,), list(context.table.rows()))
            await sender.send(batch.take())
        apply(context, TopicsGone([topic]))
        batch.add_update_metadata_request_for_brokers((1,), topic.partitions())
        await sender.send(batch.take())
        apply(context, TopicsRemoved([topic]))
        await peer.listen(9092)
        await seconds(5)
        last = decoded(peer)[-1][1]
        leaders = [(t.topic_name, p.leader) for t in last.topic_states for p in t.partition_states]  # type: ignore[attr-defined]
        assert leaders == [("u", LEADER_DURING_DELETE)]


@virtual_time
async def test_request_queued_before_the_first_connection_shows_the_state_of_its_queueing() -> None:
    async with channels() as it:
        peer = Peer(it.world)
        it.manager.add_brokers([it.broker(1, 9092)])
        context, sender = cluster(it, {1: 9092, 2: 1})
        batch = RequestBatch(context)
        batch.add_leader_and_isr_request_for_brokers((1,), [0, 1], is_new=False)
        await sender.send(batch.take())
        context.table.set_leadership(0, leadership(2, (1, 2), leader_epoch=4))
        context.remove_topic(context.table.topic_by_name["u"])
        await peer.listen(9092)
        await seconds(1)
        request = decoded(peer)[0][1]
        partitions = [p for t in request.topic_states for p in t.partition_states]  # type: ignore[attr-defined]
        assert [(p.partition_index, p.leader, p.leader_epoch) for p in partitions] == [(0, 1, 0), (1, 2, 0)]


@virtual_time
async def test_request_shows_the_state_of_its_queueing_once_versions_are_known() -> None:
    """What the controller decides later follows in a request of its own; the order tells the broker the story."""
    async with channels() as it:
        peer = await it.peer(1)
        context, sender = cluster(it, {1: 1})
        await seconds(1)
        peer.reactions.append(after(1))
        for leader_epoch in (0, 1):
            context.table.set_leadership(0, leadership(1, (1, 2), leader_epoch=leader_epoch))
            batch = RequestBatch(context)
            batch.add_leader_and_isr_request_for_brokers((1,), [0], is_new=False)
            await sender.send(batch.take())
        await seconds(5)
        sent = [request for api, request in decoded(peer) if api is ApiKey.LEADER_AND_ISR]
        assert [r.topic_states[0].partition_states[0].leader_epoch for r in sent] == [0, 1]  # type: ignore[attr-defined]


@virtual_time
async def test_very_many_partitions_are_cut_into_requests_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiocontroller.controller import broker_requests

    monkeypatch.setattr(broker_requests, "PARTITIONS_PER_REQUEST", 2)
    async with channels() as it:
        peer = await it.peer(1)
        context = ControllerContext(5, 5)
        context.add_brokers([it.broker(1, 1)])
        add_topics(context.table, {"t": [[1]] * 5}, online=True)
        sender = BrokerRequestSender(context, it.manager, it.world.clock, 9, lambda: None, at_first_listener)
        batch = RequestBatch(context)
        batch.add_leader_and_isr_request_for_brokers((1,), list(context.table.rows()), is_new=False)
        await sender.send(batch.take())
        await seconds(1)
        pieces = [
            (api.name, [p.partition_index for t in request.topic_states for p in t.partition_states])  # type: ignore[attr-defined]
            for api, request in decoded(peer)
        ]
        assert pieces == [
            (name, piece) for piece in ([0, 1], [2, 3], [4]) for name in ("LEADER_AND_ISR", "UPDATE_METADATA")
        ]
