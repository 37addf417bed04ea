"""CreateTopics 0-7, DeleteTopics 0-6 and CreatePartitions 0-3: requests as plain values, answers from plain values.

Hand-written, since one request may name very many topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

import msgspec

from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.request_content import NewPartitions, NewTopic, TopicResult, TopicSetting
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.long_requests import OutcomeWriter, request_cursor
from aiocontroller.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    Buffer,
    array_length,
    nullable_string,
    string,
)

_COUNTS = Struct(">ih")
"""Number of partitions and replication factor."""
_CONFIG = Struct(">bbbb")
"""Read only, source, sensitive, no tagged fields."""
_TAGGED_CODE = Struct(">bbbh")
"""The number of tagged fields, the tag, its size, the error code."""


class CreateTopicsRequest(msgspec.Struct, frozen=True):
    """Topics to create; ``timeout_ms`` bounds the wait for brokers."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class DeleteTopicsRequest(msgspec.Struct, frozen=True):
    """Topics to delete, by name or id."""

    topics: tuple[str | bytes, ...]
    """Names, or ids of 16 bytes."""
    timeout_ms: int
    contradictory: dict[str, bytes] = {}
    """Names that were given together with an id."""


class CreatePartitionsRequest(msgspec.Struct, frozen=True):
    """Topics that are to have more partitions."""

    topics: tuple[NewPartitions, ...]
    timeout_ms: int
    validate_only: bool = False


def decode_create_topics_request(version: int, body: Buffer) -> CreateTopicsRequest:
    """Topics in their order, with an entry for each time one is named.  Raises FrameError for a malformed body."""
    cursor = request_cursor(ApiKey.CREATE_TOPICS, version, body)
    n = cursor.array_length("topics", 10)
    cursor.count("topics", n)
    topics = []
    for _ in range(n):
        name = cursor.string("name")
        partitions, replication_factor = cursor.unpack(_COUNTS, "number of partitions and replication factor")
        assignments = {}
        assigned = cursor.array_length("assignments", 5)
        cursor.count("assignments", assigned)
        for _ in range(assigned):
            index = cursor.int32("partition")
            assignments[index] = cursor.int32_array("broker ids")
            cursor.tags()
        configs = {}
        configured = cursor.array_length("configs", 2)
        cursor.count("configs", configured)
        for _ in range(configured):
            key = cursor.string("name of a config")
            configs[key] = cursor.nullable_string("value of a config")
            cursor.tags()
        cursor.tags()
        topics.append(NewTopic(name, partitions, replication_factor, assignments, configs))
    timeout_ms = cursor.int32("timeout")
    validate_only = version >= 1 and cursor.int8("validate only") != 0
    cursor.tags()
    return CreateTopicsRequest(tuple(topics), timeout_ms, validate_only)


def encode_create_topics_response(
    version: int, results: Mapping[str | bytes, TopicResult], throttle_time_ms: int = 0
) -> bytes:
    """Topics that share a tuple of configurations share its encoding."""
    check_supported(ApiKey.CREATE_TOPICS, version)
    flexible = is_flexible(ApiKey.CREATE_TOPICS, version)
    outcomes = OutcomeWriter(flexible=flexible, with_message=version >= 1)
    configs: dict[int, bytes] = {}
    out = [INT32.pack(throttle_time_ms)] if version >= 2 else []
    out.append(array_length(sum(result.times for result in results.values()), flexible=flexible))
    for name, result in results.items():
        written = string(str(name), flexible=flexible)
        if version >= 7:
            written += result.topic_id
        written += outcomes[int(result.error_code), result.message]
        if version >= 5:
            if id(result.configs) not in configs:
                configs[id(result.configs)] = _configs(result.configs)
            written += _COUNTS.pack(result.partitions, result.replication_factor) + configs[id(result.configs)]
            code = result.config_error_code
            written += _TAGGED_CODE.pack(1, 0, INT16.size, code) if code else NO_TAGS
        out += [written] * result.times
    out.append(outcomes.end)
    return b"".join(out)


def _configs(configs: Sequence[TopicSetting]) -> bytes:
    out = [array_length(len(configs), flexible=True)]
    for each in configs:
        out += (string(each.name, flexible=True), nullable_string(each.value, flexible=True))
        out.append(_CONFIG.pack(False, each.source, each.sensitive, 0))
    return b"".join(out)


def decode_delete_topics_request(version: int, body: Buffer) -> DeleteTopicsRequest:
    """Names, or ids from version 6 on; ``contradictory`` has those with both.  FrameError for a malformed body."""
    cursor = request_cursor(ApiKey.DELETE_TOPICS, version, body)
    n = cursor.array_length("topics", 1)
    cursor.count("topics", n)
    topics: list[str | bytes] = []
    contradictory: dict[str, bytes] = {}
    for _ in range(n):
        if version < 6:
            topics.append(cursor.string("name"))
            continue
        name, topic_id = cursor.nullable_string("name"), cursor.uuid("topic id")
        topics.append(topic_id if name is None else name)
        if name is not None and topic_id != NO_TOPIC_ID:
            contradictory[name] = topic_id
        cursor.tags()
    timeout_ms = cursor.int32("timeout")
    cursor.tags()
    return DeleteTopicsRequest(tuple(topics), timeout_ms, contradictory)


def encode_delete_topics_response(
    version: int, results: Mapping[str | bytes, TopicResult], throttle_time_ms: int = 0
) -> bytes:
    """A topic requested by id also gets its name, if known."""
    check_supported(ApiKey.DELETE_TOPICS, version)
    flexible = is_flexible(ApiKey.DELETE_TOPICS, version)
    outcomes = OutcomeWriter(flexible=flexible, with_message=version >= 5)
    out = [INT32.pack(throttle_time_ms)] if version >= 1 else []
    out.append(array_length(sum(result.times for result in results.values()), flexible=flexible))
    for topic, result in results.items():
        if isinstance(topic, str):
            name: str | None = topic
            topic_id = result.topic_id
        else:
            name, topic_id = result.name, topic
        written = nullable_string(name, flexible=flexible) if version >= 6 else string(name or "", flexible=flexible)
        if version >= 6:
            written += topic_id
        written += outcomes[int(result.error_code), result.message] + outcomes.end
        out += [written] * result.times
    out.append(outcomes.end)
    return b"".join(out)


def decode_create_partitions_request(version: int, body: Buffer) -> CreatePartitionsRequest:
    """New total counts, with assignments of the added partitions or None. Raises FrameError for a malformed body."""
    cursor = request_cursor(ApiKey.CREATE_PARTITIONS, version, body)
    n = cursor.array_length("topics", 6)
    cursor.count("topics", n)
    topics = []
    for _ in range(n):
        name, count = cursor.string("name"), cursor.int32("count")
        assigned = cursor.nullable_array_length("assignments", 1)
        cursor.count("assignments", max(assigned, 0))
        assignments = []
        for _ in range(assigned):
            assignments.append(cursor.int32_array("broker ids"))
            cursor.tags()
        cursor.tags()
        topics.append(NewPartitions(name, count, None if assigned < 0 else tuple(assignments)))
    timeout_ms = cursor.int32("timeout")
    validate_only = cursor.int8("validate only") != 0
    cursor.tags()
    return CreatePartitionsRequest(tuple(topics), timeout_ms, validate_only)


def encode_create_partitions_response(
    version: int, results: Mapping[str | bytes, TopicResult], throttle_time_ms: int = 0
) -> bytes:
    """``results``: topic -> its result, in their order."""
    check_supported(ApiKey.CREATE_PARTITIONS, version)
    flexible = is_flexible(ApiKey.CREATE_PARTITIONS, version)
    outcomes = OutcomeWriter(flexible=flexible)
    out = [INT32.pack(throttle_time_ms), array_length(len(results), flexible=flexible)]
    for name, result in results.items():
        out += (string(str(name), flexible=flexible), outcomes[int(result.error_code), result.message], outcomes.end)
    out.append(outcomes.end)
    return b"".join(out)
