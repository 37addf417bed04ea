"""A session through every fault that its connection can suffer.

Each test plays faults of the table in docs/zookeeper.md, by its numbers; plain aiozk 0.32.0 fails on them.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable

import pytest
from aiozk import ACL, exc

from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.lab.zookeeper.session_expiry import close_by_force, expire_session
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealClock, RealNetwork
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.client import Create, SessionEvent, SetData, ZooKeeperClient
from aiocontroller.zookeeper.errors import (
    AuthFailedError,
    ClientClosedError,
    Code,
    MaybeAppliedError,
    NotSentError,
    RequestTooLargeError,
    SessionExpiredError,
)
from tests.integration.zookeeper.conftest import MakeClient

E = SessionEvent


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


def events_of(client: ZooKeeperClient) -> list[SessionEvent]:
    events: list[SessionEvent] = []
    client.on_session = lambda event: events.append(event)
    return events


def watches_of(client: ZooKeeperClient) -> list[tuple[int, str]]:
    fired: list[tuple[int, str]] = []
    client.on_watch = lambda kind, path: fired.append((kind, path))
    return fired


def once_at(opcode: int, action: Do) -> Callable[[int, int, int, bytes], Do]:
    """Do something to the first request with this opcode only."""
    done = False

    def decide(_link: int, _xid: int, found: int, _frame: bytes) -> Do:
        nonlocal done
        if found == opcode and not done:
            done = True
            return action
        return Do.PASS

    return decide


# -- connections that end ----------------------------------------------------------------------------------------------


async def test_link_dropped_again_while_watches_are_armed_again(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 1: aiozk never connects again."""
    client = await make_client()
    await client.create("/a", b"")
    fired, session_id = watches_of(client), client.session_id
    await client.get_many(["/a"], watch=True)
    proxy.on_request = once_at(codec.SET_WATCHES, Do.CUT)
    proxy.cut_all()
    async with asyncio.timeout(2):
        assert (await client.get("/a"))[0] == b""
    assert client.session_id == session_id
    await client.set("/a", b"new", -1)
    await until(lambda: fired == [(3, "/a")])


async def test_more_watches_than_one_request_holds_survive_a_reconnect(
    make_client: MakeClient, proxy: FaultProxy
) -> None:
    """Faults 1 and 8: 20,000 paths are 1.3 MB; all are armed again, none fires without a change."""
    client = await make_client()
    paths = [f"/{'n' * 50}{i:05}" for i in range(20_000)]
    assert (await client.write_many([Create(p) for p in paths], fence=None)).ok
    await client.get_many(paths, watch=True)
    fired = watches_of(client)
    frames: list[int] = []

    def count(_link: int, _xid: int, opcode: int, frame: bytes) -> Do:
        if opcode == codec.SET_WATCHES:
            frames.append(len(frame))
        return Do.PASS

    proxy.on_request = count
    proxy.cut_all()
    await client.sync()
    assert len(frames) == 3
    assert max(frames) < 600_000
    assert fired == []
    for i in (0, 10_000, 19_999):
        await client.set(paths[i], b"changed", -1)
    await until(lambda: len(fired) == 3)
    assert client.statistics().watches == 19_997


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "end of stream"])
async def test_end_of_connection_is_noticed_at_once(make_client: MakeClient, proxy: FaultProxy, reset: bool) -> None:
    """Fault 2: aiozk takes a whole session timeout."""
    client = await make_client(timeout_s=10)
    events, session_id = events_of(client), client.session_id
    started = time.monotonic()
    proxy.cut_all(reset=reset)
    await until(lambda: events == [E.SUSPENDED, E.RECONNECTED])
    assert time.monotonic() - started < 5
    assert client.session_id == session_id


async def test_pending_write_fails_at_once_when_the_connection_ends(make_client: MakeClient, proxy: FaultProxy) -> None:
    client = await make_client(timeout_s=10)
    await client.create("/a", b"")
    proxy.on_request = once_at(codec.MULTI, Do.HOLD)
    pending = asyncio.ensure_future(client.multi([SetData("/a", b"x", 0)]))
    await until(lambda: client.statistics().in_flight == 1)
    await asyncio.sleep(0)
    started = time.monotonic()
    proxy.cut_all(reset=False)
    with pytest.raises(MaybeAppliedError):
        await pending
    assert time.monotonic() - started < 5


async def test_silent_server_is_left_before_the_session_expires(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 3: the peer is silent but the connection stands, as behind a partition or SIGSTOP."""
    client = await make_client(timeout_s=3)
    await client.create("/mine", b"", ephemeral=True)
    events, session_id = events_of(client), client.session_id
    started = time.monotonic()
    proxy.freeze()
    assert (await client.get("/mine"))[0] == b""
    assert time.monotonic() - started > 1
    assert events == [E.SUSPENDED, E.RECONNECTED]
    assert client.session_id == session_id


@pytest.mark.parametrize("seed", range(3))
async def test_hung_server_does_not_keep_us_from_the_other(
    zk_connect: str, proxy: FaultProxy, make_client: MakeClient, seed: int
) -> None:
    """Fault 4: one of two accepts and never answers; whichever is tried first."""
    hung = await FaultProxy(1).start()
    hung.hang = True
    try:
        world = World(RealNetwork(), RealClock(), random.Random(seed))
        client = ZooKeeperClient(f"{hung.address},{proxy.address}", world=world, session_timeout_s=2)
        async with asyncio.timeout(1.5):
            await client.start()
        await client.close()
    finally:
        await hung.close()


@pytest.mark.parametrize("how", ["cut", "hang"])
async def test_failed_handshakes_do_not_end_the_session(make_client: MakeClient, proxy: FaultProxy, how: str) -> None:
    """Fault 5: only the server's word ends a session."""
    client = await make_client(timeout_s=6)
    await client.create("/mine", b"", ephemeral=True)
    events, session_id = events_of(client), client.session_id
    handshakes = 0

    def disturb(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        nonlocal handshakes
        if opcode == 0:
            handshakes += 1
            if handshakes <= (2 if how == "cut" else 1):
                return Do.CUT if how == "cut" else Do.HOLD
        return Do.PASS

    proxy.on_request = disturb
    proxy.cut_all()
    assert await client.ephemerals() == ["/mine"]
    assert (client.session_id, client.session_epoch) == (session_id, 1)
    assert events == [E.SUSPENDED, E.RECONNECTED]


async def test_reply_cut_in_the_middle(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 18: the end comes inside a frame."""
    client = await make_client(timeout_s=10)
    await client.create("/a", b"x" * 1000)
    cut = False

    def truncate(link: int, xid: int, frame: bytes) -> bytes:
        nonlocal cut
        if cut or xid <= 0:
            return frame
        cut = True
        asyncio.get_running_loop().call_later(0.02, lambda: proxy.cut_all(reset=False))
        return frame[:500]

    proxy.on_reply = truncate
    started = time.monotonic()
    assert (await client.get("/a"))[0] == b"x" * 1000
    assert cut
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("damage", ["twice", "garbage", "length"])
async def test_damaged_stream_costs_the_connection_not_the_session(
    make_client: MakeClient, proxy: FaultProxy, damage: str
) -> None:
    client = await make_client(timeout_s=6)
    await client.create("/a", b"x")
    session_id, done = client.session_id, False

    def spoil(_link: int, xid: int, frame: bytes) -> bytes:
        nonlocal done
        if done or xid <= 0:
            return frame
        done = True
        return {"twice": frame * 2, "garbage": b"\0\0\0\x14" + b"\x55" * 20, "length": b"\x7f" + frame}[damage]

    proxy.on_reply = spoil
    assert (await client.get("/a"))[0] == b"x"
    assert (await client.get("/a"))[0] == b"x"
    assert client.session_id == session_id
    assert client.statistics().suspensions == 1


async def test_reply_slower_than_any_timeout_is_waited_for(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 10: as long as bytes arrive the server lives; nothing is asked for twice."""
    client = await make_client(timeout_s=1)
    await client.create("/big", b"b" * 600_000)
    asked = 0

    def count(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        nonlocal asked
        asked += opcode == codec.GET_DATA
        return Do.PASS

    async def drip(xid: int, frame: bytes) -> None:
        if len(frame) > 600_000:
            for at in range(0, 600_000, 60_000):
                proxy.links[0].client.write(frame[at : at + 60_000])
                await asyncio.sleep(0.2)

    proxy.on_request, proxy.before_reply = count, drip
    proxy.on_reply = lambda _link, _xid, frame: frame[600_000:] if len(frame) > 600_000 else frame
    started = time.monotonic()
    assert (await client.get("/big"))[0] == b"b" * 600_000
    assert time.monotonic() - started > 1.9
    assert asked == 1
    assert client.statistics().suspensions == 0


async def test_server_that_is_away_for_a_second_is_found_soon_after(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 12: back-off 4, 8, 16 … s."""
    client = await make_client(timeout_s=10)
    session_id = client.session_id
    await proxy.refuse()
    proxy.cut_all()
    away_until = time.monotonic() + 1
    await until(lambda: time.monotonic() > away_until)
    await proxy.start()
    await client.sync()
    assert time.monotonic() - away_until < 3.5
    assert client.session_id == session_id
    assert 3 <= client.statistics().failed_attempts < 40


# -- watches and zxids -------------------------------------------------------------------------------------------------


async def test_two_drops_in_a_row_fire_nothing_and_lose_nothing(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 8: aiozk asks relative to zxid 0, so everything fires, and the session may go back in time."""
    client = await make_client()
    other = await make_client(direct=True)
    paths = [f"/n{i:02}" for i in range(50)]
    await client.write_many([Create(p) for p in paths], fence=None)
    await client.get_many(paths, watch=True)
    await client.exists_many(["/absent"], watch=True)
    await client.children_many(["/"], watch=True)
    fired = watches_of(client)
    for connects in (2, 3):
        proxy.cut_all()
        await until(lambda connects=connects: client.statistics().connects == connects)
    await client.sync()
    assert fired == []
    for frame in proxy.connect_frames[1:]:
        assert struct.unpack_from(">q", frame, 8)[0] > 0
    await other.set("/n07", b"changed", -1)
    await other.create("/absent", b"")
    await until(lambda: len(fired) == 3)
    assert sorted(fired) == [(1, "/absent"), (3, "/n07"), (4, "/")]


async def test_changes_while_disconnected_fire_after_the_reconnect(make_client: MakeClient, proxy: FaultProxy) -> None:
    client, other = await make_client(timeout_s=10), await make_client(direct=True)
    await client.write_many([Create("/data"), Create("/gone"), Create("/parent")], fence=None)
    await client.get_many(["/data", "/gone", "/absent"], watch=True)
    await client.children_many(["/parent"], watch=True)
    fired = watches_of(client)
    await proxy.refuse()
    proxy.cut_all()
    await other.set("/data", b"x", -1)
    await other.delete("/gone")
    await other.create("/absent", b"")
    await other.create("/parent/child", b"")
    await proxy.start()
    await client.sync()
    assert sorted(fired) == [(1, "/absent"), (2, "/gone"), (3, "/data"), (4, "/parent")]
    assert client.statistics().watches == 0


async def test_change_between_reading_and_arming_fires(make_client: MakeClient, proxy: FaultProxy) -> None:
    """The bulk read and its SetWatches are two requests; what changes in between must not be lost."""
    client, other = await make_client(), await make_client(direct=True)
    paths = [f"/n{i}" for i in range(20)]
    await client.write_many([Create(p, b"old") for p in paths], fence=None)
    fired = watches_of(client)
    proxy.on_request = once_at(codec.SET_WATCHES, Do.HOLD)
    reading = asyncio.ensure_future(client.get_many([*paths, "/absent"], watch=True))
    await until(lambda: proxy.links and not proxy.links[0].thawed.is_set())
    await other.set("/n3", b"new", -1)
    await other.delete("/n5")
    await other.create("/absent", b"")
    proxy.links[0].thawed.set()
    reads = await reading
    assert reads.data == [b"old"] * 20 + [None]
    assert sorted(fired) == [(1, "/absent"), (2, "/n5"), (3, "/n3")]
    await other.set("/n4", b"new", -1)
    await until(lambda: len(fired) == 4)


async def test_znode_created_between_reading_and_watching_is_read(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Few znodes are read and watched in one request, but a missing one needs a second."""
    client, other = await make_client(), await make_client(direct=True)
    fired = watches_of(client)
    proxy.on_request = once_at(codec.EXISTS, Do.HOLD)
    reading = asyncio.ensure_future(client.get_many(["/absent", "/never"], watch=True))
    await until(lambda: proxy.links and not proxy.links[0].thawed.is_set())
    await other.create("/absent", b"here")
    proxy.links[0].thawed.set()
    assert (await reading).data == [b"here", None]
    assert fired == []
    await other.set("/absent", b"new", -1)
    await other.create("/never", b"")
    await until(lambda: len(fired) == 2)
    assert sorted(fired) == [(1, "/never"), (3, "/absent")]


async def test_watch_for_deletion_survives_a_reconnect(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 13: elections and locks wait for DELETED only."""
    client, other = await make_client(), await make_client(direct=True)
    await client.create("/leader", b"")
    deleted = asyncio.Event()
    client.on_watch = lambda kind, path: deleted.set() if (kind, path) == (2, "/leader") else None
    assert await client.exists("/leader", watch=True)
    proxy.cut_all()
    await client.sync()
    await other.delete("/leader")
    await asyncio.wait_for(deleted.wait(), 5)


async def test_watch_is_delivered_before_a_later_reply(make_client: MakeClient) -> None:
    client = await make_client()
    await client.create("/a", b"")
    order: list[str] = []
    await client.get_many(["/a"], watch=True)
    client.on_watch = lambda _kind, path: order.append(path)
    await client.set("/a", b"x", -1)
    order.append("reply")
    assert order == ["/a", "reply"]


async def test_failing_handlers_break_nothing(make_client: MakeClient, proxy: FaultProxy) -> None:
    client = await make_client()
    await client.create("/a", b"")

    def fail(*_: object) -> None:
        raise RuntimeError("a handler's bug")

    client.on_watch, client.on_session = fail, fail
    await client.get_many(["/a"], watch=True)
    await client.set("/a", b"x", -1)
    proxy.cut_all()
    assert (await client.get("/a"))[0] == b"x"


# -- writes whose answer is lost ---------------------------------------------------------------------------------------


async def test_lost_answer_is_reported_and_nothing_is_sent_twice(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 6: aiozk makes two sequential nodes, and BadVersion out of a success."""
    client = await make_client()
    await client.create("/a", b"")
    proxy.on_request = once_at(15, Do.CUT_AFTER)
    with pytest.raises(MaybeAppliedError):
        await client.create("/seq-", b"", sequential=True)
    proxy.on_request = once_at(codec.SET_DATA, Do.CUT_AFTER)
    with pytest.raises(MaybeAppliedError):
        await client.set("/a", b"x", 0)
    proxy.on_request = once_at(codec.MULTI, Do.CUT_AFTER)
    with pytest.raises(MaybeAppliedError):
        await client.multi([SetData("/a", b"y", 1)])
    proxy.on_request = None
    assert sorted(await client.get_children("/")) == ["a", "seq-0000000001"]
    data, stat = await client.get("/a")
    assert (data, stat.version) == (b"y", 2)


async def test_write_to_a_connection_known_to_be_dead_was_not_sent(make_client: MakeClient) -> None:
    client = await make_client()
    conn = client.session.conn
    future = conn.submit([codec.path_and_watch(codec.EXISTS, "/", False)])
    conn.abort("test")
    with pytest.raises(NotSentError):
        await future


# -- expiry ------------------------------------------------------------------------------------------------------------


async def test_expiry_is_reported_before_the_next_session_opens(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 7."""
    client = await make_client(timeout_s=4)
    await client.create("/mine", b"", ephemeral=True)
    await client.get_many(["/mine"], watch=True)
    first_id = client.session_id
    reported: list[tuple[SessionEvent, int, int, int]] = []
    client.on_session = lambda event: reported.append(
        (event, client.session_id, client.session_epoch, len(proxy.connect_frames))
    )
    await expire_session(client)
    await until(lambda: reported and reported[-1][0] is E.NEW_SESSION)
    *_, expired, opened = reported
    assert expired[:3] == (E.EXPIRED, 0, 1)
    assert opened[:3] == (E.NEW_SESSION, client.session_id, 2)
    assert opened[3] > expired[3], "it was reported before the next handshake"
    assert (await client.get_many(["/mine"])).code == [-101]
    assert client.session_id not in (0, first_id)
    assert await client.ephemerals() == []
    assert client.statistics().watches == 0


async def test_calls_of_an_expired_session_end_with_it(make_client: MakeClient, proxy: FaultProxy) -> None:
    client = await make_client(timeout_s=4)
    await client.create("/a", b"")
    await proxy.refuse()
    proxy.cut_all()
    await until(lambda: not client.connected)
    calls = [
        asyncio.ensure_future(call)
        for call in (
            client.get_many(["/a"]),
            client.set_many(["/a"], [b"x"], [0]),
            client.multi([SetData("/a", b"x", 0)]),
            client.create("/b", b""),
        )
    ]
    client.session.connected_to = None
    direct = await make_client(direct=True)
    await close_by_force(direct, client.session_id, client.session_password)
    await proxy.start()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(r) for r in results] == [SessionExpiredError] * 4
    assert (await client.get("/a"))[1].version == 0
    assert not await client.exists("/b")


# -- limits, ends and odds ---------------------------------------------------------------------------------------------


async def test_request_beyond_the_servers_limit_is_refused_here(make_client: MakeClient) -> None:
    """Fault 11: the server would close the connection."""
    client = await make_client()
    with pytest.raises(RequestTooLargeError, match="1048575"):
        await client.create("/big", b"x" * (1 << 20))
    assert client.statistics().suspensions == 0


async def test_bytes_in_flight_are_bounded(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 15: 300 writes of 100 KB to a server that stops reading."""
    client = await make_client(timeout_s=20)
    await client.create("/a", b"")
    proxy.freeze()
    calls = [asyncio.ensure_future(client.set("/a", b"x" * 100_000, -1)) for _ in range(300)]
    await until(lambda: client.statistics().waiting > 200)
    assert client.statistics().bytes_in_flight <= 4 << 20
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert client.statistics().waiting == 0
    proxy.cut_all()
    assert (await client.get("/a"))[0] == b""


async def test_cancelled_calls_leave_nothing_behind(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 17."""
    client = await make_client(timeout_s=10)
    await proxy.refuse()
    proxy.cut_all()
    await until(lambda: not client.connected)
    calls = [asyncio.ensure_future(client.exists("/a")) for _ in range(100)]
    await until(lambda: client.statistics().waiting == 100)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert client.statistics().waiting == 0
    await proxy.start()
    assert not await client.exists("/a")
    assert client.statistics().in_flight == 0


async def test_start_ends_with_the_addresses_when_no_server_answers(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 17: aiozk waits for ever."""
    await proxy.refuse()
    client = await make_client(address=f"{proxy.address},[::1]:{proxy.port}", start=False)
    with pytest.raises(TimeoutError, match=rf"127.0.0.1:{proxy.port}, \[::1\]:{proxy.port} within 0.3 s; last failure"):
        await client.start(0.3)
    await client.close()


@pytest.mark.parametrize("fault", ["refuse", "freeze", "none"])
async def test_close_always_ends_and_frees_everything(make_client: MakeClient, proxy: FaultProxy, fault: str) -> None:
    """Fault 14."""
    before = asyncio.all_tasks()
    client = await make_client(timeout_s=3)
    await client.create("/mine", b"", ephemeral=True)
    pending = None
    if fault == "refuse":
        await proxy.refuse()
        proxy.cut_all()
        await until(lambda: not client.connected)
    elif fault == "freeze":
        proxy.freeze()
        pending = asyncio.ensure_future(client.multi([SetData("/mine", b"", 0)]))
        await until(lambda: client.statistics().in_flight == 1)
    started = time.monotonic()
    await client.close()
    assert time.monotonic() - started < 2.9
    await client.close()
    if pending is not None:
        with pytest.raises(MaybeAppliedError):
            await pending
    with pytest.raises(ClientClosedError):
        await client.get("/mine")
    if fault == "none":
        assert not await (await make_client(direct=True)).exists("/mine")
    names = {task.get_name() for task in asyncio.all_tasks() - before}
    assert "zookeeper-session" not in names or fault == "none"


async def test_credentials_are_given_again_after_a_reconnect(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Fault 16."""
    client = await make_client(start=False)
    await client.add_auth("digest", b"kafka:secret")
    await client.start(10)
    mine = ACL.make("auth", "", read=True, write=True, create=True, delete=True, admin=True)
    await client.create("/secret", b"s", acl=[mine])
    stranger = await make_client(direct=True)
    with pytest.raises(exc.NoAuth):
        await stranger.get("/secret")
    assert (await stranger.get_many(["/secret"])).code == [-102]
    proxy.cut_all()
    assert (await client.get("/secret"))[0] == b"s"
    await stranger.add_auth("digest", b"kafka:secret")
    assert (await stranger.get("/secret"))[0] == b"s"
    with pytest.raises(AuthFailedError, match="nonsense"):
        await stranger.add_auth("nonsense", b"x")
    assert (await stranger.get("/secret"))[0] == b"s"


@pytest.mark.parametrize("code", [Code.SESSION_EXPIRED, Code.UNKNOWN_SESSION])
async def test_a_server_that_says_the_session_is_gone_ends_the_call_and_the_handshake_decides(
    make_client: MakeClient, proxy: FaultProxy, code: Code
) -> None:
    client = await make_client(timeout_s=4)
    answered = False

    def answer(_link: int, xid: int, frame: bytes) -> bytes:
        nonlocal answered
        if xid <= 0 or answered:
            return frame
        answered = True
        return struct.pack(">iiqi", 16, xid, 0, code)

    proxy.on_reply = answer
    session_id = client.session_id
    with pytest.raises(SessionExpiredError):
        await client.get_many(["/"])
    assert (await client.get_many(["/"])).code == [0]
    assert client.session_id == session_id
