"""Load clients for a real cluster, and a verdict on their records."""
