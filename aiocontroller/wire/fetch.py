"""Fetch (API key 1), version 12: where an epoch ends in a replica's log.

A follower sends the epoch of its last record with the offset that it wants (KIP-595).  If the queried log does not
have this epoch up to this offset, the answer has, instead of records, the *diverging epoch*: the log's highest epoch
that is not above the one sent, and the offset where it ends.  So a question with an offset beyond every log asks where
an epoch ends.  A broker answers it for any replica that it holds, whether it leads, follows or waits for a leader; an
epoch above all those of the log, or below them, is OFFSET_OUT_OF_RANGE.

Version 12 is the first with epochs (Kafka 2.7) and the last with topics' names; Kafka 3.9 still has it.  Written by
hand, because after a power cut every replica of every leaderless partition is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.list_offsets import DEBUGGING_CONSUMER
from aiocontroller.wire.primitives import NO_TAGS, UNLIMITED, Buffer, Cursor, array_length, string

VERSION = 12
BEYOND_EVERY_LOG = 1 << 60
"""A fetch offset that no log reaches."""
NO_SESSION = -1
"""The session epoch of a request outside of fetch sessions, whose number a broker limits."""

_HEAD = Struct(">iiiibii")
_UNLIMITED_BYTES = (1 << 31) - 1
_PARTITION = Struct(">iiqiqiB")
_UNKNOWN = -1
_RESPONSE = Struct(">ihi")
_ANSWER = Struct(">ihqqq")
_PREFERRED_REPLICA = Struct(">i")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_DIVERGING_TAG = 0
_USUAL = Struct(">ihqqqBiBBBBiqB")
"""An answer without aborted transactions and records, whose only tagged field is the diverging epoch."""
_ONLY_DIVERGING = [1, _DIVERGING_TAG, _EPOCH_END.size + 1]


class EpochQuestion(NamedTuple):
    """Where does ``epoch``, or the highest epoch below it, end?"""

    partition: int
    epoch: int
    offset: int = BEYOND_EVERY_LOG


class EpochEndAnswer(NamedTuple):
    """A broker's answer about one partition."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    epoch: int = _UNKNOWN
    end_offset: int = _UNKNOWN
    """Both are -1 unless the answer has a diverging epoch."""


def encode_fetch_request(
    topics: Mapping[str, Sequence[EpochQuestion]], replica: int = DEBUGGING_CONSUMER, max_bytes: int = 1
) -> bytes:
    """Ask the broker to answer at once, without waiting for records; ``topics``: name -> questions."""
    max_wait_ms = min_bytes = isolation_level = session_id = 0
    parts = [
        _HEAD.pack(replica, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, NO_SESSION),
        array_length(len(topics), flexible=True),
    ]
    pack = _PARTITION.pack
    for topic, questions in topics.items():
        parts += (string(topic, flexible=True), array_length(len(questions), flexible=True))
        for partition, epoch, offset in questions:
            parts.append(pack(partition, _UNKNOWN, offset, epoch, _UNKNOWN, max_bytes, 0))
        parts.append(NO_TAGS)
    no_forgotten_topics, no_rack = array_length(0, flexible=True), string("", flexible=True)
    parts += (no_forgotten_topics, no_rack, NO_TAGS)
    return b"".join(parts)


class FetchResponse(NamedTuple):
    """What a broker answers, without the records."""

    error_code: int
    partitions: dict[TopicPartition, EpochEndAnswer]


def decode_fetch_response(body: Buffer) -> FetchResponse:
    """Decode a response.  FrameError if it is truncated, too long or malformed, or answers twice about a partition."""
    cursor = Cursor(f"FETCH(1) version {VERSION} response", body, flexible=True)
    cursor.tags_left = UNLIMITED  # each partition may have one
    _, error_code, _ = cursor.unpack(_RESPONSE, "throttle time, error code and session")
    answers: dict[TopicPartition, EpochEndAnswer] = {}
    total = 0
    for _ in range(cursor.array_length("topics", 3)):
        topic = cursor.string("topic")
        count = cursor.array_length("partitions", _ANSWER.size + 7)
        total += count
        for _ in range(count):
            partition, end = _read_usual(cursor) or _read(cursor)
            answers[TopicPartition(topic, partition)] = end
        cursor.tags()
    cursor.tags()
    cursor.end()
    if len(answers) != total:
        raise cursor.error("partitions", f"{total - len(answers)} answered twice", "each once")
    return FetchResponse(error_code, answers)


def _read_usual(cursor: Cursor) -> tuple[int, EpochEndAnswer] | None:
    """Read in one unpack; reads nothing if the answer is not of the usual form."""
    if cursor.at + _USUAL.size > len(cursor.data):
        return None
    values = _USUAL.unpack_from(cursor.data, cursor.at)
    partition, code, high_watermark, _, log_start, aborted, _, records, *tagged, epoch, end_offset, tags = values
    if aborted > 1 or records > 1 or tagged != _ONLY_DIVERGING or tags:
        return None
    cursor.at += _USUAL.size
    return partition, EpochEndAnswer(code, high_watermark, log_start, epoch, end_offset)


def _read(cursor: Cursor) -> tuple[int, EpochEndAnswer]:
    partition, code, high_watermark, _, log_start = cursor.unpack(_ANSWER, "partition, error code and offsets")
    for _ in range(cursor.nullable_array_length("aborted transactions", _ABORTED.size + 1)):
        cursor.skip(_ABORTED.size, "aborted transaction")
        cursor.tags()
    cursor.skip(_PREFERRED_REPLICA.size, "preferred read replica")
    cursor.skip(max(0, cursor.nullable_array_length("records", 1)), "records")
    epoch = end_offset = _UNKNOWN
    for _ in range(cursor.tag_count()):
        tag, size = cursor.varint("tag"), cursor.varint("size of a tagged field")
        end = cursor.at + size
        if tag == _DIVERGING_TAG:
            epoch, end_offset = cursor.unpack(_EPOCH_END, "diverging epoch")
            cursor.tags()
            if cursor.at != end:
                raise cursor.error("diverging epoch", f"its end at byte {cursor.at}", f"byte {end}")
        else:
            cursor.skip(size, f"tagged field {tag}")
    return partition, EpochEndAnswer(code, high_watermark, log_start, epoch, end_offset)
