"""What brokers and clients meet at the controller's port, on the network in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core import events as ev
from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, TopicPartition
from aiocontroller.net.simulated import SimulatedNetwork, simulated_world
from aiocontroller.security import Security
from aiocontroller.server.controller_apis import OFFERED
from aiocontroller.server.kafka_listener import MAX_OUTSTANDING, NEVER_RELAYED, KafkaListener
from aiocontroller.wire import alter_partition, cold, messages
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from aiocontroller.wire.frames import FrameReader, decode_response_header, request_frame
from tests.virtual_time import virtual_time

TOPIC_ID = bytes(range(16))


class Client(asyncio.Protocol):
    """A broker or client: sends frames, keeps the answers."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = False
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames += self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def request(self, api: ApiKey, version: int, body: bytes = b"") -> int:
        self._correlation_id += 1
        self.send(b"".join(request_frame(api, version, self._correlation_id, "me", body)))
        return self._correlation_id

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames]

    def answer(self, api: ApiKey, version: int) -> bytes:
        """The body of the only answer that there is."""
        (frame,) = self.frames
        correlation_id, body = decode_response_header(api, version, frame)
        assert correlation_id == self._correlation_id
        return bytes(body)


class Upstream(asyncio.Protocol):
    """A broker behind the relay: keeps raw frames; answers by ``respond``."""

    def __init__(self, respond: Callable[[Upstream, bytes], None]) -> None:
        self.frames: list[bytes] = []
        self.closed = False
        self._respond = respond
        self._reader = FrameReader()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            self.frames.append(frame)
            self._respond(self, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def send_frame(self, frame: bytes) -> None:
        assert self.transport is not None
        self.transport.write(len(frame).to_bytes(4, "big") + frame)


def echo(upstream: Upstream, frame: bytes) -> None:
    """An answer that no codec of ours would make."""
    upstream.send_frame(frame[4:8] + b"\xde\xad" + frame)


class Front:
    """A listener on a shell that holds no more than the listener looks at."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.queue = EventQueue(self.world.clock)
        self.context = ControllerContext(3, 3)
        self.offered: dict[int, VersionRange] = {}
        shell: Any = SimpleNamespace(
            id=1_000_001,
            world=self.world,
            queue=self.queue,
            context=self.context,
            channels=SimpleNamespace(offered=lambda: self.offered),
            endpoint_of=lambda broker: broker.endpoints[0],
            security=Security(Config()),
            last_brokers=[],
            last_offered={},
        )
        self.shell = shell
        self.listener = KafkaListener(shell, tasks)
        self.upstreams: list[Upstream] = []
        self.port = 0

    async def connect(self) -> Client:
        if not self.port:
            self.port = (await self.network.serve(self.listener.connection, "127.0.0.1", 0)).port
        _, client = await self.network.connect(Client, "127.0.0.1", self.port, timeout_s=1)
        return client

    async def broker(self, respond: Callable[[Upstream, bytes], None] = echo) -> int:
        """A live broker to relay to; its port."""

        def accept() -> Upstream:
            self.upstreams.append(Upstream(respond))
            return self.upstreams[-1]

        port = (await self.network.serve(accept, "127.0.0.1", 0)).port
        self.context.add_brokers([Broker(1, 7, (Endpoint("PLAINTEXT", "127.0.0.1", port),))])
        self.offered = {ApiKey.METADATA: VersionRange(0, 12), ApiKey.LEADER_AND_ISR: VersionRange(0, 7)}
        return port

    async def event(self) -> Any:
        return (await self.queue.get()).event


@asynccontextmanager
async def front() -> AsyncIterator[Front]:
    async with anyio.create_task_group() as tasks:
        yield Front(tasks)
        tasks.cancel_scope.cancel()


async def settle() -> None:
    await asyncio.sleep(1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- ApiVersions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
@virtual_time
async def test_api_versions_tells_what_is_served(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, version, messages.encode_api_versions_request(version, "test", "1"))
        await settle()
        answer = messages.decode_api_versions_response(version, client.answer(ApiKey.API_VERSIONS, version))
        assert answer.error_code == 0
        assert answer.versions == OFFERED


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
@virtual_time
async def test_api_versions_of_an_unknown_version_is_answered_in_the_oldest_layout(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        frame = version.to_bytes(2, "big", signed=True)
        client.send(
            (14).to_bytes(4, "big") + b"\x00\x12" + frame + (5).to_bytes(4, "big") + b"\x00\x02me" + b"\x00\x00"
        )
        await settle()
        assert client.correlation_ids() == [5]
        answer = messages.decode_api_versions_response(0, client.frames[0][4:])
        assert answer.error_code == KafkaErrorCode.UNSUPPORTED_VERSION == 35
        assert answer.versions == OFFERED
        assert not client.closed, "the client may go on with a version that it was told"


@virtual_time
async def test_api_versions_holds_what_brokers_offer_but_nothing_between_controllers_and_brokers() -> None:
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        answer = messages.decode_api_versions_response(0, client.answer(ApiKey.API_VERSIONS, 0))
        assert answer.versions == {**OFFERED, ApiKey.METADATA: VersionRange(0, 12)}


# -- order and round trips ---------------------------------------------------------------------------------------------


def alter_partition_body(version: int) -> bytes:
    topic = TOPIC_ID if version >= 2 else "t"
    change = ev.AlterPartition(topic, 4, 9, (1, 2), 17, 0)
    return alter_partition.encode_alter_partition_request(
        version, alter_partition.AlterPartitionRequest(2, 77, (change,))
    )


@pytest.mark.parametrize("version", range(4))
@virtual_time
async def test_alter_partition_there_and_back(version: int) -> None:
    topic = TOPIC_ID if version >= 2 else "t"
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ALTER_PARTITION, version, alter_partition_body(version))
        event = await it.event()
        assert (event.broker, event.broker_epoch, event.version) == (2, 77, version)
        assert event.partitions == (ev.AlterPartition(topic, 4, 9, (1, 2), 17, 0),)
        event.reply.answer([AlterPartitionResult(topic, 4, 0, LeaderAndIsr(1, 9, (1, 2), 3, 18, 0))])
        await settle()
        answer = alter_partition.decode_alter_partition_response(
            version, client.answer(ApiKey.ALTER_PARTITION, version)
        )
        assert answer.error_code == 0
        (result,) = answer.results
        assert (result.topic, result.partition, result.error_code) == (topic, 4, 0)
        assert result.leadership is not None
        assert (result.leadership.leader, result.leadership.isr, result.leadership.partition_epoch) == (1, (1, 2), 18)


@pytest.mark.parametrize("version", range(4))
@virtual_time
async def test_controlled_shutdown_there_and_back(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(version, 2, 77)
        client.request(ApiKey.CONTROLLED_SHUTDOWN, version, body)
        event = await it.event()
        assert (event.broker, event.broker_epoch) == (2, 77 if version >= 2 else -1)
        event.reply.answer([TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("u", 1)])
        await settle()
        answer = messages.decode_controlled_shutdown_response(
            version, client.answer(ApiKey.CONTROLLED_SHUTDOWN, version)
        )
        assert answer.error_code == 0
        assert sorted(answer.remaining) == [("t", 0), ("t", 3), ("u", 1)]


@virtual_time
async def test_producer_ids_there_and_back() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, messages.encode_allocate_producer_ids_request(0, 2, 77))
        (await it.event()).reply.answer((5000, 1000))
        await settle()
        answer = messages.decode_allocate_producer_ids_response(0, client.answer(ApiKey.ALLOCATE_PRODUCER_IDS, 0))
        assert (answer.error_code, answer.first, answer.count) == (0, 5000, 1000)


@virtual_time
async def test_answers_leave_in_the_order_of_the_requests() -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        for _ in range(3):
            client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, body)
        client.request(ApiKey.API_VERSIONS, 0)
        waiting = [await it.event() for _ in range(3)]
        for event in reversed(waiting[1:]):
            event.reply.answer([])
        await settle()
        assert client.frames == []
        waiting[0].reply.answer([])
        await settle()
        assert client.correlation_ids() == [1, 2, 3, 4]


@virtual_time
async def test_preempted_requests_are_told_not_controller() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        client.request(ApiKey.ALTER_PARTITION, 3, alter_partition_body(3))
        client.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, messages.encode_allocate_producer_ids_request(0, 2, 77))
        await settle()
        it.queue.clear_and_put(ev.Expire())
        await settle()
        first, second, third = client.frames
        shutdown = messages.decode_controlled_shutdown_response(
            3, decode_response_header(ApiKey.CONTROLLED_SHUTDOWN, 3, first)[1]
        )
        altered = alter_partition.decode_alter_partition_response(
            3, decode_response_header(ApiKey.ALTER_PARTITION, 3, second)[1]
        )
        producer_ids = messages.decode_allocate_producer_ids_response(
            0, decode_response_header(ApiKey.ALLOCATE_PRODUCER_IDS, 0, third)[1]
        )
        assert {shutdown.error_code, altered.error_code, producer_ids.error_code} == {KafkaErrorCode.NOT_CONTROLLER}


@virtual_time
async def test_answer_to_a_client_that_has_gone_is_dropped() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        event = await it.event()
        client.close()
        await settle()
        event.reply.answer([])


@virtual_time
async def test_answer_that_comes_after_the_connection_was_closed_is_not_written() -> None:
    """uvloop raises when a closed transport is written to, and the handler that answers would pay for it."""

    class Strict(asyncio.Transport):
        closed = False

        def close(self) -> None:
            self.closed = True

        def writelines(self, list_of_data: Any) -> None:
            assert not self.closed

        def pause_reading(self) -> None: ...

        def resume_reading(self) -> None: ...

    async with front() as it:
        transport = Strict()
        connection = it.listener.connection()
        connection.connection_made(transport)
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        connection.data_received(b"".join(request_frame(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "me", body)))
        connection.data_received(b"\xff\xff\xff\xff")
        assert transport.closed
        (await it.event()).reply.answer([])


# -- bad input ---------------------------------------------------------------------------------------------------------


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


BAD = {
    "too long": ((200 * 1024 * 1024).to_bytes(4, "big"), "found a length of 209715200 bytes"),
    "negative length": (b"\xff\xff\xff\xfe", "found a length of -2 bytes"),
    "empty": (framed(b""), "API key -1 version -1 is not served here"),
    "header cut short": (framed(b"\x00\x38\x00\x03"), "is not served here"),
    "client id cut short": (framed(b"\x00\x38\x00\x03\x00\x00\x00\x01\x00\x63me"), "client id"),
    "unknown API": (framed(b"\x03\xe7\x00\x00\x00\x00\x00\x01\x00\x02me"), "API key 999 version 0"),
    "AlterPartition of a version to come": (
        b"".join(request_frame(ApiKey.ALTER_PARTITION, 4, 1, "me", b"\x00" * 20)),
        "ALTER_PARTITION(56) version 4: expected 0 to 3",
    ),
    "AlterPartition cut short": (
        b"".join(request_frame(ApiKey.ALTER_PARTITION, 3, 1, "me", b"\x00\x00\x00\x02")),
        "AlterPartition",
    ),
    "body with something behind it": (
        b"".join(
            request_frame(
                ApiKey.CONTROLLED_SHUTDOWN, 2, 1, "me", messages.encode_controlled_shutdown_request(2, 1, 1) + b"!"
            )
        ),
        "CONTROLLED_SHUTDOWN",
    ),
    "what controllers say to brokers": (
        b"".join(request_frame(ApiKey.LEADER_AND_ISR, 7, 1, "me", b"\x00" * 20)),
        "LEADER_AND_ISR(4) version 7 is not served here",
    ),
    "what a broker serves, but there is none": (
        b"".join(request_frame(ApiKey.METADATA, 9, 1, "me", b"\x00")),
        "METADATA(3) version 9 is not served here",
    ),
}


@pytest.mark.parametrize("name", BAD)
@virtual_time
async def test_bad_input_costs_its_connection_and_no_other(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, complaint = BAD[name]
    async with front() as it:
        bad, good = await it.connect(), await it.connect()
        good.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        waiting = await it.event()
        bad.send(data)
        await settle()
        assert bad.closed
        assert bad.frames == []
        (line,) = warnings(caplog)
        assert line.startswith("Closing the connection from ")
        assert complaint.lower().replace("_", "") in line.lower().replace("_", ""), line
        assert not good.closed
        waiting.reply.answer([])
        good.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert good.correlation_ids() == [1, 2]
        assert len(it.queue) == 0


@virtual_time
async def test_request_may_arrive_byte_by_byte() -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        for byte in b"".join(request_frame(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "me", body)):
            client.send(bytes([byte]))
        await settle()
        assert (await it.event()).broker == 2


@virtual_time
async def test_close_ends_every_connection_after_what_was_answered() -> None:
    async with front() as it:
        await it.broker()
        clients = [await it.connect() for _ in range(3)]
        clients[0].request(ApiKey.API_VERSIONS, 0)
        clients[1].request(ApiKey.METADATA, 9)
        clients[2].close()
        await settle()
        it.listener.close()
        await settle()
        assert all(client.closed for client in clients)
        assert it.upstreams[0].closed
        assert clients[0].correlation_ids() == [1]
        assert it.listener.connections == {}


# -- back-pressure -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_client_with_many_requests_outstanding_is_not_read_until_some_are_answered() -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        for _ in range(MAX_OUTSTANDING + 10):
            client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, body)
        await settle()
        assert len(it.queue) == MAX_OUTSTANDING
        for _ in range(5):
            (await it.event()).reply.answer([])
        await settle()
        assert len(it.queue) == MAX_OUTSTANDING
        answered = 5
        while answered < MAX_OUTSTANDING + 10:
            (await it.event()).reply.answer([])
            answered += 1
            await asyncio.sleep(0.01)
        assert client.correlation_ids() == list(range(1, MAX_OUTSTANDING + 11))


# -- relay -------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_relay_passes_frames_unchanged_both_ways() -> None:
    async with front() as it:
        await it.broker()
        client = await it.connect()
        bodies = [b"", b"\x00\xff" * 10, b"x" * 100_000]
        for body in bodies:
            client.request(ApiKey.METADATA, 9, body)
        await settle()
        (upstream,) = it.upstreams
        sent = [b"".join(request_frame(ApiKey.METADATA, 9, i, "me", body))[4:] for i, body in enumerate(bodies, 1)]
        assert upstream.frames == sent
        assert client.frames == [frame[4:8] + b"\xde\xad" + frame for frame in sent]


@virtual_time
async def test_relayed_and_own_answers_keep_the_order_of_the_requests() -> None:
    held: list[tuple[Upstream, bytes]] = []
    async with front() as it:
        await it.broker(lambda upstream, frame: held.append((upstream, frame)))
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        client.request(ApiKey.API_VERSIONS, 0)
        client.request(ApiKey.METADATA, 9)
        client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        await settle()
        (await it.event()).reply.answer([])
        await settle()
        assert client.frames == []
        for upstream, frame in held:
            echo(upstream, frame)
        await settle()
        assert client.correlation_ids() == [1, 2, 3, 4]


@virtual_time
async def test_each_client_has_its_own_way_to_a_broker() -> None:
    async with front() as it:
        await it.broker()
        clients = [await it.connect() for _ in range(3)]
        for client in clients:
            client.request(ApiKey.METADATA, 9)
        await settle()
        assert len(it.upstreams) == 3
        clients[0].close()
        await settle()
        assert [upstream.closed for upstream in it.upstreams] == [True, False, False]


@virtual_time
async def test_lost_upstream_closes_the_client_only() -> None:
    async with front() as it:
        port = await it.broker()
        client, other = await it.connect(), await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        it.network.cut(port)
        await settle()
        assert client.closed
        assert not other.closed


@virtual_time
async def test_upstream_that_cannot_be_reached_closes_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async with front() as it:
        port = await it.broker()
        it.network.listeners.pop(port)
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert client.closed
        assert any(f"Cannot relay to 127.0.0.1:{port}" in line for line in warnings(caplog))


@virtual_time
async def test_client_that_goes_while_the_upstream_is_being_connected() -> None:
    async with front() as it:
        await it.broker()
        it.network.delay_s = 0.1
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        client.close()
        await settle()
        assert [upstream.closed for upstream in it.upstreams] in ([], [True])


@virtual_time
async def test_upstream_that_answers_unasked_or_talks_nonsense_costs_both_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with front() as it:
        await it.broker()
        first, second = await it.connect(), await it.connect()
        for client in (first, second):
            client.request(ApiKey.METADATA, 9)
        await settle()
        it.upstreams[0].send_frame(b"unasked")
        assert it.upstreams[1].transport is not None
        it.upstreams[1].transport.write(b"\xff\xff\xff\xff")
        await settle()
        assert first.closed
        assert second.closed
        lines = warnings(caplog)
        assert any("an answer that nobody waits for" in line for line in lines)
        assert any("found a length of -1 bytes" in line for line in lines)


@pytest.mark.parametrize("api", sorted(NEVER_RELAYED - OFFERED.keys()), ids=lambda api: api.name)
@virtual_time
async def test_what_only_controllers_may_say_is_never_relayed(api: ApiKey) -> None:
    """Not even over a relay that is open already."""
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        client.request(api, 0, b"\x00" * 30)
        await settle()
        assert len(it.upstreams[0].frames) == 1
        assert client.closed


@virtual_time
async def test_frame_without_a_header_is_never_relayed() -> None:
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        client.send(framed(b"abc"))
        await settle()
        assert len(it.upstreams[0].frames) == 1
        assert client.closed


@virtual_time
async def test_relayed_requests_count_as_outstanding() -> None:
    async with front() as it:
        await it.broker(lambda upstream, frame: None)
        client = await it.connect()
        for _ in range(MAX_OUTSTANDING + 10):
            client.request(ApiKey.METADATA, 9)
        await settle()
        assert len(it.upstreams[0].frames) == MAX_OUTSTANDING
        for frame in it.upstreams[0].frames[:MAX_OUTSTANDING]:
            echo(it.upstreams[0], frame)
        await settle()
        assert len(it.upstreams[0].frames) == MAX_OUTSTANDING + 10


PER_NODE = [
    (api, version)
    for api in (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS)
    for version in range(SUPPORTED[api].max + 1)
]


@pytest.mark.parametrize("api,version", PER_NODE)
@virtual_time
async def test_what_is_asked_of_each_node_is_answered_for_ourselves(api: ApiKey, version: int) -> None:
    us = {"resource_type": 4, "resource_name": "1000001", "configuration_keys": None}
    body = cold.request(api, version, **({"resources": [us]} if api is ApiKey.DESCRIBE_CONFIGS else {}))
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, version, cold.encode_request(api, version, body))
        await settle()
        assert not it.upstreams
        answer = cold.decode_response(api, version, client.answer(api, version))
        assert not getattr(answer, "error_code", 0)
        for name in ("groups", "transaction_states"):
            assert not getattr(answer, name, ())
        for result in getattr(answer, "results", ()):  # log directories, configurations: one, without content
            assert not result.error_code
            assert not getattr(result, "topics", ())
            assert not getattr(result, "configs", ())


@pytest.mark.parametrize("operation, error", [(1, 0), (0, 42)])
@pytest.mark.parametrize("version", [0, 1])
@virtual_time
async def test_settings_of_ours_can_be_deleted_and_not_set(version: int, operation: int, error: int) -> None:
    """What kafka-reassign-partitions asks of every node when a reassignment is done."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    config = {"name": "leader.replication.throttled.rate", "config_operation": operation, "value": None}
    us = {"resource_type": 4, "resource_name": "1000001", "configs": [config]}
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, version, cold.encode_request(api, version, cold.request(api, version, resources=[us])))
        await settle()
        assert not it.upstreams
        (result,) = cold.decode_response(api, version, client.answer(api, version)).responses
        assert (result.error_code, result.resource_type, result.resource_name) == (error, 4, "1000001")


@pytest.mark.parametrize("resource", [(2, "orders"), (4, "1"), (4, "")])
@virtual_time
async def test_settings_that_others_take_are_relayed(resource: tuple[int, str]) -> None:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configs": []}
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, 1, cold.encode_request(api, 1, cold.request(api, 1, resources=[asked])))
        await settle()
        assert len(it.upstreams[0].frames) == 1


@pytest.mark.parametrize("resource", [(2, "orders"), (4, "1"), (4, "")])
@virtual_time
async def test_settings_of_others_are_relayed(resource: tuple[int, str]) -> None:
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configuration_keys": None}
    body = cold.encode_request(32, 1, cold.request(ApiKey.DESCRIBE_CONFIGS, 1, resources=[asked]))
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.DESCRIBE_CONFIGS, 1, body)
        await settle()
        assert len(it.upstreams[0].frames) == 1


@virtual_time
async def test_out_of_office_it_relays_to_the_brokers_of_its_last_term() -> None:
    async with front() as it:
        await it.broker()
        it.shell.last_brokers = list(it.context.brokers.values())
        it.shell.last_offered = {ApiKey.METADATA: VersionRange(0, 12)}
        it.shell.channels, it.shell.context = None, ControllerContext()
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        offered = messages.decode_api_versions_response(0, client.frames[0][4:]).versions
        assert offered[ApiKey.METADATA] == VersionRange(0, 12)
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert len(it.upstreams[0].frames) == 1


@virtual_time
async def test_standby_relays_nothing_it_knows_no_broker() -> None:
    async with front() as it:
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert client.closed
        assert client.correlation_ids() == [1]
