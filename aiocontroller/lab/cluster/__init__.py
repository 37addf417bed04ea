"""A cluster on one machine for a controller: embedded ZooKeeper, simulated brokers, real Kafka broker processes."""
