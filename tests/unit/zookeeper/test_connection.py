"""The connection on a transport that only remembers: order, framing, and which caller hears what when it ends."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.net.real import RealClock
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.connection import Connection, Counters, SeenZxids
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError

BODY = codec.path_and_watch(codec.EXISTS, "/a", False)


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        pass


class Subject:
    def __init__(self) -> None:
        self.wire, self.progress, self.counters = Wire(), SeenZxids(), Counters()
        self.log: list[Any] = []
        self.conn = Connection(
            RealClock(), self.progress, self.counters, lambda *event: self.log.append(event), lambda: None
        )
        self.conn.connection_made(self.wire)  # type: ignore[arg-type]


def reply(xid: int, payload: bytes = b"", *, zxid: int = 1, code: int = 0) -> bytes:
    body = struct.pack(">iqi", xid, zxid, code) + payload
    return codec.pack_int(len(body)) + body


def event(kind: int, path: str, zxid: int = -1) -> bytes:
    return reply(-1, struct.pack(">ii", kind, 3) + codec.ustring(path), zxid=zxid)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_frames_of_one_turn_leave_in_one_write() -> None:
    subject = Subject()
    subject.conn.submit([BODY, BODY])
    subject.conn.submit([BODY])
    subject.conn.ping()
    assert subject.wire.written == []
    await turn()
    frame = struct.pack(">i", len(BODY) + 4)
    [data] = subject.wire.written
    assert data == b"".join(frame + codec.pack_int(x) + BODY for x in (1, 2, 3)) + struct.pack(">iii", 8, -2, 11)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_frames_may_arrive_in_any_pieces(sizes: list[int]) -> None:
    async def run() -> None:
        subject = Subject()
        first, second = subject.conn.submit([BODY, BODY]), subject.conn.submit([BODY])
        stream = reply(1, b"one") + event(3, "/é") + reply(-2) + reply(2, code=-101) + reply(3, b"x" * 300)
        at = 0
        for size in sizes:
            subject.conn.data_received(stream[at : at + size])
            at += size
        subject.conn.data_received(stream[at:])
        assert await first == [(0, b"one"), (-101, b"")]
        assert await second == [(0, b"x" * 300)]
        assert subject.log == [(3, 3, "/é")]
        assert (subject.conn.in_flight, subject.conn.bytes_in_flight) == (0, 0)

    asyncio.run(run())


async def test_the_end_tells_what_was_sent_from_what_was_not() -> None:
    subject = Subject()
    answered, sent = subject.conn.submit([BODY]), subject.conn.submit([BODY, BODY])
    await turn()
    subject.conn.data_received(reply(1) + reply(2))
    unsent = subject.conn.submit([BODY])
    subject.conn.connection_lost(ConnectionResetError("reset"))
    late = subject.conn.submit([BODY])
    assert await answered == [(0, b"")]
    with pytest.raises(MaybeAppliedError, match="reset"):
        await sent
    for future in (unsent, late):
        with pytest.raises(NotSentError, match="reset"):
            await future
    assert subject.wire.aborted
    assert await subject.conn.lost == "the connection was lost: reset"


async def test_what_a_full_transport_has_not_taken_is_not_sent() -> None:
    subject = Subject()
    subject.conn.pause_writing()
    waiting = subject.conn.submit([BODY])
    await turn()
    assert subject.wire.written == []
    subject.conn.resume_writing()
    assert len(subject.wire.written) == 1
    subject.conn.pause_writing()
    second = subject.conn.submit([BODY])
    subject.conn.eof_received()
    with pytest.raises(MaybeAppliedError):
        await waiting
    with pytest.raises(NotSentError):
        await second


@pytest.mark.parametrize(
    "stream",
    [
        reply(7),
        reply(2),
        reply(-99),
        codec.pack_int(-1),
        codec.pack_int(1 << 30),
        codec.pack_int(3) + b"abc",
        reply(-1),
    ],
    ids=["unknown xid", "out of order", "special xid", "negative length", "long", "short", "event without body"],
)
async def test_a_damaged_stream_ends_the_connection_and_teaches_nothing(stream: bytes) -> None:
    subject = Subject()
    pending = subject.conn.submit([BODY, BODY])
    await turn()
    subject.conn.data_received(stream)
    with pytest.raises(MaybeAppliedError, match="damaged"):
        await pending
    assert not subject.conn.alive
    assert (subject.progress.seen_zxid, subject.progress.replied_zxid) == (0, 0)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    async def run() -> None:
        subject = Subject()
        future = subject.conn.submit([BODY])
        await turn()
        subject.conn.data_received(data)
        subject.conn.data_received(data)
        subject.conn.abort("end")
        await asyncio.gather(future, return_exceptions=True)

    asyncio.run(run())


async def test_an_event_proves_less_than_a_reply() -> None:
    """Other events of its transaction may still be on the way when the link is cut."""
    subject = Subject()
    pending = subject.conn.submit([BODY])
    await turn()
    subject.conn.data_received(event(3, "/a", zxid=9))
    assert (subject.progress.seen_zxid, subject.progress.replied_zxid) == (9, 0)
    subject.conn.data_received(reply(1, zxid=9))
    assert (subject.progress.seen_zxid, subject.progress.replied_zxid) == (9, 9)
    assert await pending == [(0, b"")]


async def test_a_cancelled_call_keeps_its_place_in_the_order() -> None:
    subject = Subject()
    cancelled, kept = subject.conn.submit([BODY]), subject.conn.submit([BODY])
    cancelled.cancel()
    await turn()
    subject.conn.data_received(reply(1, b"unknown") + reply(2, b"kept"))
    assert await kept == [(0, b"kept")]


async def test_refusal_of_an_unknown_request_overtakes_earlier_replies() -> None:
    """ZooKeeper refuses it as it reads it, before it has answered what came earlier, and then hangs up."""
    subject = Subject()
    earlier, unknown, later = (subject.conn.submit([BODY]) for _ in range(3))
    await turn()
    subject.conn.data_received(reply(2, code=Code.UNIMPLEMENTED, zxid=-1) + reply(1, b"in order"))
    assert await unknown == [(Code.UNIMPLEMENTED, b"")]
    assert await earlier == [(0, b"in order")]
    subject.conn.eof_received()
    with pytest.raises(MaybeAppliedError):
        await later


@pytest.mark.parametrize("xid, code", [(2, 0), (2, Code.NO_NODE), (3, Code.UNIMPLEMENTED), (9, Code.UNIMPLEMENTED)])
async def test_other_replies_out_of_turn_are_damage(xid: int, code: int) -> None:
    """The third request is one of a batch, whose replies have an order."""
    subject = Subject()
    subject.conn.submit([BODY])
    subject.conn.submit([BODY])
    subject.conn.submit([BODY, BODY])
    await turn()
    subject.conn.data_received(reply(xid, code=code))
    assert subject.conn.lost.result() == f"the stream from the server is damaged: a reply has the xid {xid}, expected 1"


async def test_xids_stay_positive() -> None:
    subject = Subject()
    subject.conn._xid = 0x7FFFFFFE
    future = subject.conn.submit([BODY, BODY])
    await turn()
    subject.conn.data_received(reply(0x7FFFFFFF) + reply(1))
    assert len(await future) == 2


async def test_what_is_sent_counts_for_the_heartbeat_when_it_leaves() -> None:
    subject = Subject()
    began = subject.conn.last_sent
    await asyncio.sleep(0.01)
    subject.conn.submit([BODY])
    assert subject.conn.last_sent == began
    await turn()
    assert subject.conn.last_sent > began
