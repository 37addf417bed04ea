"""CreateDelegationToken, Renew, Expire and Describe (Kafka's ``DelegationTokenManagerZk``).

A token's owner is the client that asks, or a user for whom that client may create tokens: never this controller.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.property_values import Secret
from aiocontroller.security import ANONYMOUS
from aiocontroller.server.apis import Apis, Fields, all_versions, decoded, respond
from aiocontroller.server.outcomes import check_size
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import DelegationToken
from aiocontroller.zookeeper.delegation_tokens import DelegationTokens, token_hmac, token_id
from aiocontroller.zookeeper.from_aiozk import exc

log = logging.getLogger(__name__)

_E = KafkaErrorCode
_USER = "User"
_ONE_MS = timedelta(milliseconds=1)


class TokenRefusedError(AioControllerError):
    """A request about a delegation token is refused with this code."""

    def __init__(self, code: KafkaErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Asked(NamedTuple):
    """The sender of a request, and what answering it needs."""

    shell: ControllerShell
    context: RequestContext
    secret_key: Secret
    now_ms: int


def apis(shell: ControllerShell) -> Apis:
    """Creation, renewal, expiry and description of delegation tokens."""
    handlers: dict[
        ApiKey, tuple[Callable[[Asked, Any], Awaitable[Fields]], Callable[[RequestContext, Any], Fields]]
    ] = {
        ApiKey.CREATE_DELEGATION_TOKEN: (_create, _no_token),
        ApiKey.RENEW_DELEGATION_TOKEN: (_renew, _no_time),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (_expire, _no_time),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (_describe, lambda context, asked: {}),
    }

    def answering(
        answer: Callable[[Asked, Any], Awaitable[Fields]], nothing: Callable[[RequestContext, Any], Fields]
    ) -> Callable[[KafkaRequest], Coroutine[Any, Any, None]]:
        async def handle(request: KafkaRequest) -> None:
            check_size(request)
            message, context = decoded(request), request.context
            try:
                _check_allowed(shell, context, message)
                secret_key = _secret_key(shell)
                now_ms = shell.world.clock.wall_time_us() // 1000
                fields = await answer(Asked(shell, context, secret_key, now_ms), message)
            except TokenRefusedError as error:
                fields = {**nothing(context, message), "error_code": error.code}
            except exc.ZKError as error:
                log.error("Cannot write a delegation token to ZooKeeper", exc_info=error)
                fields = {**nothing(context, message), "error_code": _E.UNKNOWN_SERVER_ERROR}
            respond(request, fields)

        return handle

    return {api: all_versions(api, answering(*handler)) for api, handler in handlers.items()}


def _check_allowed(shell: ControllerShell, context: RequestContext, message: Any) -> None:
    """Tokens are secrets with an owner: refuse them on unencrypted connections, to anonymous clients, for owners that
    the client may not act for, and to clients authenticated by a token, which could otherwise renew itself forever."""
    protocol = context.listener.security_protocol
    in_the_open = protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS)
    if in_the_open or context.token_authenticated:
        raise TokenRefusedError(_E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if context.api != ApiKey.CREATE_DELEGATION_TOKEN:
        return
    owner = _owner(context, message)
    if owner != context.principal and not Permissions(shell.authorizer, context).may(
        AclOperation.CREATE_TOKENS, ResourceType.USER, owner
    ):
        raise TokenRefusedError(_E.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(each.principal_type != _USER for each in message.renewers):
        raise TokenRefusedError(_E.INVALID_PRINCIPAL_TYPE)


def _secret_key(shell: ControllerShell) -> Secret:
    config = shell.config
    found = config.delegation_token_secret_key or config.delegation_token_master_key
    if found is None:
        raise TokenRefusedError(_E.DELEGATION_TOKEN_AUTH_DISABLED)
    return found


def _owner(context: RequestContext, message: Any) -> str:
    name = getattr(message, "owner_principal_name", None)
    return f"{message.owner_principal_type}:{name}" if name else context.principal


def _parts(prefix: str, principal: str) -> Fields:
    kind, _, name = principal.partition(":")
    return {f"{prefix}principal_type": kind, f"{prefix}principal_name": name}


def _who(owner: str, requester: str) -> Fields:
    return {**_parts("", owner), **_parts("token_requester_", requester)}


def _no_token(context: RequestContext, message: Any) -> Fields:
    times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), -1)
    return {**_who(_owner(context, message), context.principal), **times}


def _no_time(context: RequestContext, message: Any) -> Fields:
    return {"expiry_timestamp": -1}


def _ms(period: timedelta) -> int:
    return period // _ONE_MS


# -- what is asked -----------------------------------------------------------------------------------------------------


async def _create(asked: Asked, message: Any) -> Fields:
    config = asked.shell.policy
    wanted_ms = _ms(message.max_lifetime)
    most_ms = config.delegation_token_max_lifetime_ms
    max_timestamp_ms = asked.now_ms + (most_ms if wanted_ms <= 0 else min(wanted_ms, most_ms))
    renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in message.renewers)
    tokens = DelegationTokens(asked.shell.zk)
    while True:
        token = DelegationToken(
            token_id(asked.shell.world.random.randrange(1 << 128)),
            _owner(asked.context, message),
            asked.context.principal,
            renewers,
            asked.now_ms,
            max_timestamp_ms,
            min(max_timestamp_ms, asked.now_ms + config.delegation_token_expiry_time_ms),
        )
        if await tokens.create(token):
            break
    log.info("Created delegation token %s of %s for %s", token.token_id, token.owner, token.token_requester)
    return {**_public(token), "hmac": token_hmac(token.token_id, asked.secret_key.value)}


def _public(token: DelegationToken) -> Fields:
    return {
        **_who(token.owner, token.token_requester),
        "issue_timestamp": token.issue_timestamp_ms,
        "expiry_timestamp": token.expiry_timestamp_ms,
        "max_timestamp": token.max_timestamp_ms,
        "token_id": token.token_id,
    }


async def _renew(asked: Asked, message: Any) -> Fields:
    period_ms = _ms(message.renew_period)
    if period_ms < 0:
        period_ms = asked.shell.policy.delegation_token_expiry_time_ms
    return await _live_until(asked, message.hmac, period_ms)


async def _expire(asked: Asked, message: Any) -> Fields:
    """Change a token's expiry; a negative period expires it at once."""
    period_ms = _ms(message.expiry_time_period)
    return await _live_until(asked, message.hmac, None if period_ms < 0 else period_ms)


async def _live_until(asked: Asked, hmac_given: bytes, period_ms: int | None) -> Fields:
    tokens, now_ms = DelegationTokens(asked.shell.zk), asked.now_ms
    expiry_ms = now_ms

    def change(token: DelegationToken) -> DelegationToken | None:
        nonlocal expiry_ms
        if asked.context.principal not in (token.owner, *token.renewers):
            raise TokenRefusedError(_E.DELEGATION_TOKEN_OWNER_MISMATCH)
        if period_ms is None:
            return None
        if token.has_expired(now_ms):
            raise TokenRefusedError(_E.DELEGATION_TOKEN_EXPIRED)
        expiry_ms = min(token.max_timestamp_ms, now_ms + period_ms)
        return msgspec.structs.replace(token, expiry_timestamp_ms=expiry_ms)

    found = await tokens.find(hmac_given, asked.secret_key.value)
    if found is None or not await tokens.change(found, change):
        raise TokenRefusedError(_E.DELEGATION_TOKEN_NOT_FOUND)
    return {"expiry_timestamp": expiry_ms}


async def _describe(asked: Asked, message: Any) -> Fields:
    owners = None if message.owners is None else {f"{o.principal_type}:{o.principal_name}" for o in message.owners}
    if owners is not None and not owners:
        return {}
    found, bad = await asked.shell.zk.get_delegation_tokens()
    asked.shell.report_bad_znodes(bad)
    return {"tokens": [_described(asked, token) for token in found if _may_see(asked, token, owners)]}


def _may_see(asked: Asked, token: DelegationToken, owners: set[str] | None) -> bool:
    """Owner, renewers and requester may see a token; others need an ACL on the token or on the owner."""
    concerned = {token.owner, token.token_requester, *token.renewers}
    if owners is not None and owners.isdisjoint(concerned):
        return False
    permissions = Permissions(asked.shell.authorizer, asked.context)
    return (
        asked.context.principal in concerned
        or permissions.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or permissions.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(asked: Asked, token: DelegationToken) -> Fields:
    return {
        **_public(token),
        "hmac": token_hmac(token.token_id, asked.secret_key.value),
        "renewers": [_parts("", renewer) for renewer in token.renewers],
    }
