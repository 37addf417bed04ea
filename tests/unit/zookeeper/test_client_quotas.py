"""Where a client's quota stands, and what it can be."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.client_quotas import desanitized, place, quota_text, quota_values, sanitized
from aiocontroller.zookeeper.topic_rules import TopicError


@pytest.mark.parametrize(
    "entity, expected",
    [
        ({"user": "CN=a,O=b c"}, ("users", "CN%3Da%2CO%3Db%20c")),
        ({"user": None}, ("users", "<default>")),
        ({"client-id": "a/b~*"}, ("clients", "a%2Fb%7E%2A")),
        ({"client-id": "c", "user": "u"}, ("users", "u/clients/c")),
        ({"user": None, "client-id": None}, ("users", "<default>/clients/<default>")),
        ({"ip": "10.0.0.1"}, ("ips", "10.0.0.1")),
        ({"ip": None}, ("ips", "<default>")),
    ],
)
def test_places(entity, expected):
    assert place(entity) == expected


@pytest.mark.parametrize(
    "entity, says",
    [
        ({}, "empty"),
        ({"user": ""}, "Empty user"),
        ({"group": "g"}, "group"),
        ({"ip": "10.0.0.1", "user": "u"}, "combined"),
        ({"ip": "::1"}, "IPv4"),
        ({"ip": "a host"}, "IPv4"),
    ],
)
def test_what_is_no_entity(entity, says):
    with pytest.raises(TopicError, match=says) as caught:
        place(entity)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST


def test_names_there_and_back():
    for name in ("a", "ü ~*/", None, "<default>"):
        assert desanitized(sanitized(name)) == name


@pytest.mark.parametrize(
    "entity_type, name, value, text",
    [
        ("users", "producer_byte_rate", 1024.0, "1024"),
        ("users", "producer_byte_rate", 2.0**63, "9223372036854775807"),
        ("clients", "request_percentage", 12.5, "12.5"),
        ("clients", "controller_mutation_rate", 1e-4, "1.0E-4"),
        ("ips", "connection_creation_rate", 0.0, "0"),
    ],
)
def test_quotas(entity_type, name, value, text):
    assert quota_text(entity_type, name, value) == text


@pytest.mark.parametrize(
    "entity_type, name, value",
    [
        ("users", "producer_byte_rate", 1.5),
        ("users", "producer_byte_rate", float("nan")),
        ("users", "producer_byte_rate", float("inf")),
        ("users", "producer_byte_rate", 1e30),
        ("users", "SCRAM-SHA-256", 1.0),
        ("users", "connection_creation_rate", 1.0),
        ("ips", "producer_byte_rate", 1.0),
        ("ips", "connection_creation_rate", -1.0),
    ],
)
def test_what_is_no_quota(entity_type, name, value):
    with pytest.raises(TopicError, match=name) as caught:
        quota_text(entity_type, name, value)
    assert caught.value.code == KafkaErrorCode.INVALID_REQUEST


def test_only_quotas_are_described():
    configs = {"SCRAM-SHA-256": "salt=…", "producer_byte_rate": "5", "request_percentage": "damaged"}
    configs["controller_mutation_rate"] = "NaN"  # every topic that was created or deleted under it was an error
    assert quota_values("users", configs) == {"producer_byte_rate": 5.0}
