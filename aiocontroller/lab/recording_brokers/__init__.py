"""Brokers that only record what they receive: registered in ZooKeeper as Kafka's are, they answer at once.

``RecordingBroker`` decodes each request, for tests.  ``TimedBroker`` keeps times and bytes, for benchmarks with very
many partitions, in a process of its own: ``python -m aiocontroller.lab.recording_brokers``.
"""
