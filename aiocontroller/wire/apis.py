"""Kafka's APIs: their keys, versions and header forms, as of Kafka 3.9 in ZooKeeper mode.

Messages are *flexible* (KIP-482: compact lengths, tagged fields) from a version on that differs by API.  Kafka has
three exceptions: the response to ApiVersions always has the oldest header, so that both sides can read it before they
know each other's versions; ControlledShutdown version 0 has a request header without a client id; and the client id in
a request header keeps its two-byte length for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from aiocontroller.wire.errors import UnsupportedApiError


class VersionRange(NamedTuple):
    """Both ends are included."""

    min: int
    max: int


class ApiKey(IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67


NEVER = 1 << 15
"""First flexible version of an API without flexible versions."""

_APIS: dict[ApiKey, tuple[int, int]] = {
    # key: (highest version in Kafka 3.9, first flexible version); the lowest is 0 for all
    ApiKey.PRODUCE: (11, 9),
    ApiKey.FETCH: (17, 12),
    ApiKey.LIST_OFFSETS: (9, 6),
    ApiKey.METADATA: (12, 9),
    ApiKey.LEADER_AND_ISR: (7, 4),
    ApiKey.STOP_REPLICA: (4, 2),
    ApiKey.UPDATE_METADATA: (8, 6),
    ApiKey.CONTROLLED_SHUTDOWN: (3, 3),
    ApiKey.OFFSET_COMMIT: (9, 8),
    ApiKey.OFFSET_FETCH: (9, 6),
    ApiKey.FIND_COORDINATOR: (6, 3),
    ApiKey.JOIN_GROUP: (9, 6),
    ApiKey.HEARTBEAT: (4, 4),
    ApiKey.LEAVE_GROUP: (5, 4),
    ApiKey.SYNC_GROUP: (5, 4),
    ApiKey.DESCRIBE_GROUPS: (5, 5),
    ApiKey.LIST_GROUPS: (5, 3),
    ApiKey.SASL_HANDSHAKE: (1, NEVER),
    ApiKey.API_VERSIONS: (4, 3),
    ApiKey.CREATE_TOPICS: (7, 5),
    ApiKey.DELETE_TOPICS: (6, 4),
    ApiKey.DELETE_RECORDS: (2, 2),
    ApiKey.INIT_PRODUCER_ID: (5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (4, 3),
    ApiKey.END_TXN: (4, 3),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.TXN_OFFSET_COMMIT: (4, 3),
    ApiKey.DESCRIBE_ACLS: (3, 2),
    ApiKey.CREATE_ACLS: (3, 2),
    ApiKey.DELETE_ACLS: (3, 2),
    ApiKey.DESCRIBE_CONFIGS: (4, 4),
    ApiKey.ALTER_CONFIGS: (2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (4, 2),
    ApiKey.SASL_AUTHENTICATE: (2, 2),
    ApiKey.CREATE_PARTITIONS: (3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: (3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: (2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (3, 2),
    ApiKey.DELETE_GROUPS: (2, 2),
    ApiKey.ELECT_LEADERS: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, NEVER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (2, 0),
    ApiKey.ALTER_PARTITION: (3, 0),
    ApiKey.UPDATE_FEATURES: (1, 0),
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (1, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (1, 0),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
}

SUPPORTED: dict[ApiKey, VersionRange] = {api: VersionRange(0, last) for api, (last, _) in _APIS.items()}
"""The versions of each API that we can read and write: those of Kafka 3.9."""


_NAMES: dict[int, str] = {api: f"{api.name}({api:d})" for api in SUPPORTED}


def api_name(api_key: int) -> str:
    """For messages: ``UPDATE_METADATA(6)``, or the bare key of an unknown API."""
    return _NAMES.get(api_key) or f"API key {api_key}"


def is_flexible(api_key: int, version: int) -> bool:
    """Whether messages of this version have compact lengths and tagged fields.

    Accepts any version of a known API, even one that is too new: the header of such a request can still be read.
    Raises UnsupportedApiError for an unknown key.
    """
    known = _APIS.get(api_key)  # type: ignore[call-overload]
    if known is None:
        raise UnsupportedApiError(api_key, version, f"API key {api_key} (version {version}): no API has this key")
    return bool(version >= known[1])


def check_supported(api_key: int, version: int, offered: Mapping[Any, VersionRange] = SUPPORTED) -> None:
    """Raises UnsupportedApiError, naming key, version and supported versions, unless ``offered`` has this version."""
    versions = offered.get(api_key)
    if versions is None:
        raise UnsupportedApiError(api_key, version, f"{api_name(api_key)} version {version}: not served here")
    if not versions.min <= version <= versions.max:
        raise UnsupportedApiError(
            api_key, version, f"{api_name(api_key)} version {version}: expected {versions.min} to {versions.max}"
        )


def negotiate(mine: VersionRange, theirs: VersionRange | None) -> int | None:
    """The highest version in both ranges; None when they do not overlap or the other side lacks the API."""
    if theirs is None:
        return None
    highest = min(mine.max, theirs.max)
    return highest if highest >= max(mine.min, theirs.min) else None


def negotiate_api(api_key: ApiKey, theirs: Mapping[int, VersionRange]) -> int:
    """The version of an API to use with a peer that offers ``theirs``; raises UnsupportedApiError if there is none."""
    mine, offered = SUPPORTED[api_key], theirs.get(api_key)
    version = negotiate(mine, offered)
    if version is None:
        found = f"{offered.min} to {offered.max}" if offered else "none"
        raise UnsupportedApiError(
            api_key,
            mine.max,
            f"{api_name(api_key)}: peer offers versions {found}, expected one of {mine.min} to {mine.max}",
        )
    return version
