"""What a controller runs against on one machine: embedded ZooKeeper, simulated brokers, real Kafka broker processes."""
