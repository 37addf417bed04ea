"""Elements of CreateAcls, DescribeAcls and DeleteAcls requests, by the fields' names."""

from __future__ import annotations

from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType


def acl(
    name: str, kind: int = ResourceType.TOPIC, pattern: int = PatternType.LITERAL, **changes: Any
) -> dict[str, Any]:
    """An ACL to create: ``User:new`` may read, from every host."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:new",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": AclPermissionType.ALLOW,
    } | changes


def acl_filter(
    name: str | None = None, kind: int = ResourceType.ANY, pattern: int = PatternType.ANY, **changes: Any
) -> dict[str, Any]:
    """A filter of ACLs: fields that are not given match everything."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    } | changes
