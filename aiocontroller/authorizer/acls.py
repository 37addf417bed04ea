"""ACLs as values, in the forms in which Kafka writes them.

Source: Kafka 3.9, ``AclEntry``, ``SecurityUtils``, ``ResourcePattern`` and ``ResourcePatternFilter``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType

WILDCARD = "*"
"""The name of the literal pattern that matches every resource, and the host that matches every host."""
WILDCARD_PRINCIPAL = "User:*"

Named = TypeVar("Named", bound=IntEnum)


class ResourcePattern(NamedTuple):
    """What an ACL applies to: one name of a resource type, or all names with a prefix."""

    resource: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{pascal_case(self.resource)}:{self.pattern.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    """Who may do what: ``Type:name``, an IP address or ``*``, an operation, and whether it is allowed or denied."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


class AclBinding(NamedTuple):
    """An entry and the pattern that it belongs to."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclBindingFilter(NamedTuple):
    """Selects bindings: None, ANY (of an enum) and MATCH stand for several values."""

    resource: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    @property
    def names_a_resource(self) -> bool:
        """Whether the filter alone determines the patterns that it matches (``patterns``)."""
        return (
            self.resource not in (ResourceType.ANY, ResourceType.UNKNOWN)
            and self.name is not None
            and self.pattern in (PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY)
        )

    def patterns(self) -> list[ResourcePattern]:
        """The resources that it names, literal before prefixed; only if ``names_a_resource``."""
        assert self.names_a_resource and self.name is not None
        kinds = (PatternType.LITERAL, PatternType.PREFIXED) if self.pattern == PatternType.ANY else (self.pattern,)
        return [ResourcePattern(self.resource, self.name, kind) for kind in kinds]

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the filter covers the resource (Kafka's ``ResourcePatternFilter.matches``)."""
        if self.resource not in (ResourceType.ANY, pattern.resource):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, pattern.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern in (PatternType.ANY, pattern.pattern):
            return self.name == pattern.name
        if (
            pattern.pattern == PatternType.LITERAL
        ):  # the filter has MATCH: patterns that apply to a resource of this name
            return pattern.name in (self.name, WILDCARD)
        return pattern.pattern == PatternType.PREFIXED and self.name.startswith(pattern.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether the filter covers the entry (Kafka's ``AccessControlEntryFilter.matches``)."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )


def pascal_case(value: IntEnum) -> str:
    """``TRANSACTIONAL_ID`` -> ``TransactionalId``, the form in znodes and their paths."""
    return "".join(word.capitalize() for word in value.name.split("_"))


def named(kind: type[Named], text: str) -> Named:
    """The member by its name as Kafka writes it, or in any case without underscores; UNKNOWN (0) if none."""
    folded = text.upper()
    return next((value for value in kind if pascal_case(value).upper() == folded), kind(0))


def is_principal(text: str) -> bool:
    """Whether the text has the form ``Type:name``."""
    return ":" in text
