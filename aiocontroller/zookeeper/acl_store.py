"""Kafka's ACLs on topics, groups and the cluster, as stored in ZooKeeper.  (For ACLs on znodes see ``znode_acls``.)

Source: Kafka 3.9, ``ZkAclStore``, ``ZkAclChangeStore`` and ``AclAuthorizer.updateResourceAcls``.  Literal patterns are
in ``/kafka-acl/<Type>/<name>``, prefixed ones in ``/kafka-acl-extended/prefixed/<Type>/<name>``.  Each change is
announced by a sequential znode in ``/kafka-acl-changes`` or ``/kafka-acl-extended-changes``.  Brokers delete these
after 15 minutes; we leave that to them.

Departure from Kafka: there, a znode without valid JSON holds no ACLs.  Here it counts as damaged and denies access.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern, is_principal, named, pascal_case
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.core.errors import AioControllerError
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import cluster_znodes, paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import AclEntry
from aiocontroller.zookeeper.codec import Delete, SetData
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.writes import WriteOp
from aiocontroller.zookeeper.znode_access import ZNodeAccess, refused
from aiocontroller.zookeeper.znode_json import BadZNode, bad

log = logging.getLogger(__name__)

CHANGES = (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)
MAX_UPDATE_RETRIES = 10
RETRY_BACKOFF_S, RETRY_JITTER_S = 0.1, 0.05
_ROOTS = {PatternType.LITERAL: paths.ACL, PatternType.PREFIXED: f"{paths.EXTENDED_ACL}/prefixed"}
_TYPES = {pascal_case(kind): kind for kind in ResourceType if kind not in (ResourceType.UNKNOWN, ResourceType.ANY)}

Entries = Sequence[AccessControlEntry]
Change = Callable[[Entries], Entries]


class AclUpdateError(AioControllerError):
    """A pattern's ACLs could not be changed: they are damaged, or others kept changing them."""


class VersionedAcls(NamedTuple):
    """The ACLs of one resource pattern, as its znode has them."""

    entries: tuple[AccessControlEntry, ...]
    version: int = -1
    """The znode's version, or -1 if there is none."""


class AclStore:
    """Reads and changes the authorizer's ACLs."""

    def __init__(self, client: ZooKeeperClient, world: World, authorizer: AclAuthorizer) -> None:
        self.authorizer = authorizer
        self._client = client
        self._znodes = ZNodeAccess(client)
        self._world = world
        self.loaded = asyncio.Event()
        self._lock = asyncio.Lock()
        """Held while reading and updating the authorizer, so that an older state never follows a newer one."""
        self._unannounced: dict[ResourcePattern, object] = {}
        """Patterns that may be written but not announced: a change may be cancelled when ZooKeeper takes too long.  The
        value identifies the attempt."""

    # -- reading ---------------------------------------------------------------------------------------------------

    async def load(self) -> list[BadZNode]:
        """Load all ACLs into the authorizer; returns the damaged znodes."""
        async with self._lock:
            acls, damaged = await read_acls(self._client)
            self.authorizer.replace(acls, {pattern: str(why) for pattern, why in damaged.items()})
            self.loaded.set()
            return list(damaged.values())

    async def refresh(self, patterns: Sequence[ResourcePattern]) -> list[BadZNode]:
        """Update the authorizer with these patterns' present ACLs; returns the damaged znodes."""
        async with self._lock:
            reads = await self._client.get_many([_path(pattern) for pattern in patterns])
            damaged = []
            for i, pattern in enumerate(patterns):
                found = _decoded(pattern, reads, i)
                if isinstance(found, BadZNode):
                    self.authorizer.damage(pattern, str(found))
                    damaged.append(found)
                else:
                    self.authorizer.update(pattern, found.entries)
            return damaged

    async def changes(self) -> list[str]:
        """Paths of the present notifications, oldest first within each kind; watches for more."""
        return [f"{root}/{name}" for root in CHANGES for name in await self._znodes.children(root, watch=True)]

    async def changed_patterns(self, notifications: Sequence[str]) -> tuple[list[ResourcePattern], list[BadZNode]]:
        """The patterns that the notifications name, each once, and the damaged notifications."""
        found: dict[ResourcePattern, None] = {}
        damaged: list[BadZNode] = []
        for path, data in await self._znodes.read_present(notifications, damaged):
            decoded = cluster_znodes.decode_acl_change(path, data)
            pattern = decoded if isinstance(decoded, BadZNode) else _pattern(path, data, *decoded)
            if isinstance(pattern, BadZNode):
                damaged.append(pattern)
            else:
                found[pattern] = None
        return list(found), damaged

    # -- changing --------------------------------------------------------------------------------------------------

    async def update(self, pattern: ResourcePattern, change: Change) -> None:
        """Write the result of ``change`` on a pattern's ACLs, update the authorizer, then notify all other nodes.

        Raises AclUpdateError; ``change`` may be called several times if others change the same ACLs.
        """
        async with self._lock:
            for attempt in range(MAX_UPDATE_RETRIES + 1):
                if attempt:
                    jitter_s = RETRY_JITTER_S * self._world.random.random()
                    await self._world.clock.sleep(RETRY_BACKOFF_S + jitter_s)
                present = _decoded(pattern, await self._client.get_many([_path(pattern)]), 0)
                if isinstance(present, BadZNode):
                    raise AclUpdateError(str(present))
                entries = tuple(dict.fromkeys(change(present.entries)))
                if set(entries) == set(present.entries):
                    break
                self._unannounced[pattern] = object()
                if await self._write(pattern, entries, present.version):
                    break
            else:
                raise AclUpdateError(f"{_path(pattern)} changed {MAX_UPDATE_RETRIES + 1} times during the update")
            self.authorizer.update(pattern, entries)
            unannounced = self._unannounced.get(pattern)
        if unannounced is not None:
            log.info("Updated ACLs of %s", pattern)
            await self._create_change_notification(pattern)
            if self._unannounced.get(pattern) is unannounced:  # not changed again meanwhile
                del self._unannounced[pattern]

    async def _write(self, pattern: ResourcePattern, entries: Entries, version: int) -> bool:
        """Write the ACLs; returns whether the znode was still at that version."""
        path = _path(pattern)
        data = cluster_znodes.encode_acls([_encoded(entry) for entry in entries])
        if version < 0:
            return await self._znodes.create(path, data, None)
        op: WriteOp = SetData(path, data, version) if entries else Delete(path, version)
        return await self._znodes.write(op, None)

    async def _create_change_notification(self, pattern: ResourcePattern) -> None:
        root = paths.ACL_CHANGES if pattern.pattern == PatternType.LITERAL else paths.EXTENDED_ACL_CHANGES
        data = cluster_znodes.encode_acl_change(pattern.resource.name, pattern.name, pattern.pattern.name)
        await self._znodes.create_sequential(f"{root}/{paths.ACL_CHANGE_PREFIX}", data)


async def read_acls(
    client: ZooKeeperClient,
) -> tuple[dict[ResourcePattern, Entries], dict[ResourcePattern, BadZNode]]:
    """All ACLs, and the damaged znodes, by pattern."""
    patterns = [pattern for kind, root in _ROOTS.items() for pattern in await _patterns(client, kind, root)]
    reads = await client.get_many([_path(pattern) for pattern in patterns])
    acls: dict[ResourcePattern, Entries] = {}
    damaged: dict[ResourcePattern, BadZNode] = {}
    for i, pattern in enumerate(patterns):
        found = _decoded(pattern, reads, i)
        if isinstance(found, BadZNode):
            damaged[pattern] = found
        elif found.entries:
            acls[pattern] = found.entries
    return acls, damaged


async def _patterns(client: ZooKeeperClient, kind: PatternType, root: str) -> list[ResourcePattern]:
    znodes = ZNodeAccess(client)
    types = await znodes.children(root, watch=False)
    strange = [name for name in types if name not in _TYPES]
    if strange:
        log.warning("Ignoring %s below %s: no resource type", ", ".join(strange), root)
    found = []
    for name in [name for name in types if name in _TYPES]:
        names = await znodes.children(f"{root}/{name}", watch=False)
        found += [ResourcePattern(_TYPES[name], each, kind) for each in names]
    return found


def _path(pattern: ResourcePattern) -> str:
    return paths.acl(pattern.pattern.name, pascal_case(pattern.resource), pattern.name)


def _decoded(pattern: ResourcePattern, reads: Reads, i: int) -> VersionedAcls | BadZNode:
    path, code, data = _path(pattern), reads.code[i], reads.data[i]
    if code == Code.NO_NODE:
        return VersionedAcls(())
    why = refused(path, code)
    if why is not None:
        return why
    found = cluster_znodes.decode_acls(path, data)
    if isinstance(found, BadZNode):
        return found
    entries = []
    for each in found:
        operation, permission = named(AclOperation, each.operation), named(AclPermissionType, each.permission_type)
        if operation == AclOperation.ANY or permission == AclPermissionType.ANY:
            return bad(path, data, "an operation and a permission type that are not Any")
        if not is_principal(each.principal):
            return bad(path, data, "principals of the form Type:name", each.principal)
        entries.append(AccessControlEntry(each.principal, each.host, operation, permission))
    return VersionedAcls(tuple(dict.fromkeys(entries)), reads.version[i])


def _encoded(entry: AccessControlEntry) -> AclEntry:
    return AclEntry(entry.principal, pascal_case(entry.permission), pascal_case(entry.operation), entry.host)


def _pattern(path: str, data: bytes | None, resource: str, name: str, kind: str) -> ResourcePattern | BadZNode:
    found_type = ResourceType.__members__.get(resource.upper())
    found_kind = PatternType.__members__.get(kind.upper())
    if found_type not in _TYPES.values() or found_kind not in _ROOTS or not name or "/" in name:
        return bad(path, data, "a resource type, a name and a pattern type, LITERAL or PREFIXED")
    assert found_type is not None and found_kind is not None
    return ResourcePattern(found_type, name, found_kind)
