"""The controller of a ZooKeeper-mode Kafka cluster, as one asyncio process outside the brokers."""
