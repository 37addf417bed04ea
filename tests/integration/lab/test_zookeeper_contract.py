"""The modelled ZooKeeper against a real one: the same random requests to both, everything that comes back compared.

Replies and watch events are compared field by field but for what cannot be equal: zxids are counted from the beginning
of the run, times are left out, session ids are numbered, children are sorted (the server keeps them in a hash set).
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.jute import Reader, buffer, string, strings
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World

pytestmark = pytest.mark.zookeeper

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, CHILDREN2 = 1, 2, 3, 4, 5, 8, 9, 12
CHECK, MULTI, CREATE2, MULTI_READ, SET_WATCHES, EPHEMERALS, DESCENDANTS, CLOSE = 13, 14, 15, 22, 101, 103, 104, -11
ACL = struct.pack(">ii", 1, 31) + string("world") + string("anyone")
PATHS = ["/t/a", "/t/a/b", "/t/a/b/c", "/t/d", "/t/d/e", "/t/e", "/t", "/t/none", "/", "/t/", "t"]
KINDS = [CREATE] * 3 + [CREATE2] + [DELETE, SET, MULTI] * 2 + [EXISTS, GET, CHILDREN, CHILDREN2, MULTI_READ]
KINDS += [SET_WATCHES, SYNC, EPHEMERALS, DESCENDANTS]
REMOVE_WATCHES, SET_WATCHES2, ADD_WATCH = 18, 105, 106
RECURSIVE = [ADD_WATCH] * 2 + [SET_WATCHES2, REMOVE_WATCHES]
CLIENTS = 3
STEPS = 1200


class Raw:
    """A client that knows nothing but frames."""

    opened: ClassVar[list[Raw]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.append(self)
        self._reader, self._writer = reader, writer
        self.session_id = 0

    @classmethod
    async def close_all(cls) -> None:
        for raw in cls.opened:
            raw.close()
        cls.opened.clear()
        await asyncio.sleep(0)

    @classmethod
    async def open(
        cls, port: int, seen: int = 0, session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 8000
    ) -> Raw:
        raw = cls(*await asyncio.open_connection("127.0.0.1", port))
        raw.send(struct.pack(">iqiq", 0, seen, timeout_ms, session_id) + buffer(password) + b"\0")
        answer = await raw.receive()
        if answer is not None:
            body = Reader(answer)
            body.int32(), body.int32()
            raw.session_id, raw.password = body.int64(), body.buffer() or b""
        return raw

    def send(self, payload: bytes) -> None:
        self._writer.write(struct.pack(">i", len(payload)) + payload)

    def send_together(self, payloads: list[bytes]) -> None:
        self._writer.write(b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads))

    async def receive(self) -> bytes | None:
        try:
            async with asyncio.timeout(5):
                (length,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def until(self, xid: int) -> list[bytes]:
        """Everything up to the reply with this xid."""
        frames = []
        while (frame := await self.receive()) is not None:
            frames.append(frame)
            if struct.unpack_from(">i", frame)[0] == xid:
                break
        return frames

    def close(self) -> None:
        self._writer.close()


class Side:
    """One of the two servers with its clients, and how its numbers are made comparable."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: list[Raw] = []
        self.sessions: dict[int, int] = {0: 0}
        self.base = 0
        self.last_zxid = 0

    async def connect(self, index: int) -> None:
        client = await Raw.open(self.port)
        self.sessions[client.session_id] = len(self.sessions)
        if index < len(self.clients):
            self.clients[index] = client
        else:
            self.clients.append(client)

    def zxid(self, zxid: int) -> int:
        if zxid <= 0:
            return zxid
        self.last_zxid = max(self.last_zxid, zxid)
        return zxid - self.base

    def stat(self, body: Reader) -> tuple[Any, ...]:
        czxid, mzxid, _, _ = (body.int64() for _ in range(4))
        versions = tuple(body.int32() for _ in range(3))
        owner = self.sessions[body.int64()]
        return (
            self.zxid(czxid),
            self.zxid(mzxid),
            *versions,
            owner,
            body.int32(),
            body.int32(),
            self.zxid(body.int64()),
        )

    def result(self, opcode: int, body: Reader) -> Any:
        if opcode == CREATE:
            return body.string()
        if opcode == CREATE2:
            return body.string(), self.stat(body)
        if opcode in (EXISTS, SET):
            return self.stat(body)
        if opcode == GET:
            return body.buffer(), self.stat(body)
        if opcode in (CHILDREN, EPHEMERALS):
            return sorted(body.strings())
        if opcode == CHILDREN2:
            return sorted(body.strings()), self.stat(body)
        if opcode == SYNC:
            return body.string()
        if opcode in (DESCENDANTS, ADD_WATCH):
            return body.int32()
        if opcode in (MULTI, MULTI_READ):
            return self.results(body)
        return None

    def results(self, body: Reader) -> list[Any]:
        found: list[Any] = []
        while True:
            kind, done, code = body.int32(), body.boolean(), body.int32()
            if done:
                return found
            found.append((kind, code, body.int32() if kind == -1 else self.result(kind, body)))

    def comparable(self, frame: bytes, opcode: int) -> tuple[Any, ...]:
        body = Reader(frame)
        xid, zxid, code = body.int32(), self.zxid(body.int64()), body.int32()
        if xid == -1:
            return "event", zxid, code, body.int32(), body.int32(), body.string()
        return xid, zxid, code, self.result(opcode, body) if code == 0 else None


def operation(chance: random.Random, kind: int) -> bytes:
    """The record of a write or check."""
    name = chance.choice(PATHS)
    path = string("/t" if kind == SET and name == "/" else name)  # the real root has a child of its own
    version = struct.pack(">i", chance.choice([-1, -1, 0, 1, 2]))
    data = buffer(chance.choice([None, b"", b"x", b"yy"]))
    if kind in (CREATE, CREATE2):
        return path + data + ACL + struct.pack(">i", chance.choice([0, 0, 0, 1, 2, 3]))
    return path + data + version if kind == SET else path + version


def request(chance: random.Random, since: int, kinds: list[int]) -> tuple[int, bytes]:
    """(opcode, body); ``since`` is the zxid for SetWatches."""
    kind = chance.choice(kinds)
    watch = chance.choice([b"\0", b"\1", b"\1"])
    if kind in (CREATE, CREATE2, DELETE, SET):
        return kind, operation(chance, kind)
    if kind in (EXISTS, GET, CHILDREN, CHILDREN2):
        return kind, string(chance.choice(PATHS[:8])) + watch
    if kind == MULTI:
        kinds = [chance.choice([CREATE, CREATE2, DELETE, SET, CHECK]) for _ in range(chance.randint(0, 4))]
        parts = [struct.pack(">i?i", k, False, -1) + operation(chance, k) for k in kinds]
        return kind, b"".join(parts) + struct.pack(">i?i", -1, True, -1)
    if kind == MULTI_READ:
        kinds = [chance.choice([GET, CHILDREN]) for _ in range(chance.randint(0, 4))]
        parts = [struct.pack(">i?i", k, False, -1) + string(chance.choice(PATHS[:8])) + watch for k in kinds]
        return kind, b"".join(parts) + struct.pack(">i?i", -1, True, -1)
    if kind == SET_WATCHES:
        lists = [chance.sample(PATHS[:8], chance.randint(0, 2)) for _ in range(3)]
        return kind, struct.pack(">q", since) + b"".join(map(strings, lists))
    if kind == SET_WATCHES2:
        lists = [chance.sample(PATHS[:8], chance.randint(0, 2)) for _ in range(3)]
        recursive = chance.sample(PATHS[:8], chance.randint(0, 2))
        return kind, struct.pack(">q", since) + b"".join(map(strings, [*lists, [], recursive]))
    if kind in (ADD_WATCH, REMOVE_WATCHES):
        return kind, string(chance.choice(PATHS[:9])) + struct.pack(">i", 1 if kind == ADD_WATCH else 3)
    return kind, string("/t" if kind != SYNC else "/")


@pytest.fixture(autouse=True)
async def close_all() -> AsyncIterator[None]:
    yield
    await Raw.close_all()


@pytest.fixture
def real_port(tmp_path: Path) -> Iterator[int]:
    """A server of its own: no other client's writes may move its zxid, or its root's sequence numbers."""
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    yield server.port
    server.stop()


@pytest.fixture
async def model(world: World) -> AsyncIterator[ZooKeeperServer]:
    server = await ZooKeeperServer(world).start()
    yield server
    server.stop()


async def exchange(side: Side, client: int, xid: int, opcode: int, body: bytes) -> list[tuple[Any, ...]]:
    """Send, and gather what every client gets to see of it."""
    side.clients[client].send(struct.pack(">ii", xid, opcode) + body)
    seen = [side.comparable(frame, opcode) for frame in await side.clients[client].until(xid)]
    for raw in side.clients:
        raw.send(struct.pack(">ii", xid + 1, EXISTS) + string("/t") + b"\0")
        frames = [side.comparable(frame, EXISTS) for frame in await raw.until(xid + 1)]
        seen += frames
    return seen


async def end_session(side: Side, client: int, xid: int) -> list[tuple[Any, ...]]:
    """Its ephemerals go with it, in an unspecified order."""
    side.clients[client].send(struct.pack(">ii", xid, CLOSE))
    await side.clients[client].until(xid)
    side.clients[client].close()
    await side.connect(client)
    return sorted(await exchange(side, client, xid, EXISTS, string("/t") + b"\0"), key=repr)


@pytest.mark.parametrize("recursive", [False, True], ids=["one-shot", "recursive"])
@pytest.mark.parametrize("seed", range(int(os.environ.get("CONTRACT_SEEDS", "2"))))
async def test_same_requests_same_answers(real_port: int, model: ZooKeeperServer, seed: int, recursive: bool) -> None:
    kinds = KINDS + RECURSIVE if recursive else KINDS
    chance = random.Random(seed)
    sides = [Side(real_port), Side(model.port)]
    for side in sides:
        for index in range(CLIENTS):
            await side.connect(index)
        await exchange(side, 0, 1, CREATE, string("/t") + buffer(None) + ACL + struct.pack(">i", 0))
        side.base = side.last_zxid
    events = 0
    for step in range(1, STEPS):
        client, xid = chance.randrange(CLIENTS), 2 * step + 1
        back, state = chance.choice([0, 1, 2, 5]), chance.getstate()
        answers = []
        for side in sides:
            chance.setstate(state)
            opcode, body = request(chance, max(side.last_zxid - back, 1), kinds)
            answers.append(await exchange(side, client, xid, opcode, body))
        assert answers[0] == answers[1], f"step {step}: opcode {opcode}, {body!r}"
        events += sum(answer[0] == "event" for answer in answers[0])
        if step % 60 == 0:
            ends = [await end_session(side, client, xid) for side in sides]
            assert ends[0] == ends[1], f"step {step}: end of client {client}'s session"
    assert events > 100


@pytest.mark.parametrize("seed", range(int(os.environ.get("CONTRACT_SEEDS", "2"))))
async def test_requests_that_do_not_wait_for_answers(real_port: int, model: ZooKeeperServer, seed: int) -> None:
    """One client sends many requests at once; what it and the others see comes in the same order from both servers."""
    chance = random.Random(f"pipelined {seed}")
    sides = [await begin(real_port), await begin(model.port)]
    events = 0
    for burst in range(60):
        client, number, state = chance.randrange(CLIENTS), chance.randint(2, 30), chance.getstate()
        answers = []
        for side in sides:
            chance.setstate(state)
            asked = [request(chance, max(side.last_zxid - 2, 1), KINDS + RECURSIVE) for _ in range(number)]
            answers.append(await pipelined(side, client, 100 * (burst + 1), asked))
        assert answers[0] == answers[1], f"burst {burst} of client {client}"
        events += sum(answer[0] == "event" for answer in answers[0])
    assert events > 50


async def begin(port: int) -> Side:
    side = Side(port)
    for index in range(CLIENTS):
        await side.connect(index)
    await exchange(side, 0, 1, CREATE, string("/t") + buffer(None) + ACL + struct.pack(">i", 0))
    side.base = side.last_zxid
    return side


async def pipelined(side: Side, client: int, xid: int, asked: list[tuple[int, bytes]]) -> list[tuple[Any, ...]]:
    raw = side.clients[client]
    raw.send_together([struct.pack(">ii", xid + n, opcode) + body for n, (opcode, body) in enumerate(asked)])
    seen = []
    for frame in await raw.until(xid + len(asked) - 1):
        at = struct.unpack_from(">i", frame)[0] - xid
        seen.append(side.comparable(frame, asked[at][0] if at >= 0 else EXISTS))
    for other in side.clients:
        other.send(struct.pack(">ii", xid + 99, EXISTS) + string("/t") + b"\0")
        seen += [side.comparable(frame, EXISTS) for frame in await other.until(xid + 99)]
    return seen


async def test_a_session_that_reconnects_while_its_old_connection_is_busy(
    real_port: int, model: ZooKeeperServer
) -> None:
    """The handshake, watches and requests of the new connection come in one piece, before the old one is closed."""

    async def play(port: int) -> list[Any]:
        side = await begin(port)
        old, other = side.clients[0], side.clients[1]
        await exchange(side, 0, 3, CREATE, string("/t/mine") + buffer(None) + ACL + struct.pack(">i", 1))
        await exchange(side, 0, 5, GET, string("/t") + b"\1")
        await exchange(side, 1, 7, SET, string("/t/mine") + buffer(b"x") + struct.pack(">i", -1))
        since, story = side.last_zxid, list[Any]()
        for again in range(3):
            new = Raw(*await asyncio.open_connection("127.0.0.1", port))
            handshake = struct.pack(">iqiq", 0, since, 8000, old.session_id) + buffer(old.password) + b"\0"
            watches = struct.pack(">iiq", -8, SET_WATCHES, since - 1) + strings(["/t/mine", "/t"]) + strings([]) * 2
            write = struct.pack(">ii", 1, SET) + string("/t") + buffer(b"new") + struct.pack(">i", -1)
            read = struct.pack(">ii", 2, EPHEMERALS) + string("/")
            new.send_together([handshake, watches, write, read])
            shaken = await new.receive()
            assert shaken is not None
            same = Reader(shaken[8:]).int64() == old.session_id
            seen = [side.comparable(frame, {1: SET, 2: EPHEMERALS}.get(frame[3], 0)) for frame in await new.until(2)]
            ended = await old.receive() is None
            if again:
                old.close()  # otherwise the server is alone in closing it
            there = await exchange(side, 1, 100 + 2 * again, EXISTS, string("/t/mine") + b"\0")
            story += [same, seen, ended, there]
            new.session_id, new.password = old.session_id, old.password
            old = side.clients[0] = new
            since = side.last_zxid
        assert other.session_id
        return story

    real, modelled = await play(real_port), await play(model.port)
    assert modelled == real
    assert real[0] is real[2] is True


async def test_handshakes(real_port: int, model: ZooKeeperServer) -> None:
    for port in (real_port, model.port):
        first = await Raw.open(port)
        assert first.session_id != 0
        # another connection of the same session ends this one
        second = await Raw.open(port, 0, first.session_id, first.password)
        assert second.session_id == first.session_id
        assert await first.receive() is None
        # a session that never was, and the wrong password, which ends the connection all the same
        assert (await Raw.open(port, 0, 12345, b"x" * 16)).session_id == 0
        assert (await Raw.open(port, 0, second.session_id, b"x" * 16)).session_id == 0
        assert await second.receive() is None
        second = await Raw.open(port, 0, first.session_id, first.password)
        assert second.session_id == first.session_id
        # a client from the future is turned away without a word
        future = await Raw.open(port, 1 << 50)
        assert future.session_id == 0
        # an unknown request is answered, and costs the connection, not the session
        second.send(struct.pack(">ii", 7, 999))
        [frame] = await second.until(7)
        assert struct.unpack_from(">iqi", frame)[2] == -6
        assert await second.receive() is None
        # and so does a frame that is too long
        second = await Raw.open(port, 0, second.session_id, second.password)
        second._writer.write(struct.pack(">i", 1 << 21))
        assert await second.receive() is None
        third = await Raw.open(port, 0, second.session_id, second.password)
        assert third.session_id == second.session_id
        third.send(struct.pack(">ii", 9, CLOSE))
        await third.until(9)


async def test_silent_sessions_end(real_port: int, model: ZooKeeperServer) -> None:
    """Timeouts are clamped to two ticks and more, and a session ends at a whole tick."""
    loop = asyncio.get_running_loop()
    for port in (real_port, model.port):
        watcher, silent = await Raw.open(port), await Raw.open(port, timeout_ms=1)
        silent.send(struct.pack(">ii", 1, CREATE) + string("/gone") + buffer(None) + ACL + struct.pack(">i", 1))
        await silent.until(1)
        silent.close()
        watcher.send(struct.pack(">ii", 2, EXISTS) + string("/gone") + b"\1")
        await watcher.until(2)
        began = loop.time()
        frame = await watcher.receive()
        assert frame is not None
        assert Reader(frame[16:]).int32() == 2  # deleted
        assert 0.5 <= loop.time() - began <= 2.5
