"""What plain aiozk 0.32.0 does under the same faults: the reason for our own session.

Each test states a defect as a fact, by the number of the fault in the table in docs/zookeeper.md; should a later aiozk
cure it, the test fails and the cure may be looked at.
``test_patched_aiozk.py`` plays the same faults on aiozk with the patches in ``docs/aiozk-patches``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiozk import ZKClient, exc, protocol

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper import codec
from tests.integration.zookeeper.aiozk_clients import CONNECT, MakeAiozk, cut_first, started_clients


@pytest.fixture
async def plain(zk_connect: str, proxy: FaultProxy) -> AsyncIterator[MakeAiozk]:
    async with started_clients(ZKClient, proxy.address, zk_connect[zk_connect.index("/") :]) as make:
        yield make


async def test_writes_twice_when_an_answer_is_lost(plain: MakeAiozk, proxy: FaultProxy) -> None:
    """Fault 6."""
    client = await plain()
    await client.create("/a", b"")
    proxy.on_request = cut_first(15)
    await asyncio.wait_for(client.create("/seq-", b"", sequential=True), 15)
    assert len([name for name in await client.get_children("/") if name.startswith("seq-")]) == 2
    proxy.on_request = cut_first(codec.SET_DATA)
    with pytest.raises(exc.BadVersion):
        await asyncio.wait_for(client.set("/a", b"x", 0), 15)
    assert await client.get_data("/a") == b"x", "applied, and reported as a failure"


async def test_throws_a_live_session_away(plain: MakeAiozk, proxy: FaultProxy) -> None:
    """Faults 2 and 5: only a ping notices the end, and a failed handshake costs the session."""
    client = await plain()
    session_id = client.session.session_id
    proxy.on_request = cut_first(CONNECT, Do.CUT)
    proxy.cut_all(reset=False)
    with contextlib.suppress(exc.ZKError):
        await asyncio.wait_for(client.exists("/"), 15)
    await asyncio.wait_for(client.exists("/"), 15)
    assert client.session.session_id != session_id


async def test_fires_watches_without_a_change(plain: MakeAiozk, proxy: FaultProxy) -> None:
    """Fault 8: SetWatches goes out relative to zxid 0."""
    client = await plain()
    await client.create("/a", b"")
    fired: Any = client.wait_for_events([3], "/a")
    await client.get("/a", watch=True)
    proxy.cut_all()
    await asyncio.wait_for(fired, 15)


async def test_does_not_understand_a_chroot_in_the_connect_string(
    proxy: FaultProxy, zookeeper: EmbeddedZooKeeper
) -> None:
    """Fault 20."""
    client = ZKClient(f"{proxy.address}/chroot")
    with pytest.raises(ValueError, match="invalid literal"):
        await client.session.make_connection(*client.session.hosts[0])


def test_cannot_encode_sasl() -> None:
    """Fault 21."""
    with pytest.raises(TypeError, match="not subscriptable"):
        protocol.SASLRequest(token=b"x").serialize()
