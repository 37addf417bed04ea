"""Load clients for a real cluster, and the verdict on their records."""
