"""Which topics may be made: rules for names and replica assignments.  Pure functions.

Source: Kafka 3.9, ``Topic.java`` and ``AdminZkClient.scala`` (``validateTopicCreate``).  A rule that is broken raises
``TopicError`` with the code that Kafka's admin clients know.  Rules for a topic's settings: ``topic_configs``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiocontroller.core.errors import BadInputError, KafkaErrorCode
from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicError(BadInputError):
    """An admin request that cannot be granted; ``code`` is what an admin client is told."""

    def __init__(self, code: KafkaErrorCode, message: str) -> None:
        super().__init__(message)
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


def has_collision_chars(name: str) -> bool:
    """Whether the name's metrics could be another topic's."""
    return "." in name or "_" in name


def collides(name: str, other: str) -> bool:
    """Equal but for '.' and '_', which metrics do not tell apart."""
    return name.replace(".", "_") == other.replace(".", "_")


# -- assignments ------------------------------------------------------------------------------------------------------


def _check_replicas(topic: str, partition: int, replicas: Sequence[int]) -> None:
    wrong = None
    if not replicas:
        wrong = "has no replicas"
    elif len(set(replicas)) != len(replicas):
        wrong = f"names a broker twice: {list(replicas)}"
    elif min(replicas) < 0:
        wrong = f"names an impossible broker: {list(replicas)}"
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
    factors = sorted({len(replicas) for replicas in assignment.values()})
    if len(factors) != 1:
        raise TopicError(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Assignment of topic {topic!r} has partitions with {factors} replicas, expected equally many everywhere",
        )
