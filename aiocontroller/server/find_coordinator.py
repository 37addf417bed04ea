"""FindCoordinator: finds the leader of the internal topic's partition to which a group or transaction belongs."""

from __future__ import annotations

from typing import Any

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Fields, decoded, respond
from aiocontroller.server.auto_topic_creation import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, AutoTopicCreation
from aiocontroller.server.cluster_reader import ClusterSource
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.server.error_answers import MESSAGES
from aiocontroller.server.permissions import Permissions
from aiocontroller.server.request import KafkaRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2
_TYPES = (GROUP, TRANSACTION, SHARE)
"""The types of keys."""
BATCHED_FROM, SHARE_FROM = 4, 6
"""First versions with many keys, and with share groups."""
_OF_KEYS = {
    GROUP: (ResourceType.GROUP, KafkaErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_METADATA_TOPIC),
    TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        TRANSACTION_STATE_TOPIC,
    ),
}
NOWHERE: Fields = {"node_id": -1, "host": "", "port": -1}


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The internal topic's partition for the key; the smallest int has no absolute value and maps to 0."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


class CoordinatorFinder:
    """Serves FindCoordinator."""

    def __init__(self, shell: ControllerShell, source: ClusterSource, creation: AutoTopicCreation) -> None:
        self._shell = shell
        self._source = source
        self._creation = creation

    async def handle(self, request: KafkaRequest) -> None:
        """Answer a request for one key, or from version 4 on for several."""
        asked = decoded(request)
        version, kind = request.context.version, getattr(asked, "key_type", GROUP)
        keys = asked.coordinator_keys if version >= BATCHED_FROM else (asked.key,)
        found = await self._find_all(request, kind, keys)
        if version < BATCHED_FROM:
            [(code, node)] = found
            respond(request, {**node, "error_code": code, "error_message": MESSAGES.get(code)})
            return
        coordinators = [
            {**node, "key": key, "error_code": code, "error_message": MESSAGES[code] if kind not in _TYPES else ""}
            for key, (code, node) in zip(keys, found, strict=True)
        ]
        respond(request, {"coordinators": coordinators})

    async def _find_all(self, request: KafkaRequest, kind: int, keys: Any) -> list[tuple[KafkaErrorCode, Fields]]:
        permissions = Permissions(self._shell.authorizer, request.context)
        if kind not in _OF_KEYS:
            code = KafkaErrorCode.INVALID_REQUEST
            if kind == SHARE and request.context.version >= SHARE_FROM:
                allowed = permissions.may_cluster(AclOperation.CLUSTER_ACTION)
                code = KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if allowed:
                    code = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
            return [(code, NOWHERE)] * len(keys)
        resource, refused, topic = _OF_KEYS[kind]
        allowed_keys = {key for key in dict.fromkeys(keys) if permissions.may(AclOperation.DESCRIBE, resource, key)}
        if not allowed_keys:
            return [(refused, NOWHERE)] * len(keys)
        if in_charge(self._shell) and topic not in self._shell.context.table.topic_by_name:
            self._creation.create((topic,))
        view, _ = await self._source.view((topic,))
        nodes = view.nodes(request.context.listener)
        known = view.topic(topic)

        def find(key: str) -> tuple[KafkaErrorCode, Fields]:
            if key not in allowed_keys:
                return refused, NOWHERE
            if known is not None and len(known.rows):
                leader, _ = view.leader(topic, partition_for(key, len(known.rows)))
                if leader in nodes:
                    node = nodes[leader]
                    return KafkaErrorCode.NONE, {"node_id": node.id, "host": node.host, "port": node.port}
            return KafkaErrorCode.COORDINATOR_NOT_AVAILABLE, NOWHERE

        return [find(key) for key in keys]
