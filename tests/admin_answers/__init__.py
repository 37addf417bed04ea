"""Kafka's own controller and ours, asked the same in the same state of a cluster."""
