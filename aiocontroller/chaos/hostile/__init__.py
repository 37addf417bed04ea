"""Hostile and careless clients against a running controller, and what its users feel meanwhile."""
