"""Logins that end unless the client logs in again on the same connection (KIP-368)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aiocontroller.config import load_config
from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.simulated_net import SimulatedNetwork
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.security import Security
from aiocontroller.server.sasl import LONGEST_MS
from aiocontroller.server.socket_server import SocketServer
from aiocontroller.wire import cold, sasl_messages
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.front import Client, Front, settle, warnings
from tests.unit.server.test_logins import SECURE, TOKEN_ID, TOKEN_KEY, front, front_with_token, log_in_with_token

LIFETIME_MS = 60_000
REAUTH = {"connections.max.reauth.ms": str(LIFETIME_MS)}


async def shake_hands(client: Client, mechanism: str = "PLAIN") -> int:
    """The error code of the handshake."""
    client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request(mechanism))
    await settle()
    return sasl_messages.decode_handshake_response(client.frames[-1][4:])[0]


async def authenticate(client: Client, user: str = "alice", version: int = 1) -> tuple[int, int]:
    """(error code, the lifetime of the session in milliseconds)"""
    token = f"\0{user}\0{user}-secret".encode()
    request = cold.request(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)
    client.request(ApiKey.SASL_AUTHENTICATE, version, cold.encode_request(ApiKey.SASL_AUTHENTICATE, version, request))
    await settle()
    answer = cold.decode_response(ApiKey.SASL_AUTHENTICATE, version, client.frames[-1][4:])
    return answer.error_code, 0 if version < 1 else answer.session_lifetime // timedelta(milliseconds=1)


async def log_in(client: Client, user: str = "alice", version: int = 1) -> tuple[int, int]:
    assert await shake_hands(client) == KafkaErrorCode.NONE
    return await authenticate(client, user, version)


async def is_served(client: Client) -> bool:
    """Whether a request is answered, on a connection that goes on."""
    before = len(client.frames)
    asked = cold.request(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    client.request(ApiKey.FIND_COORDINATOR, 1, cold.encode_request(ApiKey.FIND_COORDINATOR, 1, asked))
    await settle()
    return len(client.frames) == before + 1 and not client.closed


async def sleep(it: Front, seconds: float) -> None:
    await it.world.clock.sleep(seconds)


@virtual_time
async def test_a_session_ends_at_api_versions_too() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        answered = len(client.frames)
        assert not client.closed
        await sleep(it, 61)
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert len(client.frames) == answered
        assert client.closed


@pytest.mark.parametrize("version", [0, 1])
@virtual_time
async def test_a_session_ends_at_the_first_request_after_its_time(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients too old to be told of its lifetime are cut off as well."""
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        assert await log_in(client, version=version) == (0, LIFETIME_MS if version else 0)
        await sleep(it, 57)
        assert await is_served(client)
        await sleep(it, 3)
        assert not client.closed, "as in Kafka it is noticed when it asks for something"
        assert not await is_served(client)
        assert client.closed
        assert "its login has ended" in warnings(caplog)[-1]
        killed = "kafka_server_socket_server_metrics_expired_connections_killed_count_total"
        assert it.shell.metrics.snapshot()[killed] == 1


@virtual_time
async def test_a_client_that_logs_in_again_stays() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        for _ in range(3):
            await sleep(it, 55)
            assert await log_in(client) == (0, LIFETIME_MS)
            assert await is_served(client)
        snapshot = it.shell.metrics.snapshot()
        assert snapshot["kafka_server_socket_server_metrics_successful_authentication_total"] == 1
        assert snapshot["kafka_server_socket_server_metrics_successful_reauthentication_total"] == 3


@virtual_time
async def test_a_session_that_has_ended_can_still_be_renewed() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        await sleep(it, 100)
        assert await log_in(client) == (0, LIFETIME_MS)
        assert await is_served(client)


@virtual_time
async def test_sessions_last_for_ever_without_the_setting() -> None:
    async with front(SECURE, **{"connections.max.reauth.ms": "-1"}) as it:
        client = await it.connect()
        assert await log_in(client) == (0, 0)
        await sleep(it, 500)
        assert await is_served(client)
        assert await shake_hands(client) == KafkaErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)


@virtual_time
async def test_another_principal_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client, "alice")
        await sleep(it, 30)
        await shake_hands(client)
        token = b"\0broker\0broker-secret"
        client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(token))
        await sleep(it, 1)
        code, message, _ = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
        assert code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED
        assert message == "Authentication failed: found User:broker at a login again, expected User:alice"
        assert client.closed
        snapshot = it.shell.metrics.snapshot()
        assert snapshot["kafka_server_socket_server_metrics_failed_reauthentication_total"] == 1
        assert snapshot["kafka_server_socket_server_metrics_failed_authentication_total"] == 0


@virtual_time
async def test_another_mechanism_is_refused() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        await sleep(it, 30)
        assert await shake_hands(client, "SCRAM-SHA-256") == KafkaErrorCode.NONE  # as in Kafka
        answered = len(client.frames)
        client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(b"n,,n=a,r=b"))
        await settle()
        assert (len(client.frames), client.closed) == (answered, True)


@virtual_time
async def test_nothing_else_is_served_while_a_client_logs_in_again() -> None:
    """Or what it asks for would be done without a login, or for one that has expired."""
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        await sleep(it, 30)
        assert await shake_hands(client) == KafkaErrorCode.NONE
        assert not await is_served(client)
        assert client.closed


@virtual_time
async def test_a_client_logs_in_again_once_a_second() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        token = sasl_messages.encode_authenticate_request(b"\0alice\0alice-secret")
        client.request(ApiKey.SASL_AUTHENTICATE, 0, token)
        assert await shake_hands(client) == KafkaErrorCode.ILLEGAL_SASL_STATE
        assert await log_in(client) == (0, LIFETIME_MS)


@virtual_time
async def test_logging_in_again_has_a_deadline() -> None:
    async with front(SECURE, **REAUTH) as it:
        client = await it.connect()
        await log_in(client)
        await sleep(it, 30)
        await shake_hands(client)
        await sleep(it, 12)
        assert client.closed


@pytest.mark.parametrize(
    "properties, expected_ms",
    [
        ({}, 60_000),
        ({"listener.name.sasl_plaintext.connections.max.reauth.ms": "50000"}, 50_000),
        (
            {
                "listener.name.sasl_plaintext.connections.max.reauth.ms": "50000",
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "40000",
                "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "30000",
            },
            40_000,
        ),
        ({"listener.name.other.connections.max.reauth.ms": "1"}, 60_000),
        ({"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "0"}, 0),
        ({"listener.name.sasl_plaintext.connections.max.reauth.ms": str(2**63 - 1)}, LONGEST_MS),
    ],
)
@virtual_time
async def test_the_setting_of_listener_and_mechanism_counts_most(properties: dict[str, str], expected_ms: int) -> None:
    async with front(SECURE, **REAUTH, **properties) as it:
        assert await log_in(await it.connect()) == (0, expected_ms)


@pytest.mark.parametrize("lives_ms, most_ms, ends_s", [(20_000, 60_000, 20), (60_000, 20_000, 20), (20_000, 0, 20)])
@virtual_time
async def test_the_session_of_a_token_ends_with_whatever_ends_first(
    lives_ms: int, most_ms: int, ends_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front_with_token(monkeypatch, lives_ms, **{"connections.max.reauth.ms": str(most_ms)}) as it:
        client = await it.connect()
        assert await log_in_with_token(client, TOKEN_ID, TOKEN_KEY) == 0
        await sleep(it, ends_s - 2)
        assert await is_served(client)
        await sleep(it, 3)
        assert not await is_served(client)


# -- the settings of connections ---------------------------------------------------------------------------------------


@virtual_time
async def test_host_names_stand_for_their_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = "Another-1.example:9,Host-1.example:2,10.0.0.9:3"
    async with front(SECURE, **{"max.connections.per.ip": "1", "max.connections.per.ip.overrides": overrides}) as it:

        async def addresses(self: SimulatedNetwork, host: str) -> list[str]:
            return {"host-1.example": ["10.0.0.8", "fe80::1", "10.0.0.9"], "another-1.example": ["10.0.0.8"]}[host]

        monkeypatch.setattr(SimulatedNetwork, "addresses", addresses)
        server = SocketServer(it.shell, it.listener.tasks)
        await server.look_up_hosts()
        for address, most in {"10.0.0.8": 2, "fe80::1": 2, "10.0.0.9": 3, "10.0.0.7": 1}.items():
            for _ in range(most):
                assert server.refusal(address) is None
                server.connection(address=address)
            assert server.refusal(address) == f"{address} has its {most} connections (max.connections.per.ip)"


@virtual_time
async def test_a_host_without_an_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front(SECURE, **{"max.connections.per.ip.overrides": "nowhere.example:1"}) as it:

        async def addresses(self: SimulatedNetwork, host: str) -> list[str]:
            raise OSError(-2, "Name or service not known")

        monkeypatch.setattr(SimulatedNetwork, "addresses", addresses)
        with pytest.raises(
            BadInputError, match=r"max\.connections\.per\.ip\.overrides: found nowhere\.example .*not known"
        ):
            await SocketServer(it.shell, it.listener.tasks).look_up_hosts()


@virtual_time
async def test_a_listener_has_a_limit_of_its_own() -> None:
    properties = {
        "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093",
        "listener.name.internal.max.connections": "2",
    }
    async with front(SECURE) as it:
        it.shell.config, _ = load_config(overrides=properties)
        it.shell.security = Security(it.shell.config)
        server = SocketServer(it.shell, it.listener.tasks)
        ended: list[str] = []
        for listener in ("INTERNAL", "EXTERNAL"):
            gate = server.gate(Endpoint(listener, "", 0))
            for number in range(4):
                name = f"{listener} {number}"
                assert gate.enter("10.0.0.1", lambda name=name: ended.append(name)) is not None  # type: ignore[misc]
        assert ended == ["INTERNAL 0", "INTERNAL 1"]
        assert len(server.quotas) == 6
