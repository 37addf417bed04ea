"""What passes through the controller's port to a broker and back."""

from __future__ import annotations

import pytest

from aiocontroller.server.controller_apis import SERVED
from aiocontroller.server.relay_rule import NEVER_RELAYED
from aiocontroller.wire import messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import request_frame
from tests.unit.server.front import Upstream, echo, framed, front, settle, warnings
from tests.virtual_time import virtual_time


@virtual_time
async def test_relay_passes_frames_unchanged_both_ways() -> None:
    async with front() as it:
        await it.broker()
        client = await it.connect()
        bodies = [b"", b"\x00\xff" * 10, b"x" * 100_000]
        for body in bodies:
            client.request(ApiKey.METADATA, 9, body)
        await settle()
        (upstream,) = it.upstreams
        sent = [b"".join(request_frame(ApiKey.METADATA, 9, i, "me", body))[4:] for i, body in enumerate(bodies, 1)]
        assert upstream.frames == sent
        assert client.frames == [frame[4:8] + b"\xde\xad" + frame for frame in sent]


@virtual_time
async def test_relayed_and_own_answers_keep_the_order_of_the_requests() -> None:
    held: list[tuple[Upstream, bytes]] = []
    async with front() as it:
        await it.broker(lambda upstream, frame: held.append((upstream, frame)))
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        client.request(ApiKey.API_VERSIONS, 0)
        client.request(ApiKey.METADATA, 9)
        client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        await settle()
        assert client.frames == []
        echo(*held.pop())
        await settle()
        assert client.correlation_ids() == [1, 2]
        echo(*held.pop())
        (await it.event()).reply.answer([])
        await settle()
        assert client.correlation_ids() == [1, 2, 3, 4]


@virtual_time
async def test_each_client_has_its_own_way_to_a_broker() -> None:
    async with front() as it:
        await it.broker()
        clients = [await it.connect() for _ in range(3)]
        for client in clients:
            client.request(ApiKey.METADATA, 9)
        await settle()
        assert len(it.upstreams) == 3
        clients[0].close()
        await settle()
        assert [upstream.closed for upstream in it.upstreams] == [True, False, False]


@virtual_time
async def test_lost_upstream_closes_the_client_only() -> None:
    async with front() as it:
        port = await it.broker()
        client, other = await it.connect(), await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        it.network.cut(port)
        await settle()
        assert client.closed
        assert not other.closed


@virtual_time
async def test_upstream_that_cannot_be_reached_closes_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async with front() as it:
        port = await it.broker()
        it.network.listeners.pop(port)
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert client.closed
        assert any(f"Cannot relay to 127.0.0.1:{port}" in line for line in warnings(caplog))


@virtual_time
async def test_client_that_goes_while_the_upstream_is_being_connected() -> None:
    async with front() as it:
        await it.broker()
        it.network.delay_s = 0.1
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        client.close()
        await settle()
        assert [upstream.closed for upstream in it.upstreams] in ([], [True])


@virtual_time
async def test_upstream_that_answers_unasked_or_talks_nonsense_costs_both_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with front() as it:
        await it.broker()
        first, second = await it.connect(), await it.connect()
        for client in (first, second):
            client.request(ApiKey.METADATA, 9)
        await settle()
        it.upstreams[0].send_frame(b"unasked")
        assert it.upstreams[1].transport is not None
        it.upstreams[1].transport.write(b"\xff\xff\xff\xff")
        await settle()
        assert first.closed
        assert second.closed
        lines = warnings(caplog)
        assert any("an answer that nobody waits for" in line for line in lines)
        assert any("found a length of -1 bytes" in line for line in lines)


@pytest.mark.parametrize("api", sorted(NEVER_RELAYED - SERVED.keys()), ids=lambda api: api.name)
@virtual_time
async def test_what_only_controllers_may_say_is_never_relayed(api: ApiKey) -> None:
    """Not even over a relay that is open already."""
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        client.request(api, 0, b"\x00" * 30)
        await settle()
        assert len(it.upstreams[0].frames) == 1
        assert client.closed


@virtual_time
async def test_frame_without_a_header_is_never_relayed() -> None:
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.METADATA, 9)
        await settle()
        client.send(framed(b"abc"))
        await settle()
        assert len(it.upstreams[0].frames) == 1
        assert client.closed


@virtual_time
async def test_one_request_is_with_the_broker_at_a_time() -> None:
    async with front() as it:
        await it.broker(lambda upstream, frame: None)
        client = await it.connect()
        for _ in range(3):
            client.request(ApiKey.METADATA, 9)
        for answered in range(3):
            await settle()
            assert len(it.upstreams[0].frames) == answered + 1
            echo(it.upstreams[0], it.upstreams[0].frames[-1])
        await settle()
        assert client.correlation_ids() == [1, 2, 3]
