"""The interface of an authorizer (Kafka's ``Authorizer``), with Kafka's codes.

Source: ``org.apache.kafka.common.acl`` and ``org.apache.kafka.common.resource`` of Kafka 3.9.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class AclOperation(IntEnum):
    """Kafka's operations, with their numbers in the protocol."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermissionType(IntEnum):
    """Kafka's permission types, with their numbers in the protocol."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(IntEnum):
    """Kafka's resource types, with their numbers in the protocol."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's pattern types, with their numbers in the protocol; ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Authorizer(Protocol):
    """``principal`` is ``Type:name`` (``User:alice``), ``host`` the client's IP address as text."""

    def authorize(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Whether the principal may do this to the resource of this name."""

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        """Whether there is any resource of this type to which the principal may do this."""


class AllowAll:
    """For clusters whose brokers have no authorizer."""

    def authorize(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Allowed."""
        return True

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        """Allowed."""
        return True
