"""Kafka's ``AclAuthorizer``: authorizes by the ACLs in ZooKeeper.  Pure; ``zookeeper.acl_store`` feeds it.

Source: Kafka 3.9, ``kafka.security.authorizer.AclAuthorizer``.  The ACLs of a resource's name, of the wildcard ``*``
and of every prefix of the name apply to it.  Any DENY among them refuses; else an ALLOW must grant the operation, or
one that implies it.  If no ACL applies, ``allow.everyone.if.no.acl.found`` decides.

Two rules of our own make it fail closed.  Until the ACLs have been read, only super users may do anything.  Unreadable
ACLs (``damaged``) deny access to everything that their pattern matches.

Kafka orders patterns in a tree and walks the range of a name's prefixes.  Here each prefix is looked up by its hash,
one for each length in use, and so are the ACLs within a pattern, so no decision slows down with the number of ACLs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from aiocontroller.authorizer.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
)
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType

_Op = AclOperation
_DENY, _ALLOW = AclPermissionType.DENY, AclPermissionType.ALLOW
_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

IMPLIED_BY: Mapping[AclOperation, tuple[AclOperation, ...]] = {
    _Op.DESCRIBE: (_Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER),
    _Op.DESCRIBE_CONFIGS: (_Op.ALTER_CONFIGS,),
}
"""The operations whose ALLOW also allows this one; a DENY implies nothing."""

Entries = dict[AccessControlEntry, None]
"""In the order in which they were found; looked up by hash."""

DENY_ALL: Entries = {AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, _Op.ALL, _DENY): None}


class AclAuthorizer:
    """Decides as Kafka's ``AclAuthorizer`` does, from ACLs that ``zookeeper.acl_follower`` keeps current."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone_if_no_acl_found: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self.loaded = False
        self.damaged: dict[ResourcePattern, str] = {}
        """Why the ACLs of a pattern are unreadable."""
        self._acls: dict[ResourcePattern, Entries] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """Number of prefixes of each length."""
        self._names: dict[tuple[AccessControlEntry, ResourceType, PatternType], dict[str, None]] = {}
        """The names of the patterns that have an entry, for ``authorize_by_resource_type``."""

    # -- ACLs ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of patterns with ACLs."""
        return len(self._acls) - len(self.damaged)

    def replace(
        self,
        acls: Mapping[ResourcePattern, Collection[AccessControlEntry]],
        damaged: Mapping[ResourcePattern, str] | None = None,
    ) -> None:
        """Replace all ACLs by those read; from now on they count as known."""
        damaged = damaged or {}
        for pattern in [p for p in self._acls if p not in acls and p not in damaged]:
            self.update(pattern, ())
        for pattern, entries in acls.items():
            self.update(pattern, entries)
        for pattern, why in damaged.items():
            self.damage(pattern, why)
        self.loaded = True

    def update(self, pattern: ResourcePattern, entries: Collection[AccessControlEntry]) -> None:
        """Replace the ACLs of a resource; an empty collection removes it.  Duplicates count once."""
        self.damaged.pop(pattern, None)
        self._set(pattern, dict.fromkeys(entries))

    def damage(self, pattern: ResourcePattern, why: str) -> None:
        """Record why the ACLs of a resource cannot be read; everyone is denied access to it until an ``update``."""
        self.damaged[pattern] = why
        self._set(pattern, DENY_ALL)

    def entries(self, pattern: ResourcePattern) -> list[AccessControlEntry]:
        """The ACLs of exactly this resource pattern, in the znode's order; empty if they are damaged."""
        return [] if pattern in self.damaged else list(self._acls.get(pattern, ()))

    def patterns(self) -> list[ResourcePattern]:
        """All resources with readable ACLs, in no particular order."""
        return [pattern for pattern in self._acls if pattern not in self.damaged]

    def acls(self, acl_filter: AclBindingFilter) -> Iterator[AclBinding]:
        """The bindings that the filter covers, sorted by resource type, pattern type and name."""
        for pattern in sorted(self.patterns(), key=lambda p: (p.resource, p.pattern, p.name)):
            if acl_filter.matches_pattern(pattern):
                for entry in self._acls[pattern]:
                    if acl_filter.matches_entry(entry):
                        yield AclBinding(pattern, entry)

    def _set(self, pattern: ResourcePattern, entries: Entries) -> None:
        before = self._acls.get(pattern, {})
        resource, name, kind = pattern
        for entry in entries:
            if entry not in before:
                self._names.setdefault((entry, resource, kind), {})[name] = None
        for entry in before:
            if entry not in entries:
                names = self._names[entry, resource, kind]
                del names[name]
                if not names:
                    del self._names[entry, resource, kind]
        if kind == _PREFIXED and bool(before) != bool(entries):
            lengths = self._prefix_lengths.setdefault(resource, {})
            lengths[len(name)] = lengths.get(len(name), 0) + (1 if entries else -1)
            if not lengths[len(name)]:
                del lengths[len(name)]
        if entries:
            self._acls[pattern] = entries
        else:
            self._acls.pop(pattern, None)

    # -- decisions -------------------------------------------------------------------------------------------------

    def authorize(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Kafka's decision; until the ACLs are loaded, True for super users only."""
        if principal in self.super_users:
            return True
        if not self.loaded:
            return False
        acls = self._matching(resource, name)
        if not acls:
            return self.allow_everyone_if_no_acl_found
        if _any(acls, principal, host, operation, _DENY):
            return False
        return any(_any(acls, principal, host, each, _ALLOW) for each in (operation, *IMPLIED_BY.get(operation, ())))

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        """As in Kafka: operations imply nothing here, and an ALLOW counts unless a DENY covers everything it covers."""
        if principal in self.super_users:
            return True
        if not self.loaded:
            return False
        who = [
            (p, h, o)
            for p in dict.fromkeys((principal, WILDCARD_PRINCIPAL))
            for h in dict.fromkeys((host, WILDCARD))
            for o in dict.fromkeys((operation, _Op.ALL))
        ]

        def names(permission: AclPermissionType, kind: PatternType) -> list[dict[str, None]]:
            keys = ((AccessControlEntry(*each, permission), resource, kind) for each in who)
            return [found for key in keys if (found := self._names.get(key)) is not None]

        denied = names(_DENY, _LITERAL)
        if any(WILDCARD in found for found in denied):
            return False
        if self.allow_everyone_if_no_acl_found:
            return True
        denied_prefixes = names(_DENY, _PREFIXED)
        for prefixes in names(_ALLOW, _PREFIXED):
            if any(not _dominated(prefix, denied_prefixes) for prefix in prefixes):
                return True
        for literals in names(_ALLOW, _LITERAL):
            for name in literals:
                if name == WILDCARD or not (any(name in d for d in denied) or _dominated(name, denied_prefixes)):
                    return True
        return False

    def _matching(self, resource: ResourceType, name: str) -> list[Entries]:
        """The entries of the name's prefixes, of the wildcard and of the name itself."""
        acls = self._acls
        prefixes = (
            ResourcePattern(resource, name[:length], _PREFIXED)
            for length in self._prefix_lengths.get(resource, ())
            if length <= len(name)
        )
        literals = (ResourcePattern(resource, WILDCARD), ResourcePattern(resource, name))
        return [found for pattern in (*prefixes, *literals) if (found := acls.get(pattern)) is not None]


def _any(
    acls: list[Entries], principal: str, host: str, operation: AclOperation, permission: AclPermissionType
) -> bool:
    for p in (principal, WILDCARD_PRINCIPAL):
        for h in (host, WILDCARD):
            for o in (operation, _Op.ALL):
                entry = AccessControlEntry(p, h, o, permission)
                if any(entry in entries for entries in acls):
                    return True
    return False


def _dominated(name: str, denied_prefixes: list[dict[str, None]]) -> bool:
    """Whether a DENY exists for the name or a prefix of it."""
    return any(name[:length] in denied for denied in denied_prefixes for length in range(1, len(name) + 1))
