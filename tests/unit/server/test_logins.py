"""Logins by SASL, and what is open to which principal where brokers have an authorizer."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
from aiozk import exc

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from aiocontroller.config import load_config
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.controller.heartbeats import CLIENT_ID as HEARTBEAT
from aiocontroller.controller.heartbeats import GIVES_UP
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.witness import with_hearing
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.security import Security, authorizer_of
from aiocontroller.server.controller_apis import SERVED
from aiocontroller.wire import cold, elect_leaders, messages, sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import encode_request_header, request_frame
from aiocontroller.wire.scram import ScramClient, ScramCredential, credential, salt_password
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_znodes import DelegationToken
from aiocontroller.zookeeper.delegation_tokens import DelegationTokens, token_hmac
from tests.unit.server.front import Client, Front, settle, warnings

SECURE = Endpoint("SASL_PLAINTEXT", "127.0.0.1", 0, "SASL_PLAINTEXT")
OPEN = Endpoint("PLAINTEXT", "127.0.0.1", 0)
USERS = 'x required username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
OF_TOPICS = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS)
ADMIN = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:broker;User:root"}


def security(mechanism: str = "PLAIN", **more: str) -> Security:
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,GSSAPI",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.jaas.config": USERS,
    }
    return Security(load_config(overrides=properties | more)[0])


@asynccontextmanager
async def front(at: Endpoint, **more: str) -> AsyncIterator[Front]:
    async with anyio.create_task_group() as tasks:
        it = Front(tasks)
        it.shell.security = security(**more)
        it.shell.config = it.shell.security._config
        it.shell.authorizer = authorizer_of(it.shell.config)
        if isinstance(it.shell.authorizer, AclAuthorizer):
            it.shell.authorizer.replace({})
        await it.broker()
        await it.listen(at)

        async def find(user: str, mechanism: str) -> ScramCredential | None:
            digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
            salted = salt_password(digest, "broker-secret", b"salt", 4096)
            return credential(digest, b"salt", salted, 4096) if user == "broker" else None

        it.listener._credential = find  # type: ignore[method-assign]
        yield it
        tasks.cancel_scope.cancel()


async def log_in(it: Front, client: Client, user: str, password: str) -> int:
    """The error code of the login."""
    client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
    await settle()
    token = sasl_messages.encode_authenticate_request(f"\0{user}\0{password}".encode())
    client.request(ApiKey.SASL_AUTHENTICATE, 0, token)
    await settle()
    code, _, _ = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
    return code


# -- what a standby's heartbeats say --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "user, client_id, heard",
    [
        ("broker", HEARTBEAT, [{1: 70}]),
        ("alice", HEARTBEAT, []),
        ("", HEARTBEAT, []),
        ("broker", "somebody", []),
    ],
)
@virtual_time
async def test_only_who_may_act_for_the_cluster_speaks_for_brokers(
    user: str, client_id: str, heard: list[dict[int, int]]
) -> None:
    """All are answered, before a login, too."""
    async with front(SECURE, **ADMIN) as it:
        found: list[object] = []
        it.shell.hands_over, it.shell.vouched = False, found.append
        client = await it.connect()
        if user:
            assert await log_in(it, client, user, f"{user}-secret") == KafkaErrorCode.NONE
        before = len(client.frames)
        named = with_hearing(client_id, [(1, 70)])
        client.send(b"".join(request_frame(ApiKey.API_VERSIONS, 0, 7, named)))
        await settle()
        assert len(client.frames) == before + 1
        assert found == heard


# -- logging in --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_controller_that_hands_over_still_listens() -> None:
    """It may keep the role: where ZooKeeper is away for all, no standby takes it."""
    async with front(OPEN) as it:
        found: list[object] = []
        it.shell.hands_over, it.shell.vouched = True, found.append
        client = await it.connect()
        client.send(b"".join(request_frame(ApiKey.API_VERSIONS, 0, 7, with_hearing(HEARTBEAT, [(1, 70)]))))
        await settle()
        assert client.frames[-1][4:6] == GIVES_UP
        assert found == [{1: 70}]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@virtual_time
async def test_our_client_logs_in_at_our_server(mechanism: str) -> None:
    async with front(SECURE, mechanism=mechanism) as it:
        at = Endpoint("SASL_PLAINTEXT", "127.0.0.1", it.port, "SASL_PLAINTEXT")
        connection = await connect_to_broker(it.world, it.shell.security, at, timeout_s=5)
        answer = await connection.request([encode_request_header(ApiKey.API_VERSIONS, 0, 1, "me")])
        offered = messages.decode_api_versions_response(0, answer[4:]).versions
        assert ApiKey.SASL_HANDSHAKE in offered


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@virtual_time
async def test_wrong_password_ends_the_connection(mechanism: str) -> None:
    async with front(SECURE) as it:
        at = Endpoint("SASL_PLAINTEXT", "127.0.0.1", it.port, "SASL_PLAINTEXT")
        wrong = security(mechanism, **{"sasl.jaas.config": 'x required username="broker" password="wrong";'})
        with pytest.raises(ConnectionError, match="refuses our SASL credentials: Authentication failed"):
            await connect_to_broker(it.world, wrong, at, timeout_s=5)
        await settle()
        assert not it.listener.connections


@virtual_time
async def test_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    async with front(SECURE) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("GSSAPI"))
        await settle()
        code, offered = sasl_messages.decode_handshake_response(client.frames[0][4:])
        assert code == KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert offered == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.ALTER_PARTITION, ApiKey.LIST_GROUPS, ApiKey.CREATE_TOPICS])
@virtual_time
async def test_nothing_is_served_before_the_login(api: ApiKey) -> None:
    async with front(SECURE) as it:
        client = await it.connect()
        client.request(api, 0, cold.encode_request(api, 0, cold.request(api, 0)))
        await settle()
        assert client.closed
        assert not it.upstreams
        assert not it.queue


@virtual_time
async def test_after_the_login_everything_is_as_on_an_open_listener() -> None:
    async with front(SECURE) as it:
        client = await it.connect()
        assert await log_in(it, client, "alice", "alice-secret") == 0
        client.request(ApiKey.ELECT_LEADERS, 2, elect_leaders.encode_elect_leaders_request(2, None))
        await settle()
        assert isinstance(await it.event(), ev.ReplicaLeaderElection)  # there is no authorizer


@pytest.mark.parametrize("token", [b"", b"\0", b"a\0b\0c\0d", b"\0unknown\0alice-secret", b"\0alice\0"])
@virtual_time
async def test_rubbish_is_no_login(token: bytes) -> None:
    async with front(SECURE) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(token))
        await settle()
        code, _, _ = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
        assert code == KafkaErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.closed


@virtual_time
async def test_login_on_an_open_listener_is_not_passed_to_a_broker() -> None:
    async with front(OPEN) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        await settle()
        code, mechanisms = sasl_messages.decode_handshake_response(client.frames[0][4:])
        assert (code, mechanisms) == (KafkaErrorCode.ILLEGAL_SASL_STATE, [])
        assert not it.upstreams


def challenge_of(client: Client) -> dict[str, str]:
    _, _, challenge = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
    return dict(part.split("=", 1) for part in challenge.decode().split(","))


@virtual_time
async def test_user_that_does_not_exist_is_challenged_and_refused_at_the_last_step() -> None:
    """Whether a SCRAM user exists leaked one step early."""
    async with front(SECURE) as it:
        challenges = []
        for user in ("broker", "unknown", "unknown", "someone"):
            client = await it.connect()
            client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("SCRAM-SHA-256"))
            await settle()
            exchange = ScramClient("SCRAM-SHA-256", user, "wrong", "abc")
            client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(exchange.first()))
            await settle()
            code, _, challenge = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
            assert code == 0
            challenges.append(challenge_of(client))
            answer = sasl_messages.encode_authenticate_request(exchange.respond(challenge))
            client.request(ApiKey.SASL_AUTHENTICATE, 0, answer)
            await settle()
            code, message, _ = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
            assert (code, message) == (58, "Authentication failed: invalid credentials")
            assert client.closed
        known, unknown, again, someone = challenges
        assert known["i"] == unknown["i"] == "4096"
        assert unknown["s"] == again["s"] != someone["s"]
        salt = base64.b64decode(unknown["s"]).decode()
        assert 24 <= len(salt) <= 26
        assert salt.isalnum()


@virtual_time
async def test_endless_user_name_is_not_looked_up_and_not_repeated_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with front(SECURE) as it:
        asked: list[str] = []
        find = it.listener._credential

        async def noted(user: str, mechanism: str) -> ScramCredential | None:
            found = await find(user, mechanism)
            asked.append(user)
            return found

        it.listener._credential = noted  # type: ignore[method-assign]
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("SCRAM-SHA-256"))
        await settle()
        first = ScramClient("SCRAM-SHA-256", "%" * 400_000, "wrong", "abc").first()
        client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(first))
        await settle()
        code, _, challenge = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
        assert (code, bool(challenge), len(asked)) == (0, True, 1)
        assert not warnings(caplog)


@pytest.mark.parametrize("acts_as, code", [("", 0), ("alice", 0), ("broker", 58), ("alice ", 58)])
@virtual_time
async def test_plain_login_acts_as_no_other_user(acts_as: str, code: int) -> None:
    """The authorization id was overlooked, which brokers refuse when it is not the user's name."""
    async with front(SECURE) as it:
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("PLAIN"))
        token = f"{acts_as}\0alice\0alice-secret".encode()
        client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(token))
        await settle()
        found, _, _ = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
        assert found == code
        assert client.closed == bool(code)


@virtual_time
async def test_mechanism_is_not_changed_within_a_login() -> None:
    async with front(SECURE) as it:
        client = await it.connect()
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request(mechanism))
            await settle()
        answer = sasl_messages.decode_handshake_response(client.frames[-1][4:])
        assert answer == (KafkaErrorCode.ILLEGAL_SASL_STATE, [])
        assert client.closed


# -- delegation tokens -------------------------------------------------------------------------------------------------

TOKEN_KEY = "the brokers' key"
TOKEN_ID = "a-token_0123456789abcd"


@asynccontextmanager
async def front_with_token(
    monkeypatch: pytest.MonkeyPatch, lives_ms: int = 60_000, **more: str
) -> AsyncIterator[Front]:
    async with front(SECURE, **ADMIN, **{"delegation.token.secret.key": TOKEN_KEY}, **more) as it:
        ends_ms = it.listener.wall_time_ms() + lives_ms
        token = DelegationToken(TOKEN_ID, "User:alice", "User:broker", (), 0, ends_ms + 1000, ends_ms)

        async def get(self: DelegationTokens, token_id: str) -> DelegationToken | None:
            return token if token_id == TOKEN_ID else None

        it.shell.zk.client = None
        monkeypatch.setattr(DelegationTokens, "get", get)
        yield it


async def log_in_with_token(client: Client, token_id: str, key: str, extension: str = ",tokenauth=true") -> int:
    password = base64.b64encode(token_hmac(token_id, key)).decode()
    exchange = ScramClient("SCRAM-SHA-256", token_id, password, "abc")
    exchange._bare += extension
    client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("SCRAM-SHA-256"))
    client.request(ApiKey.SASL_AUTHENTICATE, 0, sasl_messages.encode_authenticate_request(exchange.first()))
    await settle()
    _, _, challenge = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
    answer = sasl_messages.encode_authenticate_request(exchange.respond(challenge))
    client.request(ApiKey.SASL_AUTHENTICATE, 0, answer)
    await settle()
    code, _, proof = sasl_messages.decode_authenticate_response(client.frames[-1][4:])
    if not code:
        exchange.verify(proof)
    return code


@virtual_time
async def test_client_logs_in_with_a_delegation_token_as_its_owner(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its login was refused, which is the end of a client that meets the controller as one node more."""
    async with front_with_token(monkeypatch) as it:
        client = await it.connect()
        assert await log_in_with_token(client, TOKEN_ID, TOKEN_KEY) == 0
        assert await refused(it, client, ApiKey.ALTER_PARTITION)
        assert "from User:alice (" in warnings(caplog)[-1]


@pytest.mark.parametrize(
    "token_id, key, extension",
    [
        (TOKEN_ID, "another key", ",tokenauth=true"),
        (TOKEN_ID, TOKEN_KEY, ""),
        (TOKEN_ID, TOKEN_KEY, ",tokenauth=false"),
        ("another", TOKEN_KEY, ",tokenauth=true"),
        ("broker", TOKEN_KEY, ",tokenauth=true"),
    ],
)
@virtual_time
async def test_a_malformed_token_is_no_login(
    monkeypatch: pytest.MonkeyPatch, token_id: str, key: str, extension: str
) -> None:
    async with front_with_token(monkeypatch) as it:
        assert await log_in_with_token(await it.connect(), token_id, key, extension) == 58


@virtual_time
async def test_an_expired_token_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front_with_token(monkeypatch, lives_ms=-1) as it:
        assert await log_in_with_token(await it.connect(), TOKEN_ID, TOKEN_KEY) == 58


@virtual_time
async def test_rights_end_with_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front_with_token(monkeypatch, lives_ms=60_000) as it:
        client = await it.connect()
        assert await log_in_with_token(client, TOKEN_ID, TOKEN_KEY) == 0
        await it.world.clock.sleep(50)
        await refused(it, client, ApiKey.ALTER_PARTITION)
        assert not client.closed
        await it.world.clock.sleep(11)
        answered = len(client.frames)
        await refused(it, client, ApiKey.ALTER_PARTITION)
        assert len(client.frames) == answered
        assert client.closed


@virtual_time
async def test_token_makes_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never end."""
    async with front_with_token(monkeypatch) as it:
        client = await it.connect()
        assert await log_in_with_token(client, TOKEN_ID, TOKEN_KEY) == 0
        api, version = ApiKey.CREATE_DELEGATION_TOKEN, 1
        client.request(api, version, cold.encode_request(api, version, cold.request(api, version)))
        await settle()
        answer = cold.decode_response(api, version, client.frames[-1][4:])
        assert answer.error_code == KafkaErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("extension", ["", ",tokenauth=true"], ids=["user", "token"])
@virtual_time
async def test_znode_that_may_not_be_read_refuses_one_login_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, extension: str
) -> None:
    """ZooKeeper's refusal ended the listeners' tasks, and with them the process."""

    async def refuse(*_: object) -> None:
        raise exc.NoAuth

    async with front_with_token(monkeypatch) as it:
        del it.listener._credential
        monkeypatch.setattr(AdminZkClient, "get_entity_configs", refuse)
        monkeypatch.setattr(DelegationTokens, "get", refuse)
        assert await log_in_with_token(await it.connect(), TOKEN_ID, TOKEN_KEY, extension) == 58
        assert any("NoAuth" in each for each in warnings(caplog))
        assert await log_in(it, await it.connect(), "alice", "alice-secret") == 0


@virtual_time
async def test_login_waits_for_zookeeper_no_longer_than_a_login_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task waited on when its connection was gone, one for each try."""
    cancelled: list[str] = []

    async def wait(self: DelegationTokens, token_id: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(token_id)

    async with front_with_token(monkeypatch) as it:
        monkeypatch.setattr(DelegationTokens, "get", wait)
        client = await it.connect()
        client.request(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request("SCRAM-SHA-256"))
        first = sasl_messages.encode_authenticate_request(f"n,,n={TOKEN_ID},r=abc,tokenauth=true".encode())
        client.request(ApiKey.SASL_AUTHENTICATE, 0, first)
        await settle()
        await it.world.clock.sleep(it.listener.login_timeout_s + 1)
        assert cancelled == [TOKEN_ID]
        assert client.closed


@virtual_time
async def test_id_that_is_no_tokens_is_looked_up_nowhere() -> None:
    tokens = DelegationTokens(SimpleNamespace(client=None))  # type: ignore[arg-type]
    for token_id in ("", ".", "..", "a/b", "../../config/users/alice", "a" * 1000, "a\n"):
        assert await tokens.get(token_id) is None


# -- what is open to whom, with an authorizer --------------------------------------------------------------------------


async def refused(it: Front, client: Client, api: ApiKey) -> bool:
    """Whether what a controller does is refused to this client."""
    version = SERVED[api].versions.max
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version)))
    await settle()
    return not it.queue


@virtual_time
async def test_super_users_may_do_everything() -> None:
    async with front(SECURE, **ADMIN) as it:
        client = await it.connect()
        assert await log_in(it, client, "broker", "broker-secret") == 0
        assert not await refused(it, client, ApiKey.ALTER_PARTITION)


@pytest.mark.parametrize("api", SERVED)
@virtual_time
async def test_others_that_have_logged_in_need_acls(api: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    async with front(SECURE, **ADMIN) as it:
        client = await it.connect()
        assert await log_in(it, client, "alice", "alice-secret") == 0
        assert await refused(it, client, api) == (api not in OF_TOPICS)  # those of no topics ask for nothing
        assert len(client.frames) == (2 if api in OF_TOPICS else 3)  # an answer, in the API's own form
        if api not in OF_TOPICS:
            assert "from User:alice (" in warnings(caplog)[-1]


@pytest.mark.parametrize("settings", [ADMIN, {}], ids=["authorizer", "no authorizer"])
@virtual_time
async def test_nothing_is_asked_of_a_broker_for_a_client(settings: dict[str, str]) -> None:
    """Finding 10 of the attack: a super user got a delegation token that was owned by the controller."""
    async with front(SECURE, **settings) as it:
        for api in sorted(it.listener.apis.offered()):
            client = await it.connect()
            assert await log_in(it, client, "broker", "broker-secret") == 0
            version = it.listener.apis.offered()[api].max
            client.request(ApiKey(api), version, cold.encode_request(api, version, cold.request(api, version)))
            await settle()
            while it.queue:
                await it.event()
        assert not it.upstreams


@pytest.mark.parametrize("allowed", [False, True])
@virtual_time
async def test_anonymous_brokers_need_cluster_action(allowed: bool) -> None:
    """Finding 7: an anonymous ControlledShutdown was accepted whatever the ACLs said."""
    async with front(OPEN, **ADMIN) as it:
        if allowed:
            acl = AccessControlEntry("User:ANONYMOUS", "*", AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW)
            it.shell.authorizer.update(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), [acl])
        for api in SERVED:
            of_brokers = api in (ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLED_SHUTDOWN)
            if api not in OF_TOPICS:
                assert await refused(it, await it.connect(), ApiKey(api)) != (of_brokers and allowed)
            while it.queue:
                (await it.event()).reply.answer(KafkaErrorCode.NOT_CONTROLLER)
