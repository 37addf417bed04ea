"""What administrators ask: topics, configurations, ACLs, quotas, users, tokens."""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.authorizer.authorizer import AclOperation, PatternType, ResourceType
from aiocontroller.wire.apis import ApiKey
from tests.acl_requests import acl, acl_filter
from tests.authorization.asking import Ask, Cell, Fields, When
from tests.authorization.clients import EVERY_TOPIC, UNKNOWN_ID
from tests.authorization.principals import TOPICS

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
"""Types of configured resources."""
SET, DELETE, APPEND = 0, 1, 2
_LITERAL, _PREFIXED, _MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
ANOTHER_BROKER = "1"


# -- topics ------------------------------------------------------------------------------------------------------------


def _create(names: Iterable[str], validate_only: bool = False, **more: object) -> Fields:
    topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []} | more
    return {"topics": [{"name": name} | topic for name in names], "timeout": 5000, "validate_only": validate_only}


def _create_on_broker_1(cell: Cell) -> Fields:
    assignments = [{"partition_index": 0, "broker_ids": [1]}]
    configs = [{"name": "retention.ms", "value": "86400000"}]
    return _create(
        cell.fresh_topics, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
    )


def _delete(cell: Cell, names: Iterable[str], by_id: bool = False) -> Fields:
    wanted = list(names)
    if by_id:
        topics = [{"name": None, "topic_id": cell.topic_id(name)} for name in wanted]
        return {"topics": [*topics, {"name": None, "topic_id": UNKNOWN_ID}], "timeout": 5000}
    topics = [{"name": name, "topic_id": None} for name in wanted]
    return {"topics": topics, "topic_names": wanted, "timeout": 5000}


def _grow(names: Iterable[str], count: int, validate_only: bool = False) -> Fields:
    topics = [{"name": name, "count": count, "assignments": None} for name in names]
    return {"topics": topics, "timeout": 5000, "validate_only": validate_only}


def _grow_fresh(cell: Cell) -> Fields:
    found = _grow(cell.fresh_topics, 2)
    for topic in found["topics"]:
        topic["assignments"] = [{"broker_ids": [1]}]
    return found


# -- configurations ----------------------------------------------------------------------------------------------------


def _described(*resources: tuple[int, str], keys: list[str] | None = None) -> Fields:
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources
        ],
        "include_synonyms": True,
        "include_documentation": False,
    }


def _altered(
    *resources: tuple[int, str], key: str = "retention.ms", value: str = "1000", validate: bool = True
) -> Fields:
    """For AlterConfigs and IncrementalAlterConfigs: the latter sets."""
    return {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}
            for kind, name in resources
        ],
        "validate_only": validate,
    }


def _topics(names: Iterable[str] = EVERY_TOPIC) -> list[tuple[int, str]]:
    return [(TOPIC, name) for name in names]


def _configs(api: ApiKey) -> list[Ask]:
    """The same for both ways of altering."""
    own = lambda cell: (BROKER, str(cell.node_id))  # noqa: E731
    level = "log.retention.ms"
    return [
        Ask(api, "topics", lambda cell: _altered(*_topics())),
        Ask(api, "invalid value", lambda cell: _altered(*_topics(), value="many")),
        Ask(api, "unknown key", lambda cell: _altered(*_topics(), key="no.such.key")),
        Ask(
            api,
            "fresh topics",
            lambda cell: _altered(*_topics(cell.fresh_topics), validate=False),
            When.WRITES,
            needs_topics=True,
            ends_only=True,
        ),
        Ask(api, "own broker", lambda cell: _altered(own(cell), key=level)),
        Ask(api, "another broker", lambda cell: _altered((BROKER, ANOTHER_BROKER), key=level)),
        Ask(api, "no broker", lambda cell: _altered((BROKER, "many"), key=level)),
        Ask(api, "every broker", lambda cell: _altered((BROKER, ""), key=level)),
        Ask(api, "loggers", lambda cell: _altered((BROKER_LOGGER, str(cell.node_id)), key="kafka", value="INFO")),
        Ask(api, "client metrics", lambda cell: _altered((CLIENT_METRICS, "m"), key="interval.ms")),
        Ask(api, "unknown type", lambda cell: _altered((99, "x"))),
    ]


# -- ACLs --------------------------------------------------------------------------------------------------------------


def _create_acls(cell: Cell) -> Fields:
    prefixed = [acl(f"{cell.fresh}-", pattern=_PREFIXED)] if cell.version >= 1 else []
    return {"creations": [acl(cell.fresh), acl(cell.fresh, ResourceType.GROUP), *prefixed]}


def _bad_acls(cell: Cell) -> Fields:
    bad = [
        acl("a/b"),
        acl(""),
        acl("t", principal="unknown"),
        acl("another-cluster", ResourceType.CLUSTER),
        acl("t", operation=AclOperation.CLUSTER_ACTION),
    ]
    if cell.version >= 1:
        bad.append(acl("*", pattern=_PREFIXED))
    return {"creations": bad}


def _strange_acl(**more: object) -> Fields:
    return {"creations": [acl("t", **more)]}


def _delete_acls(cell: Cell) -> Fields:
    """Its own and unknown ones: what others rely on stays."""
    return {
        "filters": [
            acl_filter(cell.fresh, ResourceType.TOPIC, _LITERAL if cell.version == 0 else PatternType.ANY),
            acl_filter("unknown", ResourceType.GROUP, _LITERAL),
        ]
    }


# -- quotas, users, tokens ---------------------------------------------------------------------------------------------


def _quota(entity_type: str, name: str | None, key: str = "producer_byte_rate", **more: object) -> Fields:
    return {
        "entity": [{"entity_type": entity_type, "entity_name": name}],
        "ops": [{"key": key, "value": 1e6, "remove": False} | more],
    }


def _quota_filter(entity_type: str, match_type: int, match: str | None, strict: bool = False) -> Fields:
    component = {"entity_type": entity_type, "match_type": match_type, "match": match}
    return {"components": [component], "strict": strict}


def _scram(cell: Cell, **more: object) -> Fields:
    upsertion = {"name": cell.fresh, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    return {"deletions": [{"name": "unknown-user", "mechanism": 1}], "upsertions": [upsertion | more]}


def _token(owner: str | None = None) -> Fields:
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": "User", "principal_name": "part"}],
        "max_lifetime": 3_600_000,
    }


def _owners(*names: str) -> Fields:
    return {"owners": [{"principal_type": "User", "principal_name": name} for name in names]}


_TOPIC_ASKS: tuple[Ask, ...] = (
    Ask(ApiKey.CREATE_TOPICS, "", _create_on_broker_1, When.CONTROLLER, ends_only=True),
    Ask(
        ApiKey.CREATE_TOPICS,
        "validate only",
        lambda cell: _create((*cell.fresh_topics, "orders", "secret", "bad/name"), True),
        When.CONTROLLER,
        since=1,
    ),
    Ask(
        ApiKey.CREATE_TOPICS,
        "twice",
        lambda cell: _create([f"made-{cell.fresh}"] * 2, True),
        When.CONTROLLER,
        since=1,
    ),
    Ask(
        ApiKey.CREATE_TOPICS,
        "too many replicas",
        lambda cell: _create(cell.fresh_topics, True, replication_factor=9),
        When.CONTROLLER,
        since=1,
    ),
    Ask(
        ApiKey.CREATE_TOPICS,
        "unknown key",
        lambda cell: _create(cell.fresh_topics, True, configs=[{"name": "no.such.key", "value": "1"}]),
        When.CONTROLLER,
        since=1,
    ),
    Ask(
        ApiKey.DELETE_TOPICS,
        "",
        lambda cell: _delete(cell, (*cell.fresh_topics, "nowhere", "orders-missing")),
        When.CONTROLLER,
        needs_topics=True,
        ends_only=True,
    ),
    Ask(
        ApiKey.DELETE_TOPICS,
        "by id",
        lambda cell: _delete(cell, cell.fresh_topics, by_id=True),
        When.CONTROLLER,
        since=6,
        needs_topics=True,
    ),
    Ask(
        ApiKey.CREATE_PARTITIONS,
        "validate only",
        lambda cell: _grow(EVERY_TOPIC, 3, True),
        When.CONTROLLER,
    ),
    Ask(ApiKey.CREATE_PARTITIONS, "fewer", lambda cell: _grow(EVERY_TOPIC, 1, True), When.CONTROLLER),
    Ask(ApiKey.CREATE_PARTITIONS, "", _grow_fresh, When.CONTROLLER, needs_topics=True, ends_only=True),
    Ask(
        ApiKey.ELECT_LEADERS,
        "",
        lambda cell: {
            "election_type": 0,
            "topic_partitions": [{"topic": name, "partitions": [0]} for name in (*TOPICS, "nowhere")],
            "timeout": 5000,
        },
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ELECT_LEADERS,
        "all",
        lambda cell: {"election_type": 0, "topic_partitions": None, "timeout": 5000},
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "cancels",
        lambda cell: {
            "timeout": 5000,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "replicas": None}]} for t in EVERY_TOPIC],
        },
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "to an unknown broker",
        lambda cell: {
            "timeout": 5000,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "replicas": [77]}]} for t in EVERY_TOPIC],
        },
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "",
        lambda cell: {"timeout": 5000, "topics": [{"name": t, "partition_indexes": [0]} for t in EVERY_TOPIC]},
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "all",
        lambda cell: {"timeout": 5000, "topics": None},
        When.CONTROLLER,
    ),
)

ADMINISTRATION: tuple[Ask, ...] = (
    *_TOPIC_ASKS,
    Ask(
        ApiKey.DESCRIBE_CLUSTER,
        "",
        lambda cell: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    Ask(
        ApiKey.DESCRIBE_CLUSTER,
        "controllers",
        lambda cell: {"include_cluster_authorized_operations": False, "endpoint_type": 2},
        since=1,
    ),
    Ask(ApiKey.DESCRIBE_CONFIGS, "topics", lambda cell: _described(*_topics())),
    Ask(ApiKey.DESCRIBE_CONFIGS, "one key", lambda cell: _described(*_topics(), keys=["retention.ms", "no.such"])),
    Ask(ApiKey.DESCRIBE_CONFIGS, "own broker", lambda cell: _described((BROKER, str(cell.node_id)))),
    Ask(ApiKey.DESCRIBE_CONFIGS, "another broker", lambda cell: _described((BROKER, ANOTHER_BROKER))),
    Ask(ApiKey.DESCRIBE_CONFIGS, "every broker", lambda cell: _described((BROKER, ""))),
    Ask(ApiKey.DESCRIBE_CONFIGS, "no broker", lambda cell: _described((BROKER, "many"))),
    Ask(
        ApiKey.DESCRIBE_CONFIGS,
        "loggers",
        lambda cell: _described((BROKER_LOGGER, str(cell.node_id)), keys=["kafka"]),
    ),
    Ask(ApiKey.DESCRIBE_CONFIGS, "client metrics", lambda cell: _described((CLIENT_METRICS, "m"))),
    Ask(ApiKey.DESCRIBE_CONFIGS, "unknown type", lambda cell: _described((99, "x"))),
    *_configs(ApiKey.ALTER_CONFIGS),
    *_configs(ApiKey.INCREMENTAL_ALTER_CONFIGS),
    # AlterConfigs of the same twice is not asked: a broker's handler fails over it and never answers.
    Ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, "twice", lambda cell: _altered((TOPIC, "orders"), (TOPIC, "orders"))),
    Ask(ApiKey.DESCRIBE_ACLS, "all", lambda cell: acl_filter()),
    Ask(ApiKey.DESCRIBE_ACLS, "literal", lambda cell: acl_filter("orders", ResourceType.TOPIC, _LITERAL)),
    Ask(ApiKey.DESCRIBE_ACLS, "match", lambda cell: acl_filter("team-a", ResourceType.TOPIC, _MATCH), since=1),
    Ask(ApiKey.DESCRIBE_ACLS, "prefixed", lambda cell: acl_filter(pattern=_PREFIXED), since=1),
    Ask(ApiKey.DESCRIBE_ACLS, "of one", lambda cell: acl_filter(principal_filter="User:allow")),
    Ask(ApiKey.DESCRIBE_ACLS, "of an unknown type", lambda cell: acl_filter(kind=99)),
    Ask(ApiKey.CREATE_ACLS, "", _create_acls, When.WRITES),
    Ask(ApiKey.CREATE_ACLS, "bad ones", _bad_acls, When.WRITES),
    Ask(ApiKey.CREATE_ACLS, "of an unknown operation", lambda cell: _strange_acl(operation=99)),
    Ask(ApiKey.CREATE_ACLS, "for any operation", lambda cell: _strange_acl(operation=1)),
    Ask(ApiKey.CREATE_ACLS, "of a pattern to match", lambda cell: _strange_acl(pattern=_MATCH), since=1),
    Ask(ApiKey.DELETE_ACLS, "", _delete_acls, When.WRITES),
    Ask(
        ApiKey.DELETE_ACLS,
        "of an unknown type",
        lambda cell: {"filters": [acl_filter("unknown", 99, _LITERAL)]},
        When.WRITES,
    ),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "all", lambda cell: {"components": [], "strict": False}),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of a user", lambda cell: _quota_filter("user", 0, "allow")),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of users", lambda cell: _quota_filter("user", 2, None, strict=True)),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of the default", lambda cell: _quota_filter("user", 1, None)),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of an address", lambda cell: _quota_filter("ip", 0, "127.0.0.1")),
    Ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of something else", lambda cell: _quota_filter("colour", 0, "red")),
    Ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        "",
        lambda cell: {"entries": [_quota("client-id", cell.fresh)], "validate_only": False},
        When.WRITES,
        ends_only=True,
    ),
    Ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        "bad ones",
        lambda cell: {
            "entries": [
                _quota("user", "x", key="no_such_rate"),
                _quota("colour", "red"),
                _quota("user", "x", value=-1.0),
                _quota("ip", "no address at all", key="connection_creation_rate"),
            ],
            "validate_only": True,
        },
    ),
    Ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "all", lambda cell: {"users": None}, unanswered_by_kafka=True),
    Ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "some",
        lambda cell: {"users": [{"name": "allow"}, {"name": "unknown"}, {"name": "prefix"}]},
    ),
    Ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "twice", lambda cell: {"users": [{"name": "allow"}] * 2}),
    Ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "", _scram, When.CONTROLLER),
    Ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "too few iterations",
        lambda cell: _scram(cell, iterations=1),
        When.CONTROLLER,
    ),
    Ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "unknown mechanism",
        lambda cell: _scram(cell, mechanism=9),
        When.CONTROLLER,
    ),
    Ask(ApiKey.CREATE_DELEGATION_TOKEN, "", lambda cell: _token(), When.WRITES),
    Ask(ApiKey.CREATE_DELEGATION_TOKEN, "for another", lambda cell: _token("prefix"), When.WRITES, since=3),
    Ask(
        ApiKey.RENEW_DELEGATION_TOKEN,
        "",
        lambda cell: {"hmac": cell.token_hmac, "renew_period": 3_600_000},
        When.WRITES,
    ),
    Ask(ApiKey.RENEW_DELEGATION_TOKEN, "unknown", lambda cell: {"hmac": b"unknown", "renew_period": 1000}),
    Ask(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        "",
        lambda cell: {"hmac": cell.token_hmac, "expiry_time_period": 3_600_000},
        When.WRITES,
    ),
    Ask(ApiKey.EXPIRE_DELEGATION_TOKEN, "unknown", lambda cell: {"hmac": b"unknown", "expiry_time_period": -1}),
    Ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, "all", lambda cell: {"owners": None}),
    Ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, "of none", lambda cell: {"owners": []}),
    Ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, "of some", lambda cell: _owners("allow", "prefix")),
    Ask(
        ApiKey.UPDATE_FEATURES,
        "",
        lambda cell: {
            "timeout": 5000,
            "feature_updates": [{"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}],
            "validate_only": True,
        },
        When.CONTROLLER,
    ),
    Ask(ApiKey.UPDATE_FEATURES, "none", lambda cell: {"timeout": 5000, "feature_updates": []}, When.CONTROLLER),
    Ask(ApiKey.DESCRIBE_LOG_DIRS, "all", lambda cell: {"topics": None}),
    Ask(
        ApiKey.DESCRIBE_LOG_DIRS,
        "topics",
        lambda cell: {"topics": [{"topic": name, "partitions": [0]} for name in EVERY_TOPIC]},
    ),
    Ask(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        "",
        lambda cell: {
            "dirs": [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in EVERY_TOPIC]}]
        },
    ),
)
