"""Attacks on a controller.  Each is a coroutine that repeats until its time is up, in a process of its own:

    python -m aiocontroller.lab.hostile.attacks '{"attack": "half frames", "seed": 1, "seconds": 5, …}'

The process prints one JSON object: what it sent, and how the controller reacted.  The controller may treat an attacker
as it likes, but must not neglect other clients (``probes``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from aiocontroller.wire import cold, sasl_messages
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import request_frame

CONNECT_WITHIN_S = 5.0
MIB = 1 << 20


class Target(msgspec.Struct, frozen=True):
    """One listener of the controller."""

    name: str
    port: int
    tls: bool = False
    sasl: bool = False


class Task(msgspec.Struct, frozen=True):
    """What the process is to do."""

    attack: str
    seed: int
    seconds: float
    targets: list[Target]
    http_port: int
    topic: str
    """An existing topic."""


class Tally(msgspec.Struct):
    """The result of an attack."""

    connections: int = 0
    refused: int = 0
    """Connections that the controller refused or closed before they were established."""
    closed: int = 0
    """Connections that the controller closed later."""
    requests: int = 0
    answers: int = 0
    sent_bytes: int = 0


class Attacker:
    """Opens connections to one controller until its time is up."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.random = random.Random(task.seed)
        self.tally = Tally()
        self.ends_s = asyncio.get_running_loop().time() + task.seconds
        self._id = 0

    @property
    def left_s(self) -> float:
        return self.ends_s - asyncio.get_running_loop().time()

    def target(self) -> Target:
        return self.random.choice(self.task.targets)

    @contextlib.asynccontextmanager
    async def connection(
        self, port: int, *, tls: bool = False
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        """Yield the streams of a new connection, or None if the connection fails."""
        context = _trusting() if tls else None
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except (OSError, TimeoutError):
            self.tally.refused += 1
            await asyncio.sleep(0.05)
            yield None
            return
        self.tally.connections += 1
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def use_connection(
        self, target: Target, use: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        """Open a connection and use it until it ends; the controller may close it."""
        async with self.connection(target.port, tls=target.tls) as made:
            if made is None:
                return
            try:
                async with asyncio.timeout(max(0.0, self.left_s)):
                    await use(*made)
            except TimeoutError:
                pass
            except (OSError, asyncio.IncompleteReadError):
                self.tally.closed += 1

    async def repeat_concurrently(self, count: int, one: Callable[[], Awaitable[None]]) -> None:
        """Run ``one`` ``count`` times concurrently, and repeat each until the time is up."""

        async def again() -> None:
            while self.left_s > 0:
                await one()
                await asyncio.sleep(0)

        await asyncio.gather(*(again() for _ in range(count)))

    def frame(self, api: int, version: int, body: bytes) -> bytes:
        self._id += 1
        return b"".join(request_frame(api, version, self._id & 0x7FFFFFFF, "hostile", body))

    async def send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        self.tally.sent_bytes += len(data)
        await writer.drain()

    async def ask(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], frame: bytes) -> bytes:
        await self.send(streams[1], frame)
        self.tally.requests += 1
        size = int.from_bytes(await streams[0].readexactly(4), "big")
        answer = await streams[0].readexactly(size)
        self.tally.answers += 1
        return answer


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _request(api: ApiKey, version: int, **fields: object) -> bytes:
    return cold.encode_request(api, version, cold.request(api, version, **fields))


# -- the attacks -------------------------------------------------------------------------------------------------------


async def unread_answers(it: Attacker) -> None:
    """Send pipelined ApiVersions requests without reading the answers."""
    block = it.frame(ApiKey.API_VERSIONS, 0, b"") * 200

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            while True:
                it.tally.requests += 200
                await it.send(writer, block)

        await it.use_connection(it.target(), use)

    await it.repeat_concurrently(4, one)


async def half_frames(it: Attacker) -> None:
    """Send frames of 95 MiB that never end."""
    piece = bytes(MIB)

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await it.send(writer, (96 * MIB).to_bytes(4, "big") + it.frame(ApiKey.ALTER_PARTITION, 3, b"")[4:])
            for _ in range(95):
                await it.send(writer, piece)
            await reader.readexactly(1)

        await it.use_connection(it.target(), use)

    await it.repeat_concurrently(20, one)


async def slow_writers(it: Attacker) -> None:
    """Send one byte per second of a request, a TLS handshake or an HTTP header."""

    async def one() -> None:
        port = it.random.choice([it.target().port, it.task.http_port])
        text = b"GET /status HTTP/1.1\r\nX: " if port == it.task.http_port else b"\x00\x00\x10\x00\x00\x12\x00\x03"

        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for byte in text * 100:
                await it.send(writer, bytes((byte,)))
                await asyncio.sleep(1)

        await it.use_connection(Target("", port), use)

    await it.repeat_concurrently(60, one)


async def idle_connections(it: Attacker) -> None:
    """Connect to every port and send nothing."""

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)

        await it.use_connection(Target("", it.random.choice([it.target().port, it.task.http_port])), use)

    await it.repeat_concurrently(400, one)


async def connection_churn(it: Attacker) -> None:
    """Open and drop connections."""

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await it.send(writer, it.random.randbytes(it.random.randrange(8)))

        await it.use_connection(it.target(), use)

    await it.repeat_concurrently(20, one)


async def oversized_requests(it: Attacker) -> None:
    """Send requests that would cause unbounded work if the controller checked their sizes too late."""
    topic = {"name": "hostile", "num_partitions": 100_000, "replication_factor": 2, "assignments": [], "configs": []}
    growing = {"name": it.task.topic, "count": 2_000_000_000, "assignments": None}
    create, grow, delete = ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS
    bodies = [
        (create, 5, _request(create, 5, topics=[topic], timeout=1000, validate_only=False)),
        (
            create,
            5,
            _request(create, 5, topics=[topic | {"num_partitions": 2**31 - 1}], timeout=1000, validate_only=True),
        ),
        (create, 5, _request(create, 5, topics=[topic] * 5_000, timeout=2**31 - 1, validate_only=False)),
        (grow, 2, _request(grow, 2, topics=[growing], timeout=1000, validate_only=True)),
        (delete, 5, _request(delete, 5, topic_names=[f"nothing-{i}" for i in range(50_000)], timeout=1000)),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _reassignment(it.task.topic, 50_000)),
        (ApiKey.ELECT_LEADERS, 2, _elections(it.task.topic, 50_000)),
    ]

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(10):
                await it.ask((reader, writer), it.frame(*it.random.choice(bodies)))

        await it.use_connection(it.random.choice([target for target in it.task.targets if not target.sasl]), use)

    await it.repeat_concurrently(4, one)


def _reassignment(topic: str, partitions: int) -> bytes:
    moved = [{"partition_index": i, "replicas": [1, 2]} for i in range(partitions)]
    return _request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=1000, topics=[{"name": topic, "partitions": moved}]
    )


def _elections(topic: str, partitions: int) -> bytes:
    named = [{"topic": topic, "partitions": list(range(partitions))}]
    return _request(ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=named, timeout=1000)


async def large_requests(it: Attacker) -> None:
    """Send requests with the maximum number of elements on many connections at once."""
    settings = [{"name": "a", "value": "b", "config_operation": 0}] * 40_000
    altered = {"resource_type": 2, "resource_name": it.task.topic, "configs": settings}
    described = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    alter, describe, groups = ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_GROUPS
    bodies = [
        (alter, 1, _request(alter, 1, resources=[altered], validate_only=True)),
        (describe, 1, _request(describe, 1, resources=[described] * 40_000, include_synonyms=True)),
        (groups, 0, _request(groups, 0, groups=["g"] * 4_000)),
    ]

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await it.ask((reader, writer), it.frame(*it.random.choice(bodies)))

        await it.use_connection(it.random.choice([target for target in it.task.targets if not target.sasl]), use)

    await it.repeat_concurrently(40, one)


async def floods(it: Attacker) -> None:
    """Send many small requests in pipelines, and read the answers."""
    small = [
        it.frame(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, _request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=1000)
        ),
        it.frame(ApiKey.METADATA, 1, _request(ApiKey.METADATA, 1, topics=None)),
        it.frame(ApiKey.API_VERSIONS, 0, b""),
    ]

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async def read() -> None:
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    await reader.readexactly(size)
                    it.tally.answers += 1

            async def write() -> None:
                while True:
                    it.tally.requests += 100
                    await it.send(writer, it.random.choice(small) * 100)

            await asyncio.gather(read(), write())

        await it.use_connection(it.random.choice([target for target in it.task.targets if not target.sasl]), use)

    await it.repeat_concurrently(10, one)


async def stale_brokers(it: Attacker) -> None:
    """Send requests with outdated broker epochs on many connections."""
    body = _request(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=1, topics=[])
    shutdown = _request(ApiKey.CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=1)

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                await it.ask((reader, writer), it.frame(ApiKey.ALTER_PARTITION, 3, body))
                await it.ask((reader, writer), it.frame(ApiKey.CONTROLLED_SHUTDOWN, 3, shutdown))

        await it.use_connection(it.random.choice([target for target in it.task.targets if not target.sasl]), use)

    await it.repeat_concurrently(100, one)


async def garbage(it: Attacker) -> None:
    """Send random bytes, impossible lengths, and requests of every API with a random body."""

    def random_data() -> bytes:
        kind = it.random.randrange(3)
        if kind == 0:
            return it.random.randbytes(it.random.randrange(1, 200))
        if kind == 1:
            return it.random.choice([-1, -(2**31), 2**31 - 1, 0]).to_bytes(4, "big", signed=True) + b"x" * 50
        api = it.random.choice(sorted(SUPPORTED))
        version = it.random.randrange(SUPPORTED[api].max + 1)
        return it.frame(api, version, it.random.randbytes(it.random.randrange(60)))

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            it.tally.requests += 1
            await it.send(writer, random_data())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.readexactly(4)

        await it.use_connection(it.target(), use)

    await it.repeat_concurrently(20, one)


async def failed_logins(it: Attacker) -> None:
    """Send wrong passwords, unknown users, and SASL steps in the wrong order."""

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams = reader, writer
            handshake = sasl_messages.encode_handshake_request("PLAIN")
            await it.ask(streams, it.frame(ApiKey.SASL_HANDSHAKE, 1, handshake))
            token = it.random.choice([b"\0admin\0wrong", b"\0nobody\0x", b"", b"n,,n=admin,r=abc", b"\0" * 5000])
            authenticate = sasl_messages.encode_authenticate_request(token)
            await it.ask(streams, it.frame(ApiKey.SASL_AUTHENTICATE, 1, authenticate))
            await reader.readexactly(1)

        await it.use_connection(
            it.random.choice([target for target in it.task.targets if target.sasl] or it.task.targets), use
        )

    await it.repeat_concurrently(30, one)


async def hostile_http(it: Attacker) -> None:
    """Send broken HTTP requests, large headers and bodies, and commands with a wrong token."""
    requests = [
        b"GET / HTTP/9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /release HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n" + bytes(MIB),
        b"POST /takeover HTTP/1.1\r\nHost: localhost\r\nX-Aiocontroller-Token: wrong\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,
    ]

    async def one() -> None:
        async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            it.tally.requests += 1
            await it.send(writer, it.random.choice(requests))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while await reader.read(65536):
                        it.tally.answers += 1

        await it.use_connection(Target("http", it.task.http_port), use)

    await it.repeat_concurrently(20, one)


ATTACKS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "unread answers": unread_answers,
    "half frames": half_frames,
    "slow writers": slow_writers,
    "idle connections": idle_connections,
    "connection churn": connection_churn,
    "oversized requests": oversized_requests,
    "large requests": large_requests,
    "floods": floods,
    "stale brokers": stale_brokers,
    "garbage": garbage,
    "failed logins": failed_logins,
    "hostile HTTP": hostile_http,
}


async def run(task: Task) -> Tally:
    attacker = Attacker(task)
    await ATTACKS[task.attack](attacker)
    return attacker.tally


if __name__ == "__main__":
    # do not log the ends of connections, which are expected here
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(run(msgspec.json.decode(sys.argv[1], type=Task)))) + b"\n")
