"""The settings that topics can have, what stands in for them, and what is refused."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.topic_configs import BROKER_SYNONYMS, TOPIC_CONFIGS, check_topic_configs, topic_default
from aiocontroller.zookeeper.topic_rules import TopicError


@pytest.mark.parametrize(
    "name, values",
    [
        ("cleanup.policy", ["compact", "delete", "compact,delete", " compact , delete", ""]),
        ("compression.type", ["zstd", "producer"]),
        ("compression.gzip.level", ["-1", "1", "9"]),
        ("retention.ms", ["-1", "9223372036854775807", " 5 "]),
        ("retention.bytes", ["-5"]),
        ("min.insync.replicas", ["1", "+2"]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1", "1e-1", ".5"]),
        ("unclean.leader.election.enable", ["true", "FALSE"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1,2:30"]),
        ("message.timestamp.type", ["CreateTime"]),
    ],
)
def test_good_values(name, values):
    for value in values:
        check_topic_configs("t", {name: value})


@pytest.mark.parametrize(
    "name, values",
    [
        ("cleanup.policy", ["shred", "delete,"]),
        ("compression.type", ["ZSTD", ""]),
        ("compression.gzip.level", ["0", "10"]),
        ("retention.ms", ["-2", "9223372036854775808", "1e3", "", "1_0", "soon"]),
        ("min.insync.replicas", ["0", "2147483648"]),
        ("min.cleanable.dirty.ratio", ["1.1", "x", "nan", "0_0", ""]),
        ("unclean.leader.election.enable", ["1", "yes"]),
        ("leader.replication.throttled.replicas", ["1", "1:x", "*,1:1"]),
        ("message.timestamp.type", ["createtime"]),
        ("no.such.config", ["1"]),
    ],
)
def test_bad_values(name, values):
    for value in values:
        with pytest.raises(TopicError, match="Topic 't'") as caught:
            check_topic_configs("t", {name: value})
        assert caught.value.code == KafkaErrorCode.INVALID_CONFIG
        assert name in str(caught.value)


def test_lags_must_not_cross():
    check_topic_configs("t", {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(TopicError, match="more than"):
        check_topic_configs("t", {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_the_table_is_in_order():
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


def test_lags_are_compared_with_what_the_brokers_have():
    brokers = BrokerConfigs(static={"log.cleaner.max.compaction.lag.ms": "4"})
    with pytest.raises(TopicError, match="more than"):
        check_topic_configs("t", {"min.compaction.lag.ms": "5"}, brokers)


@pytest.mark.parametrize(
    "configs, brokers, says",
    [
        ({"remote.storage.enable": "true"}, {}, "no remote storage"),
        (
            {"remote.storage.enable": "true", "cleanup.policy": "compact"},
            {"remote.log.storage.system.enable": "true"},
            "compact",
        ),
        (
            {"remote.storage.enable": "true", "retention.ms": "5", "local.retention.ms": "6"},
            {"remote.log.storage.system.enable": "true"},
            "local.retention.ms",
        ),
        ({"remote.log.copy.disable": "true"}, {}, "without ZooKeeper"),
    ],
)
def test_remote_storage(configs, brokers, says):
    with pytest.raises(TopicError, match=says):
        check_topic_configs("t", configs, BrokerConfigs(static=brokers))
    check_topic_configs(
        "t", {"remote.storage.enable": "true"}, BrokerConfigs(static={"remote.log.storage.system.enable": "true"})
    )


@pytest.mark.parametrize(
    "name, brokers, expected",
    [
        ("retention.ms", BrokerConfigs(), "604800000"),
        ("retention.ms", BrokerConfigs(defaults={"log.retention.hours": "168", "log.retention.ms": None}), "604800000"),
        ("retention.ms", BrokerConfigs(static={"log.retention.minutes": "2", "log.retention.hours": "1"}), "120000"),
        ("retention.ms", BrokerConfigs(static={"log.retention.hours": "-1"}), "-1"),
        ("retention.ms", BrokerConfigs({"log.retention.ms": "7"}, {"log.retention.hours": "1"}), "7"),
        ("segment.ms", BrokerConfigs(defaults={"log.roll.hours": "168"}), "604800000"),
        ("flush.ms", BrokerConfigs(static={"log.flush.scheduler.interval.ms": "9"}), "9"),
        ("min.cleanable.dirty.ratio", BrokerConfigs(static={"log.cleaner.min.cleanable.ratio": "0.0001"}), "1.0E-4"),
        ("cleanup.policy", BrokerConfigs(static={"log.cleanup.policy": " compact , delete"}), "compact,delete"),
        (
            "message.timestamp.before.max.ms",
            BrokerConfigs(static={"log.message.timestamp.difference.max.ms": "5"}),
            "5",
        ),
    ],
)
def test_what_stands_in_for_what_a_topic_does_not_have(name, brokers, expected):
    assert topic_default(name, brokers) == expected


def test_every_default_is_allowed():
    for name, key in TOPIC_CONFIGS.items():
        assert key.default is not None
        assert key.rule(key.default) is None, name
    assert len(BROKER_SYNONYMS) == 36
