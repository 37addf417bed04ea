"""An executable specification of the controller's protocol, and its exhaustive exploration."""
