"""Authorizers for tests: what is allowed is listed."""

from __future__ import annotations

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType

Allowed = tuple[AclOperation, ResourceType, str]


class Allowing:
    """Allows exactly this, to every principal."""

    def __init__(self, *allowed: Allowed) -> None:
        self.allowed = set(allowed)

    def authorize(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) in self.allowed

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        return any(each[:2] == (operation, resource) for each in self.allowed)
