"""The brokers' dynamic settings: names, valid values, and precedence of sources.

Source: Kafka 3.9, ``DynamicBrokerConfig.scala``, ``DynamicConfig.scala``, ``KafkaConfig.scala`` and what they collect.
Only settings for all brokers (``/config/brokers/<default>``) are checked here: each broker checks its own settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.kafka_property_names import BROKER_PROPERTIES
from aiocontroller.zookeeper.config_def import (
    LONG_MIN,
    NEWEST_RELEASE,
    ConfigType,
    KafkaRelease,
    Rule,
    anything,
    boolean,
    decimal,
    int_from,
    long_from,
    one_of,
    ratio,
    some_of,
    whole,
)
from aiocontroller.zookeeper.topic_rules import TopicError

BOOLEAN, STRING, INT, SHORT, LONG = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
)
DOUBLE, LIST, CLASS, PASSWORD = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD


def _retention_ms(value: str) -> str | None:
    return "a whole number of milliseconds that is not 0" if long_from(LONG_MIN)(value) or int(value) == 0 else None


DYNAMIC_CONFIGS: dict[str, tuple[ConfigType, Rule]] = {
    "advertised.listeners": (STRING, anything),
    "background.threads": (INT, int_from(1)),
    "compression.gzip.level": (INT, whole(1, 9, also=-1)),
    "compression.lz4.level": (INT, whole(1, 17)),
    "compression.type": (STRING, one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": (INT, whole(-131072, 22)),
    "follower.replication.throttled.rate": (LONG, long_from(0)),
    "leader.replication.throttled.rate": (LONG, long_from(0)),
    "listener.security.protocol.map": (STRING, anything),
    "listeners": (STRING, anything),
    "log.cleaner.backoff.ms": (LONG, long_from(0)),
    "log.cleaner.dedupe.buffer.size": (LONG, long_from(LONG_MIN)),
    "log.cleaner.delete.retention.ms": (LONG, long_from(0)),
    "log.cleaner.io.buffer.load.factor": (DOUBLE, decimal),
    "log.cleaner.io.buffer.size": (INT, int_from(0)),
    "log.cleaner.io.max.bytes.per.second": (DOUBLE, decimal),
    "log.cleaner.max.compaction.lag.ms": (LONG, long_from(1)),
    "log.cleaner.min.cleanable.ratio": (DOUBLE, ratio),
    "log.cleaner.min.compaction.lag.ms": (LONG, long_from(0)),
    "log.cleaner.threads": (INT, int_from(1)),
    "log.cleanup.policy": (LIST, some_of("compact", "delete")),
    "log.flush.interval.messages": (LONG, long_from(1)),
    "log.flush.interval.ms": (LONG, long_from(LONG_MIN)),
    "log.index.interval.bytes": (INT, int_from(0)),
    "log.index.size.max.bytes": (INT, int_from(4)),
    "log.local.retention.bytes": (LONG, long_from(-2)),
    "log.local.retention.ms": (LONG, long_from(-2)),
    "log.message.downconversion.enable": (BOOLEAN, boolean),
    "log.message.timestamp.after.max.ms": (LONG, long_from(0)),
    "log.message.timestamp.before.max.ms": (LONG, long_from(0)),
    "log.message.timestamp.difference.max.ms": (LONG, long_from(0)),
    "log.message.timestamp.type": (STRING, one_of("CreateTime", "LogAppendTime")),
    "log.preallocate": (BOOLEAN, boolean),
    "log.retention.bytes": (LONG, long_from(LONG_MIN)),
    "log.retention.ms": (LONG, _retention_ms),
    "log.roll.jitter.ms": (LONG, long_from(0)),
    "log.roll.ms": (LONG, long_from(1)),
    "log.segment.bytes": (INT, int_from(14)),
    "log.segment.delete.delay.ms": (LONG, long_from(0)),
    "max.connection.creation.rate": (INT, int_from(0)),
    "max.connections": (INT, int_from(0)),
    "max.connections.per.ip": (INT, int_from(0)),
    "max.connections.per.ip.overrides": (STRING, anything),
    "message.max.bytes": (INT, int_from(0)),
    "metric.reporters": (LIST, anything),
    "min.insync.replicas": (INT, int_from(1)),
    "num.io.threads": (INT, int_from(1)),
    "num.network.threads": (INT, int_from(1)),
    "num.recovery.threads.per.data.dir": (INT, int_from(1)),
    "num.replica.fetchers": (INT, int_from(1)),
    "principal.builder.class": (CLASS, anything),
    "producer.id.expiration.ms": (INT, int_from(1)),
    "remote.fetch.max.wait.ms": (INT, int_from(1)),
    "remote.log.index.file.cache.total.size.bytes": (LONG, long_from(1)),
    "remote.log.manager.copy.max.bytes.per.second": (LONG, long_from(1)),
    "remote.log.manager.fetch.max.bytes.per.second": (LONG, long_from(1)),
    "replica.alter.log.dirs.io.max.bytes.per.second": (LONG, long_from(0)),
    "sasl.enabled.mechanisms": (LIST, anything),
    "sasl.jaas.config": (PASSWORD, anything),
    "sasl.kerberos.kinit.cmd": (STRING, anything),
    "sasl.kerberos.min.time.before.relogin": (LONG, long_from(LONG_MIN)),
    "sasl.kerberos.principal.to.local.rules": (LIST, anything),
    "sasl.kerberos.service.name": (STRING, anything),
    "sasl.kerberos.ticket.renew.jitter": (DOUBLE, decimal),
    "sasl.kerberos.ticket.renew.window.factor": (DOUBLE, decimal),
    "sasl.login.refresh.buffer.seconds": (SHORT, whole(-(2**15), 2**15 - 1)),
    "sasl.login.refresh.min.period.seconds": (SHORT, whole(-(2**15), 2**15 - 1)),
    "sasl.login.refresh.window.factor": (DOUBLE, decimal),
    "sasl.login.refresh.window.jitter": (DOUBLE, decimal),
    "sasl.mechanism.inter.broker.protocol": (STRING, anything),
    "ssl.cipher.suites": (LIST, anything),
    "ssl.client.auth": (STRING, one_of("required", "requested", "none")),
    "ssl.enabled.protocols": (LIST, anything),
    "ssl.endpoint.identification.algorithm": (STRING, anything),
    "ssl.engine.factory.class": (CLASS, anything),
    "ssl.key.password": (PASSWORD, anything),
    "ssl.keymanager.algorithm": (STRING, anything),
    "ssl.keystore.certificate.chain": (PASSWORD, anything),
    "ssl.keystore.key": (PASSWORD, anything),
    "ssl.keystore.location": (STRING, anything),
    "ssl.keystore.password": (PASSWORD, anything),
    "ssl.keystore.type": (STRING, anything),
    "ssl.protocol": (STRING, anything),
    "ssl.provider": (STRING, anything),
    "ssl.secure.random.implementation": (STRING, anything),
    "ssl.trustmanager.algorithm": (STRING, anything),
    "ssl.truststore.certificates": (PASSWORD, anything),
    "ssl.truststore.location": (STRING, anything),
    "ssl.truststore.password": (PASSWORD, anything),
    "ssl.truststore.type": (STRING, anything),
    "transaction.partition.verification.enable": (BOOLEAN, boolean),
    "unclean.leader.election.enable": (BOOLEAN, boolean),
}
"""Settings that can be changed while brokers run."""

QUOTAS = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Dynamic settings that cannot be in a broker's file; DescribeConfigs reports them as read-only."""

STATIC_CONFIGS = BROKER_PROPERTIES - DYNAMIC_CONFIGS.keys()
"""Settings that brokers read only when they start."""

# -- precedence --------------------------------------------------------------------------------------------------------


class ConfigSource(IntEnum):
    """The source of a value, by DescribeConfigs' numbers."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    CLIENT_METRICS_CONFIG = 7


class Synonym(NamedTuple):
    """One of a setting's values by source; the first in the list is effective."""

    name: str
    value: str | None
    source: int


_GROUPS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_GROUP_OF = {name: group for group in _GROUPS for name in group} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
"""Equivalent settings; the first that is set is effective."""


class BrokerConfigs(msgspec.Struct, frozen=True):
    """The settings of a broker without dynamic settings of its own, like this node; earlier sources take precedence."""

    dynamic_default: Mapping[str, str] = {}
    static: Mapping[str, str] = {}
    defaults: Mapping[str, str | None] = {}
    release: KafkaRelease = NEWEST_RELEASE
    """The oldest broker's release, which determines the settings that topics can have."""

    def effective(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The effective (name, value) of equivalent settings; None when none is known."""
        for level in (self.dynamic_default, self.static, self.defaults):
            for name in names:
                value = level.get(name)
                if value is not None:
                    return name, value
        return None

    def synonyms(self, name: str) -> list[Synonym]:
        """The values of a setting and its equivalents, the effective one first."""
        base = base_name(name)
        names = _GROUP_OF.get(name, (name,)) if base == name else (name, base)
        levels: tuple[tuple[Mapping[str, str | None], ConfigSource], ...] = (
            (dict(self.dynamic_default), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (dict(self.static), ConfigSource.STATIC_BROKER_CONFIG),
            (self.defaults, ConfigSource.DEFAULT_CONFIG),
        )
        found = [Synonym(each, level[each], source) for level, source in levels for each in names if each in level]
        first = next((i for i, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[first:]


# -- settings for all brokers ------------------------------------------------------------------------------------------

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(.*)")
_SECURITY = frozenset(
    """ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type""".split()
)
"""Settings for one listener of one broker."""
_OF_ALL_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
_OF_ONE_BROKER = _SECURITY | {
    name
    for name in DYNAMIC_CONFIGS
    if name in ("advertised.listeners", "listeners", "listener.security.protocol.map", "principal.builder.class")
    or name.startswith(("ssl.", "sasl."))
}
_PASSWORDS = tuple(name for name, (kind, _) in DYNAMIC_CONFIGS.items() if kind is PASSWORD)
_THREADS = frozenset(
    """background.threads log.cleaner.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers""".split()
)
THREAD_COUNTS = tuple(sorted(_THREADS))


def base_name(name: str) -> str:
    """The name without its listener prefix."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return name if match is None else match[1]


def type_of(name: str) -> ConfigType:
    """The type of a broker's dynamic setting, also with a listener's prefix; UNKNOWN for any other name."""
    known = DYNAMIC_CONFIGS.get(name) or DYNAMIC_CONFIGS.get(base_name(name))
    return ConfigType.UNKNOWN if known is None else known[0]


def is_password(name: str) -> bool:
    """Whether the setting's value is a password, which is never shown."""
    return name.endswith(_PASSWORDS)


def _cannot_be_read(name: str, value: str) -> str | None:
    known = DYNAMIC_CONFIGS.get(base_name(name))
    return None if known is None else known[1](value)


def read_by_all(configs: Mapping[str, str]) -> dict[str, str]:
    """The settings in ``/config/brokers/<default>`` that brokers use; they ignore all others."""
    return {
        name: value
        for name, value in configs.items()
        if _misplaced(name) is None and _cannot_be_read(name, value) is None and not is_password(name)
    }


def read_by_one(configs: Mapping[str, str]) -> dict[str, str]:
    """The settings in ``/config/brokers/N`` that the broker uses, without secrets and listeners' settings."""
    return {
        name: value
        for name, value in configs.items()
        if name in DYNAMIC_CONFIGS and _cannot_be_read(name, value) is None and not is_password(name)
    }


def _misplaced(name: str) -> str | None:
    if name in STATIC_CONFIGS:
        return "cannot be changed while brokers run"
    if name in _SECURITY:
        return "can be set only for one listener, by the listener's prefix"
    base = base_name(name)
    if name in _OF_ONE_BROKER or (base != name and base not in _OF_ALL_LISTENERS):
        return "can be set only for one broker, not for all"
    return None


def check_default_configs(configs: Mapping[str, str], before: BrokerConfigs) -> None:
    """Raises INVALID_REQUEST unless all brokers can replace their settings ``before`` by these."""
    for name in sorted(configs):
        misplaced = _misplaced(name)
        if misplaced is not None:
            raise _refused(f"{name} {misplaced}")
        expected = _cannot_be_read(name, configs[name])
        if expected is not None:
            raise _refused(f"{name} is {configs[name][:300]!r}, expected {expected}")
    for name in sorted(_THREADS & configs.keys()):
        now = before.effective((name,))
        if now is not None and not int(now[1]) // 2 <= int(configs[name]) <= int(now[1]) * 2:
            raise _refused(f"{name} is {configs[name]!r}, expected half to twice the {now[1]} that it is now")
    after = msgspec.structs.replace(before, dynamic_default=dict(configs))
    for retention, local in (
        (_GROUPS[2], "log.local.retention.ms"),
        (("log.retention.bytes",), "log.local.retention.bytes"),
    ):
        _check_local_retention(after, retention, local)


def _check_local_retention(after: BrokerConfigs, names: Sequence[str], local_name: str) -> None:
    retention, local = after.effective(names), after.effective((local_name,))
    if retention is None or local is None or int(local[1]) == -2 or int(retention[1]) < 0:
        return
    unit_ms = {"hours": 3_600_000, "minutes": 60_000}.get(retention[0].rpartition(".")[2], 1)
    if int(local[1]) == -1 or int(local[1]) > int(retention[1]) * unit_ms:
        raise _refused(f"{local_name} ({local[1]}) is more than {retention[0]} ({retention[1]})")


def _refused(message: str) -> TopicError:
    return TopicError(KafkaErrorCode.INVALID_REQUEST, message)
