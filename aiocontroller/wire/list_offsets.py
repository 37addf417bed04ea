"""ListOffsets (API key 2), versions 1 to 9: at which offset a replica's log begins or ends.

version  adds
1        one offset for each partition, instead of several
2        isolation level; throttle time in the response
4        the leader epoch, in both directions
6        flexible
7 to 9   further special timestamps, with the same fields

A broker answers a question by the replica id DEBUGGING_CONSUMER for any replica that it holds, whether it leads,
follows or waits for a leader.  It answers any other question only where it leads.

Written by hand, because after a power cut every replica of every leaderless partition is asked (a fifteenth of kio's
time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey, VersionRange, check_supported, is_flexible
from aiocontroller.wire.primitives import INT32, NO_TAGS, UNLIMITED, Buffer, Cursor, array_length, string

CONSUMER = -1
DEBUGGING_CONSUMER = -2
"""Replica ids of clients that are not replicas."""
LATEST = -1
EARLIEST = -2
"""Special timestamps: the end and the beginning of the log."""
VERSIONS = VersionRange(1, 9)

_API = {ApiKey.LIST_OFFSETS: VERSIONS}
_READ_UNCOMMITTED = b"\x00"
_ANSWER = Struct(">ihqq")
_ANSWER_WITH_EPOCH = Struct(">ihqqi")
_TAGGED_ANSWER = Struct(">ihqqiB")


class ListedOffset(NamedTuple):
    """A broker's answer about one partition; ``offset`` is meaningless with an error code."""

    error_code: int
    offset: int
    leader_epoch: int = -1
    """For a special timestamp, the partition's current leader epoch as the broker knows it; -1 if it knows none."""


def encode_list_offsets_request(
    version: int, topics: Mapping[str, Sequence[int]], timestamp_ms: int = LATEST, replica: int = DEBUGGING_CONSUMER
) -> bytes:
    """``topics``: name -> partitions, all asked for the same timestamp, real or special."""
    check_supported(ApiKey.LIST_OFFSETS, version, _API)
    flexible = is_flexible(ApiKey.LIST_OFFSETS, version)
    unknown_epoch = b"\xff" * 4 if version >= 4 else b""
    end = NO_TAGS if flexible else b""
    tail = unknown_epoch + timestamp_ms.to_bytes(8, "big", signed=True) + end
    parts = [
        INT32.pack(replica),
        _READ_UNCOMMITTED if version >= 2 else b"",
        array_length(len(topics), flexible=flexible),
    ]
    for topic, partitions in topics.items():
        parts += (string(topic, flexible=flexible), array_length(len(partitions), flexible=flexible))
        for partition in partitions:
            parts += (INT32.pack(partition), tail)
        parts.append(end)
    parts.append(end)
    return b"".join(parts)


def decode_list_offsets_response(version: int, body: Buffer) -> dict[TopicPartition, ListedOffset]:
    """Decode a response.  FrameError if it is truncated, too long or malformed, or answers twice about a partition."""
    check_supported(ApiKey.LIST_OFFSETS, version, _API)
    flexible = is_flexible(ApiKey.LIST_OFFSETS, version)
    cursor = Cursor(f"LIST_OFFSETS(2) version {version} response", body, flexible=flexible)
    cursor.tags_left = UNLIMITED  # each partition may have some
    if version >= 2:
        cursor.int32("throttle time")
    form = _ANSWER_WITH_EPOCH if version >= 4 else _ANSWER
    answers: dict[TopicPartition, ListedOffset] = {}
    total = 0
    for _ in range(cursor.array_length("topics", 3)):
        topic = cursor.string("topic")
        count = cursor.array_length("partitions", form.size + flexible)
        total += count
        if not (flexible and _read_untagged(cursor, topic, count, answers)):
            for _ in range(count):
                partition, code, _, offset, *epoch = cursor.unpack(form, "partition, error code and offset")
                cursor.tags()
                answers[TopicPartition(topic, partition)] = ListedOffset(code, offset, *epoch)
        cursor.tags()
    cursor.tags()
    cursor.end()
    if len(answers) != total:
        raise cursor.error("partitions", f"{total - len(answers)} answered twice", "each once")
    return answers


def _read_untagged(cursor: Cursor, topic: str, count: int, answers: dict[TopicPartition, ListedOffset]) -> bool:
    """Read all answers about a topic together; reads nothing if one of them has tagged fields."""
    size = _TAGGED_ANSWER.size
    rows = memoryview(cursor.data)[cursor.at : cursor.at + count * size].tobytes()
    if any(rows[size - 1 :: size]):
        return False
    answers.update(
        (TopicPartition(topic, partition), ListedOffset(code, offset, epoch))
        for partition, code, _, offset, epoch, _ in _TAGGED_ANSWER.iter_unpack(rows)
    )
    cursor.skip(len(rows), "partitions")
    return True
