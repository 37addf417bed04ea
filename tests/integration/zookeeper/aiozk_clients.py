"""Clients of aiozk itself, and faults for them: what plain aiozk does, and what it does with our patches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiocontroller.lab.zookeeper.fault_proxy import Do

MakeAiozk = Callable[[], Awaitable[Any]]
CONNECT = 0


@contextlib.asynccontextmanager
async def started_clients(client_class: Any, address: str, chroot: str) -> AsyncIterator[MakeAiozk]:
    """Makes started clients, and takes them apart by hand, since aiozk's close() may never end."""
    clients: list[Any] = []
    logging.getLogger("aiozk").setLevel(logging.CRITICAL)

    async def make() -> Any:
        client = client_class(address, chroot=chroot, session_timeout=2)
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


def cut_first(opcode: int, do: Do = Do.CUT_AFTER) -> Callable[[int, int, int, bytes], Do]:
    """Cut the connection at the first request of this kind; by default after the server has got it."""
    cut = False

    def decide(_link: int, _xid: int, found: int, _frame: bytes) -> Do:
        nonlocal cut
        if found != opcode or cut:
            return Do.PASS
        cut = True
        return do

    return decide
