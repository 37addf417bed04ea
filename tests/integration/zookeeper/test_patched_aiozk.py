"""The patches in ``docs/aiozk-patches`` apply to the installed aiozk and cure what ``test_plain_aiozk.py`` states."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import aiozk
import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper import codec
from tests.integration.zookeeper.aiozk_clients import CONNECT, MakeAiozk, cut_first, started_clients

PATCHES = sorted((Path(__file__).resolve().parents[3] / "docs" / "aiozk-patches").glob("*.patch"))
CHILDREN_CHANGED, DELETED = 4, 2


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A copy of aiozk with all patches, imported beside the installed one."""
    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(Path(aiozk.__file__).parent, folder / "aiozk", ignore=shutil.ignore_patterns("__pycache__", "test"))
    for patch in PATCHES:
        subprocess.run(["git", "apply", "--whitespace=error", str(patch)], cwd=folder, check=True)
    installed = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "aiozk"}
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module("aiozk")
        assert Path(module.__file__ or "").is_relative_to(folder)
        yield module
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == "aiozk"]:
            del sys.modules[name]
        sys.modules.update(installed)


@pytest.fixture
async def make(patched: ModuleType, zk_connect: str, proxy: FaultProxy) -> AsyncIterator[MakeAiozk]:
    async with started_clients(patched.ZKClient, proxy.address, zk_connect[zk_connect.index("/") :]) as make:
        yield make


async def test_a_write_whose_answer_is_lost_is_reported_and_not_repeated(
    patched: ModuleType, make: MakeAiozk, proxy: FaultProxy
) -> None:
    client = await make()
    await client.create("/a", b"")
    proxy.on_request = cut_first(codec.CREATE2)
    with pytest.raises(patched.exc.ConnectError):
        await asyncio.wait_for(client.create("/seq-", b"", sequential=True), 15)
    assert len([name for name in await client.get_children("/") if name.startswith("seq-")]) == 1
    proxy.on_request = cut_first(codec.SET_DATA)
    with pytest.raises(patched.exc.ConnectError):
        await asyncio.wait_for(client.set("/a", b"x", 0), 15)
    assert await client.get_data("/a") == b"x"
    proxy.on_request = cut_first(codec.MULTI)
    with pytest.raises(patched.exc.ConnectError):
        async with client.begin_transaction() as transaction:
            transaction.create("/pair-", b"", sequential=True)
    assert len([name for name in await client.get_children("/") if name.startswith("pair-")]) == 1


async def test_a_read_is_still_repeated(make: MakeAiozk, proxy: FaultProxy) -> None:
    client = await make()
    await client.create("/a", b"x")
    proxy.on_request = cut_first(codec.GET_DATA)
    assert await asyncio.wait_for(client.get_data("/a"), 15) == b"x"


async def test_a_failed_handshake_leaves_the_session_alone(
    patched: ModuleType, make: MakeAiozk, proxy: FaultProxy
) -> None:
    client = await make()
    await client.create("/mine", b"", ephemeral=True)
    session_id = client.session.session_id
    proxy.on_request = cut_first(CONNECT, Do.CUT)
    proxy.cut_all(reset=False)
    with contextlib.suppress(patched.exc.ZKError):  # only a request or a ping notices the end
        await asyncio.wait_for(client.exists("/"), 15)
    assert await asyncio.wait_for(client.exists("/mine"), 15)
    assert client.session.session_id == session_id


async def test_a_session_that_no_server_resumes_is_replaced_in_the_end(make: MakeAiozk, proxy: FaultProxy) -> None:
    client = await make()
    session_id = client.session.session_id
    proxy.on_request = lambda _link, _xid, opcode, _frame: Do.CUT if opcode == CONNECT else Do.PASS
    proxy.cut_all()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.exists("/"), 6)
    proxy.on_request = None
    assert await asyncio.wait_for(client.exists("/"), 30)
    assert client.session.session_id != session_id


async def test_watches_fire_after_a_change_only(make: MakeAiozk, proxy: FaultProxy) -> None:
    client = await make()
    await client.create("/a", b"")
    changed, deleted = client.wait_for_events([3], "/a"), client.wait_for_events([DELETED], "/a")
    await client.get("/a", watch=True)
    proxy.cut_all()
    await asyncio.wait_for(client.exists("/"), 15)
    assert client.session.last_zxid
    assert not changed.done()
    await client.delete("/a")
    await asyncio.wait_for(deleted, 15)
    assert not changed.done()


async def test_a_chroot_in_the_connect_string(
    patched: ModuleType, zk_connect: str, proxy: FaultProxy, zookeeper: EmbeddedZooKeeper
) -> None:
    chroot = zk_connect[zk_connect.index("/") :]
    async with started_clients(patched.ZKClient, f"{proxy.address}{chroot}", "below") as make:
        client = await make()
        await client.create("/a", b"")
        assert client.chroot == f"{chroot}/below"
    async with started_clients(patched.ZKClient, proxy.address, "") as make:
        assert await (await make()).exists(f"{chroot}/below/a")


def test_sasl_messages(patched: ModuleType) -> None:
    request, response = patched.protocol.SASLRequest(token=b"x"), patched.protocol.SASLResponse
    assert request.serialize() == b"\0\0\0\x66\0\0\0\1x"
    assert response.deserialize(b"\0\0\0\1x").token == b"x"
