"""The ACLs of znodes, as Kafka sets them when ``zookeeper.set.acl`` is true.

Source: Kafka 3.9, ``ZkData.defaultAcls``.  The creator may do everything; the world may read, unless the path is
sensitive (``paths.SENSITIVE``: credentials, brokers' configurations, delegation tokens).  ``/consumers`` itself stays
open, as old consumers write below it.

"The creator" is scheme ``auth`` with an empty id, which the server replaces by the identities that the connection has
authenticated (SASL, digest, a TLS client certificate); without any it refuses the create (InvalidACL).  All brokers of
a cluster and this controller must authenticate as the same identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiocontroller.zookeeper import codec, paths
from aiocontroller.zookeeper.from_aiozk import ACL, UNRESTRICTED_ACCESS

AclRule = Callable[[str], Sequence[Any]]
"""Returns aiozk's ACLs for a znode about to be created; the path is below the chroot."""

OPEN: tuple[Any, ...] = (UNRESTRICTED_ACCESS,)
CREATOR_ALL: tuple[Any, ...] = (ACL.make("auth", "", read=True, write=True, create=True, delete=True, admin=True),)
CREATOR_ALL_WORLD_READS: tuple[Any, ...] = (*CREATOR_ALL, ACL.make("world", "anyone", read=True))


def kafka_acl(path: str) -> Sequence[Any]:
    """The ACL that Kafka gives a new znode under ``zookeeper.set.acl``."""
    if path == paths.CONSUMERS:
        return OPEN
    return CREATOR_ALL if paths.is_sensitive(path) else CREATOR_ALL_WORLD_READS


class EncodedAcls:
    """Caches a rule's encoded ACLs: a rule has few results and may be called for a million znodes."""

    def __init__(self, rule: AclRule) -> None:
        self._rule = rule
        self._encoded: list[tuple[Sequence[Any], bytes]] = []

    def __call__(self, path: str) -> bytes:
        """The ACL of a new znode at ``path`` in ZooKeeper's format."""
        acl = self._rule(path)
        for known, encoded in self._encoded:
            if known is acl:
                return encoded
        encoded = codec.encode_acl(acl)
        if len(self._encoded) < 16:  # bounded, in case a rule returns a new object each time
            self._encoded.append((acl, encoded))
        return encoded
