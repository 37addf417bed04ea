"""Real Kafka clusters under load, struck by faults: what clients feel of each, under whichever controller."""
