"""How the modelled ZooKeeper refuses connections, logins and operations, compared with real servers that do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, free_port
from aiocontroller.lab.zookeeper.jute import buffer, string
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.sasl import DigestMd5
from tests.integration.lab.test_zookeeper_contract import (
    ACL,
    CHECK,
    CHILDREN,
    CREATE,
    DELETE,
    EXISTS,
    GET,
    MULTI,
    SET,
    Raw,
)

pytestmark = pytest.mark.zookeeper

GET_ACL, SET_ACL, AUTH, SASL = 6, 7, 100, 102
JAAS = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };\n'
USERS = {"kafka": "secret"}


class Options(EmbeddedZooKeeper):
    """A server with more system properties, and a JAAS file that knows one user."""

    def __init__(self, data_dir: Path, **properties: str) -> None:
        super().__init__(data_dir)
        self._properties = properties

    def _command(self) -> list[str]:
        jaas = self.data_dir / "jaas.conf"
        jaas.write_text(JAAS)
        java, *rest = super()._command()
        provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        more = {f"zookeeper.{name}": value for name, value in self._properties.items()}
        known = {"java.security.auth.login.config": str(jaas), "zookeeper.authProvider.1": provider}
        return [java, *(f"-D{name}={value}" for name, value in (known | more).items()), *rest]


@contextlib.contextmanager
def running(server: EmbeddedZooKeeper) -> Iterator[int]:
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@pytest.fixture(autouse=True)
async def close_all() -> AsyncIterator[None]:
    yield
    await Raw.close_all()


@pytest.fixture
async def model(world: World) -> AsyncIterator[ZooKeeperServer]:
    server = await ZooKeeperServer(world, ZooKeeperModel()).start()
    yield server
    server.stop()


async def ask(raw: Raw, xid: int, opcode: int, body: bytes) -> tuple[int, ...] | None:
    """Return the reply's xid, code, whether it has a zxid, and its length; None if the server hung up instead."""
    raw.send(struct.pack(">ii", xid, opcode) + body)
    frame = await raw.receive()
    if frame is None:
        return None
    got, zxid, code = struct.unpack_from(">iqi", frame)
    return got, code, zxid > 0, len(frame)


async def hung_up(raw: Raw) -> bool:
    return await raw.receive() is None


async def log_in(raw: Raw, user: str, password: str) -> list[object]:
    """The replies to both tokens, without the nonce and what depends on it; None if the server hung up."""
    exchange = DigestMd5(user, password, "cnonce")
    raw.send(struct.pack(">ii", 1, SASL) + buffer(b""))
    challenge = await raw.receive()
    assert challenge is not None
    raw.send(struct.pack(">ii", 2, SASL) + buffer(exchange.respond(challenge[20:])))
    answer = await raw.receive()
    assert answer is not None
    code = struct.unpack_from(">iqi", answer)[2]
    if code == Code.OK:
        exchange.verify(answer[20:])
    return [challenge[:20], challenge[20:].split(b",")[2:], answer[:20], len(answer)]


async def first_session(port: int) -> Raw:
    """A session as soon as the server has forgotten the connection that asked whether it is ready."""
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(BrokenPipeError):
                raw = await Raw.open(port)
                if raw.session_id:
                    return raw
            await asyncio.sleep(0.05)


async def another_session(port: int) -> int:
    try:
        return (await Raw.open(port)).session_id
    except BrokenPipeError:  # the server hung up before the kernel called the socket connected
        return 0


async def test_too_many_connections(tmp_path: Path, model: ZooKeeperServer) -> None:
    async def play(port: int, refuse: bool) -> list[object]:
        first = await first_session(port)
        model.model.refuses = "connections" if refuse else ""
        second = await another_session(port)
        there = await ask(first, 1, EXISTS, string("/") + b"\0")
        first.close()
        return [second, there]

    with running(Options(tmp_path, maxCnxns="1")) as port:
        real = await play(port, refuse=False)
    assert await play(model.port, refuse=True) == real
    assert real == [0, (1, Code.OK, True, 84)]


async def test_a_server_without_an_ensemble_hangs_up_at_the_handshake(tmp_path: Path, model: ZooKeeperServer) -> None:
    ports = [(free_port(), free_port()) for _ in range(3)]
    lines = [f"server.{n}=127.0.0.1:{peer}:{election}" for n, (peer, election) in enumerate(ports, 1)]
    alone = EmbeddedZooKeeper(tmp_path, ensemble=(1, lines))
    child = alone.launch()
    try:
        await child.wait_until_async(lambda: _listens(alone.port), 30)
        real = await Raw.open(alone.port)
    finally:
        alone.stop()
    model.model.refuses = "handshakes"
    modelled = await Raw.open(model.port)
    assert (real.session_id, await hung_up(real)) == (modelled.session_id, await hung_up(modelled)) == (0, True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_refused_login_ends_the_connection_and_not_the_session(tmp_path: Path, model: ZooKeeperServer) -> None:
    model.model.users = USERS

    async def play(port: int) -> list[object]:
        first = await Raw.open(port)
        story: list[object] = [await log_in(first, "kafka", "secret"), await ask(first, 3, EXISTS, string("/") + b"\0")]
        for user, password in (("kafka", "wrong"), ("nobody", "secret")):
            again = await Raw.open(port, 0, first.session_id, first.password)
            assert again.session_id == first.session_id
            story += [await log_in(again, user, password), await hung_up(again)]
        garbage = await Raw.open(port)
        await ask(garbage, 1, SASL, buffer(b""))
        story += [await ask(garbage, 2, SASL, buffer(b"garbage")), await hung_up(garbage)]
        last = await Raw.open(port, 0, first.session_id, first.password)
        return [*story, last.session_id == first.session_id]

    with running(Options(tmp_path)) as port:
        real = await play(port)
    assert await play(model.port) == real
    assert real[-1] is True  # an attempt to log in keeps the session alive


async def test_a_server_that_requires_a_login(tmp_path: Path, model: ZooKeeperServer) -> None:
    model.model.users, model.model.requires_login = USERS, True

    async def play(port: int) -> list[object]:
        stranger, known = await Raw.open(port), await Raw.open(port)
        story = [await ask(stranger, 1, EXISTS, string("/") + b"\0"), await hung_up(stranger)]
        return [*story, await log_in(known, "kafka", "secret"), await ask(known, 3, EXISTS, string("/") + b"\0")]

    with running(Options(tmp_path, sessionRequireClientSASLAuth="true")) as port:
        real = await play(port)
    assert await play(model.port) == real
    assert real[:2] == [(1, Code.SESSION_CLOSED_REQUIRE_SASL_AUTH, False, 16), True]


async def test_a_server_without_sasl_lets_every_login_pass(tmp_path: Path, model: ZooKeeperServer) -> None:
    async def play(port: int) -> list[object]:
        raw = await Raw.open(port)
        return [await ask(raw, 1, SASL, buffer(b"")), await ask(raw, 2, EXISTS, string("/") + b"\0")]

    with running(EmbeddedZooKeeper(tmp_path)) as port:
        real = await play(port)
    assert await play(model.port) == real


def acl_of(user: str, perms: int) -> bytes:
    digest = base64.b64encode(hashlib.sha1(f"{user}:secret".encode(), usedforsecurity=False).digest()).decode()
    return struct.pack(">ii", 1, perms) + string("digest") + string(f"{user}:{digest}")


def part(kind: int, body: bytes) -> bytes:
    return struct.pack(">i?i", kind, False, -1) + body


async def test_what_an_acl_does_not_allow(tmp_path: Path, model: ZooKeeperServer) -> None:
    """Every operation on a znode of another user, alone and in a multi, and the credentials that are refused."""
    nothing, any_version = buffer(None), struct.pack(">i", -1)
    below, at = string("/mine/child"), string("/mine")
    operations = [
        (EXISTS, at + b"\0"),
        (GET, at + b"\1"),
        (CHILDREN, at + b"\0"),
        (GET_ACL, at),
        (SET, at + buffer(b"x") + any_version),
        (SET_ACL, at + ACL + any_version),
        (CREATE, below + nothing + ACL + struct.pack(">i", 0)),
        (DELETE, string("/mine/old") + any_version),
        (MULTI, part(CHECK, at + any_version) + struct.pack(">i?i", -1, True, -1)),
        (
            MULTI,
            part(SET, string("/open") + nothing + any_version)
            + part(SET, at + nothing + any_version)
            + struct.pack(">i?i", -1, True, -1),
        ),
    ]

    async def play(port: int) -> list[object]:
        owner, stranger = await Raw.open(port), await Raw.open(port)
        owner.send(struct.pack(">iii", -4, AUTH, 0) + string("digest") + buffer(b"alice:secret"))
        story: list[object] = [await owner.receive()]
        for xid, (path, acl) in enumerate(((b"/mine", ACL), (b"/mine/old", ACL), (b"/open", ACL)), 1):
            body = buffer(path) + nothing + acl + struct.pack(">i", 0)
            story.append(await ask(owner, xid, CREATE, body))
        story.append(await ask(owner, 9, SET_ACL, at + acl_of("alice", 31) + any_version))
        for raw in (stranger, owner):
            story += [await ask(raw, 10 + xid, *operation) for xid, operation in enumerate(operations)]
        for scheme, credential in (("digest", b"no colon"), ("nothing", b"a:b")):
            stranger.send(struct.pack(">iii", -4, AUTH, 0) + string(scheme) + buffer(credential))
            story.append(await stranger.receive())
        return [*story, await hung_up(stranger)]

    with running(EmbeddedZooKeeper(tmp_path)) as port:
        real = await play(port)
    modelled = await play(model.port)
    assert modelled == real
    assert sum(isinstance(each, tuple) and each[1] == Code.NO_AUTH for each in real) >= 7
