"""The settings of topics: which there are, what each may be, and what stands in for one that a topic does not have.

Source: Kafka 3.9, ``LogConfig.java``, ``ServerTopicConfigSynonyms.java`` and ``KafkaConfig.extractLogConfigMap``.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.config_def import (
    LONG_MAX,
    LONG_MIN,
    ConfigKey,
    ConfigType,
    Rule,
    boolean,
    elements,
    int_from,
    long_from,
    one_of,
    ratio,
    release,
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
"""What a topic can be given in a ZooKeeper-mode cluster."""

BROKER_SYNONYMS = tuple(dict.fromkeys(name for key in TOPIC_CONFIGS.values() for name in key.synonyms))
"""The brokers' settings that stand in for topics'."""


def topic_default(name: str, brokers: BrokerConfigs) -> str:
    """What a topic has that was not given this setting."""
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


# -- what is refused ---------------------------------------------------------------------------------------------------


def check_topic_configs(topic: str, configs: Mapping[str, str], brokers: BrokerConfigs | None = None) -> None:
    """INVALID_CONFIG for an unknown name, a value that it cannot have, or values that contradict each other.

    With the ``brokers``' settings what a topic does not have is looked up there, as brokers do.
    """
    for name in sorted(configs):
        key, value = TOPIC_CONFIGS.get(name), configs[name]
        if key is None:
            raise _invalid(f"Topic {topic!r}: unknown topic config name {name!r}")
        expected = key.rule(value)
        if expected is not None:
            raise _invalid(f"Topic {topic!r}: {name} is {value[:300]!r}, expected {expected}")

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
