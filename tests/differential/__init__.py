"""The same story told to Kafka's own controller and to ours (docs/differential.md)."""
