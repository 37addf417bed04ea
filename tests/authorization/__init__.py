"""Every API asked of a real broker with AclAuthorizer and of the controller in office (docs/authorization.md)."""
