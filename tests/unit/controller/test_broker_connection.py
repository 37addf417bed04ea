"""A connection for one request at a time: what its requester gets when it ends, or has lost patience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.controller.broker_connection import BrokerConnection


class Transport:
    """What was sent, and whether the connection was aborted."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.aborted = False

    def writelines(self, parts: list[bytes]) -> None:
        self.sent.append(b"".join(parts))

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def connected() -> tuple[BrokerConnection, Transport, list[str]]:
    """The connection, its transport, and what is noted when it is lost."""
    connection, transport, lost = BrokerConnection(), Transport(), list[str]()
    anything: Any = transport
    connection.connection_made(anything)
    connection.on_lost = lambda: lost.append("lost")
    return connection, transport, lost


async def begun(connection: BrokerConnection, *parts: bytes) -> asyncio.Task[bytes]:
    request = asyncio.ensure_future(connection.request(list(parts)))
    await asyncio.sleep(0)
    return request


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def test_a_request_is_one_frame_and_gets_the_next_frame() -> None:
    connection, transport, _ = connected()
    request = await begun(connection, b"ab", b"c")
    assert transport.sent == [frame(b"abc")]
    assert connection.bytes_sent == 7
    answer = frame(b"answer")
    connection.data_received(answer[:3])
    connection.data_received(answer[3:])
    assert await request == b"answer"
    assert not transport.aborted


async def test_the_requester_hears_that_the_connection_is_lost() -> None:
    connection, _, lost = connected()
    request = await begun(connection, b"a")
    connection.connection_lost(None)
    with pytest.raises(ConnectionResetError, match="end of stream"):
        await request
    assert lost == ["lost"]
    assert not connection.open
    with pytest.raises(ConnectionResetError, match="is closed"):
        await connection.request([b"a"])


@pytest.mark.parametrize("late_answer", [True, False])
async def test_a_requester_that_has_given_up_keeps_no_end_from_being_noticed(*, late_answer: bool) -> None:
    connection, _, lost = connected()
    request = await begun(connection, b"a")
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    if late_answer:
        connection.data_received(frame(b"late"))
    connection.connection_lost(OSError("reset"))
    assert lost == ["lost"]


@pytest.mark.parametrize("nonsense", [frame(b"unasked"), b"\xff\xff\xff\xff"])
async def test_what_was_not_asked_for_ends_the_connection(nonsense: bytes) -> None:
    connection, transport, _ = connected()
    connection.data_received(nonsense)
    assert transport.aborted


async def test_a_damaged_stream_is_an_error_for_the_requester() -> None:
    connection, transport, _ = connected()
    request = await begun(connection, b"a")
    connection.data_received(b"\xff\xff\xff\xff")
    with pytest.raises(ConnectionError):
        await request
    assert transport.aborted
