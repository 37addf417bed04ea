"""DescribeQuorum (KIP-595): who leads a KRaft quorum, and how far each replica of its metadata log is."""

from __future__ import annotations

import msgspec

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.primitives import Buffer

_TOPIC = "__cluster_metadata"


class QuorumReplica(msgspec.Struct, frozen=True):
    """A voter, or an observer such as a broker."""

    id: int
    log_end_offset: int
    """-1 if it is unknown."""
    last_caught_up_ms: int = -1
    """Wall clock of the leader, in milliseconds since 1970; -1 if it is unknown."""


class DescribedQuorum(msgspec.Struct, frozen=True):
    """The quorum as its leader sees it."""

    error_code: int
    leader: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()


def encode_describe_quorum_request(version: int) -> bytes:
    """Ask for the only partition of the metadata log."""
    topics = [{"topic_name": _TOPIC, "partitions": [{"partition_index": 0}]}]
    return cold.encode_request(
        ApiKey.DESCRIBE_QUORUM, version, cold.request(ApiKey.DESCRIBE_QUORUM, version, topics=topics)
    )


def decode_describe_quorum_response(version: int, body: Buffer) -> DescribedQuorum:
    """FrameError for a malformed body, or for one without an error that has not exactly one partition."""
    message = cold.decode_response(ApiKey.DESCRIBE_QUORUM, version, body)
    if message.error_code:
        return DescribedQuorum(int(message.error_code))
    partitions = [partition for topic in message.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise FrameError(f"DescribeQuorum: found {len(partitions)} partitions, expected one")
    found = partitions[0]
    voters, observers = (
        tuple(
            QuorumReplica(each.replica_id, each.log_end_offset, getattr(each, "last_caught_up_timestamp", -1))
            for each in some
        )
        for some in (found.current_voters, found.observers)
    )
    return DescribedQuorum(
        int(found.error_code), found.leader_id, found.leader_epoch, found.high_watermark, voters, observers
    )
