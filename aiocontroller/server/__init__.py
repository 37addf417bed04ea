"""Servers: the Kafka protocol for brokers and clients, HTTP for metrics, health and status."""
