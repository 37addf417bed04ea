"""Hostile and careless clients of a running controller, and probes that measure their effect on other clients."""
