"""ElectLeaders 0-2, both sides; the controller's side by hand, since it may name very many partitions.

A null list means *all* and an empty one *none*; the codec keeps the distinction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.long_requests import (
    DEFAULT_TIMEOUT_MS,
    CodeAndMessage,
    by_topic,
    partition_outcomes,
    request_cursor,
)
from aiocontroller.wire.primitives import INT32, NO_TAGS, Buffer

_KEY = ApiKey.ELECT_LEADERS
_THROTTLED_AND_CODE = Struct(">ih")


class ElectLeadersRequest(msgspec.Struct, frozen=True):
    """The partitions whose leaders are to be elected, and the kind of election."""

    partitions: tuple[TopicPartition, ...] | None
    """None: all."""
    election_type: int = 0
    """``core.request_content.ElectionType``; version 0 has preferred elections only."""


class ElectLeadersResponse(msgspec.Struct, frozen=True):
    """The top-level error code, and an outcome for each partition."""

    error_code: int
    """The top-level error code; 0 below version 1, which has none."""
    results: dict[TopicPartition, CodeAndMessage]


def encode_elect_leaders_request(
    version: int, partitions: Sequence[TopicPartition] | None, election_type: int = 0
) -> bytes:
    """``partitions``: None for all.  ValueError for an unclean election in version 0, which cannot express it."""
    if version == 0 and election_type:
        raise ValueError(f"ElectLeaders version 0: found election type {election_type}, expected 0 (preferred)")
    message = cold.request(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=election_type,
        topic_partitions=None
        if partitions is None
        else [{"topic": t, "partitions": [tp.partition for tp in tps]} for t, tps in by_topic(partitions).items()],
        timeout=DEFAULT_TIMEOUT_MS,
    )
    return cold.encode_request(ApiKey.ELECT_LEADERS, version, message)


def decode_elect_leaders_request(version: int, body: Buffer) -> ElectLeadersRequest:
    """Partitions are None for all; version 0 is a preferred election.  Raises FrameError for a malformed body."""
    cursor = request_cursor(_KEY, version, body)
    election_type = cursor.int8("election type") if version >= 1 else 0
    n = cursor.nullable_array_length("topics", 3)
    cursor.count("topics", max(n, 0))
    partitions: list[TopicPartition] = []
    for _ in range(n):
        topic = cursor.string("topic")
        numbers = cursor.int32_array("partitions")
        cursor.count("partitions", len(numbers))
        partitions += [TopicPartition(topic, number) for number in numbers]
        cursor.tags()
    cursor.int32("timeout")
    cursor.tags()
    return ElectLeadersRequest(None if n < 0 else tuple(partitions), election_type)


def encode_elect_leaders_response(
    version: int, error_code: int, results: Mapping[TopicPartition, CodeAndMessage]
) -> bytes:
    """``results``: partition -> outcome, in their order; version 0 has no top-level error code."""
    check_supported(_KEY, version)
    flexible = is_flexible(_KEY, version)
    head = _THROTTLED_AND_CODE.pack(0, error_code) if version >= 1 else INT32.pack(0)
    return b"".join((head, partition_outcomes(results, flexible=flexible), NO_TAGS if flexible else b""))


def decode_elect_leaders_response(version: int, body: Buffer) -> ElectLeadersResponse:
    """The top-level error code is 0 in version 0.  Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.ELECT_LEADERS, version, body)
    results = {
        TopicPartition(t.topic, p.partition_id): (int(p.error_code), p.error_message or "")
        for t in message.replica_election_results
        for p in t.partition_result
    }
    return ElectLeadersResponse(int(getattr(message, "error_code", 0)), results)
