"""Connections to brokers: what a broker that refuses, keeps silent or cannot prove itself means for the caller.

``tests/unit/server/test_logins.py`` logs in at this program's own listener.
"""

from __future__ import annotations

import pytest

from aiocontroller.config import ConfigError, load_config
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.scripted_peer import Peer, PeerConnection, Reaction, silence
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import turns, virtual_time
from aiocontroller.security import Security
from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import RequestHeader

LOGIN = 'x required username="broker" password="secret";'


def security(mechanism: str, **more: str) -> Security:
    named = {"sasl.mechanism.inter.broker.protocol": mechanism, "sasl.jaas.config": LOGIN}
    return Security(load_config(overrides=named | more)[0])


def at(port: int, protocol: str = "SASL_PLAINTEXT") -> Endpoint:
    return Endpoint(protocol, "127.0.0.1", port, protocol)


def says(body: bytes) -> Reaction:
    def react(connection: PeerConnection, header: RequestHeader) -> None:
        connection.answer(header, body)

    return react


def offers(*mechanisms: str, code: int = 0) -> Reaction:
    return says(sasl_messages.encode_handshake_response(1, code, mechanisms))


def proves(code: int = 0, message: str | None = None, token: bytes = b"") -> Reaction:
    version = sasl_messages.AUTHENTICATE_VERSION
    return says(sasl_messages.encode_authenticate_response(version, code, message, token))


async def broker(*reactions: Reaction) -> Peer:
    peer = Peer(simulated_world(SimulatedNetwork()))
    peer.reactions.extend(reactions)
    return peer


@virtual_time
async def test_a_plain_listener_is_asked_nothing() -> None:
    peer = await broker()
    connection = await connect_to_broker(
        peer.world, Security(load_config()[0]), at(await peer.listen(), "PLAINTEXT"), timeout_s=5
    )
    await turns()
    assert connection.open
    assert (peer.arrived, peer.handshakes) == ([], 0)


@virtual_time
async def test_a_plain_login_is_one_exchange() -> None:
    peer = await broker(offers("PLAIN"), proves())
    connection = await connect_to_broker(peer.world, security("PLAIN"), at(await peer.listen()), timeout_s=5)
    assert connection.open
    handshake, login = peer.arrived
    assert (handshake.header.api_key, login.header.api_key) == (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    assert sasl_messages.decode_authenticate_request(login.header.api_version, login.body) == b"\0broker\0secret"


@virtual_time
async def test_a_mechanism_that_a_broker_lacks_is_named_with_those_that_it_has() -> None:
    peer = await broker(offers("GSSAPI", "OAUTHBEARER", code=KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM))
    with pytest.raises(ConnectionError, match="does not take SASL PLAIN: it offers GSSAPI, OAUTHBEARER"):
        await connect_to_broker(peer.world, security("PLAIN"), at(await peer.listen()), timeout_s=5)


@pytest.mark.parametrize("message, error", [("no such user", "no such user"), (None, "58"), ("", "58")])
@virtual_time
async def test_refused_credentials_are_an_error_with_the_brokers_words(message: str | None, error: str) -> None:
    peer = await broker(offers("PLAIN"), proves(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, message))
    with pytest.raises(ConnectionError, match=f"refuses our SASL credentials: {error}"):
        await connect_to_broker(peer.world, security("PLAIN"), at(await peer.listen()), timeout_s=5)


@pytest.mark.parametrize("challenge", [b"", b"nonsense", b"r=another,s=c2FsdA==,i=4096"])
@virtual_time
async def test_a_broker_whose_challenge_is_not_for_us_is_left(challenge: bytes) -> None:
    peer = await broker(offers("SCRAM-SHA-256"), proves(token=challenge))
    with pytest.raises(ConnectionError):
        await connect_to_broker(peer.world, security("SCRAM-SHA-256"), at(await peer.listen()), timeout_s=5)
    assert len(peer.arrived) == 2, "nothing that depends on the password was sent"


@pytest.mark.parametrize("reactions", [[silence], [offers("PLAIN"), silence]], ids=["handshake", "login"])
@virtual_time
async def test_a_broker_that_keeps_silent_is_given_up(reactions: list[Reaction]) -> None:
    peer = await broker(*reactions)
    clock = peer.world.clock
    began_s = clock.monotonic()
    with pytest.raises(ConnectionError):
        await connect_to_broker(peer.world, security("PLAIN"), at(await peer.listen()), timeout_s=5)
    assert clock.monotonic() - began_s == pytest.approx(5, abs=0.1)


@virtual_time
async def test_a_login_that_is_missing_is_an_error_of_the_configuration() -> None:
    peer = await broker()
    with pytest.raises(ConfigError):
        await connect_to_broker(
            peer.world,
            security("PLAIN", **{"sasl.jaas.config": "x required;"}),
            at(await peer.listen()),
            timeout_s=5,
        )
    assert peer.connections == []
