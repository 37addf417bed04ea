"""What a simulated broker answers, where the answer may be long: LeaderAndIsr, StopReplica, Metadata; and its settings.

The long ones are written by hand for the same reason as ``broker_requests``: 100,000 partitions in pieces, not in one
breath.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from aiocontroller.cluster.broker_requests import STEP, PartitionState, Steps
from aiocontroller.cluster.metadata_cache import CachedTopic, MetadataCache
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_LEADER, NO_TOPIC_ID
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, is_flexible
from aiocontroller.wire.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    Buffer,
    array_length,
    int32_array,
    nullable_string,
    string,
)

LEADER_NOT_AVAILABLE = 5
REPLICA_NOT_AVAILABLE = 9
SETTINGS: Mapping[str, str | None] = {
    "authorizer.class.name": "",
    "control.plane.listener.name": None,
    "default.replication.factor": "1",
    "inter.broker.listener.name": None,
    "num.partitions": "1",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "security.inter.broker.protocol": "PLAINTEXT",
    "ssl.principal.mapping.rules": "DEFAULT",
}
"""What a simulated broker says of itself: Kafka's defaults, of what controllers ask for."""
_BROKER = 4
"""Kafka's ``ConfigResource.Type``."""
_NO_OPERATIONS = INT32.pack(-(1 << 31))
_INDEX_ERROR = Struct(">ih")

TopicCodes = Mapping[tuple[str, bytes], Sequence[tuple[int, int]]]
"""(topic, topic id) -> [(partition, error code)]"""


def encode_leader_and_isr_response(version: int, error_code: int, topics: TopicCodes) -> list[bytes]:
    """Flat and by name up to version 4, by topic id from version 5 on."""
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
    """``codes``: (topic, partition, error code)."""
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


def encode_describe_configs_response(version: int, body: Buffer, broker_id: int) -> bytes:
    """Of this broker's own settings; INVALID_REQUEST for whatever else is asked for."""
    results = []
    for asked in cold.decode_request(ApiKey.DESCRIBE_CONFIGS, version, body).resources:
        names = SETTINGS if asked.configuration_keys is None else asked.configuration_keys
        own = (asked.resource_type, asked.resource_name) == (_BROKER, str(broker_id))
        configs = [{"name": name, "value": SETTINGS[name]} for name in names if own and name in SETTINGS]
        results.append(
            {
                "error_code": 0 if own else KafkaErrorCode.INVALID_REQUEST,
                "resource_type": asked.resource_type,
                "resource_name": asked.resource_name,
                "configs": configs,
            }
        )
    message = cold.response(ApiKey.DESCRIBE_CONFIGS, version, results=results)
    return cold.encode_response(ApiKey.DESCRIBE_CONFIGS, version, message)


class MetadataQuery:
    """One Metadata request: which topics (None: all), and on which listener it was asked."""

    def __init__(self, version: int, topics: Iterable[tuple[str | None, bytes]] | None, listener: str) -> None:
        self.version = version
        self.topics = None if topics is None else list(topics)
        self.listener = listener


def encode_metadata_response(query: MetadataQuery, cache: MetadataCache, cluster_id: str | None) -> Steps[list[bytes]]:
    """Metadata 0-12 as a broker answers it from its cache."""
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
    writer = _TopicWriter(version, {broker.id for broker, _ in brokers})
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
    def __init__(self, version: int, visible: set[int]) -> None:
        self._version = version
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
        replicas, isr = state.replicas, state.isr
        if version == 0:  # clients of that time cannot bear a replica that they do not know
            replicas = tuple(r for r in replicas if r in visible)
            isr = tuple(r for r in isr if r in visible)
        if state.leader not in visible:
            error, leader = LEADER_NOT_AVAILABLE, NO_LEADER
        elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            error, leader = REPLICA_NOT_AVAILABLE, state.leader
        else:
            error, leader = 0, state.leader
        out = [INT16.pack(error), INT32.pack(state.partition), INT32.pack(leader)]
        if version >= 7:
            out.append(INT32.pack(state.leader_epoch))
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
