"""Makes a client's ZooKeeper session expire, as a server does if the client is silent for too long."""

from __future__ import annotations

import asyncio

from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.connection import Connection, Counters, SeenZxids
from aiocontroller.zookeeper.errors import ZooKeeperError
from aiocontroller.zookeeper.from_aiozk import CloseRequest

ATTEMPTS = 100
CONNECT_TIMEOUT_S = 5.0


async def expire_session(client: ZooKeeperClient) -> None:
    """Make the client's session expire.

    Another connection takes over the session by its id and password and closes it.  The client's own connection may
    take it back in between, so this is repeated until a server reports that the session is gone.
    """
    session_id, password = client.session.session_id, client.session.password
    if not session_id:
        raise ZooKeeperError("there is no session to expire")
    for _ in range(ATTEMPTS):
        if await close_by_force(client, session_id, password):
            return
    raise ZooKeeperError(f"session 0x{session_id:x} outlived {ATTEMPTS} attempts to close it")


async def close_by_force(client: ZooKeeperClient, session_id: int, password: bytes) -> bool:
    """Close a session at the server to which the client is connected; return whether that server reports it as gone."""
    session, world = client.session, client.world
    host, port = session.connected_to or session.hosts[0]
    _, conn = await world.network.connect(
        lambda: Connection(world.clock, SeenZxids(), Counters(), lambda *_: None, lambda: None),
        host,
        port,
        timeout_s=CONNECT_TIMEOUT_S,
        ssl=client.ssl,
    )
    try:
        answer = conn.shake_hands(codec.connect_frame(0, round(session.timeout_s * 1000), session_id, password))
        closed = conn.submit([CloseRequest().serialize()])  # in one write with the handshake
        results = await asyncio.gather(answer, closed, return_exceptions=True)
        handshake = results[0]
        return isinstance(handshake, bytes) and codec.decode_connect_reply(handshake)[1] == 0
    finally:
        conn.abort("done")
