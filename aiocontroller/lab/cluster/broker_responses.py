"""A simulated broker's long answers: LeaderAndIsr, StopReplica, Metadata.

They are encoded by hand for the same reason as in ``broker_requests``: 100,000 partitions are encoded in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_EPOCH, NO_LEADER, NO_TOPIC_ID
from aiocontroller.lab.cluster.broker_requests import STEP, PartitionState, Steps
from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, Generation
from aiocontroller.lab.cluster.metadata_cache import CachedTopic, MetadataCache
from aiocontroller.wire.apis import ApiKey, is_flexible
from aiocontroller.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    array_length,
    int32_array,
    nullable_string,
    string,
)

LEADER_NOT_AVAILABLE = 5
REPLICA_NOT_AVAILABLE = 9
LISTENER_NOT_FOUND = 72
_NO_OPERATIONS = INT32.pack(-(1 << 31))
_INDEX_ERROR = Struct(">ih")

TopicCodes = Mapping[tuple[str, bytes], Sequence[tuple[int, int]]]
"""(topic, topic id) -> [(partition, error code)]"""


def encode_leader_and_isr_response(version: int, error_code: int, topics: TopicCodes) -> list[bytes]:
    """Encode the answer: a flat list by topic name up to version 4, grouped by topic id from version 5 on."""
    flexible = is_flexible(ApiKey.LEADER_AND_ISR, version)
    tags = NO_TAGS if flexible else b""
    pack = _INDEX_ERROR.pack
    out = [INT16.pack(error_code)]
    if version >= 5:
        out.append(array_length(len(topics), flexible=True))
        for (_, topic_id), codes in topics.items():
            out.append(topic_id + array_length(len(codes), flexible=True))
            out.append(b"".join([pack(partition, code) + tags for partition, code in codes]))
            out.append(tags)
    else:
        out.append(array_length(sum(map(len, topics.values())), flexible=flexible))
        for (topic, _), codes in topics.items():
            name = string(topic, flexible=flexible)
            out.append(b"".join([name + pack(partition, code) + tags for partition, code in codes]))
    out.append(tags)
    return out


def encode_stop_replica_response(version: int, error_code: int, codes: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """Encode the answer; ``codes``: (topic, partition, error code)."""
    flexible = is_flexible(ApiKey.STOP_REPLICA, version)
    tags = NO_TAGS if flexible else b""
    pack = _INDEX_ERROR.pack
    return [
        INT16.pack(error_code) + array_length(len(codes), flexible=flexible),
        *(string(topic, flexible=flexible) + pack(partition, code) + tags for topic, partition, code in codes),
        tags,
    ]


def encode_update_metadata_response(version: int, error_code: int) -> list[bytes]:
    return [INT16.pack(error_code) + (NO_TAGS if is_flexible(ApiKey.UPDATE_METADATA, version) else b"")]


class MetadataQuery:
    """One Metadata request: its topics (None: all), the listener that received it, and the broker's generation."""

    def __init__(
        self,
        version: int,
        topics: Iterable[tuple[str | None, bytes]] | None,
        listener: str,
        generation: Generation = GENERATIONS[NEWEST],
    ) -> None:
        self.version = version
        self.topics = None if topics is None else list(topics)
        self.listener = listener
        self.generation = generation


def encode_metadata_response(query: MetadataQuery, cache: MetadataCache, cluster_id: str | None) -> Steps[list[bytes]]:
    """Encode a Metadata 0-12 answer from a broker's cache."""
    version, flexible = query.version, is_flexible(ApiKey.METADATA, query.version)
    tags = NO_TAGS if flexible else b""
    out = [INT32.pack(0)] if version >= 3 else []
    brokers = [
        (broker, endpoint)
        for broker in cache.alive.values()
        if (endpoint := next((e for e in broker.endpoints if e.listener == query.listener), None))
    ]
    out.append(array_length(len(brokers), flexible=flexible))
    for broker, endpoint in brokers:
        rack = nullable_string(broker.rack, flexible=flexible) if version >= 1 else b""
        out.append(
            INT32.pack(broker.id) + string(endpoint.host, flexible=flexible) + INT32.pack(endpoint.port) + rack + tags
        )
    if version >= 2:
        out.append(nullable_string(cluster_id, flexible=flexible))
    if version >= 1:
        out.append(INT32.pack(cache.controller_id))
    answers = _topics_asked_for(query, cache)
    out.append(array_length(len(answers), flexible=flexible))
    writer = _TopicWriter(version, {broker.id for broker, _ in brokers}, query.generation)
    since_pause = 0
    for error, name, topic_id, topic in answers:
        out.append(writer.topic(error, name, topic_id, topic))
        since_pause += len(topic.partitions) if topic else 1
        if since_pause >= STEP:
            since_pause = 0
            yield
    if 8 <= version <= 10:
        out.append(_NO_OPERATIONS)
    out.append(tags)
    return out


_Answer = tuple[int, str | None, bytes, CachedTopic | None]


def _topics_asked_for(query: MetadataQuery, cache: MetadataCache) -> list[_Answer]:
    if query.topics is None:
        return [(0, topic.name, topic.id, topic) for topic in cache.topics.values()]
    answers: list[_Answer] = []
    for name, topic_id in query.topics:
        topic = cache.topic_by_id.get(topic_id) if topic_id != NO_TOPIC_ID else cache.topics.get(name or "")
        if topic is not None:
            answers.append((0, topic.name, topic.id, topic))
        elif topic_id != NO_TOPIC_ID:
            answers.append((KafkaErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, None))
        else:
            answers.append((KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, topic_id, None))
    return answers


class _TopicWriter:
    def __init__(self, version: int, visible: set[int], generation: Generation) -> None:
        self._version = version
        self._generation = generation
        self._visible = visible
        self._flexible = is_flexible(ApiKey.METADATA, version)
        self._arrays: dict[tuple[int, ...], bytes] = {}

    def topic(self, error: int, name: str | None, topic_id: bytes, topic: CachedTopic | None) -> bytes:
        version, flexible = self._version, self._flexible
        out = [INT16.pack(error)]
        if version >= 12:
            out.append(nullable_string(name, flexible=flexible))
        else:
            out.append(string(name or "", flexible=flexible))
        if version >= 10:
            out.append(topic_id)
        if version >= 1:
            out.append(b"\x01" if name in ("__consumer_offsets", "__transaction_state") else b"\x00")
        partitions = topic.partitions.values() if topic else ()
        out.append(array_length(len(partitions), flexible=flexible))
        out.extend([self._partition(state) for state in partitions])
        if version >= 8:
            out.append(_NO_OPERATIONS)
        if flexible:
            out.append(NO_TAGS)
        return b"".join(out)

    def _partition(self, state: PartitionState) -> bytes:
        version, visible = self._version, self._visible
        replicas, isr, leader_epoch = state.replicas, state.isr, state.leader_epoch
        if version == 0:  # clients this old fail on an unknown replica
            replicas = tuple(r for r in replicas if r in visible)
            isr = tuple(r for r in isr if r in visible)
        if state.leader not in visible:
            error, leader = LEADER_NOT_AVAILABLE, NO_LEADER
            if not self._generation.leaderless_isr:
                isr = ()
            if not self._generation.leaderless_epoch:
                leader_epoch = NO_EPOCH
                error = LISTENER_NOT_FOUND if version >= 6 else error
        elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            error, leader = REPLICA_NOT_AVAILABLE, state.leader
        else:
            error, leader = 0, state.leader
        out = [INT16.pack(error), INT32.pack(state.partition), INT32.pack(leader)]
        if version >= 7:
            out.append(INT32.pack(leader_epoch))
        out.append(self._array(replicas))
        out.append(self._array(isr))
        if version >= 5:
            out.append(self._array(state.offline))
        if self._flexible:
            out.append(NO_TAGS)
        return b"".join(out)

    def _array(self, values: tuple[int, ...]) -> bytes:
        known = self._arrays.get(values)
        if known is None:
            known = self._arrays[values] = int32_array(values, flexible=self._flexible)
        return known
