"""Which topics may be made: rules for names, replica assignments and topic configuration.  Pure functions.

Source: Kafka 3.9, ``Topic.java``, ``AdminZkClient.scala`` (``validateTopicCreate``) and ``LogConfig.java`` (the types
and bounds of the topic configuration; its defaults are the brokers' business).  A rule that is broken raises
``TopicError`` with the code that Kafka's admin clients know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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


# -- configuration ----------------------------------------------------------------------------------------------------

Rule = Callable[[str], str | None]
"""What was expected of a value, or None when it is that."""

INT_MAX, LONG_MIN, LONG_MAX = 2**31 - 1, -(2**63), 2**63 - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


def _whole(low: int, high: int, *, also: int | None = None) -> Rule:
    def rule(value: str) -> str | None:
        text = value.strip()
        if _NUMBER.fullmatch(text) and (low <= int(text) <= high or int(text) == also):
            return None
        return f"a whole number from {low} to {high}" + (f" or {also}" if also is not None else "")

    return rule


def _int(low: int) -> Rule:
    return _whole(low, INT_MAX)


def _long(low: int) -> Rule:
    return _whole(low, LONG_MAX)


def _ratio(value: str) -> str | None:
    try:
        return None if 0 <= float(value) <= 1 else "a number from 0 to 1"
    except ValueError:
        return "a number from 0 to 1"


def _boolean(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "true or false"


def _one_of(*names: str) -> Rule:
    return lambda value: None if value in names else f"one of {', '.join(names)}"


def _some_of(*names: str) -> Rule:
    def rule(value: str) -> str | None:
        given = [name.strip() for name in value.split(",")] if value.strip() else []
        return None if all(name in names for name in given) else f"a list of {', '.join(names)}"

    return rule


def _throttled_replicas(value: str) -> str | None:
    given = [part.strip() for part in value.split(",")] if value.strip() else []
    if given == ["*"] or all(re.fullmatch(r"[0-9]+:[0-9]+", part) for part in given):
        return None
    return "* or a list of partition:broker"


def _anything(_value: str) -> str | None:
    return None


TOPIC_CONFIGS: dict[str, Rule] = {
    "cleanup.policy": _some_of("compact", "delete"),
    "compression.gzip.level": _whole(1, 9, also=-1),
    "compression.lz4.level": _whole(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _whole(-131072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "follower.replication.throttled.replicas": _throttled_replicas,
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": _throttled_replicas,
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.downconversion.enable": _boolean,
    "message.format.version": _anything,
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.difference.max.ms": _long(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _boolean,
    "remote.storage.enable": _boolean,
    "retention.bytes": _long(LONG_MIN),
    "retention.ms": _long(-1),
    "segment.bytes": _int(14),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _boolean,
}
"""What a topic can be given in a ZooKeeper-mode cluster, so without the remote.log switches of KRaft."""


def check_topic_configs(topic: str, configs: Mapping[str, str]) -> None:
    """INVALID_CONFIG for an unknown name or a value that it cannot have."""
    for name in sorted(configs):
        rule, value = TOPIC_CONFIGS.get(name), configs[name]
        if rule is None:
            raise TopicError(KafkaErrorCode.INVALID_CONFIG, f"Topic {topic!r}: unknown topic config name {name!r}")
        expected = rule(value)
        if expected is not None:
            raise TopicError(
                KafkaErrorCode.INVALID_CONFIG, f"Topic {topic!r}: {name} is {value!r}, expected {expected}"
            )
    lag = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if all(name in configs for name in lag) and int(configs[lag[0]]) > int(configs[lag[1]]):
        raise TopicError(
            KafkaErrorCode.INVALID_CONFIG,
            f"Topic {topic!r}: {lag[0]} ({configs[lag[0]]}) is more than {lag[1]} ({configs[lag[1]]})",
        )
