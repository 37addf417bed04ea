"""Accompanies Kafka's migration to KRaft (KIP-866): reports its phase, and what each step requires."""
