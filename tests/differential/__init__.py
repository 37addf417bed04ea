"""The same scenario under Kafka's own controller and ours (docs/differential.md)."""
