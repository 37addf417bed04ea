"""The session against the modelled ZooKeeper: how many connections it opens, and credentials."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.errors import AuthFailedError, SessionExpiredError
from aiocontroller.zookeeper.session_events import SessionEvent


class Stage:
    """One server, one client that has not started, and the connections that it opens."""

    def __init__(self) -> None:
        self.world = simulated_world(SimulatedNetwork())
        self.server = ZooKeeperServer(self.world, ZooKeeperModel(tick_ms=500))
        self.connections = 0

    async def start(self, sasl_digest: tuple[str, str] | None = None) -> ZooKeeperClient:
        await self.server.start()
        client = ZooKeeperClient(self.server.address, world=self.world, session_timeout_s=6, sasl_digest=sasl_digest)
        connect = self.world.network.connect

        async def counted(*given: Any, **named: Any) -> Any:
            self.connections += 1
            return await connect(*given, **named)

        self.world.network.connect = counted  # type: ignore[method-assign]
        return client

    def identities(self, client: ZooKeeperClient) -> list[tuple[str, str]]:
        """Beside that of the address."""
        connection = self.server.model.sessions[client.session_id].connection
        assert connection is not None
        return connection.identities[1:]


@virtual_time
async def test_a_session_has_one_connection_and_an_expired_one_is_replaced_with_one_more() -> None:
    """The server that says that the session is gone is asked for a new one at once."""
    it = Stage()
    client = await it.start()
    await client.start(10)
    assert it.connections == 1
    first = client.session_id
    it.server.model.end_session(it.server.model.sessions[first], it.server.now_ms())
    connection = client.session.conn
    assert connection is not None
    connection.abort("cable cut")
    while client.session_id == first or not client.connected:
        await it.world.clock.sleep(0.1)
    assert it.connections == 3  # one that learns of the expiry, one for the new session
    assert client.session.failed_attempts == 0
    await client.close()


@virtual_time
async def test_credentials_that_are_added_before_the_start_hold_from_then_on() -> None:
    it = Stage()
    client = await it.start()
    await client.session.add_auth("digest", b"alice:secret")
    assert it.connections == 0
    await client.start(10)
    [(scheme, name)] = it.identities(client)
    assert scheme == "digest"
    assert name.startswith("alice:")
    connection = client.session.conn
    assert connection is not None
    connection.abort("cable cut")
    while not client.connected:
        await it.world.clock.sleep(0.1)
    assert await client.exists("/")
    assert it.identities(client) == [(scheme, name)]
    await client.close()


@virtual_time
async def test_credentials_that_the_server_refuses_are_an_error_and_are_not_sent_again() -> None:
    it = Stage()
    client = await it.start()
    await client.start(10)
    with pytest.raises(AuthFailedError, match="'kerberos'"):
        await client.session.add_auth("kerberos", b"alice:secret")
    while not client.connected:
        await it.world.clock.sleep(0.1)
    assert await client.exists("/")
    assert it.identities(client) == []
    assert it.connections == 2
    await client.close()


@pytest.mark.parametrize("refused_s, survives", [(0.8, True), (8.0, False)])
@virtual_time
async def test_a_session_whose_login_is_refused_does_not_live_on(refused_s: float, survives: bool) -> None:
    """Each attempt would keep it alive, so that nobody could take the role that it holds."""
    it = Stage()
    it.server.model.users = {"kafka": "secret"}
    client = await it.start(("kafka", "secret"))
    await client.start(10)
    events: list[SessionEvent] = []
    client.session.on_session = events.append
    first, connection = client.session_id, client.session.conn
    assert connection is not None
    it.server.model.users = {"kafka": "another"}
    connection.abort("cable cut")
    await it.world.clock.sleep(refused_s)
    assert (first in it.server.model.sessions) is survives
    it.server.model.users = {"kafka": "secret"}
    while not client.connected:
        await it.world.clock.sleep(0.1)
    assert (client.session_id == first) is survives
    assert it.identities(client) == [("sasl", "kafka")]
    expired = [SessionEvent.EXPIRED, SessionEvent.NEW_SESSION]
    assert events == [SessionEvent.SUSPENDED, *([SessionEvent.RECONNECTED] if survives else expired)]
    await client.close()


@virtual_time
async def test_requests_wait_while_the_server_requires_a_login_that_it_did_not_require_before() -> None:
    """Each connection that it refuses would keep the session alive, too."""
    it = Stage()
    client = await it.start()
    await client.start(10)
    first, connection = client.session_id, client.session.conn
    assert connection is not None
    it.server.model.requires_login = True
    reading = asyncio.create_task(client.exists("/"))
    await it.world.clock.sleep(8)
    assert first not in it.server.model.sessions
    assert isinstance(reading.exception(), SessionExpiredError)
    it.server.model.requires_login = False
    while not await client.exists("/"):
        await it.world.clock.sleep(0.1)
    await client.close()


@pytest.mark.parametrize("given_up", [[1], [1, 2], [2], [2, 3], [1, 3], [1, 2, 3, 4]])
@virtual_time
async def test_a_call_that_is_given_up_in_its_turn_gives_the_turn_on(given_up: list[int]) -> None:
    """They are cancelled in the moment in which the first gets its turn; no other reply comes within half a second."""
    it = Stage()
    client = await it.start()
    await client.start(10)
    session = client.session
    session._max_in_flight = 1
    calls: list[asyncio.Task[Any]] = []
    wake_next, to_cancel = session._wake_next, list(given_up)

    def waking() -> None:
        wake_next()
        while to_cancel:
            calls[to_cancel.pop()].cancel()

    session._wake_next = waking  # type: ignore[method-assign]
    calls += [asyncio.create_task(client.exists("/")) for _ in range(5)]
    done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 0.5)
    assert [n for n, found in enumerate(done) if isinstance(found, asyncio.CancelledError)] == given_up
    assert session.waiting == 0
    await client.close()
