"""Kafka's protocol, bytes to structs and back: no I/O, clock, random or logging.

Our own encoders write the controller's bulk requests (LeaderAndIsr, UpdateMetadata, StopReplica) directly from the
partition table.  AlterPartition, which arrives in bulk, and admin requests that may name tens of thousands of topics or
partitions have their own codecs too.  Everything else goes through kio, in ``cold``.
"""
