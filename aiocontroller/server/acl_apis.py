"""DescribeAcls, CreateAcls and DeleteAcls, which every node answers, whether it is the controller or not.

Source: Kafka 3.9, ``AclApis``, ``AclAuthorizer.createAcls`` and ``deleteAcls``, and the checks in the requests' own
classes.  As in Kafka, a request with an UNKNOWN element closes the connection.  A code that this release does not know
counts as UNKNOWN too, but is refused with an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from aiocontroller.authorizer.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
    is_principal,
)
from aiocontroller.authorizer.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    AllowAll,
    PatternType,
    ResourceType,
)
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import AioControllerError, KafkaErrorCode
from aiocontroller.server.apis import Apis, Fields, all_versions, decoded, respond
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey, api_name
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper.acl_store import AclStore, Entries
from aiocontroller.zookeeper.from_aiozk import exc

_E = KafkaErrorCode
Code = TypeVar("Code", bound=IntEnum)

NO_AUTHORIZER = "No Authorizer is configured."
NOT_AUTHORIZED = "Cluster authorization failed."


class AclOutcome(NamedTuple):
    """An error code and a message for one ACL or filter of a request."""

    code: int
    message: str | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of a response."""
        return {"error_code": self.code, "error_message": self.message}


SUCCESS = AclOutcome(_E.NONE)


def apis(shell: ControllerShell) -> Apis:
    """DescribeAcls, CreateAcls and DeleteAcls, by the ACLs in ZooKeeper."""

    async def describe(request: KafkaRequest) -> None:
        acl_filter = _filter(request, decoded(request))
        refusal = await _refusal(shell, request, AclOperation.DESCRIBE)
        if refusal is not None:
            respond(request, refusal.fields())
        else:
            respond(request, _described(_store(shell).authorizer.acls(acl_filter)))

    async def create(request: KafkaRequest) -> None:
        asked = decoded(request).creations
        for creation in asked:
            _check_known(request, creation, "resource_type", "resource_pattern_type", "operation", "permission_type")
        outcomes: Sequence[AclOutcome]
        refusal = await _refusal(shell, request, AclOperation.ALTER)
        if refusal is not None:
            outcomes = [refusal] * len(asked)
        else:
            outcomes = await create_acls(_store(shell), [_binding(creation) for creation in asked])
        respond(request, {"results": [_created(outcome) for outcome in outcomes]})

    async def delete(request: KafkaRequest) -> None:
        filters = [_filter(request, each) for each in decoded(request).filters]
        refusal = await _refusal(shell, request, AclOperation.ALTER)
        if refusal is not None:
            results: Sequence[Fields] = [{**refusal.fields(), "matching_acls": []}] * len(filters)
        else:
            deleted = await delete_acls(_store(shell), filters)
            results = [_deleted(each) for each in deleted]
        respond(request, {"filter_results": results})

    return {
        ApiKey.DESCRIBE_ACLS: all_versions(ApiKey.DESCRIBE_ACLS, describe),
        ApiKey.CREATE_ACLS: all_versions(ApiKey.CREATE_ACLS, create),
        ApiKey.DELETE_ACLS: all_versions(ApiKey.DELETE_ACLS, delete),
    }


async def _refusal(shell: ControllerShell, request: KafkaRequest, operation: AclOperation) -> AclOutcome | None:
    if not Permissions(shell.authorizer, request.context).may_cluster(operation):
        return AclOutcome(_E.CLUSTER_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
    if isinstance(shell.authorizer, AllowAll):
        return AclOutcome(_E.SECURITY_DISABLED, NO_AUTHORIZER)
    if shell.acls is None:
        return AclOutcome(_E.SECURITY_DISABLED, "The brokers' authorizer cannot run here.")
    await shell.acls.loaded.wait()
    return None


def _store(shell: ControllerShell) -> AclStore:
    assert shell.acls is not None
    return shell.acls


def _created(outcome: AclOutcome) -> Fields:
    """As in Kafka, a successful creation has an empty message, a successful deletion none."""
    return {**outcome.fields(), "error_message": outcome.message if outcome.code else ""}


# -- creating ----------------------------------------------------------------------------------------------------------


async def create_acls(store: AclStore, bindings: Sequence[AclBinding]) -> list[AclOutcome]:
    """Create ACLs; valid bindings with the same pattern succeed or fail together."""
    if any(_indefinite(binding) for binding in bindings):
        return [AclOutcome(_E.UNKNOWN_SERVER_ERROR)] * len(bindings)
    outcomes = [_invalid(binding) for binding in bindings]
    by_pattern: dict[ResourcePattern, dict[AccessControlEntry, None]] = {}
    for binding, outcome in zip(bindings, outcomes, strict=True):
        if outcome is None:
            by_pattern.setdefault(binding.pattern, {})[binding.entry] = None
    written = {pattern: await _add(store, pattern, list(entries)) for pattern, entries in by_pattern.items()}
    return [outcome or written[binding.pattern] for binding, outcome in zip(bindings, outcomes, strict=True)]


async def _add(store: AclStore, pattern: ResourcePattern, entries: Entries) -> AclOutcome:
    if not all(is_principal(entry.principal) for entry in entries):
        return AclOutcome(_E.UNKNOWN_SERVER_ERROR)
    try:
        await store.update(pattern, lambda present: [*present, *entries])
    except (AioControllerError, exc.ZKError, OSError) as error:
        return _failed(error)
    return SUCCESS


def _indefinite(binding: AclBinding) -> bool:
    pattern, entry = binding
    return (
        pattern.resource == ResourceType.ANY
        or pattern.pattern in (PatternType.ANY, PatternType.MATCH)
        or entry.operation == AclOperation.ANY
        or entry.permission == AclPermissionType.ANY
    )


def _invalid(binding: AclBinding) -> AclOutcome | None:
    pattern, entry = binding
    if pattern.resource == ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return AclOutcome(_E.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        return AclOutcome(_E.INVALID_REQUEST, "Invalid empty resource name")
    unknown = 0 in (pattern.resource, pattern.pattern, entry.operation, entry.permission)
    if unknown or not _is_znode_name(pattern.name):
        return AclOutcome(_E.INVALID_REQUEST, "Failed to create ACL")
    return None


# -- deleting ----------------------------------------------------------------------------------------------------------


async def delete_acls(store: AclStore, filters: Sequence[AclBindingFilter]) -> list[dict[AclBinding, AclOutcome]]:
    """Delete ACLs; returns what each filter deleted.  A binding that several filters match counts for the first."""
    deleted: list[dict[AclBinding, AclOutcome]] = [{} for _ in filters]
    for pattern, matching in _by_pattern(store, filters).items():
        found: dict[AclBinding, int] = {}

        def keep(present: Entries, pattern: ResourcePattern = pattern, matching: list[int] = matching) -> Entries:
            found.clear()  # noqa: B023
            kept = []
            for entry in present:
                first = next((i for i in matching if filters[i].matches_entry(entry)), None)
                if first is None:
                    kept.append(entry)
                else:
                    found.setdefault(AclBinding(pattern, entry), first)  # noqa: B023
            return kept

        outcome = SUCCESS
        try:
            await store.update(pattern, keep)
        except (AioControllerError, exc.ZKError, OSError) as error:
            outcome = _failed(error)
        for binding, first in found.items():
            deleted[first][binding] = outcome
        await asyncio.sleep(0)
    return deleted


def _by_pattern(store: AclStore, filters: Sequence[AclBindingFilter]) -> dict[ResourcePattern, list[int]]:
    """The filters that match each pattern.  A filter for a single pattern is looked up, not compared with all."""
    matching: dict[ResourcePattern, list[int]] = {}
    wide = []
    for i, each in enumerate(filters):
        if each.names_a_resource:
            for pattern in each.patterns():
                if _is_znode_name(pattern.name):
                    matching.setdefault(pattern, []).append(i)
        else:
            wide.append(i)
    if wide:
        for pattern in store.authorizer.patterns():
            found = [i for i in wide if filters[i].matches_pattern(pattern)]
            if found:
                matching[pattern] = sorted([*matching.get(pattern, ()), *found])
    return matching


def _is_znode_name(name: str) -> bool:
    return bool(name) and "/" not in name and name not in (".", "..") and "\0" not in name


def _failed(error: Exception) -> AclOutcome:
    return AclOutcome(_E.UNKNOWN_SERVER_ERROR, str(error) or type(error).__name__)


# -- requests and answers ----------------------------------------------------------------------------------------------


def _code(kind: type[Code], code: int) -> Code:
    """The code's enum member; UNKNOWN (0) for a code that this release does not know."""
    return kind(code) if code in kind.__members__.values() else kind(0)


def _check_known(request: KafkaRequest, asked: Any, *fields: str) -> None:
    for field in fields:
        if getattr(asked, field, None) == 0:
            raise FrameError(f"{api_name(request.context.api)}: found UNKNOWN as {field}, expected a value")


def _binding(creation: Any) -> AclBinding:
    pattern = ResourcePattern(
        _code(ResourceType, creation.resource_type),
        creation.resource_name,
        _code(PatternType, getattr(creation, "resource_pattern_type", PatternType.LITERAL)),
    )
    operation, permission = (
        _code(AclOperation, creation.operation),
        _code(AclPermissionType, creation.permission_type),
    )
    return AclBinding(pattern, AccessControlEntry(creation.principal, creation.host, operation, permission))


def _filter(request: KafkaRequest, asked: Any) -> AclBindingFilter:
    """Decode a filter; version 0 has literal patterns only."""
    _check_known(request, asked, "resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    return AclBindingFilter(
        _code(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        _code(PatternType, getattr(asked, "pattern_type_filter", PatternType.LITERAL)),
        asked.principal_filter,
        asked.host_filter,
        _code(AclOperation, asked.operation),
        _code(AclPermissionType, asked.permission_type),
    )


def _described(bindings: Iterable[AclBinding]) -> Fields:
    resources: dict[ResourcePattern, list[Mapping[str, Any]]] = {}
    for pattern, entry in bindings:
        if 0 in (entry.operation, entry.permission):
            return AclOutcome(
                _E.UNKNOWN_SERVER_ERROR, f"{pattern} has an ACL that earlier releases do not know"
            ).fields()
        resources.setdefault(pattern, []).append(_entry_fields(entry))
    listed = [
        {
            "resource_type": pattern.resource,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern,
            "acls": entries,
        }
        for pattern, entries in resources.items()
    ]
    return {"error_code": 0, "error_message": "", "resources": listed}


def _deleted(bindings: Mapping[AclBinding, AclOutcome]) -> Fields:
    matching = [
        {
            **outcome.fields(),
            **_entry_fields(entry),
            "resource_type": pattern.resource,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern,
        }
        for (pattern, entry), outcome in bindings.items()
    ]
    return {**SUCCESS.fields(), "matching_acls": matching}


def _entry_fields(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }
