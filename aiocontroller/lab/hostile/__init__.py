"""Hostile and careless clients of a running controller, and probes that measure the effect on other users."""
