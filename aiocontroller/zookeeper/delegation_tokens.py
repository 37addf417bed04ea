"""Delegation tokens in ZooKeeper, one at a time; the brokers are notified of each change (``KafkaZkClient``).

A token's secret is not stored: it is the HMAC of the token's id under a key that all brokers share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Callable

from aiocontroller.zookeeper import cluster_znodes, paths
from aiocontroller.zookeeper.cluster_znodes import DelegationToken
from aiocontroller.zookeeper.codec import SetData
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znode_access import MAX_ATTEMPTS, ZNodeAccess, error_at
from aiocontroller.zookeeper.znode_json import BadZNode

log = logging.getLogger(__name__)

_TOKEN_ID = re.compile("[A-Za-z0-9_-]{1,64}")


def token_hmac(token_id: str, secret_key: str) -> bytes:
    """A token's secret: HMAC-SHA-512 of its id under the cluster's key."""
    return hmac.digest(secret_key.encode(), token_id.encode(), hashlib.sha512)


def token_id(chance: int) -> str:
    """A token id from a number of 128 bits: URL-safe base64 without padding, like Kafka's UUIDs."""
    return base64.urlsafe_b64encode(chance.to_bytes(16, "big")).rstrip(b"=").decode()


class DelegationTokens:
    """Reads and changes tokens.  A change is retried after a concurrent change of the same znode, so none is lost."""

    def __init__(self, zk: KafkaZkClient) -> None:
        self._zk = zk
        self._znodes = ZNodeAccess(zk.client)

    async def create(self, token: DelegationToken) -> bool:
        """Create the token; returns False if its id exists."""
        path, data = paths.delegation_token(token.token_id), cluster_znodes.encode_delegation_token(token)
        if not await self._znodes.create(path, data, None):
            return False
        await self._create_change_notification(token.token_id)
        return True

    async def find(self, hmac_given: bytes, secret_key: str) -> str | None:
        """The id of the token with this secret."""
        names = await self._znodes.children(paths.DELEGATION_TOKENS)
        return next((name for name in names if hmac.compare_digest(token_hmac(name, secret_key), hmac_given)), None)

    async def get(self, token_id: str) -> DelegationToken | None:
        """The token by its id; None if the id is invalid or the token does not exist or is damaged."""
        if not _TOKEN_ID.fullmatch(token_id):
            return None
        path = paths.delegation_token(token_id)
        reads = await self._znodes.read(path)
        if reads is None:
            return None
        token = cluster_znodes.decode_delegation_token(path, reads.data[0])
        if isinstance(token, BadZNode):
            log.warning("Ignoring the znode %s: found %s, expected %s", token.path, token.found, token.expected)
            return None
        return token

    async def change(self, token_id: str, change: Callable[[DelegationToken], DelegationToken | None]) -> bool:
        """Change a token; returns whether it exists.  ``change`` returns its new state (None: delete) or raises."""
        path = paths.delegation_token(token_id)
        for _ in range(MAX_ATTEMPTS):
            reads = await self._znodes.read(path)
            if reads is None:
                return False
            token = cluster_znodes.decode_delegation_token(path, reads.data[0])
            if isinstance(token, BadZNode):
                log.warning("Ignoring the znode %s: found %s, expected %s", token.path, token.found, token.expected)
                return False
            changed = change(token)
            if changed is None:
                await self._znodes.delete([path], None)
            elif not await self._znodes.write(
                SetData(path, cluster_znodes.encode_delegation_token(changed), reads.version[0]), None
            ):
                continue
            await self._create_change_notification(token_id)
            return True
        raise error_at(path, Code.BAD_VERSION)

    async def _create_change_notification(self, token_id: str) -> None:
        prefix = paths.delegation_token_change(paths.DELEGATION_TOKEN_CHANGE_PREFIX)
        await self._znodes.create_sequential(prefix, token_id.encode())
