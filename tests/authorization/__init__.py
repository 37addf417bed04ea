"""Every API asked of a real broker with AclAuthorizer and of the active controller (docs/authorization.md)."""
