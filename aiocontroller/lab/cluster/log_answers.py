"""ListOffsets and Fetch of a simulated broker, only as far as they ask where logs and their epochs end.

The answers are those of Kafka's brokers to a client that is not a replica, whether the broker leads, follows or waits
for a leader (``ReplicaManager.fetchOffset``, ``Partition.readRecords``).  All other uses of these requests get the
error of a broker that does not lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.cluster.logs import UNKNOWN_END, Log
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.list_offsets import DEBUGGING_CONSUMER, EARLIEST, LATEST
from aiocontroller.wire.primitives import UNLIMITED, Buffer

Find = Callable[[str, int], Log | KafkaErrorCode]
"""(topic, partition) -> the replica's log, or the broker's error code if it has none."""
EndReported = Callable[[str, int, Log], None]
"""Called with (topic, partition, log) when an answer has the log's end."""
OFFSET_OUT_OF_RANGE = 1


def answer_list_offsets(version: int, body: Buffer, find: Find, end_reported: EndReported = lambda *_: None) -> bytes:
    """Return the end or the beginning of each log, encoded; FrameError for a malformed body."""
    request = cold.decode_request(ApiKey.LIST_OFFSETS, version, body, UNLIMITED)

    def offset(topic: str, asked: Any) -> dict[str, int]:
        log = find(topic, asked.partition_index)
        known = {LATEST: log.end, EARLIEST: log.start} if isinstance(log, Log) else {}
        if isinstance(log, KafkaErrorCode):
            code: int = log
        elif request.replica_id != DEBUGGING_CONSUMER or asked.timestamp not in known:
            code = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            if asked.timestamp == LATEST:
                end_reported(topic, asked.partition_index, log)
            return {"partition_index": asked.partition_index, "error_code": 0, "offset": known[asked.timestamp]}
        return {"partition_index": asked.partition_index, "error_code": code, "offset": -1}

    topics = [{"name": t.name, "partitions": [offset(t.name, asked) for asked in t.partitions]} for t in request.topics]
    message = cold.response(ApiKey.LIST_OFFSETS, version, topics=topics)
    return cold.encode_response(ApiKey.LIST_OFFSETS, version, message)


def answer_fetch(version: int, body: Buffer, find: Find) -> bytes:
    """Return the diverging epoch and its end offset of each log, encoded; FrameError for a malformed body."""
    request = cold.decode_request(ApiKey.FETCH, version, body, UNLIMITED)

    def end(topic: str, asked: Any) -> dict[str, Any]:
        log = find(topic, asked.partition)
        answer: dict[str, Any] = {"partition_index": asked.partition, "high_watermark": -1, "log_start_offset": -1}
        if isinstance(log, KafkaErrorCode):
            return answer | {"error_code": int(log)}
        epoch = getattr(asked, "last_fetched_epoch", -1)
        found = log.end_for(epoch)
        if found == UNKNOWN_END:
            return answer | {"error_code": OFFSET_OUT_OF_RANGE}
        if found.epoch == epoch and asked.fetch_offset <= found.end:
            return answer | {"error_code": int(KafkaErrorCode.NOT_LEADER_OR_FOLLOWER)}
        answer["diverging_epoch"] = {"epoch": found.epoch, "end_offset": found.end}
        return answer | {"error_code": 0, "high_watermark": log.hw, "log_start_offset": log.start}

    topics = [{"topic": t.topic, "partitions": [end(t.topic, asked) for asked in t.partitions]} for t in request.topics]
    message = cold.response(ApiKey.FETCH, version, responses=topics)
    return cold.encode_response(ApiKey.FETCH, version, message)
