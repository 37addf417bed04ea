"""Permissions of a request's sender: the checks of Kafka's ``AuthHelper``."""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, Authorizer, ResourceType
from aiocontroller.server.request import RequestContext

_SUPPORTED: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
}
"""The operations of each resource type, from ``AclEntry.supportedOperations``."""

OPERATIONS_UNKNOWN = -(1 << 31)
"""Value for authorized operations that were not requested."""


class Permissions:
    """What the sender of a request may do."""

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        self._authorizer = authorizer
        self._who = (context.principal, context.host)

    def may(self, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Whether the sender may do this to the resource."""
        return self._authorizer.authorize(*self._who, operation, resource, name)

    def may_cluster(self, operation: AclOperation) -> bool:
        """Whether the sender may do this to the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the sender may do this to at least one resource of this type."""
        return self._authorizer.authorize_by_resource_type(*self._who, operation, resource)

    def of_topics(self, operation: AclOperation, names: Iterable[str]) -> set[str]:
        """The topics to which the sender may do this; each is checked once."""
        return {name for name in dict.fromkeys(names) if self.may(operation, ResourceType.TOPIC, name)}

    def operations(self, resource: ResourceType, name: str) -> int:
        """The sender's allowed operations, as a bit set by operation code."""
        return sum(1 << operation for operation in _SUPPORTED[resource] if self.may(operation, resource, name))
