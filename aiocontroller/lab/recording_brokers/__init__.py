"""Brokers that only record what they receive: they register in ZooKeeper like Kafka's, and answer at once.

``RecordingBroker`` decodes each request, for tests.  ``TimedBroker`` keeps times and bytes, for benchmarks with very
many partitions, in a separate process: ``python -m aiocontroller.lab.recording_brokers``.
"""
