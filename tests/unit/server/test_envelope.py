"""Requests that brokers forward for their clients: what KafkaApisTest says of envelopes, and what it does not."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.core.events import CreateTopics
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.mutation_quotas import PermissiveQuota, TokenBucket
from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.request import KafkaRequest
from aiocontroller.server.request_sizes import MIB
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.envelope import (
    ForwardedPrincipal,
    decode_envelope_request,
    decode_envelope_response,
    decode_principal,
    encode_envelope_request,
    encode_envelope_response,
    encode_principal,
)
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from tests.unit.server.front import Client, Front, front, settle, warnings

Op = AclOperation
CLUSTER = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
TOPICS = ResourcePattern(ResourceType.TOPIC, "*")
BROKER = "User:ANONYMOUS"
ALICE = ForwardedPrincipal("User", "alice")
ADDRESS = socket.inet_aton("10.1.2.3")
CORRELATION_ID = 4711


@asynccontextmanager
async def guarded(*acls: tuple[ResourcePattern, str, str, AclOperation]) -> AsyncIterator[Front]:
    """Brokers may do ClusterAction; ``acls`` say what others may do, from which host."""
    async with front() as it:
        it.shell.authorizer = AclAuthorizer()
        by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
        for pattern, who, host, operation in ((CLUSTER, BROKER, "*", Op.CLUSTER_ACTION), *acls):
            entry = AccessControlEntry(who, host, operation, AclPermissionType.ALLOW)
            by_pattern.setdefault(pattern, []).append(entry)
        it.shell.authorizer.replace(by_pattern)
        yield it


def framed(api: int, version: int, **fields: Any) -> bytes:
    """A request with its header, as a broker has got it."""
    header = encode_request_header(api, version, CORRELATION_ID, "alice's")
    return header + cold.encode_request(ApiKey(api), version, cold.request(ApiKey(api), version, **fields))


def creation(name: str = "t", version: int = 7) -> bytes:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return framed(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout=1000, validate_only=False)


async def forward(
    it: Front,
    request: bytes,
    principal: bytes | None = encode_principal(ALICE),
    address: bytes = ADDRESS,
    client: Client | None = None,
) -> Client:
    client = client or await it.connect()
    client.request(ApiKey.ENVELOPE, 0, encode_envelope_request(request, principal, address))
    await settle()
    return client


def answered(client: Client) -> tuple[int, bytes | None]:
    return decode_envelope_response(client.answer(ApiKey.ENVELOPE, 0))


def inside(client: Client, api: ApiKey, version: int) -> Any:
    code, answer = answered(client)
    assert code == E.NONE
    assert answer is not None
    correlation_id, body = decode_response_header(api, version, answer)
    assert correlation_id == CORRELATION_ID
    return cold.decode_response(api, version, bytes(body))


# -- what is in it -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_request_is_done_in_the_clients_name_and_answered_in_an_envelope() -> None:
    async with guarded((TOPICS, "User:alice", "10.1.2.3", Op.CREATE)) as it:
        client = await forward(it, creation())
        event = await it.event()
        assert isinstance(event, CreateTopics)
        assert it.quotas.asked == [("User:alice", "alice's", True)]
        event.reply.answer({"t": TopicResult(E.NONE, partitions=1, replication_factor=1)})
        await settle()
        (topic,) = inside(client, ApiKey.CREATE_TOPICS, 7).topics
        assert (topic.name, topic.error_code) == ("t", E.NONE)


@pytest.mark.parametrize(
    "who, address",
    [
        (ForwardedPrincipal("User", "mallory"), ADDRESS),
        (ForwardedPrincipal("Group", "alice"), ADDRESS),
        (ForwardedPrincipal("User", "ANONYMOUS"), ADDRESS),
        (ALICE, socket.inet_aton("10.1.2.4")),
        (ALICE, socket.inet_pton(socket.AF_INET6, "fe80::1")),
    ],
)
@virtual_time
async def test_client_may_do_what_it_may_and_not_what_its_broker_may(who: ForwardedPrincipal, address: bytes) -> None:
    async with guarded((TOPICS, "User:alice", "10.1.2.3", Op.CREATE)) as it:
        client = await forward(it, creation(), encode_principal(who), address)
        (topic,) = inside(client, ApiKey.CREATE_TOPICS, 7).topics
        assert topic.error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert not it.queue


@virtual_time
async def test_address_is_compared_as_java_writes_it() -> None:
    async with guarded((TOPICS, "User:alice", "10.1.2.3", Op.CREATE)) as it:
        await forward(it, creation(), address=socket.inet_pton(socket.AF_INET6, "::ffff:10.1.2.3"))
        assert len(it.queue) == 1


@virtual_time
async def test_token_that_a_client_logged_in_with_is_passed_on() -> None:
    async with guarded((CLUSTER, "User:alice", "*", Op.ALL)) as it:
        seen: list[bool] = []
        apis = it.listener.apis._apis
        api = apis[ApiKey.CREATE_DELEGATION_TOKEN]
        apis[ApiKey.CREATE_DELEGATION_TOKEN] = api._replace(
            handle=lambda request: seen.append(request.context.token_authenticated)
        )
        for by_token in (True, False):
            who = encode_principal(ForwardedPrincipal("User", "alice", by_token))
            await forward(it, framed(ApiKey.CREATE_DELEGATION_TOKEN, 0, renewers=[], max_lifetime=-1), who)
        assert seen == [True, False]


@virtual_time
async def test_client_of_a_broker_is_throttled_and_the_broker_is_not_muted() -> None:
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        now = it.world.clock.monotonic
        it.quotas.found = PermissiveQuota(TokenBucket(1, 1, now()), now)
        client = await forward(it, creation(version=5))
        event = await it.event()
        event.quota.record(100)
        event.reply.answer({"t": TopicResult(E.NONE)})
        await settle()
        assert inside(client, ApiKey.CREATE_TOPICS, 5).throttle_time.total_seconds() > 90
        client.frames.clear()
        await forward(it, creation("u", version=5), client=client)
        assert len(it.queue) == 1


# -- the right to send one ---------------------------------------------------------------------------------------------


@virtual_time
async def test_sender_without_cluster_action_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        it.shell.authorizer.replace({TOPICS: [AccessControlEntry("User:alice", "*", Op.ALL, AclPermissionType.ALLOW)]})
        client = await forward(it, creation())
        assert answered(client) == (E.CLUSTER_AUTHORIZATION_FAILED, None)
        assert not it.queue
        assert "User:ANONYMOUS has no ClusterAction" in warnings(caplog)[0]


@virtual_time
async def test_inactive_controller_says_so_in_the_envelope() -> None:
    async with guarded() as it:
        it.shell.channels = None
        client = await forward(it, b"whatever")
        assert answered(client) == (E.NOT_CONTROLLER, None)


@virtual_time
async def test_role_that_is_lost_meanwhile_is_answered_in_the_envelope() -> None:
    """Whereupon the broker looks for the next controller, instead of telling its client."""
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        client = await forward(it, creation())
        event = await it.event()
        it.shell.context = type(it.context)()
        event.preempt()
        await settle()
        assert answered(client) == (E.NOT_CONTROLLER, None)


@virtual_time
async def test_what_was_done_before_the_role_was_lost_is_answered() -> None:
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        client = await forward(it, creation())
        event = await it.event()
        it.shell.context = type(it.context)()
        event.reply.answer({"t": TopicResult(E.NONE)})
        await settle()
        (topic,) = inside(client, ApiKey.CREATE_TOPICS, 7).topics
        assert topic.error_code == E.NONE


@virtual_time
async def test_envelopes_come_on_the_brokers_listener_only(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        outside = Endpoint("OUTSIDE", "", 0)
        it.shell.own_endpoints = lambda: (outside, Endpoint("PLAINTEXT", "", 0))
        await it.listen(outside)
        client = await forward(it, creation())
        assert client.closed
        assert "listener OUTSIDE, which is not the brokers'" in warnings(caplog)[0]
        it.shell.own_endpoints = lambda: (outside,)  # the only one stands in for the brokers'
        await forward(it, creation())
        assert len(it.queue) == 1


# -- what is refused ---------------------------------------------------------------------------------------------------


NOT_FORWARDABLE = (ApiKey.ENVELOPE, ApiKey.METADATA, ApiKey.ALTER_PARTITION, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)


@pytest.mark.parametrize("api", NOT_FORWARDABLE)
@virtual_time
async def test_what_is_not_to_be_forwarded(api: ApiKey) -> None:
    async with guarded((CLUSTER, "User:alice", "*", Op.ALL)) as it:
        request = encode_request_header(api, 0, 1, "c") + bytes(20)
        if api == ApiKey.ENVELOPE:
            request = encode_request_header(api, 0, 1, "c")
            request += encode_envelope_request(creation(), encode_principal(ALICE), ADDRESS)
        client = await forward(it, request)
        assert answered(client) == (E.INVALID_REQUEST, None)
        assert not it.queue


BAD: dict[str, tuple[bytes, bytes | None, bytes, int]] = {
    "no principal": (creation(), None, ADDRESS, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a principal of a version to come": (creation(), b"\0\1\2a\2b\0\0", ADDRESS, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    "half a principal": (creation(), encode_principal(ALICE)[:-3], ADDRESS, E.PRINCIPAL_DESERIALIZATION_FAILURE),
    "an address of three bytes": (creation(), encode_principal(ALICE), b"abc", E.INVALID_REQUEST),
    "no address": (creation(), encode_principal(ALICE), b"", E.INVALID_REQUEST),
    "nothing in it": (b"", encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
    "half a header": (creation()[:9], encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
    "an unknown API": (b"\x7f\xff" + creation()[2:], encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
    "a version to come": (b"\0\x13\0\x63" + creation()[4:], encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
    "half a request": (creation()[:-9], encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
    "too much": (creation() + bytes(MIB), encode_principal(ALICE), ADDRESS, E.UNSUPPORTED_VERSION),
}


@pytest.mark.parametrize("name", BAD)
@virtual_time
async def test_bad_envelopes_are_answered_and_the_brokers_connection_stays(name: str) -> None:
    request, principal, address, code = BAD[name]
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        client = await forward(it, request, principal, address)
        assert answered(client) == (code, None)
        assert not it.queue
        client.frames.clear()
        await forward(it, creation(), client=client)
        assert len(it.queue) == 1


@virtual_time
async def test_large_request_about_settings_costs_its_client_and_not_the_broker() -> None:
    """Such handlers wait as tasks, and judge the size themselves."""
    async with guarded((CLUSTER, "User:alice", "*", Op.ALL)) as it:
        request = encode_request_header(ApiKey.ALTER_CONFIGS, 2, 1, "c") + bytes(900 << 10)
        client = await forward(it, request)
        assert answered(client) == (E.UNSUPPORTED_VERSION, None)
        assert not client.closed


@pytest.mark.parametrize("waits", [False, True])
@virtual_time
async def test_handler_that_fails_costs_its_client_no_connection(waits: bool) -> None:
    def fails(request: KafkaRequest) -> None:
        raise RuntimeError("a bug")

    async def fails_later(request: KafkaRequest) -> None:
        raise RuntimeError("a bug")

    async with guarded((CLUSTER, "User:alice", "*", Op.ALL)) as it:
        apis = it.listener.apis._apis
        apis[ApiKey.ALTER_CONFIGS] = apis[ApiKey.ALTER_CONFIGS]._replace(handle=fails_later if waits else fails)
        client = await forward(it, framed(ApiKey.ALTER_CONFIGS, 2, resources=[], validate_only=False))
        assert answered(client) == (E.UNKNOWN_SERVER_ERROR, None)


@virtual_time
async def test_broker_that_leaves_takes_what_it_has_forwarded_with_it() -> None:
    async with guarded((TOPICS, "User:alice", "*", Op.ALL)) as it:
        places = it.shell.config.aiocontroller_queued_max_client_requests
        clients = [await forward(it, creation(f"t{n}")) for n in range(places + 1)]
        clients[-1].close()
        await settle()
        for _ in range(places):
            (await it.event()).reply.answer({})
            await settle()
        assert not it.queue


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_kafkas_schema() -> None:
    for principal in (None, b"", b"p" * 300):
        fields = {"request_data": b"r" * 200, "request_principal": principal, "client_host_address": ADDRESS}
        by_kio = cold.encode_request(ApiKey.ENVELOPE, 0, cold.request(ApiKey.ENVELOPE, 0, **fields))
        assert encode_envelope_request(b"r" * 200, principal, ADDRESS) == by_kio
        found = decode_envelope_request(0, by_kio)
        assert (found.request, found.principal, found.address) == (b"r" * 200, principal, ADDRESS)
    for answer, code in ((None, 41), (b"a" * 200, 0)):
        fields = {"response_data": answer, "error_code": code}
        by_kio = cold.encode_response(ApiKey.ENVELOPE, 0, cold.response(ApiKey.ENVELOPE, 0, **fields))
        assert encode_envelope_response(code, answer) == by_kio
        assert decode_envelope_response(by_kio) == (code, answer)


def test_principals_there_and_back() -> None:
    """The bytes that Kafka 3.9's DefaultKafkaPrincipalBuilder makes of User:alice with a token."""
    data = b"\x00\x00" + b"\x05User" + b"\x06alice" + b"\x01" + b"\x00"
    who = ForwardedPrincipal("User", "alice", token_authenticated=True)
    assert encode_principal(who) == data
    assert decode_principal(data) == who
    with pytest.raises(FrameError, match="version 1"):
        decode_principal(b"\x00\x01" + data[2:])
