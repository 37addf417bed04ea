"""The brokers' dynamic settings: which of several values counts, and what may be set for all brokers."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.broker_configs import (
    DYNAMIC_CONFIGS,
    STATIC_CONFIGS,
    BrokerConfigs,
    ConfigSource,
    Synonym,
    check_default_configs,
    read_by_all,
    type_of,
)
from aiocontroller.zookeeper.config_def import ConfigType
from aiocontroller.zookeeper.topic_rules import TopicError


@pytest.mark.parametrize(
    "name, value, says",
    [
        ("broker.id", "1", "while brokers run"),
        ("log.retention.hours", "1", "while brokers run"),
        ("ssl.keystore.password", "x", "one listener"),
        ("listener.name.external.ssl.keystore.location", "x", "one broker"),
        ("listeners", "PLAINTEXT://:9092", "one broker"),
        ("sasl.jaas.config", "x", "one broker"),
        ("log.retention.ms", "0", "not 0"),
        ("log.cleanup.policy", "shred", "a list of"),
        ("min.insync.replicas", "many", "a whole number"),
        ("num.io.threads", "17", "half to twice the 8"),
        ("num.io.threads", "3", "half to twice the 8"),
        ("log.local.retention.ms", "604800001", "more than log.retention.hours"),
    ],
)
def test_what_cannot_be_set_for_all_brokers(name, value, says):
    before = BrokerConfigs(defaults={"num.io.threads": "8", "log.retention.hours": "168"})
    with pytest.raises(TopicError, match=says) as caught:
        check_default_configs({name: value}, before)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST
    assert name in str(caught.value)


def test_what_can_be_set_for_all_brokers():
    configs = {
        "log.retention.ms": "-1",
        "num.io.threads": "16",
        "listener.name.external.max.connections": "5",
        "leader.replication.throttled.rate": "1000",
        "another.plugin.setting": "x",
    }
    check_default_configs(configs, BrokerConfigs(defaults={"num.io.threads": "8"}))


def test_synonyms_begin_with_the_name_that_was_asked_for():
    configs = BrokerConfigs(
        static={"log.retention.hours": "1"}, defaults={"log.retention.hours": "168", "log.segment.bytes": "9"}
    )
    assert configs.synonyms("log.retention.ms") == []
    assert configs.synonyms("log.retention.hours") == [
        Synonym("log.retention.hours", "1", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    dynamic = BrokerConfigs({"log.retention.ms": "3"}, configs.static, configs.defaults)
    assert [(s.name, s.source) for s in dynamic.synonyms("log.retention.ms")] == [
        ("log.retention.ms", 3),
        ("log.retention.hours", 4),
        ("log.retention.hours", 5),
    ]


def test_brokers_pass_over_what_stands_in_the_wrong_place():
    assert read_by_all({"broker.id": "1", "ssl.protocol": "x", "log.segment.bytes": "no", "max.connections": "5"}) == {
        "max.connections": "5"
    }


def test_tables_are_in_order_and_apart():
    assert list(DYNAMIC_CONFIGS) == sorted(DYNAMIC_CONFIGS)
    assert STATIC_CONFIGS.isdisjoint(DYNAMIC_CONFIGS)
    assert type_of("listener.name.x.max.connections") is ConfigType.INT
    assert type_of("unheard.of") is ConfigType.UNKNOWN
