"""The settings that topics can have, what stands in for them, and what is refused."""

from contextlib import nullcontext

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.broker_configs import BrokerConfigs
from aiocontroller.zookeeper.topic_configs import (
    BROKER_SYNONYMS,
    TOPIC_CONFIGS,
    check_topic_configs,
    topic_configs_of,
    topic_default,
)
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
        ("local.retention.ms", ["-3"]),
        ("local.retention.bytes", ["-3"]),
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


@pytest.mark.parametrize(
    "lowest, names",
    [
        (-131072, "compression.zstd.level"),
        (-2, "local.retention.bytes local.retention.ms"),
        (-1, "retention.ms"),
        (0, "delete.retention.ms file.delete.delay.ms flush.ms index.interval.bytes max.message.bytes"),
        (0, "segment.jitter.ms"),
        (0, "message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.difference.max.ms"),
        (0, "min.compaction.lag.ms"),
        (1, "compression.lz4.level flush.messages max.compaction.lag.ms min.insync.replicas segment.ms"),
        (4, "segment.index.bytes"),
        (14, "segment.bytes"),
    ],
)
def test_lowest_values_are_those_of_log_config(lowest, names):
    for name in names.split():
        check_topic_configs("t", {name: str(lowest)})
        with pytest.raises(TopicError, match=name):
            check_topic_configs("t", {name: str(lowest - 1)})


@pytest.mark.parametrize("name, highest", [("compression.zstd.level", 22), ("compression.lz4.level", 17)])
def test_highest_values_are_those_of_log_config(name, highest):
    check_topic_configs("t", {name: str(highest)})
    with pytest.raises(TopicError, match=name):
        check_topic_configs("t", {name: str(highest + 1)})


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
        ({"remote.log.copy.disable": "true"}, {}, "without ZooKeeper"),
    ],
)
def test_remote_storage(configs, brokers, says):
    with pytest.raises(TopicError, match=says):
        check_topic_configs("t", configs, BrokerConfigs(static=brokers))
    check_topic_configs(
        "t", {"remote.storage.enable": "true"}, BrokerConfigs(static={"remote.log.storage.system.enable": "true"})
    )


@pytest.mark.parametrize("unit", ["ms", "bytes"])
@pytest.mark.parametrize(
    "retention, local, allowed",
    [("5", "4", True), ("5", "5", True), ("5", "6", False), ("5", "-1", False), ("5", "-2", True), ("-1", "6", True)],
)
def test_local_retention_is_no_longer_than_all_of_it(unit, retention, local, allowed):
    configs = {"remote.storage.enable": "true", f"retention.{unit}": retention, f"local.retention.{unit}": local}
    brokers = BrokerConfigs(static={"remote.log.storage.system.enable": "true"})
    with nullcontext() if allowed else pytest.raises(TopicError, match=rf"local\.retention\.{unit} \({local}\)"):
        check_topic_configs("t", configs, brokers)


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


def test_without_brokers_settings_nothing_is_said_about_remote_storage() -> None:
    """Whether a cluster has any, its brokers tell."""
    check_topic_configs("t", {"remote.storage.enable": "true"})


# -- older releases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "release, taken, described",
    [
        ((2, 2), 25, 25),
        ((2, 4), 26, 26),
        ((2, 8), 26, 26),
        ((3, 0), 29, 26),
        ((3, 3), 29, 26),
        ((3, 6), 31, 31),
        ((3, 7), 31, 31),
        ((3, 8), 34, 34),
        ((3, 9), 36, 36),
    ],
)
def test_what_topics_of_a_release_can_be_given(release, taken, described):
    """The numbers are those of ``LogConfig`` at each release."""
    known = topic_configs_of(release)
    assert (len(known.keys), len(known.described)) == (taken, described)
    assert set(known.described) <= set(known.keys) <= set(TOPIC_CONFIGS)


@pytest.mark.parametrize(
    "name, value, before, since",
    [
        ("max.compaction.lag.ms", "5", (2, 2), (2, 3)),
        ("local.retention.ms", "5", (2, 8), (3, 0)),
        ("message.timestamp.after.max.ms", "5", (3, 5), (3, 6)),
        ("compression.zstd.level", "3", (3, 7), (3, 8)),
        ("remote.log.copy.disable", "false", (3, 8), (3, 9)),
        ("message.format.version", "3.0", (2, 8), (3, 0)),
        ("message.format.version", "2.4-IV1", (2, 3), (2, 4)),
    ],
)
def test_topic_is_given_only_what_its_oldest_broker_knows(name, value, before, since):
    with pytest.raises(TopicError) as caught:
        check_topic_configs("t", {name: value}, BrokerConfigs(release=before))
    assert caught.value.code == KafkaErrorCode.INVALID_CONFIG
    check_topic_configs("t", {name: value}, BrokerConfigs(release=since))


@pytest.mark.parametrize("name, value", [("flush.messages", "0"), ("segment.index.bytes", "3")])
def test_older_releases_allow_more(name, value):
    check_topic_configs("t", {name: value}, BrokerConfigs(release=(3, 2)))
    with pytest.raises(TopicError):
        check_topic_configs("t", {name: value}, BrokerConfigs(release=(3, 3)))


def test_code_of_a_bad_value_is_the_releases():
    assert topic_configs_of((3, 2)).bad_value == KafkaErrorCode.INVALID_REQUEST
    assert topic_configs_of((3, 3)).bad_value == KafkaErrorCode.INVALID_CONFIG
    with pytest.raises(TopicError) as caught:
        check_topic_configs("t", {"retention.ms": "x"}, None, KafkaErrorCode.INVALID_REQUEST)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST
    with pytest.raises(TopicError) as caught:
        check_topic_configs("t", {"no.such": "x", "retention.ms": "x"}, None, KafkaErrorCode.INVALID_REQUEST)
    assert caught.value.code == KafkaErrorCode.INVALID_CONFIG  # a name that is unknown in every release


def test_older_releases_look_at_the_topic_alone():
    """Not at what the brokers have, and not at remote storage, which they only prepare."""
    brokers = {"log.cleaner.max.compaction.lag.ms": "4"}
    configs = {"min.compaction.lag.ms": "5", "remote.storage.enable": "true"}
    check_topic_configs("t", configs, BrokerConfigs(static=brokers, release=(3, 5)))
    for name, value in configs.items():
        with pytest.raises(TopicError):
            check_topic_configs("t", {name: value}, BrokerConfigs(static=brokers, release=(3, 6)))
