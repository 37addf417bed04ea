"""Bulk writes whose answer is lost: what the client asks before it says what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError
from aiocontroller.zookeeper.writes import MAX_LOST
from tests.unit.controller.virtual_cluster import stage
from tests.unit.zookeeper.test_client import connected

SYNC, MULTI, MULTI_READ = 9, 14, 22


def losing(client: ZooKeeperClient, *applied: bool) -> list[int]:
    """The answers to the next multis are lost, of which those are carried out; the opcodes of all requests."""
    opcodes: list[int] = []
    exchange, left = client.session.exchange, list(applied)

    async def lose(bodies: Sequence[bytes], **how: Any) -> list[tuple[int, bytes]]:
        opcodes.extend(int.from_bytes(body[:4], "big") for body in bodies)
        if opcodes[-1] != MULTI or not left:
            return await exchange(bodies, **how)
        if left.pop(0):
            await exchange(bodies, **how)
        raise MaybeAppliedError("the connection was lost")

    client.session.exchange = lose  # type: ignore[method-assign, assignment]
    return opcodes


@virtual_time
@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_read_back_and_nothing_is_written_twice(*, applied: bool) -> None:
    async with connected() as client:
        await client.create("/a")
        await client.create("/b")
        opcodes = losing(client, applied)
        ops = [SetData("/a", b"new", 0), Create("/c", b"c"), Delete("/b", 0)]
        found = await client.write_many(ops, fence=None)
        assert [Code(code) for code in found.code] == [Code.OK] * 3
        assert found.version[0] == 1
        assert await client.exists("/c")
        assert not await client.exists("/b")
        assert (await client.get_many(["/a"])).version[0] == 1
        assert opcodes.count(MULTI) == (1 if applied else 2)


@virtual_time
async def test_the_server_is_synchronized_before_it_is_read() -> None:
    """The client may have reached another server, which has not heard of the write yet."""
    async with connected() as client:
        await client.create("/a")
        opcodes = losing(client, True)
        await client.write_many([SetData("/a", b"new", 0)], fence=None)
        assert opcodes[:2] == [MULTI, SYNC]
        assert len(opcodes) > 2


@virtual_time
async def test_a_write_by_another_client_is_no_write_of_ours() -> None:
    async with connected() as client:
        await client.create("/a")
        losing(client, False)
        await client.set("/a", b"other", 0)
        found = await client.write_many([SetData("/a", b"new", 0)], fence=None)
        assert [Code(code) for code in found.code] == [Code.BAD_VERSION]
        assert (await client.get_many(["/a"])).data == [b"other"]


@virtual_time
async def test_answers_that_are_lost_again_and_again_are_an_error_in_the_end() -> None:
    async with connected() as client:
        await client.create("/a")
        opcodes = losing(client, *[False] * (MAX_LOST + 1))
        with pytest.raises(MaybeAppliedError, match=f"lost {MAX_LOST + 1} times"):
            await client.write_many([SetData("/a", b"new", 0)], fence=None)
        assert opcodes.count(MULTI) == MAX_LOST + 1


@virtual_time
async def test_writes_that_are_refused_take_no_others_with_them() -> None:
    async with stage() as it:
        assert (await it.client.write_many([Create("/a"), Create("/b"), Create("/c")], fence=None)).ok
        ops = [Create("/a"), SetData("/b", b"", 7), SetData("/c", b"new", 0), Create("/no/parent"), Create("/a/child")]
        found = await it.client.write_many(ops, fence=None)
        assert list(found.code) == [Code.NODE_EXISTS, Code.BAD_VERSION, Code.OK, Code.NO_NODE, Code.OK]
        assert (await it.client.get_many(["/c"])).data == [b"new"]
