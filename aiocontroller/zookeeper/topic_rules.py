"""Which topics may be made: rules for names and replica assignments.  Pure functions.

Source: Kafka 3.9, ``Topic.java`` and ``AdminZkClient.scala`` (``validateTopicCreate``).  A rule that is broken raises
``TopicError`` with the code that Kafka's admin clients know.  Rules for a topic's settings: ``topic_configs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES

MAX_TOPIC_NAME_LENGTH = 249
MAX_REPLICATION_FACTOR = 1000
"""Of assignments that are given: they may name brokers that are down, as many as there are numbers."""
MAX_MESSAGE_LENGTH = 1000
"""Characters of what a client is told: it may quote what the client has sent, and answers are bounded."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicError(BadInputError):
    """An admin request that cannot be granted; ``code`` is what an admin client is told."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}…")
        self.code = code


# -- names ------------------------------------------------------------------------------------------------------------


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless the name is 1 to 249 ASCII letters, digits, '.', '_' and '-'."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"{name!r} is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it has {len(name)} characters, {MAX_TOPIC_NAME_LENGTH} are allowed"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    if reason is not None:
        raise TopicError(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is invalid: {reason}")


def is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except TopicError:
        return False
    return True


def has_collision_chars(name: str) -> bool:
    """Whether the name's metrics could be another topic's."""
    return "." in name or "_" in name


def without_collision_chars(name: str) -> str:
    """As metrics have it, which do not tell '.' and '_' apart: two topics collide where these are equal."""
    return name.replace(".", "_")


# -- assignments ------------------------------------------------------------------------------------------------------


def _check_replicas(topic: str, partition: int, replicas: Sequence[int]) -> None:
    wrong = None
    if len(replicas) > MAX_REPLICATION_FACTOR:
        wrong = f"has {len(replicas)} replicas, expected {MAX_REPLICATION_FACTOR} at most"
    elif not replicas:
        wrong = "has no replicas"
    elif len(set(replicas)) != len(replicas):
        wrong = f"names a broker twice: {list(replicas[:20])}"
    elif min(replicas) < 0:
        wrong = f"names an impossible broker: {min(replicas)}"
    if wrong is not None:
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Assignment of topic {topic!r}: partition {partition} {wrong}"
        )


def check_assignment(topic: str, assignment: Mapping[int, Sequence[int]], *, first_partition: int = 0) -> None:
    """Partitions ``first_partition`` upwards without a gap, each with equally many distinct brokers."""
    if not assignment:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS, f"Assignment of topic {topic!r} is empty, expected one partition or more"
        )
    expected = range(first_partition, first_partition + len(assignment))
    if expected.stop > MAX_PARTITIONS_PER_TOPIC:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic {topic!r} would have {expected.stop} partitions, {MAX_PARTITIONS_PER_TOPIC} are allowed",
        )
    if sorted(assignment) != list(expected):
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Assignment of topic {topic!r} names the partitions {sorted(assignment)[:20]}, "
            f"expected {expected.start} to {expected.stop - 1} without a gap",
        )
    for partition in expected:
        _check_replicas(topic, partition, assignment[partition])
    factors = sorted({len(replicas) for replicas in assignment.values()})[:20]
    if len(factors) != 1:
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Assignment of topic {topic!r} has partitions with {factors} replicas, expected equally many everywhere",
        )


# -- what fits into a topic's znode -----------------------------------------------------------------------------------

_TOPIC_ID_BYTES = len(',"topic_id":"0123456789abcdefABCDEF"')
_EMPTY_TOPIC_BYTES = len('{"removing_replicas":{},"partitions":{},"adding_replicas":{},"version":3}') + _TOPIC_ID_BYTES


def topic_znode_bytes_at_least(partitions: int, replication_factor: int, id_digits: int = 1) -> int:
    """Bytes that the znode of such a topic has at least, by counts alone; broker ids have ``id_digits`` or more."""
    numbers, low, digits = 0, 0, 1
    while low < partitions:
        high = min(10**digits, partitions)
        numbers += (high - low) * digits
        low, digits = high, digits + 1
    each = len('"":[],') + replication_factor * (id_digits + len(",")) - len(",")
    return _EMPTY_TOPIC_BYTES + numbers + partitions * each - len(",")


def most_partitions(replication_factor: int, id_digits: int = 1) -> int:
    """The largest count whose znode may fit."""
    low, high = 0, MAX_PARTITIONS_PER_TOPIC
    while low < high:
        middle = (low + high + 1) // 2
        if topic_znode_bytes_at_least(middle, replication_factor, id_digits) <= MAX_DATA_BYTES:
            low = middle
        else:
            high = middle - 1
    return low


def check_partition_count(topic: str, partitions: int, replication_factor: int, brokers: Iterable[int] = ()) -> None:
    """INVALID_PARTITIONS unless the znode of a topic with so many partitions in all may fit into ZooKeeper.

    Before anything is computed that grows with them.  Counts below one are the placement's to refuse.
    """
    digits = min((len(str(broker)) for broker in brokers), default=1)
    replication_factor = max(replication_factor, 1)
    least = topic_znode_bytes_at_least(max(partitions, 1), replication_factor, digits)
    if least > MAX_DATA_BYTES:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic {topic!r}: found {partitions} partitions with {replication_factor} replicas each, expected "
            f"{most_partitions(replication_factor, digits)} at most: its znode would have {least} bytes or more, "
            f"{MAX_DATA_BYTES} fit",
        )


def check_topic_znode(topic: str, data: bytes, partitions: int, *, has_id: bool = True) -> None:
    """INVALID_PARTITIONS if the znode is too large; one without a topic id gets one later."""
    size = len(data) + (0 if has_id else _TOPIC_ID_BYTES)
    if size > MAX_DATA_BYTES:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic {topic!r}: the znode of its {partitions} partitions would have {size} bytes, {MAX_DATA_BYTES} fit",
        )
