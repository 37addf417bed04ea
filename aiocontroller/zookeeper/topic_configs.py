"""The settings of topics: names, valid values, and defaults.

Source: Kafka 3.9, ``LogConfig.java``, ``ServerTopicConfigSynonyms.java`` and ``KafkaConfig.extractLogConfigMap``; for
older releases their own ``LogConfig`` (``topic_configs_of``).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.config_def import (
    LONG_MAX,
    LONG_MIN,
    NEWEST_RELEASE,
    ConfigKey,
    ConfigType,
    KafkaRelease,
    Rule,
    boolean,
    elements,
    int_from,
    long_from,
    one_of,
    ratio,
    release,
    release_up_to,
    some_of,
    text_of,
    throttled_replicas,
    whole,
)
from aiocontroller.zookeeper.topic_rules import TopicError

_FOREVER = str(LONG_MAX)
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000


def _key(kind: ConfigType, default: str, rule: Rule, *synonyms: str) -> ConfigKey:
    return ConfigKey(kind, default, rule, synonyms)


def _boolean(default: str, *synonyms: str) -> ConfigKey:
    return ConfigKey(ConfigType.BOOLEAN, default, boolean, synonyms)


def _int(default: str, rule: Rule, *synonyms: str) -> ConfigKey:
    return ConfigKey(ConfigType.INT, default, rule, synonyms)


def _long(default: str, rule: Rule, *synonyms: str) -> ConfigKey:
    return ConfigKey(ConfigType.LONG, default, rule, synonyms)


def _string(default: str, rule: Rule, *synonyms: str) -> ConfigKey:
    return ConfigKey(ConfigType.STRING, default, rule, synonyms)


def _list(default: str, rule: Rule, *synonyms: str) -> ConfigKey:
    return ConfigKey(ConfigType.LIST, default, rule, synonyms)


def _only_false(value: str) -> str | None:
    return None if value.strip().lower() == "false" else "false: it is for clusters without ZooKeeper"


TOPIC_CONFIGS: dict[str, ConfigKey] = {
    "cleanup.policy": _list("delete", some_of("compact", "delete"), "log.cleanup.policy"),
    "compression.gzip.level": _int("-1", whole(1, 9, also=-1), "compression.gzip.level"),
    "compression.lz4.level": _int("9", whole(1, 17), "compression.lz4.level"),
    "compression.type": _string(
        "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.type"
    ),
    "compression.zstd.level": _int("3", whole(-131072, 22), "compression.zstd.level"),
    "delete.retention.ms": _long("86400000", long_from(0), "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": _long("60000", long_from(0), "log.segment.delete.delay.ms"),
    "flush.messages": _long(_FOREVER, long_from(1), "log.flush.interval.messages"),
    "flush.ms": _long(_FOREVER, long_from(0), "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "follower.replication.throttled.replicas": _list("", throttled_replicas),
    "index.interval.bytes": _int("4096", int_from(0), "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": _list("", throttled_replicas),
    "local.retention.bytes": _long("-2", long_from(-2), "log.local.retention.bytes"),
    "local.retention.ms": _long("-2", long_from(-2), "log.local.retention.ms"),
    "max.compaction.lag.ms": _long(_FOREVER, long_from(1), "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": _int("1048588", int_from(0), "message.max.bytes"),
    "message.downconversion.enable": _boolean("true", "log.message.downconversion.enable"),
    "message.format.version": _string("3.0-IV1", release, "log.message.format.version"),
    "message.timestamp.after.max.ms": _long(_FOREVER, long_from(0), "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _long(_FOREVER, long_from(0), "log.message.timestamp.before.max.ms"),
    "message.timestamp.difference.max.ms": _long(_FOREVER, long_from(0), "log.message.timestamp.difference.max.ms"),
    "message.timestamp.type": _string(
        "CreateTime", one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type"
    ),
    "min.cleanable.dirty.ratio": _key(ConfigType.DOUBLE, "0.5", ratio, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _long("0", long_from(0), "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _int("1", int_from(1), "min.insync.replicas"),
    "preallocate": _boolean("false", "log.preallocate"),
    "remote.log.copy.disable": _key(ConfigType.BOOLEAN, "false", _only_false),
    "remote.log.delete.on.disable": _key(ConfigType.BOOLEAN, "false", _only_false),
    "remote.storage.enable": _boolean("false"),
    "retention.bytes": _long("-1", long_from(LONG_MIN), "log.retention.bytes"),
    "retention.ms": _long(
        "604800000", long_from(-1), "log.retention.ms", "log.retention.minutes", "log.retention.hours"
    ),
    "segment.bytes": _int("1073741824", int_from(14), "log.segment.bytes"),
    "segment.index.bytes": _int("10485760", int_from(4), "log.index.size.max.bytes"),
    "segment.jitter.ms": _long("0", long_from(0), "log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": _long("604800000", long_from(1), "log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": _boolean("false", "unclean.leader.election.enable"),
}
"""The settings of topics in a ZooKeeper-mode cluster of the newest release."""

BROKER_SYNONYMS = tuple(dict.fromkeys(name for key in TOPIC_CONFIGS.values() for name in key.synonyms))
"""The brokers' settings that provide topics' defaults."""


# -- older releases ----------------------------------------------------------------------------------------------------

_REMOTE = ("local.retention.bytes", "local.retention.ms", "remote.storage.enable")
_ADDED: tuple[tuple[KafkaRelease, tuple[str, ...]], ...] = (
    ((2, 3), ("max.compaction.lag.ms",)),
    ((3, 0), _REMOTE),
    ((3, 6), ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")),
    ((3, 8), ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")),
    ((3, 9), ("remote.log.copy.disable", "remote.log.delete.on.disable")),
)
"""Settings by the release that introduced them; all others are older than 2.2."""
_DESCRIBED: tuple[tuple[KafkaRelease, tuple[str, ...]], ...] = (((3, 6), _REMOTE),)
"""Settings that are internal before this release: accepted, but shown only for topics that set them."""
_STRICTER: tuple[tuple[KafkaRelease, Mapping[str, Rule]], ...] = (
    ((3, 3), {"flush.messages": long_from(0), "segment.index.bytes": int_from(0)}),
)
"""Rules that applied before the release that tightened them."""
_VALUES_ARE_CONFIGS: KafkaRelease = (3, 3)
"""From this release on an invalid value is INVALID_CONFIG; before, INVALID_REQUEST."""
_CHECKED_WITH_BROKERS: KafkaRelease = (3, 6)
"""From this release on, missing settings of topics are looked up among the brokers', and remote storage is checked."""


class TopicConfigs(NamedTuple):
    """The topic configs of one release."""

    keys: Mapping[str, ConfigKey]
    """The settings that topics can have."""
    described: Mapping[str, ConfigKey]
    """The settings shown for every topic."""
    bad_value: KafkaErrorCode
    """The error code for an invalid value in an alteration, and for a null value in CreateTopics."""
    with_brokers: bool
    """Missing settings of topics are looked up among the brokers', and remote storage is checked."""


@functools.cache
def topic_configs_of(release_: KafkaRelease) -> TopicConfigs:
    """The settings that brokers of this release accept and show."""
    keys = _without(TOPIC_CONFIGS, _ADDED, release_)
    for since, rules in _STRICTER:
        if release_ < since:
            keys |= {name: keys[name]._replace(rule=rule) for name, rule in rules.items()}
    if release_ < NEWEST_RELEASE:
        name = "message.format.version"
        keys[name] = keys[name]._replace(rule=release_up_to(release_))
    bad_value = KafkaErrorCode.INVALID_CONFIG if release_ >= _VALUES_ARE_CONFIGS else KafkaErrorCode.INVALID_REQUEST
    return TopicConfigs(keys, _without(keys, _DESCRIBED, release_), bad_value, release_ >= _CHECKED_WITH_BROKERS)


def _without(
    keys: Mapping[str, ConfigKey], later: tuple[tuple[KafkaRelease, tuple[str, ...]], ...], release_: KafkaRelease
) -> dict[str, ConfigKey]:
    missing = {name for since, names in later if release_ < since for name in names}
    return {name: key for name, key in keys.items() if name not in missing}


# -- defaults ----------------------------------------------------------------------------------------------------------


def topic_default(name: str, brokers: BrokerConfigs) -> str:
    """The value for a topic that does not set this."""
    key = TOPIC_CONFIGS[name]
    found = brokers.effective(key.synonyms)
    if found is None:
        value = key.default or ""
    else:
        synonym, value = found
        unit_ms = _HOUR_MS if synonym.endswith(".hours") else _MINUTE_MS if synonym.endswith(".minutes") else 1
        if name == "retention.ms" and _negative(value):
            value = "-1"
        elif unit_ms > 1:
            value = str(int(value) * unit_ms)
    if value == _FOREVER and name in ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms"):
        return topic_default("message.timestamp.difference.max.ms", brokers)
    return text_of(key.type, value)


def _negative(value: str) -> bool:
    return value.strip().startswith("-")


# -- checks ------------------------------------------------------------------------------------------------------------


def check_topic_configs(
    topic: str,
    configs: Mapping[str, str],
    brokers: BrokerConfigs | None = None,
    bad_value: KafkaErrorCode = KafkaErrorCode.INVALID_CONFIG,
) -> None:
    """TopicError: INVALID_CONFIG for an unknown name or contradictory values, ``bad_value`` for an invalid one.

    With ``brokers``, missing settings are looked up there, as brokers do, and their release determines the settings
    that exist.
    """
    known = topic_configs_of(NEWEST_RELEASE if brokers is None else brokers.release)
    for name in sorted(configs):
        if name not in known.keys:
            raise _invalid(f"Topic {topic!r}: unknown topic config name {name!r}")
    for name in sorted(configs):
        expected = known.keys[name].rule(configs[name])
        if expected is not None:
            found = f"Topic {topic!r}: {name} is {configs[name][:300]!r}, expected {expected}"
            raise TopicError(bad_value, found)
    if not known.with_brokers:
        brokers = None

    def number(name: str) -> int:
        if name in configs:
            return int(configs[name])
        return int(topic_default(name, brokers) if brokers is not None else TOPIC_CONFIGS[name].default or 0)

    least, most = number("min.compaction.lag.ms"), number("max.compaction.lag.ms")
    if least > most:
        raise _invalid(f"Topic {topic!r}: min.compaction.lag.ms ({least}) is more than max.compaction.lag.ms ({most})")
    if brokers is not None and configs.get("remote.storage.enable", "false").strip().lower() == "true":
        _check_remote_storage(topic, configs, brokers)
        for unit in ("bytes", "ms"):
            _check_local_retention(topic, unit, number(f"retention.{unit}"), number(f"local.retention.{unit}"))


def _check_remote_storage(topic: str, configs: Mapping[str, str], brokers: BrokerConfigs) -> None:
    enabled = brokers.effective(("remote.log.storage.system.enable",))
    if enabled is None or enabled[1].strip().lower() != "true":
        raise _invalid(f"Topic {topic!r}: remote.storage.enable is true, and the brokers have no remote storage")
    policy = configs.get("cleanup.policy") or topic_default("cleanup.policy", brokers)
    if "compact" in elements(policy):
        raise _invalid(f"Topic {topic!r}: remote.storage.enable is true, and cleanup.policy has compact")


def _check_local_retention(topic: str, unit: str, retention: int, local: int) -> None:
    if retention > -1 and local != -2 and (local == -1 or local > retention):
        raise _invalid(f"Topic {topic!r}: local.retention.{unit} ({local}) is more than retention.{unit} ({retention})")


def _invalid(message: str) -> TopicError:
    return TopicError(KafkaErrorCode.INVALID_CONFIG, message)
