"""What plain aiozk 0.32.0 does under the same faults: the reason for our own session.

Each test states the defect as a fact; should a later aiozk cure it, the test fails and the cure may be looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiozk import ZKClient, exc

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper import codec

MakePlain = Callable[[], Awaitable[ZKClient]]


@pytest.fixture
async def plain(zk_connect: str, proxy: FaultProxy) -> AsyncIterator[MakePlain]:
    """A started aiozk client through the proxy; taken apart by hand, since its close() may never end."""
    clients: list[ZKClient] = []
    logging.getLogger("aiozk").setLevel(logging.CRITICAL)

    async def make() -> ZKClient:
        client = ZKClient(proxy.address, chroot=zk_connect[zk_connect.index("/") :], session_timeout=2)
        clients.append(client)
        await client.start()
        return client

    before = asyncio.all_tasks()
    yield make
    for client in clients:
        session = client.session
        session.closing = True
        if session.heartbeat_handle:
            session.heartbeat_handle.cancel()
        if session.conn and session.conn.writer:
            session.conn.writer.close()
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        if "aiozk" in getattr(task.get_coro(), "cr_code", None).co_filename:  # type: ignore[union-attr]
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def cut_first(opcode: int) -> Callable[[int, int, int, bytes], Do]:
    cut = False

    def decide(_link: int, _xid: int, found: int, _frame: bytes) -> Do:
        nonlocal cut
        if found != opcode or cut:
            return Do.PASS
        cut = True
        return Do.CUT_AFTER

    return decide


async def test_writes_twice_when_an_answer_is_lost(plain: MakePlain, proxy: FaultProxy) -> None:
    """Defect 8."""
    client = await plain()
    await client.create("/a", b"")
    proxy.on_request = cut_first(15)
    await asyncio.wait_for(client.create("/seq-", b"", sequential=True), 15)
    assert len([name for name in await client.get_children("/") if name.startswith("seq-")]) == 2
    proxy.on_request = cut_first(codec.SET_DATA)
    with pytest.raises(exc.BadVersion):
        await asyncio.wait_for(client.set("/a", b"x", 0), 15)
    assert await client.get_data("/a") == b"x", "applied, and reported as a failure"


async def test_throws_a_live_session_away(plain: MakePlain, proxy: FaultProxy) -> None:
    """Defects 3 and 6: only a ping notices the end, and a failed handshake costs the session."""
    client = await plain()
    session_id = client.session.session_id
    handshakes = 0

    def disturb(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        nonlocal handshakes
        handshakes += opcode == 0
        return Do.CUT if opcode == 0 and handshakes == 1 else Do.PASS

    proxy.on_request = disturb
    proxy.cut_all(reset=False)
    with contextlib.suppress(exc.ZKError):
        await asyncio.wait_for(client.exists("/"), 15)
    await asyncio.wait_for(client.exists("/"), 15)
    assert client.session.session_id != session_id


async def test_fires_watches_without_a_change(plain: MakePlain, proxy: FaultProxy) -> None:
    """Defect 10: SetWatches goes out relative to zxid 0."""
    client = await plain()
    await client.create("/a", b"")
    fired: Any = client.wait_for_events([3], "/a")
    await client.get("/a", watch=True)
    proxy.cut_all()
    await asyncio.wait_for(fired, 15)


async def test_does_not_understand_a_chroot_in_the_connect_string(
    proxy: FaultProxy, zookeeper: EmbeddedZooKeeper
) -> None:
    """Defect 23."""
    client = ZKClient(f"{proxy.address}/chroot")
    with pytest.raises(ValueError, match="invalid literal"):
        await client.session.make_connection(*client.session.hosts[0])
