"""Clients under load on a real cluster, and the count of what became of their records."""
