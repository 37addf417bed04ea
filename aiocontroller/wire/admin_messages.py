"""What administrators ask of the controller: elections, reassignments, features; cold messages, both sides of each.

Written and read as ``messages`` does it.  In each API a null list means *all*, an empty one *none*; both stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.primitives import Buffer

Outcome = tuple[int, str]
"""Error code, and the message for people ("" without one)."""

DEFAULT_TIMEOUT_MS = 60_000


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def _message(outcome: Outcome) -> str | None:
    return outcome[1] or None


# -- ElectLeaders ------------------------------------------------------------------------------------------------------


class ElectLeadersRequest(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...] | None
    """None: all."""
    election_type: int = 0
    """``core.events.ElectionType``; version 0 knows the preferred one only."""


class ElectLeadersResponse(msgspec.Struct, frozen=True):
    error_code: int
    """0 below version 1, which has none."""
    results: dict[TopicPartition, Outcome]


def encode_elect_leaders_request(
    version: int, partitions: Sequence[TopicPartition] | None, election_type: int = 0
) -> bytes:
    """ValueError where version 0 would have to say UNCLEAN."""
    if version == 0 and election_type:
        raise ValueError(f"ElectLeaders version 0: found election type {election_type}, expected 0 (preferred)")
    message = cold.request(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=election_type,
        topic_partitions=None
        if partitions is None
        else [{"topic": t, "partitions": [tp.partition for tp in tps]} for t, tps in _by_topic(partitions).items()],
        timeout=DEFAULT_TIMEOUT_MS,
    )
    return cold.encode_request(ApiKey.ELECT_LEADERS, version, message)


def decode_elect_leaders_request(version: int, body: Buffer) -> ElectLeadersRequest:
    message = cold.decode_request(ApiKey.ELECT_LEADERS, version, body)
    asked = message.topic_partitions
    partitions = None if asked is None else tuple(TopicPartition(t.topic, p) for t in asked for p in t.partitions)
    return ElectLeadersRequest(partitions, getattr(message, "election_type", 0))


def encode_elect_leaders_response(version: int, error_code: int, results: Mapping[TopicPartition, Outcome]) -> bytes:
    message = cold.response(
        ApiKey.ELECT_LEADERS,
        version,
        error_code=error_code,
        replica_election_results=[
            {
                "topic": topic,
                "partition_result": [
                    {
                        "partition_id": tp.partition,
                        "error_code": results[tp][0],
                        "error_message": _message(results[tp]),
                    }
                    for tp in tps
                ],
            }
            for topic, tps in _by_topic(results).items()
        ],
    )
    return cold.encode_response(ApiKey.ELECT_LEADERS, version, message)


def decode_elect_leaders_response(version: int, body: Buffer) -> ElectLeadersResponse:
    message = cold.decode_response(ApiKey.ELECT_LEADERS, version, body)
    results = {
        TopicPartition(t.topic, p.partition_id): (int(p.error_code), p.error_message or "")
        for t in message.replica_election_results
        for p in t.partition_result
    }
    return ElectLeadersResponse(int(getattr(message, "error_code", 0)), results)


# -- AlterPartitionReassignments ---------------------------------------------------------------------------------------

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The replicas wanted, preferred leader first; None takes a running reassignment back."""


class AlterPartitionReassignmentsResponse(msgspec.Struct, frozen=True):
    error_code: int
    error_message: str
    results: dict[TopicPartition, Outcome]


def encode_alter_partition_reassignments_request(version: int, targets: Targets) -> bytes:
    message = cold.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=DEFAULT_TIMEOUT_MS,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": tp.partition, "replicas": None if (r := targets[tp]) is None else list(r)}
                    for tp in tps
                ],
            }
            for topic, tps in _by_topic(targets).items()
        ],
    )
    return cold.encode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, message)


def decode_alter_partition_reassignments_request(
    version: int, body: Buffer
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Of a partition that is named twice the last entry counts, as in Kafka."""
    message = cold.decode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, body)
    return {
        TopicPartition(t.name, p.partition_index): None if p.replicas is None else tuple(p.replicas)
        for t in message.topics
        for p in t.partitions
    }


def encode_alter_partition_reassignments_response(
    version: int, error_code: int, results: Mapping[TopicPartition, Outcome], *, error_message: str = ""
) -> bytes:
    message = cold.response(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        error_code=error_code,
        error_message=error_message or None,
        responses=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": tp.partition,
                        "error_code": results[tp][0],
                        "error_message": _message(results[tp]),
                    }
                    for tp in tps
                ],
            }
            for topic, tps in _by_topic(results).items()
        ],
    )
    return cold.encode_response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, message)


def decode_alter_partition_reassignments_response(version: int, body: Buffer) -> AlterPartitionReassignmentsResponse:
    message = cold.decode_response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, body)
    results = {
        TopicPartition(t.name, p.partition_index): (int(p.error_code), p.error_message or "")
        for t in message.responses
        for p in t.partitions
    }
    return AlterPartitionReassignmentsResponse(int(message.error_code), message.error_message or "", results)


# -- ListPartitionReassignments ----------------------------------------------------------------------------------------


class ListPartitionReassignmentsResponse(msgspec.Struct, frozen=True):
    error_code: int
    error_message: str
    under_way: dict[TopicPartition, ReplicaAssignment]


def encode_list_partition_reassignments_request(version: int, partitions: Sequence[TopicPartition] | None) -> bytes:
    message = cold.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        version,
        timeout=DEFAULT_TIMEOUT_MS,
        topics=None
        if partitions is None
        else [
            {"name": t, "partition_indexes": [tp.partition for tp in tps]} for t, tps in _by_topic(partitions).items()
        ],
    )
    return cold.encode_request(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, message)


def decode_list_partition_reassignments_request(version: int, body: Buffer) -> tuple[TopicPartition, ...] | None:
    message = cold.decode_request(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, body)
    if message.topics is None:
        return None
    return tuple(TopicPartition(t.name, p) for t in message.topics for p in t.partition_indexes)


def encode_list_partition_reassignments_response(
    version: int, error_code: int, under_way: Mapping[TopicPartition, ReplicaAssignment], *, error_message: str = ""
) -> bytes:
    message = cold.response(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        version,
        error_code=error_code,
        error_message=error_message or None,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": tp.partition,
                        "replicas": list(under_way[tp].replicas),
                        "adding_replicas": list(under_way[tp].adding),
                        "removing_replicas": list(under_way[tp].removing),
                    }
                    for tp in tps
                ],
            }
            for topic, tps in _by_topic(under_way).items()
        ],
    )
    return cold.encode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, message)


def decode_list_partition_reassignments_response(version: int, body: Buffer) -> ListPartitionReassignmentsResponse:
    message = cold.decode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, body)
    under_way = {
        TopicPartition(t.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in message.topics
        for p in t.partitions
    }
    return ListPartitionReassignmentsResponse(int(message.error_code), message.error_message or "", under_way)


# -- UpdateFeatures ----------------------------------------------------------------------------------------------------


def encode_update_features_request(version: int, updates: Mapping[str, int]) -> bytes:
    """``updates``: feature -> the level wanted."""
    features = [{"feature": name, "max_version_level": level} for name, level in updates.items()]
    message = cold.request(ApiKey.UPDATE_FEATURES, version, timeout=DEFAULT_TIMEOUT_MS, feature_updates=features)
    return cold.encode_request(ApiKey.UPDATE_FEATURES, version, message)


def decode_update_features_request(version: int, body: Buffer) -> dict[str, int]:
    """Feature -> the level wanted."""
    message = cold.decode_request(ApiKey.UPDATE_FEATURES, version, body)
    return {update.feature: update.max_version_level for update in message.feature_updates}


def encode_update_features_response(
    version: int, error_code: int, results: Mapping[str, Outcome], *, error_message: str = ""
) -> bytes:
    fields: list[dict[str, Any]] = [
        {"feature": name, "error_code": outcome[0], "error_message": _message(outcome)}
        for name, outcome in results.items()
    ]
    message = cold.response(
        ApiKey.UPDATE_FEATURES, version, error_code=error_code, error_message=error_message or None, results=fields
    )
    return cold.encode_response(ApiKey.UPDATE_FEATURES, version, message)


def decode_update_features_response(version: int, body: Buffer) -> tuple[int, dict[str, Outcome]]:
    message = cold.decode_response(ApiKey.UPDATE_FEATURES, version, body)
    return int(message.error_code), {r.feature: (int(r.error_code), r.error_message or "") for r in message.results}


# -- AlterUserScramCredentials -----------------------------------------------------------------------------------------


class ScramChange(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def encode_alter_user_scram_credentials_request(
    version: int, deletions: Sequence[tuple[str, int]], upsertions: Sequence[ScramChange]
) -> bytes:
    message = cold.request(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        version,
        deletions=[{"name": user, "mechanism": mechanism} for user, mechanism in deletions],
        upsertions=[
            {
                "name": each.user,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for each in upsertions
        ],
    )
    return cold.encode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, message)


def decode_alter_user_scram_credentials_request(
    version: int, body: Buffer
) -> tuple[list[tuple[str, int]], list[ScramChange]]:
    """(user, mechanism) of what is to go, and what is to be set."""
    message = cold.decode_request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body)
    return [(d.name, int(d.mechanism)) for d in message.deletions], [
        ScramChange(u.name, int(u.mechanism), int(u.iterations), bytes(u.salt), bytes(u.salted_password))
        for u in message.upsertions
    ]


def encode_alter_user_scram_credentials_response(version: int, results: Mapping[str, Outcome]) -> bytes:
    listed = [
        {"user": user, "error_code": outcome[0], "error_message": _message(outcome)}
        for user, outcome in results.items()
    ]
    message = cold.response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, results=listed)
    return cold.encode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, message)


def decode_alter_user_scram_credentials_response(version: int, body: Buffer) -> dict[str, Outcome]:
    message = cold.decode_response(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, body)
    return {each.user: (int(each.error_code), each.error_message or "") for each in message.results}
