"""The cold messages of handlers and simulated brokers, without kio's nesting and version differences.

Each pair of functions is one side of one message: ``decode_…`` returns a small struct that is the same for all
versions, ``encode_…`` takes plain values.  All decoders raise FrameError for a body that is truncated, too long or
malformed, and UnsupportedApiError for an unsupported version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID, UNKNOWN_BROKER_EPOCH, TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from aiocontroller.wire.primitives import INT16, Buffer, Cursor

# -- ApiVersions -------------------------------------------------------------------------------------------------------


class ApiVersions(msgspec.Struct, frozen=True):
    """A peer's offer; ``versions`` by API key, including keys unknown to us."""

    error_code: int
    versions: dict[int, VersionRange]
    zk_migration_ready: bool = False
    """The peer is a broker migrating to KRaft, which makes other demands on a controller."""
    supported_features: tuple[tuple[str, int, int], ...] = ()
    """(name, min version, max version)."""
    finalized_features: tuple[tuple[str, int], ...] = ()
    """(name, max version)."""


def encode_api_versions_request(version: int, software_name: str, software_version: str) -> bytes:
    """The name and version of the client's software are sent from version 3 on (KIP-511)."""
    message = cold.request(
        ApiKey.API_VERSIONS,
        version,
        client_software_name=software_name,
        client_software_version=software_version,
    )
    return cold.encode_request(ApiKey.API_VERSIONS, version, message)


_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_api_versions_request(version: int, body: Buffer, offered: Mapping[Any, VersionRange]) -> bytes:
    """The response to a request of any version; FrameError for a malformed one of a known version.

    A request that is too new gets UNSUPPORTED_VERSION in the oldest layout, with only the versions of ApiVersions to
    retry with (KIP-511).  Since version 3, clients name their software in words that are valid as metrics' tags.
    """
    if not 0 <= version <= SUPPORTED[ApiKey.API_VERSIONS].max:
        own = {ApiKey.API_VERSIONS: SUPPORTED[ApiKey.API_VERSIONS]}
        return encode_api_versions_response(0, own, error_code=KafkaErrorCode.UNSUPPORTED_VERSION)
    request = cold.decode_request(ApiKey.API_VERSIONS, version, body)
    if version >= 3 and not all(
        _SOFTWARE.fullmatch(words) for words in (request.client_software_name, request.client_software_version)
    ):
        return encode_api_versions_response(version, {}, error_code=KafkaErrorCode.INVALID_REQUEST)
    return encode_api_versions_response(version, offered)


def encode_api_versions_response(version: int, offered: Mapping[Any, VersionRange], *, error_code: int = 0) -> bytes:
    """``offered``: API key -> versions; the answer lists them by number."""
    return _encoded_offer(version, tuple(sorted(offered.items())), error_code)


@lru_cache(maxsize=64)
def _encoded_offer(version: int, offered: tuple[tuple[Any, VersionRange], ...], error_code: int) -> bytes:
    """Cached: every connection begins with this answer, and it is the same for all connections of a listener."""
    keys = [{"api_key": int(api), "min_version": v.min, "max_version": v.max} for api, v in offered]
    message = cold.response(ApiKey.API_VERSIONS, version, error_code=error_code, api_keys=keys)
    return cold.encode_response(ApiKey.API_VERSIONS, version, message)


def decode_api_versions_response(version: int, body: Buffer) -> ApiVersions:
    """A response with UNSUPPORTED_VERSION is in the oldest layout, whatever the request's version."""
    if len(body) >= INT16.size and INT16.unpack_from(body)[0] == KafkaErrorCode.UNSUPPORTED_VERSION:
        version = 0
    if version == 0:
        return _decode_oldest_api_versions(body)
    message = cold.decode_response(ApiKey.API_VERSIONS, version, body)
    return ApiVersions(
        int(message.error_code),
        {api.api_key: VersionRange(api.min_version, api.max_version) for api in message.api_keys},
        getattr(message, "zk_migration_ready", False),
        tuple((f.name, f.min_version, f.max_version) for f in getattr(message, "supported_features", ())),
        tuple((f.name, f.max_version_level) for f in getattr(message, "finalized_features", ())),
    )


_API = Struct(">hhh")


def _decode_oldest_api_versions(body: Buffer) -> ApiVersions:
    """Hand-written, because a controller reads one from each broker first, and kio takes half a second to load."""
    cursor = Cursor("API_VERSIONS(18) version 0 response", body, flexible=False)
    error_code = cursor.int16("error code")
    versions = {}
    for _ in range(cursor.array_length("API keys", _API.size)):
        key, lowest, highest = cursor.unpack(_API, "API key and versions")
        versions[key] = VersionRange(lowest, highest)
    cursor.end()
    return ApiVersions(error_code, versions)


# -- ControlledShutdown ------------------------------------------------------------------------------------------------


class ControlledShutdownRequest(msgspec.Struct, frozen=True):
    """A broker asks the controller to move its leaders to other brokers."""

    broker: int
    broker_epoch: int
    """UNKNOWN_BROKER_EPOCH below version 2."""


class ControlledShutdownResponse(msgspec.Struct, frozen=True):
    """The answer to a controlled shutdown."""

    error_code: int
    remaining: tuple[TopicPartition, ...]
    """The partitions that the broker still leads."""


def encode_controlled_shutdown_request(version: int, broker: int, broker_epoch: int) -> bytes:
    """Version 0 has a header of its own; the broker epoch is sent from version 2 on."""
    message = cold.request(ApiKey.CONTROLLED_SHUTDOWN, version, broker_id=broker, broker_epoch=broker_epoch)
    return cold.encode_request(ApiKey.CONTROLLED_SHUTDOWN, version, message)


def decode_controlled_shutdown_request(version: int, body: Buffer) -> ControlledShutdownRequest:
    """Below version 2 the broker epoch is UNKNOWN_BROKER_EPOCH. Raises FrameError for a malformed body."""
    message = cold.decode_request(ApiKey.CONTROLLED_SHUTDOWN, version, body)
    return ControlledShutdownRequest(message.broker_id, getattr(message, "broker_epoch", UNKNOWN_BROKER_EPOCH))


def encode_controlled_shutdown_response(
    version: int, error_code: int, remaining: Iterable[TopicPartition] = ()
) -> bytes:
    """``remaining``: partitions that the broker still leads."""
    message = cold.response(
        ApiKey.CONTROLLED_SHUTDOWN,
        version,
        error_code=error_code,
        remaining_partitions=[{"topic_name": topic, "partition_index": partition} for topic, partition in remaining],
    )
    return cold.encode_response(ApiKey.CONTROLLED_SHUTDOWN, version, message)


def decode_controlled_shutdown_response(version: int, body: Buffer) -> ControlledShutdownResponse:
    """Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.CONTROLLED_SHUTDOWN, version, body)
    remaining = tuple(TopicPartition(p.topic_name, p.partition_index) for p in message.remaining_partitions)
    return ControlledShutdownResponse(int(message.error_code), remaining)


# -- AllocateProducerIds -----------------------------------------------------------------------------------------------


class AllocateProducerIdsRequest(msgspec.Struct, frozen=True):
    """A broker asks for a block of producer ids."""

    broker: int
    broker_epoch: int


class AllocateProducerIdsResponse(msgspec.Struct, frozen=True):
    """A block of ``count`` producer ids from ``first`` on."""

    error_code: int
    first: int
    count: int


def encode_allocate_producer_ids_request(version: int, broker: int, broker_epoch: int) -> bytes:
    """A broker asks for a block of producer ids (KIP-730)."""
    message = cold.request(ApiKey.ALLOCATE_PRODUCER_IDS, version, broker_id=broker, broker_epoch=broker_epoch)
    return cold.encode_request(ApiKey.ALLOCATE_PRODUCER_IDS, version, message)


def decode_allocate_producer_ids_request(version: int, body: Buffer) -> AllocateProducerIdsRequest:
    """Raises FrameError for a malformed body."""
    message = cold.decode_request(ApiKey.ALLOCATE_PRODUCER_IDS, version, body)
    return AllocateProducerIdsRequest(message.broker_id, message.broker_epoch)


def encode_allocate_producer_ids_response(version: int, error_code: int, first: int = 0, count: int = 0) -> bytes:
    """The block has ``count`` ids from ``first`` on; none with an error."""
    message = cold.response(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        version,
        error_code=error_code,
        producer_id_start=first,
        producer_id_len=count,
    )
    return cold.encode_response(ApiKey.ALLOCATE_PRODUCER_IDS, version, message)


def decode_allocate_producer_ids_response(version: int, body: Buffer) -> AllocateProducerIdsResponse:
    """Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.ALLOCATE_PRODUCER_IDS, version, body)
    return AllocateProducerIdsResponse(int(message.error_code), message.producer_id_start, message.producer_id_len)


# -- Metadata ----------------------------------------------------------------------------------------------------------


class MetadataRequest(msgspec.Struct, frozen=True):
    """Which topics a client asks about."""

    topics: tuple[str | bytes, ...] | None
    """Names, or ids for topics requested without a name; None for all topics."""
    allow_auto_topic_creation: bool = True


class MetadataPartition(msgspec.Struct, frozen=True, gc=False):
    """A partition in an answer to Metadata; replicas are broker ids, ``leader`` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    error_code: int = 0


class MetadataTopic(msgspec.Struct, frozen=True):
    """A topic in an answer to Metadata; ``topic_id`` has 16 bytes."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID
    partitions: tuple[MetadataPartition, ...] = ()
    error_code: int = 0
    is_internal: bool = False


class MetadataBroker(msgspec.Struct, frozen=True):
    """A node in an answer to Metadata."""

    id: int
    host: str
    port: int
    rack: str | None = None


class MetadataResponse(msgspec.Struct, frozen=True):
    """An answer to Metadata, in the fields that are used here."""

    brokers: tuple[MetadataBroker, ...]
    topics: tuple[MetadataTopic, ...]
    controller_id: int = -1
    cluster_id: str | None = None


def encode_metadata_request(version: int, topics: Sequence[str] | None, *, auto_create: bool = False) -> bytes:
    """``topics`` None requests all topics."""
    if topics is None and version == 0:
        topics = ()  # version 0 has no null: an empty list means all
    message = cold.request(
        ApiKey.METADATA,
        version,
        topics=None if topics is None else [{"name": name} for name in topics],
        allow_auto_topic_creation=auto_create,
    )
    return cold.encode_request(ApiKey.METADATA, version, message)


def decode_metadata_request(version: int, body: Buffer) -> MetadataRequest:
    """Topics are None for all: null, and in version 0 an empty list. Raises FrameError for a malformed body."""
    message = cold.decode_request(ApiKey.METADATA, version, body)
    auto_create = getattr(message, "allow_auto_topic_creation", True)
    if message.topics is None or (version == 0 and not message.topics):
        return MetadataRequest(None, auto_create)
    return MetadataRequest(tuple(_name_or_id(topic) for topic in message.topics), auto_create)


def _name_or_id(topic: Any) -> str | bytes:
    if topic.name is not None:
        return str(topic.name)
    return _id(topic)


def _id(entity: Any) -> bytes:
    """The topic id; kio uses None for the zero id."""
    topic_id = getattr(entity, "topic_id", None)
    return NO_TOPIC_ID if topic_id is None else bytes(topic_id.bytes)


def encode_metadata_response(version: int, answer: MetadataResponse) -> bytes:
    """A topic requested by an unknown id has a null name from version 12 on, and an empty one before."""
    message = cold.response(
        ApiKey.METADATA,
        version,
        brokers=[{"node_id": b.id, "host": b.host, "port": b.port, "rack": b.rack} for b in answer.brokers],
        cluster_id=answer.cluster_id,
        controller_id=answer.controller_id,
        topics=[_metadata_topic(version, topic) for topic in answer.topics],
    )
    return cold.encode_response(ApiKey.METADATA, version, message)


def _metadata_topic(version: int, topic: MetadataTopic) -> dict[str, Any]:
    return {
        "error_code": topic.error_code,
        "name": topic.name if topic.name is not None or version >= 12 else "",
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": p.error_code,
                "partition_index": p.partition,
                "leader_id": p.leader,
                "leader_epoch": p.leader_epoch,
                "replica_nodes": p.replicas,
                "isr_nodes": p.isr,
                "offline_replicas": p.offline,
            }
            for p in topic.partitions
        ],
    }


def decode_metadata_response(version: int, body: Buffer) -> MetadataResponse:
    """Fields that a version lacks have Kafka's defaults: leader epoch -1, no rack.  FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.METADATA, version, body)
    return MetadataResponse(
        tuple(MetadataBroker(b.node_id, b.host, b.port, getattr(b, "rack", None)) for b in message.brokers),
        tuple(
            MetadataTopic(
                topic.name,
                _id(topic),
                tuple(
                    MetadataPartition(
                        p.partition_index,
                        p.leader_id,
                        getattr(p, "leader_epoch", -1),
                        p.replica_nodes,
                        p.isr_nodes,
                        getattr(p, "offline_replicas", ()),
                        int(p.error_code),
                    )
                    for p in topic.partitions
                ),
                int(topic.error_code),
                getattr(topic, "is_internal", False),
            )
            for topic in message.topics
        ),
        getattr(message, "controller_id", -1),
        getattr(message, "cluster_id", None),
    )
