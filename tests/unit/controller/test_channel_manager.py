"""Senders against a scripted broker, on virtual time: order, one in flight, retries, incarnations, versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.channel_manager import RETRY_BACKOFF_S, Body, ControllerChannelManager, Response
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.metrics import Metrics
from aiocontroller.net.simulated import SimulatedNetwork, simulated_world
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import RequestHeader
from tests.builders import add_topics, leadership
from tests.scripted_peer import (
    NEWEST,
    Peer,
    PeerConnection,
    Reaction,
    after,
    cut_short,
    hang_up,
    impossible_length,
    silence,
    wrong_correlation_id,
)
from tests.virtual_time import turns, virtual_time

REQUEST_TIMEOUT_S = 30.0


class Office:
    """A channel manager and what it reports."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.metrics = Metrics()
        self.journal = MemoryJournal(9, self.world.clock)
        self.responses: list[Response] = []
        self.done: list[str] = []
        self.manager = ControllerChannelManager(
            self.world,
            tasks,
            self.responses.append,
            endpoint_of=lambda b: b.endpoints[0] if b.endpoints else None,
            connect_timeout_s=10,
            request_timeout_s=REQUEST_TIMEOUT_S,
            metrics=self.metrics,
            journal=self.journal,
        )

    async def peer(self, broker: int = 1, *, offers: dict[ApiKey, VersionRange] | None = None) -> Peer:
        peer = Peer(self.world, offers)
        self.manager.add_brokers([self.broker(broker, await peer.listen())])
        return peer

    @staticmethod
    def broker(broker: int, port: int, epoch: int = 7) -> Broker:
        return Broker(broker, epoch, (Endpoint("PLAINTEXT", "127.0.0.1", port),))

    def send(self, text: str, broker: int = 1, api: ApiKey = ApiKey.LEADER_AND_ISR) -> None:
        """A request whose body says what it was called with."""

        def encode(version: int, epoch: int) -> list[Body]:
            return [(f"{text} v{version} e{epoch}".encode(),)]

        self.manager.send(broker, api, encode, (), lambda: self.done.append(text))


@asynccontextmanager
async def office() -> AsyncIterator[Office]:
    async with anyio.create_task_group() as tasks:
        yield Office(tasks)
        tasks.cancel_scope.cancel()


async def seconds(number: float) -> None:
    await asyncio.sleep(number)


@virtual_time
async def test_requests_go_one_by_one_in_order() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.extend([after(5)] * 3)
        for name in "abc":
            it.send(name)
        await seconds(60)
        assert peer.bodies == [b"a v7 e7", b"b v7 e7", b"c v7 e7"]
        gaps = [later.at_s - earlier.at_s for earlier, later in zip(peer.arrived, peer.arrived[1:], strict=False)]
        assert all(gap > 5 for gap in gaps), "the next one leaves when the one before was answered"
        assert it.done == ["a", "b", "c"]
        assert [(r.broker, r.broker_epoch, r.api, r.version, r.body) for r in it.responses] == [
            (1, 7, ApiKey.LEADER_AND_ISR, 7, b"ok")
        ] * 3


@virtual_time
async def test_silent_broker_holds_back_only_its_own() -> None:
    async with office() as it:
        mute, other = await it.peer(1), await it.peer(2)
        await seconds(1)
        mute.reactions.append(silence)
        it.send("a", 1)
        it.send("b", 2)
        await seconds(1)
        assert other.bodies == [b"b v7 e7"]
        assert it.done == ["b"]


@pytest.mark.parametrize(
    "fault", [hang_up, wrong_correlation_id, cut_short, impossible_length], ids=lambda fault: fault.__name__
)
@virtual_time
async def test_lost_answer_sends_the_same_request_again_before_all_later_ones(fault: Reaction) -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.extend([fault, fault])
        it.send("a")
        it.send("b")
        await seconds(5)
        assert peer.bodies == [b"a v7 e7"] * 3 + [b"b v7 e7"]
        assert [arrived.connection for arrived in peer.arrived] == [0, 1, 2, 2], "each fault costs the connection"
        assert it.done == ["a", "b"]
        (statistics,) = it.manager.statistics()
        assert (statistics.retries, statistics.queued, statistics.in_flight) == (2, 0, False)


@virtual_time
async def test_broker_that_stays_silent_is_asked_again_after_the_timeout() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(silence)
        it.send("a")
        await seconds(60)
        first, second = peer.arrived
        assert first.connection != second.connection
        assert second.at_s - first.at_s == pytest.approx(REQUEST_TIMEOUT_S + RETRY_BACKOFF_S, abs=0.01)
        assert it.done == ["a"]


@virtual_time
async def test_broker_that_does_not_listen_yet_is_tried_ten_times_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async with office() as it:
        peer = Peer(it.world)
        it.manager.add_brokers([it.broker(1, 9092)])
        it.send("a")
        await seconds(10)
        assert it.manager.statistics()[0].retries == pytest.approx(100, abs=2)
        complaints = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(complaints) == 1, "one line for each outage"
        assert "Broker 1 cannot be reached" in complaints[0].getMessage()
        with caplog.at_level(logging.INFO):
            await peer.listen(9092)
            await seconds(1)
        assert peer.bodies == [b"a v7 e7"]
        assert any("Broker 1 can be reached again" in r.getMessage() for r in caplog.records)


@virtual_time
async def test_order_holds_over_many_reconnects() -> None:
    async with office() as it:
        peer = await it.peer()
        names = [f"r{i}" for i in range(30)]
        for i, name in enumerate(names):
            if i % 7 == 0:
                peer.break_connections()
            it.send(name)
            await seconds(0.05)
        await seconds(10)
        delivered = list(dict.fromkeys(body.split()[0].decode() for body in peer.bodies))
        assert delivered == names
        assert it.done == names


@virtual_time
async def test_removed_broker_drops_its_queue_and_tells() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(silence)
        for name in "abc":
            it.send(name)
        await seconds(1)
        it.manager.remove_brokers([1, 2])
        assert it.done == ["a", "b", "c"]
        await seconds(60)
        assert peer.bodies == [b"a v7 e7"]
        assert it.responses == []
        assert it.manager.statistics() == []
        assert 'broker_id="1"' not in it.metrics.render()


@virtual_time
async def test_new_incarnation_hears_nothing_that_was_meant_for_the_old_one() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(silence)
        it.send("old")
        it.send("old too")
        await seconds(1)
        port = it.network.connections[0][0]
        it.manager.remove_brokers([1])
        it.manager.add_brokers([it.broker(1, port, epoch=8)])
        it.send("new")
        await seconds(5)
        assert peer.bodies == [b"old v7 e7", b"new v7 e8"]


@virtual_time
async def test_broker_removed_in_the_step_in_which_its_answer_arrives() -> None:
    """The answer has woken the sender, which has not run yet: the queue it comes back to is gone."""
    async with office() as it:
        peer = await it.peer()
        await seconds(1)

        def answer_and_die(connection: PeerConnection, header: RequestHeader) -> None:
            connection.answer(header, b"ok")
            it.world.clock.call_later(it.network.delay_s, lambda: it.manager.remove_brokers([1]))

        peer.reactions.append(answer_and_die)
        it.send("a")
        it.send("b")
        await seconds(5)
        assert it.done == ["a", "b"]
        assert it.responses == []
        assert peer.bodies == [b"a v7 e7"]


@virtual_time
async def test_broker_removed_in_the_step_in_which_its_versions_arrive() -> None:
    """The same with a connection that is made anew under a request that waits (storm of seed 2029)."""
    async with office() as it:
        peer = await it.peer()
        await seconds(1)

        def removed() -> None:
            it.world.clock.call_later(it.network.delay_s, lambda: it.manager.remove_brokers([1]))

        peer.reactions.append(hang_up)
        peer.on_handshake = removed
        it.send("a")
        await seconds(5)
        assert it.done == ["a"]
        assert (peer.handshakes, it.manager.statistics()) == (2, [])


@virtual_time
async def test_request_to_an_unknown_broker_is_given_up_at_once() -> None:
    async with office() as it:
        it.send("a", broker=5)
        assert it.done == ["a"]


@virtual_time
async def test_shutdown_ends_every_sender() -> None:
    async with office() as it:
        for broker in (1, 2, 3):
            await it.peer(broker)
        it.send("a", 3)
        await turns()
        it.manager.shutdown()
        assert it.done == ["a"]
        assert it.manager.statistics() == []
        await seconds(1)
        assert all(near.is_closing() for _, near, _ in it.network.connections)


@virtual_time
async def test_older_broker_gets_the_versions_that_it_offers() -> None:
    offers = {
        ApiKey.LEADER_AND_ISR: VersionRange(0, 2),
        ApiKey.UPDATE_METADATA: VersionRange(0, 5),
        ApiKey.STOP_REPLICA: VersionRange(0, 1),
    }
    async with office() as it:
        peer = await it.peer(offers=offers)
        it.send("before", api=ApiKey.LEADER_AND_ISR)
        await seconds(1)
        it.send("after", api=ApiKey.UPDATE_METADATA)
        it.send("after", api=ApiKey.STOP_REPLICA)
        await seconds(1)
        assert peer.bodies == [b"before v2 e7", b"after v5 e7", b"after v1 e7"]
        assert [arrived.header.api_version for arrived in peer.arrived] == [2, 5, 1]


@virtual_time
async def test_broker_downgraded_between_connections_gets_its_request_encoded_anew() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(hang_up)
        peer.offers = {**NEWEST, ApiKey.LEADER_AND_ISR: VersionRange(0, 4)}
        it.send("a")
        await seconds(5)
        assert peer.bodies == [b"a v7 e7", b"a v4 e7"]


@virtual_time
async def test_broker_that_shares_no_version_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with office() as it:
        peer = await it.peer(offers={**NEWEST, ApiKey.STOP_REPLICA: VersionRange(90, 99)})
        it.send("a")
        await seconds(5)
        assert "STOP_REPLICA(5): peer offers versions 90 to 99" in caplog.text
        assert peer.bodies == []
        peer.offers = NEWEST
        await seconds(1)
        assert peer.bodies == [b"a v7 e7"]


@virtual_time
async def test_broker_without_endpoint_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with office() as it:
        it.manager.add_brokers([Broker(1, 7, ())])
        await seconds(1)
        assert "Broker 1 cannot be reached" in caplog.text


@virtual_time
async def test_answer_that_cannot_be_decoded_costs_the_connection_and_is_asked_for_again() -> None:
    async with office() as it:
        peer = await it.peer()
        refused: list[Response] = []

        def picky(response: Response) -> None:
            if not refused:
                refused.append(response)
                raise FrameError("not what was expected")
            it.responses.append(response)

        it.manager.on_response = picky
        it.send("a")
        await seconds(5)
        assert [arrived.connection for arrived in peer.arrived] == [0, 1]
        assert len(it.responses) == 1


@virtual_time
async def test_unasked_answer_costs_the_connection_only() -> None:
    async with office() as it:
        peer = await it.peer()
        it.send("a")
        await seconds(1)
        peer.connections[0].send((4).to_bytes(4, "big") + b"spam")
        await seconds(1)
        it.send("b")
        await seconds(1)
        assert [arrived.connection for arrived in peer.arrived] == [0, 1]
        assert it.done == ["a", "b"]


@virtual_time
async def test_request_with_several_bodies_is_answered_body_by_body() -> None:
    async with office() as it:
        peer = await it.peer()
        it.manager.send(
            1, ApiKey.STOP_REPLICA, lambda v, e: [(b"delete",), (b"st", b"op")], (3,), lambda: it.done.append("x")
        )
        it.manager.send(1, ApiKey.STOP_REPLICA, lambda v, e: [], (), lambda: it.done.append("nothing to say"))
        await seconds(1)
        assert peer.bodies == [b"delete", b"stop"]
        assert [r.pids for r in it.responses] == [(3,), (3,)]
        assert it.done == ["x", "nothing to say"]


@virtual_time
async def test_waiting_for_first_connections_has_a_bound() -> None:
    async with office() as it:
        await it.peer(1)
        it.manager.add_brokers([it.broker(2, 9999)])
        started = it.world.clock.monotonic()
        await it.manager.wait_until_connected(0.5)
        assert it.world.clock.monotonic() - started == pytest.approx(0.5)
        it.manager.remove_brokers([2])
        await it.manager.wait_until_connected(0.5)
        assert it.world.clock.monotonic() - started == pytest.approx(0.5), "all that are left are connected"


@virtual_time
async def test_metrics_and_journal_tell_of_each_request() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(after(2))
        it.send("a")
        it.send("b")
        await seconds(1)
        queue_size = it.metrics.get(
            "kafka.controller", "ControllerChannelManager", "QueueSize", tags={"broker-id": "1"}
        )
        assert queue_size.value == 2  # type: ignore[union-attr]
        await seconds(5)
        requests = [r for r in it.journal.of_kind("request") if r.api == "LEADER_AND_ISR"]
        answers = [r for r in it.journal.of_kind("response") if r.api == "LEADER_AND_ISR"]
        assert [(r.broker, r.broker_epoch, r.api_version) for r in requests] == [(1, 7, 7)] * 2
        assert [r.correlation_id for r in requests] == [r.correlation_id for r in answers]
        assert requests[1].queue_us == pytest.approx(2_000_000, abs=1000)
        assert answers[0].duration_us == pytest.approx(2_000_000, abs=1000)


# -- what a batch becomes ----------------------------------------------------------------------------------------------


def cluster(office: Office, ports: dict[int, int]) -> tuple[ControllerContext, BrokerRequestSender]:
    context = ControllerContext(5, 5)
    context.add_brokers(office.broker(b, port, epoch=100 + b) for b, port in ports.items())
    add_topics(context.table, {"t": [[1, 2], [2, 1]], "u": [[1]]}, online=True)
    sender = BrokerRequestSender(context, office.manager, office.world.clock, 9, lambda: None)
    return context, sender


def decoded(peer: Peer) -> list[tuple[ApiKey, object]]:
    return [
        (ApiKey(a.header.api_key), cold.decode_request(a.header.api_key, a.header.api_version, a.body))
        for a in peer.arrived
    ]


@virtual_time
async def test_update_metadata_is_encoded_once_for_all_brokers_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiocontroller.controller import broker_requests

    encoded: list[int] = []
    real = broker_requests.UpdateMetadataEncoder

    def counting(version: int, **fields: object) -> object:
        encoded.append(version)
        return real(version, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(broker_requests, "UpdateMetadataEncoder", counting)
    async with office() as it:
        peers = {b: await it.peer(b) for b in (1, 2, 3)}
        peers[4] = await it.peer(4, offers={**NEWEST, ApiKey.UPDATE_METADATA: VersionRange(0, 6)})
        context, sender = cluster(it, dict.fromkeys(peers, 1))
        await seconds(1)
        batch = RequestBatch(context)
        batch.add_update_metadata_request_for_brokers(context.brokers, list(context.table.pids()))
        await sender.send(batch.take())
        await seconds(1)
        assert encoded == [8, 6]
        epochs = {b: [request.broker_epoch for _, request in decoded(peer)] for b, peer in peers.items()}  # type: ignore[attr-defined]
        assert epochs == {1: [7], 2: [7], 3: [7], 4: [7]}, "the epoch of the sender's incarnation"


@virtual_time
async def test_batch_leaves_in_kafkas_order_and_is_acknowledged_once() -> None:
    async with office() as it:
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
async def test_request_queued_before_the_first_connection_shows_the_state_of_its_queueing() -> None:
    async with office() as it:
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
    async with office() as it:
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
    async with office() as it:
        peer = await it.peer(1)
        context = ControllerContext(5, 5)
        context.add_brokers([it.broker(1, 1)])
        add_topics(context.table, {"t": [[1]] * 5}, online=True)
        sender = BrokerRequestSender(context, it.manager, it.world.clock, 9, lambda: None)
        batch = RequestBatch(context)
        batch.add_leader_and_isr_request_for_brokers((1,), list(context.table.pids()), is_new=False)
        await sender.send(batch.take())
        await seconds(1)
        pieces = [
            (api.name, [p.partition_index for t in request.topic_states for p in t.partition_states])  # type: ignore[attr-defined]
            for api, request in decoded(peer)
        ]
        assert pieces == [
            (name, piece) for piece in ([0, 1], [2, 3], [4]) for name in ("LEADER_AND_ISR", "UPDATE_METADATA")
        ]


# -- barriers: leaders first -------------------------------------------------------------------------------------------


@virtual_time
async def test_what_is_behind_a_barrier_waits_until_it_is_opened() -> None:
    async with office() as it:
        leader, follower = await it.peer(1), await it.peer(2)
        await seconds(1)
        it.send("before", 2)
        barrier = it.manager.hold_back([1, 2, 9], timeout_s=0.5)
        it.send("behind", 1)
        it.send("behind", 2)
        await seconds(0.3)
        assert (leader.bodies, follower.bodies) == ([], [b"before v7 e7"])
        barrier.open()
        await seconds(0.01)
        assert (leader.bodies, follower.bodies) == ([b"behind v7 e7"], [b"before v7 e7", b"behind v7 e7"])
        assert sum(s.queued for s in it.manager.statistics()) == 0


@virtual_time
async def test_a_barrier_that_nobody_opens_holds_for_its_time_only() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        it.manager.hold_back([1], timeout_s=0.5)
        it.send("behind")
        await seconds(0.49)
        assert peer.bodies == []
        await seconds(0.02)
        assert peer.bodies == [b"behind v7 e7"]


@virtual_time
async def test_a_sender_that_goes_while_it_waits_at_a_barrier_tells_what_it_gives_up() -> None:
    async with office() as it:
        peer = await it.peer()
        await seconds(1)
        barrier = it.manager.hold_back([1], timeout_s=0.5)
        it.send("behind")
        await seconds(0.1)
        it.manager.remove_brokers([1])
        barrier.open()
        await seconds(1)
        assert (it.done, peer.bodies) == (["behind"], [])
