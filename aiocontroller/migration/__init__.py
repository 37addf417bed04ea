"""Accompanies Kafka's migration to KRaft (KIP-866): where it stands, and what must hold for each step."""
