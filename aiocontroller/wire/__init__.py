"""Kafka's protocol, bytes to structs and back: no I/O, clock, random or logging.

The three requests a controller floods brokers with (LeaderAndIsr, UpdateMetadata, StopReplica) are written by our own
encoders straight from the partition table; AlterPartition, which floods back, has its own too.  Everything colder goes
through kio, behind ``cold``.
"""
