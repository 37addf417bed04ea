"""The requests that a controller answers: wire forms to and from the events' values, for every version offered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AlterPartition
from aiocontroller.core.ids import RECOVERED, TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange

OFFERED: dict[ApiKey, VersionRange] = {
    ApiKey.CONTROLLED_SHUTDOWN: VersionRange(0, 3),
    ApiKey.API_VERSIONS: VersionRange(0, 4),
    ApiKey.ALTER_PARTITION: VersionRange(0, 3),
    ApiKey.ALLOCATE_PRODUCER_IDS: VersionRange(0, 0),
}


def api_versions(version: int, relayed: Mapping[int, VersionRange]) -> tuple[int, bytes]:
    """(version of the answer, body).  A version that we do not know is answered in version 0, which all can read."""
    known = OFFERED[ApiKey.API_VERSIONS]
    offered = dict(relayed)
    offered.update(OFFERED)
    keys = [{"api_key": key, "min_version": lo, "max_version": hi} for key, (lo, hi) in sorted(offered.items())]
    error = KafkaErrorCode.NONE
    if not known.min <= version <= known.max:
        version, error = 0, KafkaErrorCode.UNSUPPORTED_VERSION
    answer = cold.response(ApiKey.API_VERSIONS, version, error_code=error, api_keys=keys)
    return version, cold.encode_response(ApiKey.API_VERSIONS, version, answer)


def decode_alter_partition(version: int, body: bytes) -> tuple[int, int, tuple[AlterPartition, ...]]:
    """(broker, broker epoch, changes)."""
    request = cold.decode_request(ApiKey.ALTER_PARTITION, version, body)
    changes = tuple(
        AlterPartition(
            topic.topic_name if version < 2 else _bytes(topic.topic_id),
            partition.partition_index,
            partition.leader_epoch,
            tuple(partition.new_isr)
            if version < 3
            else tuple(replica.broker_id for replica in partition.new_isr_with_epochs),
            partition.partition_epoch,
            getattr(partition, "leader_recovery_state", RECOVERED),
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    return request.broker_id, request.broker_epoch, changes


def encode_alter_partition(version: int, result: list[AlterPartitionResult] | KafkaErrorCode) -> bytes:
    if isinstance(result, KafkaErrorCode):
        return _encode(ApiKey.ALTER_PARTITION, version, error_code=result, topics=[])
    by_topic: dict[str | bytes, list[dict[str, Any]]] = {}
    for one in result:
        by_topic.setdefault(one.topic, []).append(_partition(version, one))
    name = "topic_name" if version < 2 else "topic_id"
    topics = [{name: topic, "partitions": partitions} for topic, partitions in by_topic.items()]
    return _encode(ApiKey.ALTER_PARTITION, version, error_code=KafkaErrorCode.NONE, topics=topics)


def _partition(version: int, one: AlterPartitionResult) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": one.partition, "error_code": one.error_code}
    if one.leadership is not None:
        answer |= {
            "leader_id": one.leadership.leader,
            "leader_epoch": one.leadership.leader_epoch,
            "isr": one.leadership.isr,
            "partition_epoch": one.leadership.partition_epoch,
        }
        if version >= 1:
            answer["leader_recovery_state"] = one.leadership.recovery_state
    return answer


def decode_controlled_shutdown(version: int, body: bytes) -> tuple[int, int]:
    """(broker, broker epoch, -1 where the version has none)."""
    request = cold.decode_request(ApiKey.CONTROLLED_SHUTDOWN, version, body)
    return request.broker_id, getattr(request, "broker_epoch", -1)


def encode_controlled_shutdown(version: int, result: list[TopicPartition] | KafkaErrorCode) -> bytes:
    error = result if isinstance(result, KafkaErrorCode) else KafkaErrorCode.NONE
    remaining = [] if isinstance(result, KafkaErrorCode) else result
    return _encode(
        ApiKey.CONTROLLED_SHUTDOWN,
        version,
        error_code=error,
        remaining_partitions=[{"topic_name": tp.topic, "partition_index": tp.partition} for tp in remaining],
    )


def decode_allocate_producer_ids(version: int, body: bytes) -> tuple[int, int]:
    """(broker, broker epoch)."""
    request = cold.decode_request(ApiKey.ALLOCATE_PRODUCER_IDS, version, body)
    return request.broker_id, request.broker_epoch


def encode_allocate_producer_ids(version: int, result: tuple[int, int] | KafkaErrorCode) -> bytes:
    if isinstance(result, KafkaErrorCode):
        return _encode(ApiKey.ALLOCATE_PRODUCER_IDS, version, error_code=result)
    first, count = result
    return _encode(ApiKey.ALLOCATE_PRODUCER_IDS, version, error_code=0, producer_id_start=first, producer_id_len=count)


def _encode(api: ApiKey, version: int, **fields: Any) -> bytes:
    return cold.encode_response(api, version, cold.response(api, version, **fields))


def _bytes(uuid: Any) -> bytes:
    return bytes(16) if uuid is None else bytes(uuid.bytes)
