"""All ZooKeeper paths of a ZooKeeper-mode cluster.

Source: Kafka 3.9, ``core/src/main/scala/kafka/zk/ZkData.scala``.  Only the zookeeper package builds paths; other
packages name topics, partitions and brokers.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
KNOWN_CONTROLLERS = "/aiocontroller_ids"
"""Ours, not Kafka's: the ids of all aiocontrollers that have been active."""
DEBTS = "/aiocontroller_debts"
"""Ours, not Kafka's: replicas that brokers have yet to delete."""
BROKER_STARTS = "/aiocontroller_broker_starts"
"""Ours, not Kafka's: which brokers have started uncleanly."""
INSTANCES = "/aiocontroller_instances"
"""Ours, not Kafka's: the running instances of this program, one ephemeral znode each."""

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"

ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"

ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
ISR_CHANGE_PREFIX = "isr_change_"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "log_dir_event_"

CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
CONFIG_ENTITY_TYPES = ("topics", "clients", "users", "brokers", "ips")
DEFAULT_ENTITY = "<default>"
"""Entity name that stands for all brokers, users or clients without an entry of their own."""

CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
LATEST_PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
MIGRATION = "/migration"
CONSUMERS = "/consumers"

DELEGATION_TOKEN = "/delegation_token"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_TOKEN_CHANGES = "/delegation_token/token_changes"
DELEGATION_TOKEN_CHANGE_PREFIX = "token_change_"

ACL = "/kafka-acl"
EXTENDED_ACL = "/kafka-acl-extended"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"


def config_entities(entity_type: str) -> str:
    """Parent of all configurations of one type (one of ``CONFIG_ENTITY_TYPES``)."""
    return f"{CONFIG}/{entity_type}"


TOP_LEVEL = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGE_NOTIFICATION,
    LATEST_PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    *(config_entities(entity_type) for entity_type in CONFIG_ENTITY_TYPES),
)
"""The persistent paths that a broker creates when it starts (Kafka's ``PersistentZkPaths``)."""

SENSITIVE = (config_entities("users"), config_entities("brokers"), DELEGATION_TOKENS)
"""Roots of paths that only brokers may read when ``zookeeper.set.acl`` is on."""

SECURE_ROOTS = (
    ADMIN,
    BROKERS,
    CLUSTER,
    CONFIG,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_CHANGE_NOTIFICATION,
    LATEST_PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    DELEGATION_TOKEN,
    EXTENDED_ACL,
    MIGRATION,
    FEATURE,
    ACL,
    ACL_CHANGES,
    EXTENDED_ACL_CHANGES,
)
"""Roots of paths that only brokers may write when ``zookeeper.set.acl`` is on."""


def broker_id(broker: int) -> str:
    """The registration of a broker."""
    return f"{BROKER_IDS}/{broker}"


def topic_of(path: str) -> str | None:
    """The topic whose znode is at the path, or None."""
    parent, _, name = path.rpartition("/")
    return name if parent == TOPICS else None


def topic(name: str) -> str:
    """The znode of a topic's assignment."""
    return f"{TOPICS}/{name}"


def topic_partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def topic_partition(name: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition}"


def topic_partition_state(name: str, partition: int) -> str:
    """The znode of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def delete_topics_topic(name: str) -> str:
    """The request to delete a topic."""
    return f"{DELETE_TOPICS}/{name}"


def debts_of_broker(broker: int) -> str:
    """The parent of a broker's debts."""
    return f"{DEBTS}/{broker}"


def debts(broker: int, topic: str) -> str:
    """The debts of one broker for topics of one name."""
    return f"{DEBTS}/{broker}/{topic}"


def instance(name: str) -> str:
    """One instance's description of itself; ``name`` is that of its session."""
    return f"{INSTANCES}/{name}"


def isr_change(name: str) -> str:
    """An ISR change notification; ``name`` is prefix and sequence number (``isr_change_0000000012``)."""
    return f"{ISR_CHANGE_NOTIFICATION}/{name}"


def log_dir_event(name: str) -> str:
    """A log directory event notification; ``name`` is prefix and sequence number."""
    return f"{LOG_DIR_EVENT_NOTIFICATION}/{name}"


def config_change(name: str) -> str:
    """A configuration change notification; ``name`` is prefix and sequence number."""
    return f"{CONFIG_CHANGES}/{name}"


def config_entity(entity_type: str, entity_name: str) -> str:
    """An entity's configuration; ``entity_name`` must be sanitized if it may have any character (users, clients)."""
    return f"{CONFIG}/{entity_type}/{entity_name}"


def delegation_token(token_id: str) -> str:
    """The znode of a delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def delegation_token_change(name: str) -> str:
    """A notification about a delegation token."""
    return f"{DELEGATION_TOKEN_CHANGES}/{name}"


def acl(pattern_type: str, resource_type: str, resource_name: str) -> str:
    """ACLs of one resource; ``pattern_type`` is ``LITERAL`` or ``PREFIXED``, ``resource_type`` such as ``Topic``."""
    root = ACL if pattern_type == "LITERAL" else f"{EXTENDED_ACL}/{pattern_type.lower()}"
    return f"{root}/{resource_type}/{resource_name}"


def is_sensitive(path: str) -> bool:
    """Whether only brokers and controllers may read the znode, as in Kafka's ``ZkData``."""
    return path.startswith(SENSITIVE)


NO_ZNODE_NAMES = frozenset({".", ".."})
"""Names that ``sanitize`` leaves as they are, although no znode can have them."""


_NO_PATH = re.compile(
    r"[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"  # characters; Java sees surrogates in pairs
    r"|//|/$|/\.{1,2}(/|$)"  # names that are empty, or dots alone
)


def is_path(path: str) -> bool:
    """Whether ZooKeeper's Java client, and so Kafka's brokers, accept the path of a znode below the root."""
    return path.startswith("/") and not _NO_PATH.search(path)


def sanitize(name: str) -> str:
    """A name that is safe as a path element: URL encoding as Kafka's ``Sanitizer`` does it."""
    return quote(name, safe="-_.").replace("~", "%7E")


def desanitize(name: str) -> str:
    """The name of a user or client that ``sanitize`` has made into the name of a znode."""
    return unquote(name)
