"""Codecs of the cluster's other znodes: configuration, cluster id, producer ids, features, migration, tokens, ACLs.

The rules of ``znodes`` apply: decoders never raise, encoders write the newest form that Kafka 3.9 writes.
Source: ``ZkData.scala``, ``DelegationTokenManagerZk.scala`` and ``AclEntry.java`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import msgspec

from aiocontroller.core.broker_starts import BrokerStarts, Incarnation
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znode_json import MAX_INT32, BadZNode, Id, Wrong, int_from_text, reading

_encode_json = msgspec.json.Encoder().encode

# -- /config ----------------------------------------------------------------------------------------------------------


class _Config(msgspec.Struct):
    config: dict[str, str]


class _ConfigChange(msgspec.Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


_config_decoder = msgspec.json.Decoder(_Config)
_config_change_decoder = msgspec.json.Decoder(_ConfigChange)


def decode_config(path: str, data: bytes | None) -> dict[str, str] | BadZNode:
    """Decode an entity's configuration; it is empty if the znode has no data, as a parent has none."""
    if not data:
        return {}
    return reading(path, data, '"config": an object of strings', lambda data: _config_decoder.decode(data).config)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Version 1."""
    return _encode_json({"version": 1, "config": dict(config)})


def decode_config_change(path: str, data: bytes | None) -> str | BadZNode:
    """Decode an entity's path below ``/config``, such as ``topics/T`` or ``users/U/clients/C``; versions 1 and 2."""

    def read(data: bytes) -> str:
        change = _config_change_decoder.decode(data)
        if change.version == 2 and change.entity_path:
            return change.entity_path
        if change.version == 1 and change.entity_type in ("topics", "clients") and change.entity_name:
            return f"{change.entity_type}/{change.entity_name}"
        raise Wrong(f"version {change.version} with these keys is unknown")

    expected = '"entity_path" (version 2), or "entity_type" topics or clients and "entity_name" (version 1)'
    return reading(path, data, expected, read)


def encode_config_change(entity_path: str) -> bytes:
    """Version 2."""
    return _encode_json({"version": 2, "entity_path": entity_path})


# -- /cluster/id ------------------------------------------------------------------------------------------------------


class _ClusterId(msgspec.Struct):
    id: str


_cluster_id_decoder = msgspec.json.Decoder(_ClusterId)


def decode_cluster_id(data: bytes | None) -> str | BadZNode:
    """The id in ``/cluster/id``."""
    return reading(paths.CLUSTER_ID, data, 'the cluster\'s "id"', lambda data: _cluster_id_decoder.decode(data).id)


def encode_cluster_id(cluster_id: str) -> bytes:
    """The content of ``/cluster/id``."""
    return _encode_json({"version": "1", "id": cluster_id})


# -- /latest_producer_id_block ----------------------------------------------------------------------------------------


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """The last allocated block of producer ids; both ends are included."""

    broker: int
    block_start: int
    block_end: int


class _ProducerIdBlock(msgspec.Struct):
    broker: int
    block_start: str
    block_end: str


_producer_id_block_decoder = msgspec.json.Decoder(_ProducerIdBlock)
MAX_INT64 = 2**63 - 1


def decode_producer_id_block(data: bytes | None) -> ProducerIdBlock | BadZNode:
    """The last allocated block, from ``/latest_producer_id_block``."""

    def read(data: bytes) -> ProducerIdBlock:
        found = _producer_id_block_decoder.decode(data)
        start, end = int_from_text(found.block_start, "block_start"), int_from_text(found.block_end, "block_end")
        if not 0 <= start <= end <= MAX_INT64:
            raise Wrong(f"block {start} to {end} is impossible")
        return ProducerIdBlock(found.broker, start, end)

    expected = 'a producer id block: "broker", and "block_start" and "block_end" as strings'
    return reading(paths.LATEST_PRODUCER_ID_BLOCK, data, expected, read)


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Version 1."""
    return _encode_json(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.block_start),
            "block_end": str(block.block_end),
        }
    )


# -- /feature ---------------------------------------------------------------------------------------------------------

FEATURES_DISABLED, FEATURES_ENABLED = 0, 1


class FeatureZNode(msgspec.Struct, frozen=True):
    """The finalized features (KIP-584): maximum version level by name."""

    version: int
    status: int
    features: dict[str, int]


class _Feature(msgspec.Struct):
    version: int
    status: int
    features: dict[str, dict[str, int]]


_feature_decoder = msgspec.json.Decoder(_Feature)


def _feature_level(name: str, levels: Mapping[str, int], version: int) -> int:
    highest = levels.get("max_version_level")
    lowest = levels.get("min_version_level") if version == 1 else 1
    if highest is None or lowest is None or not 1 <= lowest <= highest <= 32767:
        raise Wrong(f"feature {name!r} has impossible levels {dict(levels)}")
    return highest


def decode_feature(data: bytes | None) -> FeatureZNode | BadZNode:
    """Decode ``/feature``; version 1 has a minimum and a maximum level for each feature, version 2 only the maximum."""

    def read(data: bytes) -> FeatureZNode:
        found = _feature_decoder.decode(data)
        if found.version not in (1, 2):
            raise Wrong(f"version {found.version} is unknown")
        if found.status not in (FEATURES_DISABLED, FEATURES_ENABLED):
            raise Wrong(f"status {found.status} is unknown")
        levels = {name: _feature_level(name, each, found.version) for name, each in found.features.items()}
        return FeatureZNode(found.version, found.status, levels)

    return reading(paths.FEATURE, data, 'finalized features: "version" 1 or 2, "status" 0 or 1, "features"', read)


def encode_feature(feature: FeatureZNode) -> bytes:
    """The content of ``/feature``; version 1 also has a minimum level for each feature."""
    levels: dict[str, dict[str, int]] = {}
    for name in sorted(feature.features):
        level = feature.features[name]
        levels[name] = {"max_version_level": level}
        if feature.version == 1:
            levels[name]["min_version_level"] = level
    return _encode_json({"version": feature.version, "status": feature.status, "features": levels})


# -- /aiocontroller_ids -----------------------------------------------------------------------------------------------


class _KnownControllers(msgspec.Struct):
    ids: list[Id]


_known_controllers_decoder = msgspec.json.Decoder(_KnownControllers)


def decode_known_controllers(data: bytes | None) -> frozenset[int] | BadZNode:
    """Decode the ids of aiocontrollers that have been active, which ``known_controllers`` keeps."""
    expected = '"ids": a list of controllers\' ids'
    return reading(
        paths.KNOWN_CONTROLLERS, data, expected, lambda data: frozenset(_known_controllers_decoder.decode(data).ids)
    )


def encode_known_controllers(ids: Collection[int]) -> bytes:
    """Version 1."""
    return _encode_json({"version": 1, "ids": sorted(ids)})


# -- /aiocontroller_broker_starts --------------------------------------------------------------------------------------


Zxid = Annotated[int, msgspec.Meta(ge=0)]


class _Incarnation(msgspec.Struct, omit_defaults=True):
    epoch: Zxid
    clean_from: Zxid
    stopping: bool = False
    gone: bool = False
    proven: bool = False


class _BrokerStarts(msgspec.Struct):
    controller_epoch: Id
    valid_from: Id
    registrations: Zxid
    min_isr: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT32)]
    brokers: dict[Id, _Incarnation]


_broker_starts_decoder = msgspec.json.Decoder(_BrokerStarts)


def decode_broker_starts(data: bytes | None) -> BrokerStarts | BadZNode:
    """The record of brokers' starts."""

    def read(data: bytes) -> BrokerStarts:
        found = _broker_starts_decoder.decode(data)
        brokers = {
            b: Incarnation(i.epoch, i.clean_from, i.stopping, i.gone, i.proven) for b, i in found.brokers.items()
        }
        return BrokerStarts(found.controller_epoch, found.valid_from, found.registrations, found.min_isr, brokers)

    return reading(paths.BROKER_STARTS, data, '"brokers": their last starts', read)


def encode_broker_starts(starts: BrokerStarts) -> bytes:
    """Version 1, with the brokers by id; what is false is left out, so that ten thousand brokers fit."""
    brokers = {str(broker): _Incarnation(*known) for broker, known in sorted(starts.brokers.items())}
    return _encode_json({"version": 1, **msgspec.structs.asdict(starts), "brokers": brokers})


# -- /migration -------------------------------------------------------------------------------------------------------


class MigrationZNode(msgspec.Struct, frozen=True, rename={"controller_id": "kraft_controller_id"}):
    """The state of a migration to KRaft.  All numbers are -1 from the start of a KRaft controller to its claim."""

    controller_id: int
    kraft_controller_epoch: int
    kraft_metadata_offset: int
    kraft_metadata_epoch: int
    version: int = 0

    @property
    def claimed(self) -> bool:
        """Whether a KRaft controller has begun to migrate; until then, it is only provisioned."""
        return self.controller_id >= 0


_migration_decoder = msgspec.json.Decoder(MigrationZNode)


def decode_migration(data: bytes | None) -> MigrationZNode | BadZNode:
    """The state of a migration to KRaft, from ``/migration``."""

    def read(data: bytes) -> MigrationZNode:
        found = _migration_decoder.decode(data)
        if found.version != 0:
            raise Wrong(f"version {found.version} is unknown")
        return found

    return reading(paths.MIGRATION, data, "the state of a migration to KRaft, version 0", read)


def encode_migration(migration: MigrationZNode) -> bytes:
    """The content of ``/migration``."""
    return _encode_json(migration)


# -- /delegation_token/tokens/T ---------------------------------------------------------------------------------------


class DelegationToken(msgspec.Struct, frozen=True):
    """A token's public part; principals as ``Type:name``, times in milliseconds since 1970."""

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    @property
    def expires_ms(self) -> int:
        """When it expires, in milliseconds since 1970: its expiry time, or the end of its maximum life, if earlier."""
        return min(self.max_timestamp_ms, self.expiry_timestamp_ms)

    def has_expired(self, now_ms: int) -> bool:
        """Whether the token has expired at ``now_ms``, in milliseconds since 1970."""
        return self.expires_ms < now_ms


class _DelegationToken(msgspec.Struct, rename="camel"):
    version: int
    owner: str
    renewers: list[str]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int
    token_id: str
    token_requester: str | None = None


_delegation_token_decoder = msgspec.json.Decoder(_DelegationToken)


def decode_delegation_token(path: str, data: bytes | None) -> DelegationToken | BadZNode:
    """Versions 1 to 3; before version 3 the owner is the requester."""

    def read(data: bytes) -> DelegationToken:
        found = _delegation_token_decoder.decode(data)
        if not 1 <= found.version <= 3:
            raise Wrong(f"version {found.version} is unknown")
        requester = found.token_requester if found.version >= 3 else found.owner
        if requester is None:
            raise Wrong("version 3 needs tokenRequester")
        return DelegationToken(
            found.token_id,
            paths.desanitize(found.owner),
            paths.desanitize(requester),
            tuple(paths.desanitize(renewer) for renewer in found.renewers),
            found.issue_timestamp,
            found.max_timestamp,
            found.expiry_timestamp,
        )

    return reading(path, data, "a delegation token of version 1 to 3", read)


def encode_delegation_token(token: DelegationToken) -> bytes:
    """Version 3."""
    return _encode_json(
        {
            "version": 3,
            "owner": paths.sanitize(token.owner),
            "tokenRequester": paths.sanitize(token.token_requester),
            "renewers": [paths.sanitize(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issue_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "expiryTimestamp": token.expiry_timestamp_ms,
            "tokenId": token.token_id,
        }
    )


# -- /kafka-acl and /kafka-acl-extended -------------------------------------------------------------------------------


class AclEntry(msgspec.Struct, frozen=True, rename={"permission_type": "permissionType"}):
    """One ACL of one resource, in Kafka's terms (``Allow``, ``Read``, ``User:alice``, ``*``)."""

    principal: str
    permission_type: str
    operation: str
    host: str


class _Acls(msgspec.Struct):
    version: Id
    acls: list[AclEntry]


class _AclChange(msgspec.Struct, rename="camel"):
    version: int
    resource_type: str
    name: str
    pattern_type: str


_acls_decoder = msgspec.json.Decoder(_Acls)
_acl_change_decoder = msgspec.json.Decoder(_AclChange)


def decode_acls(path: str, data: bytes | None) -> list[AclEntry] | BadZNode:
    """The ACLs of one resource; a znode without data has none."""
    if not data:
        return []

    def read(data: bytes) -> list[AclEntry]:
        found = _acls_decoder.decode(data)
        if found.version != 1:
            raise Wrong(f"version {found.version} is unknown")
        return found.acls

    return reading(path, data, '"acls": a list of {"principal", "permissionType", "operation", "host"}', read)


def encode_acls(acls: Sequence[AclEntry]) -> bytes:
    """Version 1."""
    return _encode_json({"version": 1, "acls": acls})


def decode_acl_change(path: str, data: bytes | None) -> tuple[str, str, str] | BadZNode:
    """Decode (resource type, name, pattern type) of the changed ACLs, from either change path."""

    def read_literal(data: bytes) -> tuple[str, str, str]:
        resource_type, colon, name = data.decode().partition(":")
        if not colon:
            raise Wrong("no colon")
        return resource_type, name, "LITERAL"

    def read_extended(data: bytes) -> tuple[str, str, str]:
        found = _acl_change_decoder.decode(data)
        if found.version > 1:
            raise Wrong(f"version {found.version} is unknown")
        return found.resource_type, found.name, found.pattern_type

    if path.startswith(paths.EXTENDED_ACL_CHANGES):
        return reading(path, data, 'JSON with "resourceType", "name" and "patternType"', read_extended)
    return reading(path, data, "ResourceType:name", read_literal)


def encode_acl_change(resource_type: str, name: str, pattern_type: str) -> bytes:
    """The content of an ACL change notification: text for literal patterns, as old brokers write it, else JSON."""
    if pattern_type == "LITERAL":
        return f"{resource_type}:{name}".encode()
    return _encode_json({"version": 1, "resourceType": resource_type, "name": name, "patternType": pattern_type})
