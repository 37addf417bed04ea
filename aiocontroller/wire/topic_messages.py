"""CreateTopics 0-7, DeleteTopics 0-6 and CreatePartitions 0-3: requests as plain values, answers from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aiocontroller.core.events import NewPartitions, NewTopic, TopicResult
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.primitives import Buffer

CONFIG_NOT_TOLD = 29
"""What version 5 and later say of a topic's configuration that is not told: TOPIC_AUTHORIZATION_FAILED."""


class CreateTopicsRequest(msgspec.Struct, frozen=True):
    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class DeleteTopicsRequest(msgspec.Struct, frozen=True):
    topics: tuple[str | bytes, ...]
    """Names, or ids of 16 bytes."""
    timeout_ms: int


class CreatePartitionsRequest(msgspec.Struct, frozen=True):
    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool = False


def decode_create_topics_request(version: int, body: Buffer) -> CreateTopicsRequest:
    message = cold.decode_request(ApiKey.CREATE_TOPICS, version, body)
    topics = tuple(
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            {a.partition_index: tuple(a.broker_ids) for a in topic.assignments},
            {c.name: c.value for c in topic.configs},
        )
        for topic in message.topics
    )
    return CreateTopicsRequest(topics, _milliseconds(message), getattr(message, "validate_only", False))


def encode_create_topics_response(version: int, results: Mapping[str | bytes, TopicResult]) -> bytes:
    topics: list[dict[str, Any]] = [
        {
            "name": name,
            "topic_id": result.topic_id,
            "error_code": result.error_code,
            "error_message": result.message or None,
            "topic_config_error_code": _config_error(result),
            "num_partitions": result.partitions,
            "replication_factor": result.replication_factor,
            "configs": [
                {
                    "name": each.name,
                    "value": each.value,
                    "read_only": False,
                    "config_source": each.source,
                    "is_sensitive": each.sensitive,
                }
                for each in result.configs
            ],
        }
        for name, result in results.items()
        for _ in range(result.times)
    ]
    return _response(ApiKey.CREATE_TOPICS, version, topics=topics)


def _config_error(result: TopicResult) -> int:
    return result.config_error_code or (0 if result.error_code or result.configs else CONFIG_NOT_TOLD)


def decode_delete_topics_request(version: int, body: Buffer) -> DeleteTopicsRequest:
    message = cold.decode_request(ApiKey.DELETE_TOPICS, version, body)
    if version < 6:
        return DeleteTopicsRequest(tuple(message.topic_names), _milliseconds(message))
    topics = tuple(t.name if t.name is not None else _id(t.topic_id) for t in message.topics)
    return DeleteTopicsRequest(topics, _milliseconds(message))


def encode_delete_topics_response(version: int, results: Mapping[str | bytes, TopicResult]) -> bytes:
    """A topic named by id has its name told too, where it is known."""
    responses = []
    for topic, result in results.items():
        answer: dict[str, Any] = {"error_code": result.error_code}
        if version >= 5:
            answer["error_message"] = result.message or None
        if version >= 6:
            answer["topic_id"] = NO_TOPIC_ID if isinstance(topic, str) else topic
        answer["name"] = topic if isinstance(topic, str) else result.name
        responses.append(answer)
    return _response(ApiKey.DELETE_TOPICS, version, responses=responses)


def decode_create_partitions_request(version: int, body: Buffer) -> CreatePartitionsRequest:
    message = cold.decode_request(ApiKey.CREATE_PARTITIONS, version, body)
    topics = tuple(
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else tuple(tuple(a.broker_ids) for a in topic.assignments),
        )
        for topic in message.topics
    )
    return CreatePartitionsRequest(topics, _milliseconds(message), message.validate_only)


def encode_create_partitions_response(version: int, results: Mapping[str | bytes, TopicResult]) -> bytes:
    answers = [
        {"name": name, "error_code": result.error_code, "error_message": result.message or None}
        for name, result in results.items()
    ]
    return _response(ApiKey.CREATE_PARTITIONS, version, results=answers)


def encode_describe_broker_configs_request(version: int, broker: int, names: Iterable[str]) -> bytes:
    resource = {"resource_type": _BROKER, "resource_name": str(broker), "configuration_keys": list(names)}
    message = cold.request(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource])
    return cold.encode_request(ApiKey.DESCRIBE_CONFIGS, version, message)


def decode_describe_configs_response(version: int, body: Buffer) -> tuple[int, dict[str, str | None]]:
    """(error code, settings), of the one resource that was asked for."""
    results = cold.decode_response(ApiKey.DESCRIBE_CONFIGS, version, body).results
    if len(results) != 1:
        raise FrameError(f"DescribeConfigs: found {len(results)} results, expected one")
    return int(results[0].error_code), {config.name: config.value for config in results[0].configs}


_BROKER = 4
"""Kafka's ``ConfigResource.Type``."""


def _response(api: ApiKey, version: int, **fields: Any) -> bytes:
    return cold.encode_response(api, version, cold.response(api, version, **fields))


def _milliseconds(message: Any) -> int:
    seconds: float = message.timeout.total_seconds()
    return round(seconds * 1000)


def _id(uuid: Any) -> bytes:
    return NO_TOPIC_ID if uuid is None else bytes(uuid.bytes)
