"""What a migration carries over beside topics: ACLs, SCRAM credentials, quotas and delegation tokens.

Each entry is a line of text, the same for ZooKeeper and for KRaft, so that sets of them can be compared.  Of a SCRAM
credential KRaft reports only that it exists, and its iterations; of delegation tokens, only those of the asking
principal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.controller.broker_client import BrokerClient
from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange, negotiate
from aiocontroller.wire.scram import DIGESTS, MECHANISMS, parse_credential
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.acl_store import read_acls
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client_quotas import CLIENT_ID, IP, USER, Entity, desanitized, quota_values
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znode_access import ZNodeAccess


class What(StrEnum):
    """A kind of what is carried over."""

    ACLS = "ACL"
    SCRAM = "SCRAM credential"
    QUOTAS = "quota"
    TOKENS = "delegation token"


Entries = frozenset[str]
Stored = Mapping[What, Entries]
"""What ZooKeeper holds."""
Reported = Mapping[What, Entries | str]
"""What a node in KRaft mode reports of each kind, or why it does not."""


# -- in ZooKeeper ------------------------------------------------------------------------------------------------------


async def read_carried(zk: KafkaZkClient) -> Stored:
    """Read everything that can be read; damaged znodes count as empty, as for the KRaft controller."""
    admin = AdminZkClient(zk)
    acls, _ = await read_acls(zk.client)
    users = await admin.get_all_entity_configs("users")
    quotas: list[tuple[Entity, Mapping[str, float]]] = []
    for kinds, entity_type, found in (
        ((USER,), "users", users),
        ((CLIENT_ID,), "clients", await admin.get_all_entity_configs("clients")),
        ((USER, CLIENT_ID), "users", await admin.get_all_user_client_configs()),
        ((IP,), "ips", await admin.get_all_entity_configs("ips")),
    ):
        for where, configs in found.items():
            names = map(desanitized, where.split("/clients/"))
            quotas.append((dict(zip(kinds, names, strict=True)), quota_values(entity_type, configs)))
    return {
        What.ACLS: frozenset(_acl(pattern, entry) for pattern, entries in acls.items() for entry in entries),
        What.SCRAM: frozenset(
            _scram(paths.desanitize(user), name, _iterations(configs[name]))
            for user, configs in users.items()
            for name in DIGESTS
            if name in configs
        ),
        What.QUOTAS: frozenset(_quota(entity, key, value) for entity, own in quotas for key, value in own.items()),
        What.TOKENS: frozenset(await ZNodeAccess(zk.client).children(paths.DELEGATION_TOKENS, watch=False)),
    }


def _iterations(credential: str) -> int:
    """-1 if it cannot be read."""
    try:
        return parse_credential(credential).iterations
    except BadInputError:
        return -1


# -- in KRaft ----------------------------------------------------------------------------------------------------------


class _Question(NamedTuple):
    api: ApiKey
    fields: Mapping[str, Any]
    entries: Callable[[Any], Entries]


def _acls_of(answer: Any) -> Entries:
    return frozenset(
        _acl(
            ResourcePattern(ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)),
            AccessControlEntry(
                acl.principal, acl.host, AclOperation(acl.operation), AclPermissionType(acl.permission_type)
            ),
        )
        for each in answer.resources
        for acl in each.acls
    )


def _credentials_of(answer: Any) -> Entries:
    return frozenset(
        _scram(each.user, MECHANISMS[info.mechanism].name, info.iterations)
        for each in answer.results
        for info in each.credential_infos
    )


def _quotas_of(answer: Any) -> Entries:
    return frozenset(
        _quota({part.entity_type: part.entity_name for part in each.entity}, value.key, value.value)
        for each in answer.entries or ()
        for value in each.values
    )


_ANY_ACL = {
    "resource_type_filter": ResourceType.ANY,
    "pattern_type_filter": PatternType.ANY,
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}
_QUESTIONS = {
    What.ACLS: _Question(ApiKey.DESCRIBE_ACLS, _ANY_ACL, _acls_of),
    What.SCRAM: _Question(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}, _credentials_of),
    What.QUOTAS: _Question(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False}, _quotas_of),
}
_REASONS: dict[int, str] = {
    KafkaErrorCode.SECURITY_DISABLED: "it has no authorizer",
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED: "it refuses (CLUSTER_AUTHORIZATION_FAILED)",
}


async def ask_carried(client: BrokerClient, offered: Mapping[int, VersionRange], *, is_broker: bool) -> Reported:
    """Ask a node that offers these APIs.  Raises OSError, FrameError.

    A KRaft controller is asked only for ACLs: in 3.9.1 it offers DescribeUserScramCredentials, and never answers it.
    """
    reported: dict[What, Entries | str] = {What.TOKENS: "a node reports only those of the principal that asks"}
    for what, (api, fields, entries) in _QUESTIONS.items():
        version = negotiate(SUPPORTED[api], offered.get(api))
        if what is not What.ACLS and not is_broker:
            reported[what] = "no broker in KRaft mode was asked, and controllers do not report them"
            continue
        if version is None:
            reported[what] = f"it does not offer {api.name}"
            continue
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        answer = cold.decode_response(api, version, await client.request(api, version, body))
        if answer.error_code:
            code = int(answer.error_code)
            reported[what] = _REASONS.get(code, f"it answers {answer.error_message or code}")
            continue
        try:
            reported[what] = entries(answer)
        except (ValueError, KeyError) as unknown:
            reported[what] = f"it answers {unknown}, which this release does not know"
    return reported


# -- in words ----------------------------------------------------------------------------------------------------------


def _acl(pattern: ResourcePattern, entry: AccessControlEntry) -> str:
    allowed = f"{entry.permission.name} {entry.principal} {entry.operation.name}"
    return f"{allowed} on {pattern}" + ("" if entry.host == "*" else f" from {entry.host}")


def _scram(user: str, mechanism: str, iterations: int) -> str:
    return f"{user}, {mechanism}, {iterations} iterations"


def _quota(entity: Entity, name: str, value: float) -> str:
    """``user alice, client-id <default>: producer_byte_rate 1024``."""
    parts = (f"{kind} {paths.DEFAULT_ENTITY if own is None else own}" for kind, own in sorted(entity.items()))
    return f"{', '.join(parts)}: {name} {value:.12g}"
