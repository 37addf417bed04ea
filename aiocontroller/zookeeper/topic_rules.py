"""Rules for new topics' names and replica assignments.  Pure functions.

Source: Kafka 3.9, ``Topic.java`` and ``AdminZkClient.scala`` (``validateTopicCreate``).  A violation raises
``TopicError`` with the code that Kafka's admin clients expect.  For rules of topics' settings see ``topic_configs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES

MAX_TOPIC_NAME_LENGTH = 249
MAX_REPLICATION_FACTOR = 1000
"""Limit for given assignments, which may name any number of brokers that are down."""
MAX_MESSAGE_LENGTH = 1000
"""Limit in characters for messages to clients: they may quote the request, and responses are bounded."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicError(BadInputError):
    """An admin request is refused; ``code`` is the error code for the client."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}…")
        self.code = code


# -- names ------------------------------------------------------------------------------------------------------------


def check_topic_name(name: str) -> None:
    """TopicError (INVALID_TOPIC_EXCEPTION) unless the name is 1 to 249 ASCII letters, digits, '.', '_' and '-'."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason is not None:
        raise TopicError(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka's rules allow this name."""
    try:
        check_topic_name(name)
    except TopicError:
        return False
    return True


def has_collision_chars(name: str) -> bool:
    """Whether the name's metrics could be another topic's."""
    return "." in name or "_" in name


def without_collision_chars(name: str) -> str:
    """The name in metrics, which do not distinguish '.' and '_': topics collide if these are equal."""
    return name.replace(".", "_")


# -- assignments ------------------------------------------------------------------------------------------------------


def _bad_assignment(message: str) -> TopicError:
    return TopicError(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_lengths(assignment: Mapping[int, Sequence[int]]) -> None:
    """Check sizes before any work that grows with them."""
    for partition, replicas in assignment.items():
        if len(replicas) > MAX_REPLICATION_FACTOR:
            raise _bad_assignment(
                f"partition {partition} has {len(replicas)} replicas, expected {MAX_REPLICATION_FACTOR} at most"
            )


def _check_replicas(partition: int, replicas: Sequence[int]) -> None:
    """Checks that Kafka does not make, or not everywhere."""
    if not replicas:
        raise _bad_assignment(f"Cannot have replication factor of 0 for partition id {partition}.")
    if min(replicas) < 0:
        raise _bad_assignment(f"partition {partition} names an impossible broker: {min(replicas)}")


def check_assignment(topic: str, assignment: Mapping[int, Sequence[int]], *, first_partition: int = 0) -> None:
    """TopicError unless partitions count from ``first_partition`` on, with equally many distinct brokers each."""
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
    _check_lengths(assignment)
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise _bad_assignment("All partitions should have the same number of replicas")
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            found = f"partition {partition} has {list(replicas[:20])}"
            raise _bad_assignment(f"Duplicate replica assignment found: {found}")
    if sorted(assignment) != list(expected):
        raise _bad_assignment(f"partitions should be a consecutive {first_partition}-based integer sequence")
    for partition in expected:
        _check_replicas(partition, assignment[partition])


def check_expansion(topic: str, assignment: Mapping[int, Sequence[int]], replication_factor: int) -> None:
    """Check given replicas of new partitions against the replication factor of partition 0."""
    _check_lengths(assignment)
    for partition, replicas in assignment.items():
        _check_replicas(partition, replicas)
        if len(set(replicas)) != len(replicas):
            found = ", ".join(map(str, replicas[:20]))
            raise _bad_assignment(
                f"Duplicate brokers not allowed in replica assignment: {found} for partition id {partition}."
            )
    uneven = [partition for partition in sorted(assignment) if len(assignment[partition]) != replication_factor]
    if uneven:
        factors = ", ".join(str(len(assignment[partition])) for partition in uneven)
        raise _bad_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{', '.join(map(str, uneven))}] have replication factors [{factors}], respectively."
        )


# -- the size of a topic's znode --------------------------------------------------------------------------------------

_TOPIC_ID_BYTES = len(',"topic_id":"0123456789abcdefABCDEF"')
_EMPTY_TOPIC_BYTES = len('{"removing_replicas":{},"partitions":{},"adding_replicas":{},"version":3}') + _TOPIC_ID_BYTES


def topic_znode_bytes_at_least(partitions: int, replication_factor: int, id_digits: int = 1) -> int:
    """The minimum size of a topic's znode in bytes, by counts alone; broker ids have ``id_digits`` or more."""
    numbers, low, digits = 0, 0, 1
    while low < partitions:
        high = min(10**digits, partitions)
        numbers += (high - low) * digits
        low, digits = high, digits + 1
    each = len('"":[],') + replication_factor * (id_digits + len(",")) - len(",")
    return _EMPTY_TOPIC_BYTES + numbers + partitions * each - len(",")


def most_partitions(replication_factor: int, id_digits: int = 1) -> int:
    """The largest partition count whose znode may fit."""
    low, high = 0, MAX_PARTITIONS_PER_TOPIC
    while low < high:
        middle = (low + high + 1) // 2
        if topic_znode_bytes_at_least(middle, replication_factor, id_digits) <= MAX_DATA_BYTES:
            low = middle
        else:
            high = middle - 1
    return low


def check_partition_count(topic: str, partitions: int, replication_factor: int, brokers: Iterable[int] = ()) -> None:
    """TopicError (INVALID_PARTITIONS) unless the znode of a topic with so many partitions may fit into ZooKeeper.

    Checked before any work that grows with the count.  Placement refuses counts below one.
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
    """TopicError (INVALID_PARTITIONS) if the znode is too large, with room for a topic id that is added later."""
    size = len(data) + (0 if has_id else _TOPIC_ID_BYTES)
    if size > MAX_DATA_BYTES:
        raise TopicError(
            KafkaErrorCode.INVALID_PARTITIONS,
            f"Topic {topic!r}: the znode of its {partitions} partitions would have {size} bytes, {MAX_DATA_BYTES} fit",
        )
