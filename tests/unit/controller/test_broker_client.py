"""Questions to a broker on a connection of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.config import Config
from aiocontroller.controller.broker_client import TELLS_MIGRATION, asking
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.scripted_peer import Peer, PeerConnection, hang_up, silence
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import turns, virtual_time
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey, VersionRange
from aiocontroller.wire.messages import encode_api_versions_response


async def peer_and_shell(peer: Peer | None = None) -> tuple[Peer, ControllerShell, Broker]:
    peer = peer or Peer(simulated_world(SimulatedNetwork()))
    broker = Broker(1, 7, (Endpoint("PLAINTEXT", "127.0.0.1", await peer.listen()),))
    shell: Any = SimpleNamespace(
        world=peer.world, security=Security(Config()), endpoint_of=lambda broker: next(iter(broker.endpoints), None)
    )
    return peer, cast(ControllerShell, shell), broker


@virtual_time
async def test_a_question_gets_its_answer_without_a_header() -> None:
    peer, shell, broker = await peer_and_shell()
    async with asking(shell, broker, 5.0) as client:
        assert await client.request(ApiKey.DESCRIBE_CONFIGS, 1, b"what?") == b"ok"
        assert peer.bodies == [b"what?"]
        assert client.certificate is None
    await turns()
    assert [arrived.header.client_id for arrived in peer.arrived] == ["aiocontroller"]


@virtual_time
async def test_the_versions_that_a_broker_offers_are_read() -> None:
    peer, shell, broker = await peer_and_shell()
    async with asking(shell, broker, 5.0) as client:
        assert (await client.api_versions()).versions == peer.offers
    assert peer.handshakes == 1


@virtual_time
async def test_an_old_broker_is_asked_for_its_versions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a broker answers an unknown version of ApiVersions in version 0, with an error."""
    peer, shell, broker = await peer_and_shell()
    asked: list[int] = []
    answer = PeerConnection.answer

    def old(connection: PeerConnection, header: Any, body: bytes) -> None:
        asked.append(header.api_version)
        if header.api_version > 0:
            body = encode_api_versions_response(0, {ApiKey.API_VERSIONS: VersionRange(0, 0)}, error_code=35)
        answer(connection, header, body)

    monkeypatch.setattr(PeerConnection, "answer", old)
    async with asking(shell, broker, 5.0) as client:
        offered = await client.api_versions()
    assert asked == [TELLS_MIGRATION, 0]
    assert offered.versions == peer.offers


@virtual_time
async def test_a_silent_broker_is_a_timeout() -> None:
    peer, shell, broker = await peer_and_shell()
    peer.reactions.append(silence)
    began_s = peer.world.clock.monotonic()
    with pytest.raises(TimeoutError, match="nothing received within 2 s"):
        async with asking(shell, broker, 2.0) as client:
            await client.request(ApiKey.DESCRIBE_CONFIGS, 1, b"")
    assert peer.world.clock.monotonic() - began_s == pytest.approx(2.0, abs=0.1)


@virtual_time
async def test_a_broker_that_hangs_up_is_no_timeout() -> None:
    peer, shell, broker = await peer_and_shell()
    peer.reactions.append(hang_up)
    with pytest.raises(ConnectionError):
        async with asking(shell, broker, 2.0) as client:
            await client.request(ApiKey.DESCRIBE_CONFIGS, 1, b"")


@virtual_time
async def test_a_broker_without_a_usable_endpoint_is_not_asked() -> None:
    _, shell, _ = await peer_and_shell()
    with pytest.raises(ConnectionError, match="no endpoint that the controller can use"):
        async with asking(shell, Broker(1, 7, ()), 2.0):
            raise AssertionError("it has no address")


@virtual_time
async def test_the_connection_ends_with_the_questions() -> None:
    _, shell, broker = await peer_and_shell()
    async with asking(shell, broker, 2.0) as client:
        await client.request(ApiKey.DESCRIBE_CONFIGS, 1, b"")
    with pytest.raises(ConnectionError):
        await client.request(ApiKey.DESCRIBE_CONFIGS, 1, b"")
