"""Codecs of the znodes that decisions depend on, in every JSON version that Kafka has written.

Source: Kafka 3.9, ``core/src/main/scala/kafka/zk/ZkData.scala``.  The znodes are those of elections, brokers, topics,
partition states, admin requests and notifications.  Configuration, features, producer ids, tokens and ACLs are in
``cluster_znodes``.

Rules.
 * Decoders never raise; see ``znode_json``.
 * Numbers from outside are limited to the range of the partition table's columns (32 bits), partitions to
   ``MAX_PARTITIONS_PER_TOPIC``: a damaged znode must not cost memory.
 * Encoders write the newest form that 3.9 writes, with Kafka's key set: ``leader_recovery_state`` only when it is
   not 0, ``topic_id`` only when there is one.  Our one additional key is ``eligible_leader_replicas``, which Kafka
   ignores.

Theory of the hot path.  A cluster of a million partitions has few distinct states: leaders, epochs and ISRs repeat.
So decoding caches decoded states by their bytes during one call, and encoding does the reverse: each partition then
costs one dict look-up and one struct.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aiocontroller.core.ids import (
    NO_TOPIC_ID,
    Broker,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.state_znodes import (
    PartitionStates,
    decode_partition_state,
    decode_partition_states,
    encode_partition_states,
)
from aiocontroller.zookeeper.znode_json import (
    MAX_INT32,
    BadZNode,
    Id,
    PartitionNumber,
    TopicName,
    Wrong,
    check_distinct,
    check_replicas,
    int_from_text,
    ints_as_json,
    reading,
    topic_id_from_text,
    topic_id_to_text,
)

__all__ = [
    "BadZNode",
    "BrokerInfo",
    "ControllerZNode",
    "PartitionStates",
    "decode_broker",
    "decode_broker_id",
    "decode_controller",
    "decode_controller_epoch",
    "decode_log_dir_event",
    "decode_partition_state",
    "decode_partition_states",
    "decode_partitions",
    "decode_reassignment",
    "decode_topic",
    "encode_broker",
    "encode_controller",
    "encode_controller_epoch",
    "encode_log_dir_event",
    "encode_partition_states",
    "encode_partitions",
    "encode_reassignment",
    "encode_topic",
    "topic_znode_bytes",
]

_encode_json = msgspec.json.Encoder().encode

# -- /controller ------------------------------------------------------------------------------------------------------

SOFTWARE = "aiocontroller"
"""Value of the extra key that distinguishes our ``/controller`` from a broker's; Kafka ignores unknown keys."""


class ControllerZNode(msgspec.Struct, frozen=True):
    """The holder of the controller role."""

    controller_id: int
    owner_session: int
    """The session that owns the ephemeral znode; 0 if it is persistent (a KRaft controller's, in a migration)."""
    created_ms: int
    version: int
    kraft_controller_epoch: int = -1
    software: str = ""
    address: str = ""
    """``NAME://host:port``, if an aiocontroller has given it."""


class _Controller(msgspec.Struct):
    brokerid: Id
    timestamp: str | int | None = None
    kraft_controller_epoch: int | None = msgspec.field(default=None, name="kraftControllerEpoch")
    software: str = ""
    address: str = ""


_controller_decoder = msgspec.json.Decoder(_Controller | Id)


def decode_controller(
    data: bytes | None, *, owner_session: int = 0, created_ms: int = 0, version: int = 0
) -> ControllerZNode | BadZNode:
    """Decode version 1 (1.1 to 3.3), 2 (3.4 and later), or the bare number that 0.7 wrote.

    ``created_ms`` is returned if the znode has no timestamp of its own.
    """

    def read(data: bytes) -> ControllerZNode:
        found = _controller_decoder.decode(data)
        if isinstance(found, int):
            return ControllerZNode(found, owner_session, created_ms, version)
        written = found.timestamp
        if isinstance(written, str):
            written = int_from_text(written, "timestamp")
        kraft_epoch = -1 if found.kraft_controller_epoch is None else found.kraft_controller_epoch
        return ControllerZNode(
            found.brokerid,
            owner_session,
            created_ms if written is None else written,
            version,
            kraft_epoch,
            found.software,
            found.address,
        )

    return reading(paths.CONTROLLER, data, 'a controller registration with "brokerid"', read)


def encode_controller(controller_id: int, timestamp_ms: int, *, software: str = SOFTWARE, address: str = "") -> bytes:
    """Encode version 2.  Its KRaft epoch is -1; without that key, brokers would refuse to change configurations.

    ``address`` (NAME://host:port) is another key of ours; standbys watch us there.
    """
    return _encode_json(
        {
            "version": 2,
            "brokerid": controller_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
            **({"software": software} if software else {}),
            **({"address": address} if address else {}),
        }
    )


def decode_controller_epoch(data: bytes | None) -> int | BadZNode:
    """The epoch in ``/controller_epoch``, from 0 to 2**31 - 2, since none can follow 2**31 - 1; else a BadZNode."""

    def read(data: bytes) -> int:
        epoch = int_from_text(data.decode(), "the epoch")
        if epoch == MAX_INT32:
            # Kafka's controller writes -2147483648 next, and no broker obeys it.
            raise Wrong("no controller can have a higher one: set it back to the highest in partitions' states")
        if not 0 <= epoch < MAX_INT32:
            raise Wrong(f"the epoch {epoch} is out of range")
        return epoch

    return reading(paths.CONTROLLER_EPOCH, data, "the controller epoch as a decimal number from 0 to 2147483646", read)


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode the content of ``/controller_epoch``."""
    return b"%d" % epoch


# -- /brokers/ids/N ---------------------------------------------------------------------------------------------------


class BrokerInfo(msgspec.Struct, frozen=True):
    """A broker's registration, as it writes it (Kafka's ``BrokerInfo``)."""

    broker: Broker
    """Its ``epoch`` is not written: that is the registration's czxid."""
    timestamp_ms: int
    version: int = 5
    jmx_port: int = -1


class _Broker(msgspec.Struct):
    version: int
    host: str | None = None
    port: int | None = None
    endpoints: list[str] | None = None
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    features: dict[str, dict[str, int]] | None = None


_broker_decoder = msgspec.json.Decoder(_Broker)
_ENDPOINT = re.compile(r"(?P<listener>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In registrations without a map (versions 1 to 3), a listener's name is its protocol."""
_BY_LISTENER = {protocol: protocol for protocol in SECURITY_PROTOCOLS}


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise Wrong(f"endpoint {text!r} is not LISTENER://host:port")
    listener = match["listener"].upper()
    protocol = protocols.get(listener)
    if protocol is None:
        raise Wrong(f"listener {listener!r} has no security protocol")
    port = int_from_text(match["port"], "the port")
    if not -1 <= port <= 65535:
        raise Wrong(f"endpoint {text!r} has no such port")
    return Endpoint(listener, match["host"], port, protocol)


def _endpoints(found: _Broker) -> tuple[Endpoint, ...]:
    if found.version < 1:
        raise Wrong(f"version {found.version} is unknown")
    if found.version == 1:
        if found.host is None or found.port is None:
            raise Wrong("version 1 needs host and port")
        return (Endpoint("PLAINTEXT", found.host, found.port),)
    if not found.endpoints:
        raise Wrong(f"version {found.version} needs endpoints")
    protocols: Mapping[str, str] = _BY_LISTENER
    if found.listener_security_protocol_map is not None:
        protocols = {name.upper(): protocol for name, protocol in found.listener_security_protocol_map.items()}
        unknown = [protocol for protocol in protocols.values() if protocol not in SECURITY_PROTOCOLS]
        if unknown:
            raise Wrong(f"unknown security protocols {unknown}")
    return tuple(_endpoint(text, protocols) for text in found.endpoints)


def _features(features: Mapping[str, Mapping[str, int]] | None) -> tuple[tuple[str, int, int], ...]:
    ranges = []
    for name in sorted(features or ()):
        versions = (features or {})[name]
        if "min_version" not in versions or "max_version" not in versions:
            raise Wrong(f"feature {name!r} needs min_version and max_version")
        ranges.append((name, versions["min_version"], versions["max_version"]))
    return tuple(ranges)


def decode_broker(broker_id: int, data: bytes | None, epoch: int) -> Broker | BadZNode:
    """Decode versions 1 to 5, and later ones that keep these keys; ``epoch`` is the znode's czxid."""

    def read(data: bytes) -> Broker:
        found = _broker_decoder.decode(data)
        return Broker(broker_id, epoch, _endpoints(found), found.rack, _features(found.features))

    return reading(paths.broker_id(broker_id), data, "a broker registration of version 1 to 5", read)


def decode_broker_id(name: str) -> int | BadZNode:
    """Decode the name of a child of ``/brokers/ids``."""
    if name.isascii() and name.isdigit() and len(name) <= 10 and int(name) <= MAX_INT32 and name == str(int(name)):
        return int(name)
    return BadZNode(f"{paths.BROKER_IDS}/{name}", f"the name {name!r}", "a broker id from 0 to 2147483647")


def unreadable_brokers(bad: Iterable[BadZNode]) -> set[int]:
    """The ids of brokers whose registrations are among these; other children of ``/brokers/ids`` name no broker."""
    found = (decode_broker_id(znode.path.rpartition("/")[2]) for znode in bad)
    return {broker for broker in found if not isinstance(broker, BadZNode)}


def _address(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def encode_broker(info: BrokerInfo) -> bytes:
    """Encode as a broker does; for old clients, host and port are those of a PLAINTEXT endpoint, or null and -1."""
    broker = info.broker
    plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {}
    if info.version >= 5:
        fields["features"] = {name: {"min_version": low, "max_version": high} for name, low, high in broker.features}
    if info.version >= 4:
        fields["listener_security_protocol_map"] = {e.listener: e.security_protocol for e in broker.endpoints}
    if info.version >= 2:
        fields["endpoints"] = [_address(e) for e in broker.endpoints]
    if info.version >= 3 and broker.rack is not None:
        fields["rack"] = broker.rack
    fields["jmx_port"] = info.jmx_port
    fields["port"] = plaintext.port if plaintext else -1
    fields["host"] = plaintext.host if plaintext else None
    fields["version"] = info.version
    fields["timestamp"] = str(info.timestamp_ms)
    return _encode_json(fields)


# -- /brokers/topics/T ------------------------------------------------------------------------------------------------

_Replicas = dict[PartitionNumber, tuple[Id, ...]]


class _Topic(msgspec.Struct):
    partitions: _Replicas
    adding_replicas: _Replicas | None = None
    removing_replicas: _Replicas | None = None
    topic_id: str | None = None


class _TopicId(msgspec.Struct):
    topic_id: str | None = None


_topic_decoder = msgspec.json.Decoder(_Topic)
_topic_id_decoder = msgspec.json.Decoder(_TopicId)
_NO_REPLICAS: _Replicas = {}
_TOPIC_EXPECTED = (
    'a topic assignment: "partitions" from numbers to lists of distinct broker ids, '
    'optionally "adding_replicas", "removing_replicas" and "topic_id"'
)
AssignmentMemo = dict[tuple[object, ...], ReplicaAssignment]
"""Key: the replicas alone, or (replicas, adding, removing) during a reassignment."""


def decode_topic(
    topic: str, data: bytes | None, version: int = 0, memo: AssignmentMemo | None = None
) -> TopicAssignment | BadZNode:
    """Decode JSON versions 1, 2 and 3; as in Kafka, the version number and the order of keys do not matter.

    With a ``memo``, equal assignments, within and between topics, become the same object.  Adding or removing replicas
    of unknown partitions are ignored.
    """
    shared: AssignmentMemo = {} if memo is None else memo

    def read(data: bytes) -> TopicAssignment:
        found = _topic_decoder.decode(data)
        adding, removing = found.adding_replicas or _NO_REPLICAS, found.removing_replicas or _NO_REPLICAS
        topic_id = topic_id_from_text(found.topic_id)
        if not (adding or removing):
            return TopicAssignment(topic, topic_id, _at_rest(found.partitions, shared), version)
        partitions: dict[int, ReplicaAssignment] = {}
        for partition, replicas in sorted(found.partitions.items()):
            more = (adding.get(partition, ()), removing.get(partition, ()))
            key = replicas if more == _NO_CHANGES else (replicas, *more)
            assignment = shared.get(key)
            if assignment is None:
                check_replicas(replicas, f"partition {partition}")
                check_distinct(more[0], f"adding_replicas of partition {partition}")
                check_distinct(more[1], f"removing_replicas of partition {partition}")
                assignment = shared[key] = ReplicaAssignment(replicas, *more)
            partitions[partition] = assignment
        return TopicAssignment(topic, topic_id, partitions, version)

    return reading(paths.topic(topic), data, _TOPIC_EXPECTED, read)


def decode_topic_id(data: bytes | None) -> bytes:
    """Decode only a topic znode's id, at a fraction of the cost; NO_TOPIC_ID if it has none or cannot be read."""
    try:
        return topic_id_from_text(_topic_id_decoder.decode(data or b"{}").topic_id)
    except (*UNREADABLE_JSON, Wrong):
        return NO_TOPIC_ID


def _at_rest(found: _Replicas, shared: AssignmentMemo) -> dict[int, ReplicaAssignment]:
    """The assignments of a topic without a reassignment, in order; those in ``shared`` cost no Python step."""
    numbers = sorted(found)
    if list(found) != numbers:
        found = {number: found[number] for number in numbers}
    try:
        assignments = list(map(shared.__getitem__, found.values()))
    except KeyError:
        for number, replicas in found.items():
            if replicas not in shared:
                check_replicas(replicas, f"partition {number}")
                shared[replicas] = ReplicaAssignment(replicas, (), ())
        assignments = list(map(shared.__getitem__, found.values()))
    return dict(zip(numbers, assignments, strict=True))


_NO_CHANGES: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Encode version 3, with partitions in order and keys in Kafka's order."""
    in_order = sorted(assignment.partitions.items())
    topic_id = b""
    if assignment.topic_id != NO_TOPIC_ID:
        topic_id = b',"topic_id":"%b"' % topic_id_to_text(assignment.topic_id).encode()
    return b'{"removing_replicas":{%b},"partitions":{%b}%b,"adding_replicas":{%b},"version":3}' % (
        _replicas_as_json((n, a.removing) for n, a in in_order if a.removing),
        _replicas_as_json((n, a.replicas) for n, a in in_order),
        topic_id,
        _replicas_as_json((n, a.adding) for n, a in in_order if a.adding),
    )


def topic_znode_bytes(assignment: TopicAssignment) -> int:
    """The size in bytes of the topic's znode as this program writes it."""
    return len(encode_topic(assignment))


def _replicas_as_json(replicas: Iterable[tuple[int, tuple[int, ...]]]) -> bytes:
    memo: dict[tuple[int, ...], bytes] = {}
    parts: list[bytes] = []
    for partition, ids in replicas:
        known = memo.get(ids)
        if known is None:
            known = memo[ids] = ints_as_json(ids)
        parts.append(b'"%d":%b' % (partition, known))
    return b",".join(parts)


# -- the admin requests and the notifications -------------------------------------------------------------------------


class _Partition(msgspec.Struct):
    topic: TopicName
    partition: PartitionNumber


class _Partitions(msgspec.Struct):
    partitions: list[_Partition]


class _Reassigned(msgspec.Struct):
    topic: TopicName
    partition: PartitionNumber
    replicas: tuple[int, ...]


class _Reassignment(msgspec.Struct):
    partitions: list[_Reassigned]


class _LogDirEvent(msgspec.Struct):
    broker: Id


_partitions_decoder = msgspec.json.Decoder(_Partitions)
_reassignment_decoder = msgspec.json.Decoder(_Reassignment)
_log_dir_event_decoder = msgspec.json.Decoder(_LogDirEvent)


def decode_partitions(path: str, data: bytes | None) -> list[TopicPartition] | BadZNode:
    """Decode ``/admin/preferred_replica_election`` or an ISR change notification: each partition once, in its order."""

    def read(data: bytes) -> list[TopicPartition]:
        return list(
            dict.fromkeys(TopicPartition(p.topic, p.partition) for p in _partitions_decoder.decode(data).partitions)
        )

    return reading(path, data, '"partitions": a list of {"topic", "partition"}', read)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Version 1."""
    return _encode_json(
        {"version": 1, "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]}
    )


def decode_reassignment(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]] | BadZNode:
    """Decode ``/admin/reassign_partitions``, in its order; the last entry for a partition wins, as in Kafka.

    Replica lists are not checked here: the reassignment refuses each invalid one by itself, without affecting other
    partitions.  Unlike Kafka's decoder, this one accepts unknown keys such as ``log_dirs``.
    """

    def read(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        entries = _reassignment_decoder.decode(data).partitions
        return {TopicPartition(entry.topic, entry.partition): entry.replicas for entry in entries}

    expected = '"partitions": a list of {"topic", "partition", "replicas"}'
    return reading(paths.REASSIGN_PARTITIONS, data, expected, read)


def encode_reassignment(reassignment: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Version 1."""
    entries = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in reassignment.items()
    ]
    return _encode_json({"version": 1, "partitions": entries})


def decode_log_dir_event(path: str, data: bytes | None) -> int | BadZNode:
    """Decode the id of the broker that lost a log directory."""
    return reading(
        path, data, 'a log directory event with "broker"', lambda data: _log_dir_event_decoder.decode(data).broker
    )


LOG_DIR_FAILURE_EVENT = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode a notification that a log directory of the broker has failed."""
    return _encode_json({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE_EVENT})
