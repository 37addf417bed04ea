"""Real Kafka clusters under load and faults: the effect on clients, with each kind of controller."""
