"""Requests that brokers forward for their clients (KIP-590, Kafka's ``EnvelopeUtils``).

A broker that is set up for the migration to KRaft wraps its clients' requests to the controller in an envelope, with
the client's principal and address.  The broker needs ClusterAction; the wrapped request is authorized for the client.

A malformed or too large request is answered with UNSUPPORTED_VERSION, on which the broker closes its client's
connection, as this listener would.  The broker's own connection stays open, since all its clients share it.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.authorizer.principals import java_address
from aiocontroller.controller.shell import ControllerShell, inter_broker_listener
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.complaints import Complaints
from aiocontroller.server.apis import Api, log
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.server.request_sizes import largest_request
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name
from aiocontroller.wire.envelope import EnvelopeRequest, decode_envelope_request, decode_principal
from aiocontroller.wire.envelope import encode_envelope_response as encoded
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.frames import RequestHeader, decode_request_header, encode_response_header

_E = KafkaErrorCode

FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""Kafka 3.9's forwardable APIs that are served here."""


class _BadEnvelopeError(AioControllerError):
    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def envelope_api(shell: ControllerShell, handle: Callable[[KafkaRequest], None]) -> Api:
    """``handle`` starts the forwarded request; FrameError and UnsupportedApiError if it is invalid."""
    complaints = Complaints(log, shell.world.clock)

    def complain(request: KafkaRequest, reason: object) -> None:
        host = request.context.host
        complaints.warn("forwarded requests refused", "Refused what a broker at %s has forwarded: %s", host, reason)

    def open_envelope(request: KafkaRequest) -> None:
        context = request.context
        if not _is_for_brokers(shell, context.listener):
            request.refuse(f"an Envelope came to listener {context.listener.listener}, which is not the brokers'")
        elif not Permissions(shell.authorizer, context).may_cluster(AclOperation.CLUSTER_ACTION):
            complain(request, f"{context.principal} has no ClusterAction on the cluster")
            request.respond(encoded(_E.CLUSTER_AUTHORIZATION_FAILED))
        elif shell.channels is None:
            request.respond(encoded(_E.NOT_CONTROLLER))
        else:
            envelope = decode_envelope_request(context.version, request.body)
            try:
                forwarded = _forwarded(shell, request, envelope, complain)
            except _BadEnvelopeError as error:
                complain(request, error)
                request.respond(encoded(error.code))
                return
            try:
                handle(forwarded)
            except (FrameError, UnsupportedApiError) as error:
                forwarded.refuse(str(error))

    return Api(VersionRange(0, 0), open_envelope)


def _is_for_brokers(shell: ControllerShell, at: Endpoint) -> bool:
    """Whether this is the listener for brokers' requests: the inter-broker one, or our first if we lack that name."""
    names = (
        shell.config.control_plane_listener_name,
        inter_broker_listener(shell.config, shell.context.brokers.values()),
    )
    ours = [each.listener for each in shell.own_endpoints()]
    return at.listener in names or (not any(name in ours for name in names) and at.listener in ours[:1])


def _forwarded(
    shell: ControllerShell,
    request: KafkaRequest,
    envelope: EnvelopeRequest,
    complain: Callable[[KafkaRequest, object], None],
) -> KafkaRequest:
    """The wrapped request, whose answer is wrapped too; _BadEnvelopeError, with checks in Kafka's order."""
    try:
        principal = decode_principal(envelope.principal or b"")
    except FrameError as error:
        raise _BadEnvelopeError(_E.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    host = _host(envelope.address)
    header, body = _header(envelope.request)
    if header.api_key not in FORWARDABLE:
        raise _BadEnvelopeError(_E.INVALID_REQUEST, f"{api_name(header.api_key)} is not to be forwarded")
    api, version = ApiKey(header.api_key), header.api_version
    most = largest_request(api, envelope.request, lambda _: None)
    if len(envelope.request) > most:
        found = f"{api_name(api)}: found a request of {len(envelope.request)} bytes, expected at most {most}"
        raise _BadEnvelopeError(_E.UNSUPPORTED_VERSION, found)
    epoch = shell.context.epoch

    def respond(answer: bytes) -> None:
        if shell.context.epoch != epoch and _says_not_controller(api, version, answer):
            request.respond(encoded(_E.NOT_CONTROLLER))  # the broker looks for the next controller
            return
        head = encode_response_header(api, version, header.correlation_id)
        request.respond(encoded(_E.NONE, head + answer))

    def refuse(reason: str, code: KafkaErrorCode = _E.UNSUPPORTED_VERSION) -> None:
        complain(request, reason)
        request.respond(encoded(code))

    context = msgspec.structs.replace(
        request.context,
        api=api,
        version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        principal=f"{principal.type}:{principal.name}",
        host=host,
        token_authenticated=principal.token_authenticated,
    )
    forwarded = KafkaRequest(
        context, bytes(body), respond, refuse, fail=lambda reason: refuse(reason, _E.UNKNOWN_SERVER_ERROR)
    )
    request.when_gone = lambda: forwarded.when_gone and forwarded.when_gone()
    return forwarded


def _host(address: bytes) -> str:
    if len(address) not in (4, 16):
        raise _BadEnvelopeError(
            _E.INVALID_REQUEST, f"found a client's address of {len(address)} bytes, expected 4 or 16"
        )
    return java_address(str(ipaddress.ip_address(address)))


def _header(request: bytes) -> tuple[RequestHeader, memoryview]:
    try:
        return decode_request_header(request)
    except (FrameError, UnsupportedApiError) as error:
        raise _BadEnvelopeError(_E.UNSUPPORTED_VERSION, str(error)) from None


def _says_not_controller(api: ApiKey, version: int, answer: bytes) -> bool:
    return _E.NOT_CONTROLLER in _error_codes(cold.decode_response(api, version, answer))


def _error_codes(part: Any) -> Iterator[int]:
    """All error codes in a message, including those of its elements."""
    if isinstance(part, tuple):
        for each in part:
            yield from _error_codes(each)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if field.name == "error_code":
                yield int(value)
            else:
                yield from _error_codes(value)
