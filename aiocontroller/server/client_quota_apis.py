"""DescribeClientQuotas, AlterClientQuotas and DescribeUserScramCredentials (Kafka's ``ZkAdminManager``)."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from aiocontroller.authorizer.authorizer import AclOperation
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.server.apis import Apis, Fields, all_versions, decoded, respond
from aiocontroller.server.outcomes import AdminOutcome, check_size, outcome_of, refused
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.scram import MECHANISMS, parse_credential
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    Entity,
    desanitized,
    place,
    quota_text,
    quota_values,
    quotas_of,
    sanitized,
)
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.topic_rules import TopicError

log = logging.getLogger(__name__)

EXACT, DEFAULT, SPECIFIED = range(3)
"""How a filter's component matches a name."""
_E = KafkaErrorCode


def apis(shell: ControllerShell) -> Apis:
    """Client quotas and SCRAM credentials, by their znodes."""

    def answering(
        answer: Callable[[ControllerShell, KafkaRequest], Awaitable[Fields]],
    ) -> Callable[[KafkaRequest], Coroutine[Any, Any, None]]:
        async def handle(request: KafkaRequest) -> None:
            check_size(request)
            respond(request, await answer(shell, request))

        return handle

    return {
        ApiKey.DESCRIBE_CLIENT_QUOTAS: all_versions(ApiKey.DESCRIBE_CLIENT_QUOTAS, answering(_describe_quotas)),
        ApiKey.ALTER_CLIENT_QUOTAS: all_versions(ApiKey.ALTER_CLIENT_QUOTAS, answering(_alter_quotas)),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: all_versions(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answering(_describe_credentials)
        ),
    }


# -- DescribeClientQuotas ----------------------------------------------------------------------------------------------


class Component(NamedTuple):
    """A filter's condition on one type of entity."""

    match: int
    name: str | None

    def matches(self, name: str | None) -> bool:
        """Whether an entity's name fits; None is an entity without that part."""
        return self.match == SPECIFIED or name == self.name

    @property
    def exact(self) -> bool:
        """Whether the component matches a single name, possibly the default entity."""
        return self.match != SPECIFIED


class QuotaFilter(NamedTuple):
    """The filter of DescribeClientQuotas, by entity type."""

    components: Mapping[str, Component]
    strict: bool
    """Strict filters exclude entities with further types."""

    def wants(self, *types: str) -> bool:
        """Whether entities of just these types can match."""
        return self.components.keys() <= set(types) and (not self.strict or self.components.keys() == set(types))

    def matches(self, entity: Entity) -> bool:
        """Whether each part of the entity fits its component."""
        return self.wants(*entity) and all(c.matches(entity[kind]) for kind, c in self.components.items())


def quota_filter(components: Iterable[Any], *, strict: bool) -> QuotaFilter:
    """Decode a filter; TopicError with INVALID_REQUEST or UNSUPPORTED_VERSION if it is invalid."""
    found: dict[str, Component] = {}
    for each in components:
        kind = each.entity_type
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED) or (each.match_type == EXACT and each.match is None):
            raise TopicError(_E.INVALID_REQUEST, f"Unexpected match type {each.match_type}, or a name that is missing")
        if not kind:
            raise TopicError(_E.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise TopicError(_E.UNSUPPORTED_VERSION, f"Custom entity type {kind[:100]!r} not supported")
        if kind in found:
            raise TopicError(_E.INVALID_REQUEST, f"Duplicate {kind} filter component entity type")
        found[kind] = Component(each.match_type, each.match if each.match_type == EXACT else None)
    if IP in found and len(found) > 1:
        raise TopicError(_E.INVALID_REQUEST, "An IP filter cannot be combined with a user's or a client id's")
    return QuotaFilter(found, strict)


async def _describe_quotas(shell: ControllerShell, request: KafkaRequest) -> Fields:
    asked = decoded(request)
    if not Permissions(shell.authorizer, request.context).may_cluster(AclOperation.DESCRIBE_CONFIGS):
        return {"error_code": _E.CLUSTER_AUTHORIZATION_FAILED, "error_message": None, "entries": None}
    try:
        wanted = quota_filter(asked.components, strict=asked.strict)
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "values": [{"key": key, "value": value} for key, value in quotas.items()],
            }
            async for entity, quotas in _quotas(AdminZkClient(shell.zk), wanted)
        ]
    except TopicError as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    except exc.ZKError as error:
        log.error("Cannot read quotas from ZooKeeper", exc_info=error)
        return {"error_code": _E.UNKNOWN_SERVER_ERROR, "entries": None}
    return {"error_message": "", "entries": entries}


async def _quotas(admin: AdminZkClient, wanted: QuotaFilter) -> Any:
    """Yield (entity, quotas) of the matches; a filter for a single name reads only that entity."""
    for kinds, entity_type in (
        ((USER,), "users"),
        ((CLIENT_ID,), "clients"),
        ((USER, CLIENT_ID), "users"),
        ((IP,), "ips"),
    ):
        if not wanted.wants(*kinds):
            continue
        components = [wanted.components.get(kind) for kind in kinds]
        if all(component is not None and component.exact for component in components):
            names = [component.name for component in components if component is not None]
            where = "/clients/".join(sanitized(name) for name in names)
            configs = {where: await admin.get_entity_configs(entity_type, where)}
        elif len(kinds) == 2:
            configs = await admin.get_all_user_client_configs()
        else:
            configs = await admin.get_all_entity_configs(entity_type)
        for where, found in configs.items():
            entity = dict(zip(kinds, map(desanitized, where.split("/clients/")), strict=True))
            quotas = quota_values(entity_type, found)
            if quotas and wanted.matches(entity):
                yield entity, quotas


# -- AlterClientQuotas -------------------------------------------------------------------------------------------------


async def _alter_quotas(shell: ControllerShell, request: KafkaRequest) -> Fields:
    asked = decoded(request)
    if not Permissions(shell.authorizer, request.context).may_cluster(AclOperation.ALTER_CONFIGS):
        refusal = AdminOutcome(_E.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        refused_entries = [[(each.entity_type, each.entity_name) for each in entry.entity] for entry in asked.entries]
        return {"entries": [_altered(entity, refusal) for entity in refused_entries]}
    outcomes: dict[tuple[tuple[str, str | None], ...], AdminOutcome] = {}
    for entry in asked.entries:
        entity = {each.entity_type: each.entity_name for each in entry.entity}
        outcome = await outcome_of(_alter(shell, entity, entry.ops, validate_only=asked.validate_only))
        outcomes[tuple(sorted(entity.items(), key=lambda item: item[0]))] = outcome
    return {"entries": [_altered(entity, outcome) for entity, outcome in outcomes.items()]}


def _altered(entity: Iterable[tuple[str, str | None]], outcome: AdminOutcome) -> Fields:
    return {
        "error_code": outcome.code,
        "error_message": outcome.message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
    }


async def _alter(shell: ControllerShell, entity: Entity, ops: Iterable[Any], *, validate_only: bool) -> None:
    """Change an entity's quotas; a user's SCRAM credentials, stored with them, are kept."""
    entity_type, where = place(entity)
    changes = {op.key: None if op.remove else quota_text(entity_type, op.key, op.value) for op in ops}
    if validate_only:
        return

    def change(configs: dict[str, str]) -> dict[str, str]:
        for name, value in changes.items():
            if value is not None:
                configs[name] = value
            elif name in quotas_of(entity_type):
                configs.pop(name, None)
        return configs

    await AdminZkClient(shell.zk).update_entity_configs(entity_type, where, change)


# -- DescribeUserScramCredentials --------------------------------------------------------------------------------------


async def _describe_credentials(shell: ControllerShell, request: KafkaRequest) -> Fields:
    asked = decoded(request)
    users = None if asked.users is None else [each.name for each in asked.users]
    if not Permissions(shell.authorizer, request.context).may_cluster(AclOperation.DESCRIBE):
        refusal: Fields = {"error_code": _E.CLUSTER_AUTHORIZATION_FAILED}
        return {**refusal, "results": [refusal] * len(users or ())}
    admin = AdminZkClient(shell.zk)
    try:
        if users:
            times = Counter(users)
            return {"error_message": "", "results": [await _credentials_of(admin, user, times[user]) for user in times]}
        found = await admin.get_all_entity_configs("users")
    except exc.ZKError as error:
        log.error("Cannot read users from ZooKeeper", exc_info=error)
        return {"error_code": _E.UNKNOWN_SERVER_ERROR}
    by_user = {paths.desanitize(name): configs for name, configs in found.items()}
    results = [_credentials(user, by_user[user]) for user in sorted(by_user) if _mechanisms(by_user[user])]
    return {"error_message": "", "results": results}


async def _credentials_of(admin: AdminZkClient, user: str, times: int) -> Fields:
    describe = functools.partial(_credential_error, user)
    if not user:
        return describe(_E.RESOURCE_NOT_FOUND, "Username must not be empty")
    if times > 1:
        return describe(_E.DUPLICATE_RESOURCE, f"Cannot describe credentials of {user!r} twice in a single request")
    try:
        configs = await admin.get_entity_configs("users", paths.sanitize(user))
    except TopicError as error:
        return describe(*refused(error))
    if not _mechanisms(configs):
        return describe(_E.RESOURCE_NOT_FOUND, f"There is no credential of {user!r} to describe")
    return _credentials(user, configs)


def _mechanisms(configs: Mapping[str, str]) -> dict[int, str]:
    return {number: configs[m.name] for number, m in MECHANISMS.items() if m.name in configs}


def _credentials(user: str, configs: Mapping[str, str]) -> Fields:
    try:
        infos = [
            {"mechanism": number, "iterations": parse_credential(text).iterations}
            for number, text in _mechanisms(configs).items()
        ]
    except BadInputError:
        return _credential_error(user, _E.UNKNOWN_SERVER_ERROR, None)
    return {"user": user, "error_message": "", "credential_infos": infos}


def _credential_error(user: str, code: KafkaErrorCode, message: str | None) -> Fields:
    return {"user": user, "error_code": code, "error_message": message}
