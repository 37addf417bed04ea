"""DescribeLogDirs 0-4, the client's side: the sizes of a broker's replicas in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.long_requests import by_topic
from aiocontroller.wire.primitives import Buffer

_KEY = ApiKey.DESCRIBE_LOG_DIRS


def encode_describe_log_dirs_request(version: int, partitions: Sequence[TopicPartition] | None) -> bytes:
    """``partitions`` None requests every replica of the broker."""
    topics = None
    if partitions is not None:
        topics = [{"topic": t, "partitions": [tp.partition for tp in own]} for t, own in by_topic(partitions).items()]
    return cold.encode_request(_KEY, version, cold.request(_KEY, version, topics=topics))


def decode_describe_log_dirs_response(version: int, body: Buffer) -> tuple[int, dict[TopicPartition, int]]:
    """The error code, and the bytes of each replica in a working directory.

    The code is Kafka's; 0 below version 3, which has none.  FrameError for a malformed answer.
    """
    answer = cold.decode_response(_KEY, version, body)
    sizes = {
        TopicPartition(topic.name, partition.partition_index): int(partition.partition_size)
        for folder in answer.results
        if not int(folder.error_code)
        for topic in folder.topics
        for partition in topic.partitions
        if not partition.is_future_key  # a copy on its way to another directory of the same broker
    }
    return int(getattr(answer, "error_code", 0)), sizes
