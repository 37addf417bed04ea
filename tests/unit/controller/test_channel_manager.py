"""Senders against a scripted broker, on virtual time: order, one in flight, retries, incarnations, versions."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.channel_manager import RETRY_BACKOFF_S, BrokerResponse
from aiocontroller.core.debts import Deletions
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker
from aiocontroller.lab.scripted_peer import (
    NEWEST,
    Peer,
    PeerConnection,
    Reaction,
    after,
    answer,
    cut_short,
    hang_up,
    impossible_length,
    silence,
    wrong_correlation_id,
)
from aiocontroller.lab.virtual_time import turns, virtual_time
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import RequestHeader
from tests.unit.controller.senders import REQUEST_TIMEOUT_S, channels, seconds


@virtual_time
async def test_requests_go_one_by_one_in_order() -> None:
    async with channels() as it:
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
    async with channels() as it:
        mute, other = await it.peer(1), await it.peer(2)
        await seconds(1)
        mute.reactions.append(silence)
        it.send("a", 1)
        it.send("b", 2)
        sent_us = it.world.clock.wall_time_us()
        await seconds(1)
        assert other.bodies == [b"b v7 e7"]
        assert it.done == ["b"]
        assert [each.waiting_since_us for each in it.manager.statistics()] == [sent_us, None]
        await seconds(REQUEST_TIMEOUT_S + 1)
        assert [each.waiting_since_us for each in it.manager.statistics()] == [None, None]


@pytest.mark.parametrize(
    "fault", [hang_up, wrong_correlation_id, cut_short, impossible_length], ids=lambda fault: fault.__name__
)
@virtual_time
async def test_lost_answer_sends_the_same_request_again_before_all_later_ones(fault: Reaction) -> None:
    async with channels() as it:
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
    async with channels() as it:
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
async def test_the_last_request_that_was_accepted_shows_when_the_broker_was_alive() -> None:
    """Another incarnation, which may answer at the same address, refuses it."""
    async with channels() as it:
        peer = await it.peer()
        assert it.manager.alive_s(1) == it.manager.alive_s(2) == -inf
        await seconds(1)
        peer.reactions.append(lambda connection, header: connection.answer(header, bytes(6)))
        it.send("a")
        sent_s = it.world.clock.monotonic()
        await seconds(1)
        assert it.manager.alive_s(1) == sent_s
        refused = KafkaErrorCode.STALE_BROKER_EPOCH.to_bytes(2, "big") + bytes(4)
        peer.reactions += [lambda connection, header: connection.answer(header, refused), silence]
        for name in ("b", "c"):
            it.send(name)
            await seconds(1)
            assert it.manager.alive_s(1) == sent_s
        it.manager.remove_brokers([1])
        assert it.manager.alive_s(1) == -inf


def complaints_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@virtual_time
async def test_broker_that_does_not_listen_yet_is_tried_ten_times_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async with channels() as it:
        peer = Peer(it.world)
        it.manager.add_brokers([it.broker(1, 9092)])
        it.send("a")
        await seconds(10)
        [sender] = it.manager.statistics()
        assert sender.retries == pytest.approx(100, abs=2)
        assert sender.problem in complaints_of(caplog)[0]
        assert it.world.clock.wall_time_us() - (sender.waiting_since_us or 0) == pytest.approx(10_000_000, abs=1_000)
        [complaint] = complaints_of(caplog)  # one line for each outage
        assert "Broker 1 cannot be reached" in complaint
        with caplog.at_level(logging.INFO):
            await peer.listen(9092)
            await seconds(1)
        assert peer.bodies == [b"a v7 e7"]
        assert any("Broker 1 can be reached again" in r.getMessage() for r in caplog.records)
        [sender] = it.manager.statistics()
        assert (sender.problem, sender.waiting_since_us) == ("", None)


@virtual_time
async def test_order_holds_over_many_reconnects() -> None:
    async with channels() as it:
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
    async with channels() as it:
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
    async with channels() as it:
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
    async with channels() as it:
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
    async with channels() as it:
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
    async with channels() as it:
        it.send("a", broker=5)
        assert it.done == ["a"]


@virtual_time
async def test_shutdown_ends_every_sender() -> None:
    async with channels() as it:
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
    async with channels() as it:
        peer = await it.peer(offers=offers)
        it.send("before", api=ApiKey.LEADER_AND_ISR)
        await seconds(1)
        it.send("after", api=ApiKey.UPDATE_METADATA)
        it.send("after", api=ApiKey.STOP_REPLICA)
        await seconds(1)
        assert peer.bodies == [b"before v2 e7", b"after v5 e7", b"after v1 e7"]
        assert [arrived.header.api_version for arrived in peer.arrived] == [2, 5, 1]


@virtual_time
async def test_newer_broker_gets_the_versions_of_the_clusters_protocol() -> None:
    """Of 2.7, LeaderAndIsr 4: answers to later ones are keyed by topic ids, which have not been given out."""
    async with channels() as it:
        it.manager.protocol = lambda: (2, 7, 2)
        peer = await it.peer()
        for api in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA):
            it.send("told", api=api)
        await seconds(1)
        assert [arrived.header.api_version for arrived in peer.arrived] == [4, 6, 3]


@virtual_time
async def test_broker_downgraded_between_connections_gets_its_request_encoded_anew() -> None:
    async with channels() as it:
        peer = await it.peer()
        await seconds(1)
        peer.reactions.append(hang_up)
        peer.offers = {**NEWEST, ApiKey.LEADER_AND_ISR: VersionRange(0, 4)}
        it.send("a")
        await seconds(5)
        assert peer.bodies == [b"a v7 e7", b"a v4 e7"]


@virtual_time
async def test_broker_that_shares_no_version_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async with channels() as it:
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
    async with channels() as it:
        it.manager.add_brokers([Broker(1, 7, ())])
        await seconds(1)
        assert "Broker 1 cannot be reached" in caplog.text


@virtual_time
async def test_answer_that_cannot_be_decoded_costs_the_connection_and_is_asked_for_again() -> None:
    async with channels() as it:
        peer = await it.peer()
        refused: list[BrokerResponse] = []

        def picky(response: BrokerResponse) -> None:
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
    async with channels() as it:
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
    async with channels() as it:
        peer = await it.peer()
        asked = Deletions((3,))
        it.manager.send(
            1,
            ApiKey.STOP_REPLICA,
            lambda v, e: [(b"delete",), (b"st", b"op")],
            (3,),
            lambda: it.done.append("x"),
            asked=asked,
        )
        it.manager.send(1, ApiKey.STOP_REPLICA, lambda v, e: [], (), lambda: it.done.append("nothing to say"))
        await seconds(1)
        assert peer.bodies == [b"delete", b"stop"]
        assert [r.rows for r in it.responses] == [(3,), (3,)]
        assert [r.asked for r in it.responses] == [asked, None], "the second one's answer does not tell of deletions"
        assert it.done == ["x", "nothing to say"]


@virtual_time
async def test_a_request_that_may_be_given_up_waits_for_one_silence_only() -> None:
    """The broker takes it and does not answer, again and again; what stands behind it has its turn."""
    async with channels() as it:
        peer = await it.peer()
        peer.reactions.extend([silence, answer])
        asked = Deletions((3,))
        it.manager.send(
            1,
            ApiKey.STOP_REPLICA,
            lambda v, e: [(b"delete",)],
            (3,),
            lambda: it.done.append("given up"),
            asked=asked,
            may_be_given_up=True,
        )
        sent_us = it.world.clock.wall_time_us()
        await seconds(1)
        assert it.manager.statistics()[0].waiting_since_us == pytest.approx(sent_us, abs=1_000)
        it.send("behind")
        await seconds(REQUEST_TIMEOUT_S)
        assert peer.bodies == [b"delete", b"behind v7 e7"]
        assert [(r.silent, r.asked) for r in it.responses] == [(True, asked), (False, None)]
        assert it.done == ["given up", "behind"]


@virtual_time
async def test_a_request_that_may_be_given_up_is_retried_while_the_broker_refuses() -> None:
    async with channels() as it:
        peer = await it.peer()
        peer.refuse()
        peer.break_connections()
        it.manager.send(
            1, ApiKey.STOP_REPLICA, lambda v, e: [(b"delete",)], (3,), lambda: it.done.append("x"), may_be_given_up=True
        )
        await seconds(2 * REQUEST_TIMEOUT_S)
        assert it.done == []


@virtual_time
async def test_a_broker_that_was_silent_at_first_owes_nothing_once_it_has_answered() -> None:
    async with channels() as it:
        mute = await it.world.network.serve(asyncio.Protocol, "127.0.0.1", 9998)
        it.manager.add_brokers([it.broker(1, 9998)])
        await seconds(REQUEST_TIMEOUT_S / 2)
        assert it.manager.statistics()[0].waiting_since_us is not None
        mute.close()
        await Peer(it.world).listen(9998)
        await seconds(REQUEST_TIMEOUT_S)
        [sender] = it.manager.statistics()
        assert (sender.waiting_since_us, sender.problem) == (None, "")


@virtual_time
async def test_waiting_for_first_connections_has_a_bound() -> None:
    async with channels() as it:
        await it.peer(1)
        await it.world.network.serve(asyncio.Protocol, "127.0.0.1", 9998)  # accepts, and says nothing
        it.manager.add_brokers([it.broker(2, 9998)])
        started = it.world.clock.monotonic()
        await it.manager.wait_until_connected(0.5)
        assert it.world.clock.monotonic() - started == pytest.approx(0.5)
        it.manager.remove_brokers([2])
        await it.manager.wait_until_connected(0.5)
        assert it.world.clock.monotonic() - started == pytest.approx(0.5), "all that are left are connected"


@virtual_time
async def test_broker_that_refuses_is_not_waited_for() -> None:
    """Dead and still registered, as at most failovers in which a host is lost."""
    async with channels() as it:
        await it.peer(1)
        it.manager.add_brokers([it.broker(2, 9999)])
        started = it.world.clock.monotonic()
        await it.manager.wait_until_connected(0.5)
        assert it.world.clock.monotonic() - started < 0.01
        it.send("a", 2)
        peer = Peer(it.world)
        await peer.listen(9999)
        await seconds(1)
        assert peer.bodies == [b"a v7 e7"], "it is still tried"


@virtual_time
async def test_metrics_and_journal_tell_of_each_request() -> None:
    async with channels() as it:
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


@virtual_time
async def test_journal_has_the_error_code_of_an_answer() -> None:
    async with channels() as it:
        peer = await it.peer()
        await seconds(1)
        refused = KafkaErrorCode.STALE_CONTROLLER_EPOCH.to_bytes(2, "big") + bytes(4)
        peer.reactions.append(lambda connection, header: connection.answer(header, refused))
        peer.reactions.append(lambda connection, header: connection.answer(header, bytes(6)))
        it.send("a")
        it.send("b")
        await seconds(5)
        answers = [r for r in it.journal.of_kind("response") if r.api == "LEADER_AND_ISR"]
        assert [r.code for r in answers] == [KafkaErrorCode.STALE_CONTROLLER_EPOCH, None]


class Known:
    """A transport that says of itself what it is given."""

    def __init__(self, **known: Any) -> None:
        self._known = known

    def get_extra_info(self, name: str) -> Any:
        return self._known.get(name)


@pytest.mark.parametrize(
    "transport, certificate, host",
    [
        (None, None, ""),
        (Known(peername=("10.0.0.1", 9092)), None, "10.0.0.1"),
        (Known(ssl_object=SimpleNamespace(getpeercert=lambda binary_form: b"DER")), b"DER", ""),
    ],
    ids=["closed", "plain", "TLS"],
)
def test_connection_tells_the_brokers_certificate_and_host(
    transport: Any, certificate: bytes | None, host: str
) -> None:
    connection = BrokerConnection()
    connection._transport = transport
    assert (connection.certificate, connection.host) == (certificate, host)


@virtual_time
async def test_what_is_behind_a_barrier_waits_until_it_is_opened() -> None:
    async with channels() as it:
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
async def test_an_unopened_barrier_holds_for_its_time_only() -> None:
    async with channels() as it:
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
    async with channels() as it:
        peer = await it.peer()
        await seconds(1)
        barrier = it.manager.hold_back([1], timeout_s=0.5)
        it.send("behind")
        await seconds(0.1)
        it.manager.remove_brokers([1])
        barrier.open()
        await seconds(1)
        assert (it.done, peer.bodies) == (["behind"], [])
