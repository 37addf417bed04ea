"""What hostile and careless clients cost: places, memory, time of the loop, places in the event queue."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from aiocontroller.config import load_config
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.admission import PLACES_OF_A_BROKER, PLACES_OF_UNKNOWN_BROKERS
from aiocontroller.server.apis import all_versions
from aiocontroller.server.kafka_channel import KafkaChannel
from aiocontroller.server.memory_pool import SMALL_BYTES
from aiocontroller.server.socket_server import TURN_REQUESTS, SocketServer
from aiocontroller.wire import messages, reassignments, sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import encode_request_header, request_frame
from tests.unit.server.front import Client, Front, front, settle, warnings
from tests.unit.server.test_logins import SECURE
from tests.unit.server.test_logins import front as secure_front

MIB = 1 << 20
LIST_ALL = reassignments.encode_list_partition_reassignments_request(0, None)


def configured(it: Front, descriptors: int | None = None, **properties: str) -> None:
    """The same listener with other limits."""
    config, _ = load_config(overrides={key.replace("_", "."): value for key, value in properties.items()})
    it.shell.config = config
    it.listener = SocketServer(it.shell, it.listener.tasks, None if descriptors is None else lambda: descriptors)


def half(api: ApiKey, version: int, size: int, body: bytes = b"") -> bytes:
    """The first ten kilobytes of a request that announces ``size`` bytes."""
    start = encode_request_header(api, version, 1, "me") + body
    return size.to_bytes(4, "big") + start + bytes(10_000 - len(start))


def list_of(partitions: int) -> bytes:
    """ListPartitionReassignments of that many partitions."""
    asked = [TopicPartition("t", number) for number in range(partitions)]
    return reassignments.encode_list_partition_reassignments_request(0, asked)


def metric(it: Front, name: str) -> float:
    return float(it.shell.metrics.snapshot()[name])


def transport(client: Client) -> Any:
    return client._transport


# -- finding 3: requests that are sent without end ---------------------------------------------------------------------


@virtual_time
async def test_pipelined_requests_whose_answers_are_not_read_are_not_read_either() -> None:
    async with front() as it:
        client, other = await it.connect(), await it.connect()
        transport(client).pause_reading()
        data = b"".join(request_frame(ApiKey.API_VERSIONS, 0, 1, "me", b"")) * 100
        for _ in range(100):
            client.send(data)
            await asyncio.sleep(0.001)
        await settle()
        (channel, _) = it.listener.connections
        assert metric(it, "aiocontroller_socketserver_unreadconnections") == 1
        assert metric(it, "aiocontroller_socketserver_unreadresponsebytes") < MIB
        assert transport(client).peer._paused
        other.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert other.correlation_ids() == [1]
        await asyncio.sleep(40)
        assert client.closed or channel not in it.listener.connections
        assert metric(it, "aiocontroller_socketserver_unreadresponsebytes") == 0


@virtual_time
async def test_a_client_gets_no_more_time_to_read_from_a_connection_that_is_closed_twice() -> None:
    class Unread(asyncio.Transport):
        """Stays until its answers are read."""

        aborted = False

        def close(self) -> None: ...

        def abort(self) -> None:
            self.aborted = True

    async with front() as it:
        unread = Unread()
        it.listener.connection().connection_made(unread)
        for _ in range(2):
            assert not unread.aborted
            it.listener.close()
            await asyncio.sleep(it.listener.send_timeout_s * 0.6)
        assert unread.aborted


@virtual_time
async def test_client_that_reads_again_gets_every_answer() -> None:
    async with front() as it:
        client = await it.connect()
        transport(client).pause_reading()
        for _ in range(3000):
            client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        transport(client).resume_reading()
        await settle()
        assert client.correlation_ids() == list(range(1, 3001))


@virtual_time
async def test_one_turn_of_the_loop_begins_few_requests_and_connections_take_turns() -> None:
    async with front() as it:
        clients = [await it.connect() for _ in range(3)]
        for client in clients:
            client.send(b"".join(request_frame(ApiKey.API_VERSIONS, 0, 1, "me", b"")) * 1000)
        begun: list[object] = []
        turns: list[int] = []
        begin, next_turn = it.listener.begin, it.listener._next_turn

        def begin_noted(channel: KafkaChannel) -> None:
            begun.append(channel)
            begin(channel)

        def next_turn_noted() -> None:
            turns.append(len(begun))
            next_turn()
            counts = [begun.count(channel) for channel in it.listener.connections]
            assert max(counts) - min(counts) <= TURN_REQUESTS

        it.listener.begin = begin_noted  # type: ignore[method-assign]
        it.listener._next_turn = next_turn_noted  # type: ignore[method-assign]
        await settle()
        assert max(after - before for before, after in pairwise(turns)) <= TURN_REQUESTS
        assert [len(client.frames) for client in clients] == [1000] * 3


@virtual_time
async def test_clients_have_few_requests_in_the_queue_and_take_turns() -> None:
    """Ten connections of ListPartitionReassignments put 71,584 events in the queue."""
    async with front() as it:
        clients = [await it.connect() for _ in range(50)]
        for client in clients:
            for _ in range(3):
                client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        assert len(it.queue) == it.shell.config.aiocontroller_queued_max_client_requests
        assert metric(it, "aiocontroller_requestadmission_waitingrequests") == 46
        it.queue.append(ev.BrokerChange())
        taken = [await it.event() for _ in range(5)]
        assert isinstance(taken[4], ev.BrokerChange)
        for event in taken[:4]:
            event.reply.answer({})
        for _ in range(146):
            (await it.event()).reply.answer({})
            assert len(it.queue) <= 4
            await asyncio.sleep(0.001)
        await settle()
        assert [len(client.frames) for client in clients] == [3] * 50
        assert metric(it, "aiocontroller_requestadmission_waitingrequests") == 0


@virtual_time
async def test_addresses_take_turns() -> None:
    async with front() as it:
        await it.listen()
        crowd = [await it.connect() for _ in range(20)]
        for client in crowd:
            client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        _, lonely = await it.network.host("elsewhere").connect(Client, "127.0.0.1", it.port, timeout_s=1)
        lonely.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        for _ in range(6):
            (await it.event()).reply.answer({})
            await settle()
        assert len(lonely.frames) == 1


@virtual_time
async def test_brokers_requests_do_not_wait_for_those_of_unknown_brokers() -> None:
    """Every client can send AlterPartition on an open listener; brokers name the epoch of their registration."""
    async with front() as it:
        it.context.brokers[2] = Broker(2, 77, ())
        body = messages.encode_allocate_producer_ids_request(0, 2, 76)
        unknown = [await it.connect() for _ in range(100)]
        for client in unknown:
            client.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, body)
        await settle()
        assert len(it.queue) == PLACES_OF_UNKNOWN_BROKERS
        broker = [await it.connect() for _ in range(PLACES_OF_A_BROKER + 1)]
        for client in broker:
            client.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, messages.encode_allocate_producer_ids_request(0, 2, 77))
        await settle()
        assert len(it.queue) == PLACES_OF_UNKNOWN_BROKERS + PLACES_OF_A_BROKER


@virtual_time
async def test_large_request_of_a_client_waits_until_it_is_alone_in_the_queue() -> None:
    async with front() as it:
        small, large = await it.connect(), await it.connect()
        small.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        body = list_of(50_000)
        large.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body)
        await settle()
        assert len(it.queue) == 1
        (await it.event()).reply.answer({})
        await settle()
        event = await it.event()
        assert len(event.partitions) == 50_000
        small.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        assert not it.queue
        event.reply.answer({})
        await settle()
        assert len(it.queue) == 1


@virtual_time
async def test_request_whose_client_is_gone_leaves_the_waiting_room() -> None:
    async with front() as it:
        clients = [await it.connect() for _ in range(6)]
        for client in clients:
            client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        clients[4].close()
        await settle()
        assert metric(it, "aiocontroller_requestadmission_waitingrequests") == 1


@virtual_time
async def test_deferred_answers_free_their_place_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiocontroller.server.admission.MAX_DEFERRED", 3)
    async with front() as it:
        clients = [await it.connect() for _ in range(8)]
        for client in clients:
            client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        events = []
        for _ in range(8):
            event = await it.event()
            event.reply.defer()
            events.append(event)
            await settle()
        assert metric(it, "aiocontroller_requestadmission_deferredrequests") == 3
        assert [len(client.frames) for client in clients] == [1, 1, 1, 1, 1, 0, 0, 0]
        answer = reassignments.decode_list_partition_reassignments_response(0, clients[0].frames[0][5:])
        assert answer.error_code == KafkaErrorCode.REQUEST_TIMED_OUT
        for event in events[5:]:
            event.reply.answer({})
        assert metric(it, "aiocontroller_requestadmission_deferredrequests") == 0


@virtual_time
async def test_requests_that_wait_outside_do_not_fill_a_queue_that_is_emptied() -> None:
    async with front() as it:
        for _ in range(10):
            (await it.connect()).request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        it.queue.clear_and_put(ev.Expire())
        assert isinstance(await it.event(), ev.Expire)
        assert not it.queue


# -- finding 4: memory and descriptors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "api,version,size,complaint",
    [
        (ApiKey.ALTER_PARTITION, 3, 95 * MIB, "AlterPartition"),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 95 * MIB, "expected at most 1048576"),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, MIB, "expected at most 65536"),
        (ApiKey.LEADER_AND_ISR, 5, 95 * MIB, "not served here"),
        (ApiKey.PRODUCE, 9, 95 * MIB, "expected at most 16777216"),
        (ApiKey.ENVELOPE, 0, 95 * MIB, "expected at most 16777216"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@virtual_time
async def test_a_forbidden_request_is_refused_before_it_is_received(
    api: ApiKey, version: int, size: int, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with front() as it:
        client = await it.connect()
        client.send(half(api, version, size))
        await settle()
        assert client.closed
        (line,) = warnings(caplog)
        assert complaint.lower().replace("_", "") in line.lower().replace("_", "")
        assert it.listener.memory.used_bytes == 0


@virtual_time
async def test_large_alter_partition_is_taken_from_a_registered_broker_only() -> None:
    async with front() as it:
        it.context.brokers[2] = Broker(2, 77, ())
        known, unknown = await it.connect(), await it.connect()
        known.send(half(ApiKey.ALTER_PARTITION, 0, MIB, (2).to_bytes(4, "big") + (77).to_bytes(8, "big")))
        unknown.send(half(ApiKey.ALTER_PARTITION, 0, MIB, (2).to_bytes(4, "big") + (76).to_bytes(8, "big")))
        await settle()
        assert not known.closed
        assert unknown.closed


@virtual_time
async def test_half_frames_take_no_more_than_the_budget_and_leave_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 connections with 95 MB of an unfinished frame each made RSS 2 GB."""
    async with front() as it:
        configured(it, socket_request_max_bytes=str(MIB), queued_max_request_bytes=str(3 * MIB))
        monkeypatch.setattr("aiocontroller.server.socket_server.MUCH_BYTES", MIB)
        returned: list[int] = []
        it.listener._return_memory = lambda: returned.append(it.listener.memory.used_bytes)
        clients = [await it.connect() for _ in range(20)]
        for client in clients:
            client.send(half(ApiKey.CREATE_TOPICS, 5, MIB))
            client.send(bytes(MIB // 2))
        await settle()
        buffered = sum(len(channel._buffer) for channel in it.listener.connections)
        assert buffered < 3 * MIB
        assert metric(it, "kafka_network_socketserver_memorypoolused") == 3 * MIB
        assert metric(it, "aiocontroller_socketserver_connectionswaitingformemory") == 17
        client = await it.connect()
        client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, LIST_ALL)
        await settle()
        assert len(it.queue) == 1  # small requests need none of it
        await asyncio.sleep(120)
        assert all(each.closed for each in clients)
        assert metric(it, "kafka_network_socketserver_memorypoolused") == 0
        assert returned == [0]


@virtual_time
async def test_memory_is_given_back_when_the_request_is_answered_and_the_next_goes_on() -> None:
    async with front() as it:
        configured(it, socket_request_max_bytes="100000", queued_max_request_bytes="100000")
        body = list_of(20_000)
        clients = [await it.connect() for _ in range(3)]
        for client in clients:
            client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body)
        for _ in clients:
            await settle()
            assert it.listener.memory.used_bytes > SMALL_BYTES
            (await it.event()).reply.answer({})
        await settle()
        assert it.listener.memory.used_bytes == 0
        assert [len(client.frames) for client in clients] == [1, 1, 1]


@virtual_time
async def test_request_that_does_not_end_is_given_up() -> None:
    async with front() as it:
        client = await it.connect()
        for _ in range(40):
            client.send(b"\x00")
            await settle()
        assert client.closed


@virtual_time
async def test_idle_connections_are_closed_and_busy_ones_stay() -> None:
    async with front() as it:
        idle, busy = await it.connect(), await it.connect()
        for _ in range(13):
            busy.request(ApiKey.API_VERSIONS, 0)
            await asyncio.sleep(50)
        assert idle.closed
        assert not busy.closed
        assert metric(it, "kafka_network_socketserver_expiredconnectionskilled_total") == 1


@virtual_time
async def test_no_more_connections_than_descriptors_and_idle_ones_keep_no_client_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with front() as it:
        configured(it, descriptors=50)
        used = await it.connect()
        used.request(ApiKey.API_VERSIONS, 0)
        await settle()
        silent = [await it.connect() for _ in range(400)]
        await settle()
        assert len(it.listener.connections) == len(it.listener.quotas) == 50
        assert [each.closed for each in silent] == [True] * 351 + [False] * 49
        assert not used.closed
        assert metric(it, "aiocontroller_socketserver_evictedconnections") == 351
        newcomer = await it.connect()
        newcomer.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert newcomer.correlation_ids() == [1]


@virtual_time
async def test_the_address_with_most_connections_makes_room() -> None:
    async with front() as it:
        configured(it, descriptors=10)
        broker = await it.connect()
        crowd = it.network.host("crowd")
        for _ in range(20):
            _, client = await crowd.connect(Client, "127.0.0.1", it.port, timeout_s=1)
            client.request(ApiKey.API_VERSIONS, 0)
            await settle()
        assert not broker.closed
        assert len(it.listener.connections) == 10


@virtual_time
async def test_connections_per_address(caplog: pytest.LogCaptureFixture) -> None:
    async with front() as it:
        configured(it, max_connections_per_ip="2", max_connections_per_ip_overrides="127.0.0.1:3")
        clients = [await it.connect() for _ in range(5)]
        await settle()
        assert [each.closed for each in clients] == [False, False, True, True, True]
        assert metric(it, "aiocontroller_socketserver_refusedconnections_total") == 3
        await asyncio.sleep(10)
        first, summary = warnings(caplog)
        assert first.startswith("Refused a connection to PLAINTEXT from localhost: localhost has its 2 connections")
        assert summary == "connections refused: 2 more in the last 10 s"
        clients[0].close()
        await settle()
        assert not (await it.connect()).closed


@virtual_time
async def test_unread_answers_take_no_more_than_the_budget() -> None:
    async with front() as it:
        configured(it, aiocontroller_queued_max_response_bytes="300000")
        clients = [await it.connect() for _ in range(5)]
        large = all_versions(ApiKey.METADATA, lambda request: request.respond(bytes(100_000)))
        it.listener.apis._apis[ApiKey.METADATA] = large
        for client in clients:
            transport(client).pause_reading()
            client.request(ApiKey.METADATA, 9)
            await settle()
        assert metric(it, "aiocontroller_socketserver_unreadresponsebytes") <= 300_000
        assert len(it.listener.connections) == 2


# -- before the login --------------------------------------------------------------------------------------------------


@virtual_time
async def test_requests_before_the_login_are_small(caplog: pytest.LogCaptureFixture) -> None:
    async with secure_front(SECURE) as it:
        large, other = await it.connect(), await it.connect()
        large.send(half(ApiKey.SASL_AUTHENTICATE, 1, 512 * 1024 + 1))
        other.send(half(ApiKey.CREATE_TOPICS, 5, 100_000))
        await settle()
        assert large.closed
        assert other.closed
        assert "frame before the login: found 524289 bytes, expected 524288" in warnings(caplog)[0]


@virtual_time
async def test_logins_share_a_small_budget_and_have_a_deadline() -> None:
    async with secure_front(SECURE) as it:
        it.listener.login_memory.size_bytes = MIB
        clients = [await it.connect() for _ in range(10)]
        for client in clients:
            client.send(half(ApiKey.SASL_AUTHENTICATE, 1, 512 * 1024) + bytes(100_000))
        await settle()
        assert it.listener.login_memory.used_bytes == MIB
        assert it.listener.memory.used_bytes == 0
        assert sum(len(channel._buffer) for channel in it.listener.connections) < 2 * MIB
        await asyncio.sleep(11)
        assert all(client.closed for client in clients)
        assert it.listener.login_memory.used_bytes == 0


@virtual_time
async def test_login_that_goes_on_for_ever_ends() -> None:
    async with secure_front(SECURE) as it:
        client = await it.connect()
        for _ in range(12):
            client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
            await settle()
        assert client.closed


@virtual_time
async def test_failed_login_is_answered_late_and_closes() -> None:
    async with secure_front(SECURE) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        await settle()
        client.request(ApiKey.SASL_AUTHENTICATE, 1, sasl_messages.encode_authenticate_request(b"\0alice\0wrong"))
        await asyncio.sleep(0.09)
        assert len(client.frames) == 1
        await asyncio.sleep(0.02)
        assert len(client.frames) == 2
        assert client.closed
        assert metric(it, "kafka_server_socket_server_metrics_failed_authentication_total") == 1


@virtual_time
async def test_after_the_login_the_limits_are_those_of_clients() -> None:
    async with secure_front(SECURE) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        client.request(ApiKey.SASL_AUTHENTICATE, 1, sasl_messages.encode_authenticate_request(b"\0alice\0alice-secret"))
        await asyncio.sleep(20)
        assert not client.closed
        body = list_of(150_000)
        client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body)
        await settle()
        assert len((await it.event()).partitions) == 150_000
        assert it.listener.memory.used_bytes > len(body)
        assert it.listener.login_memory.used_bytes == 0
        assert metric(it, "kafka_server_socket_server_metrics_successful_authentication_total") == 1
