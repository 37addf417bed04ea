"""DescribeConfigs by hand means what kio's schema says, in every version."""

import pytest

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.config_messages import (
    ConfigEntry,
    DescribeConfigsQuestion,
    ResourceAsked,
    ResourceDescribed,
    decode_describe_broker_response,
    encode_config_entry,
    encode_describe_broker_request,
    encode_describe_configs_response,
    encode_described,
)
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.long_requests import MAX_NAMED

API = ApiKey.DESCRIBE_CONFIGS
ENTRIES = [
    ConfigEntry("retention.ms", "5", 1, 5, synonyms=[("retention.ms", "5", 1), ("log.retention.ms", None, 4)]),
    ConfigEntry("secret", None, 5, 9, read_only=True, sensitive=True),
]


@pytest.mark.parametrize("version", range(5))
def test_questions(version):
    asked = [
        {"resource_type": 2, "resource_name": "t", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "", "configuration_keys": []},
        {"resource_type": 2, "resource_name": "ü", "configuration_keys": ["a", "b"]},
    ]
    message = cold.request(API, version, resources=asked, include_synonyms=True, include_documentation=True)
    body = cold.encode_request(API, version, message)
    for tail in (b"", b"\0\0"):
        question = DescribeConfigsQuestion(version, body + tail)
        assert list(question) == [
            ResourceAsked(2, "t", None),
            ResourceAsked(4, "", None),
            ResourceAsked(2, "ü", frozenset({"a", "b"})),
        ]
        assert question.include_synonyms == (version >= 1)
    with pytest.raises(FrameError):
        list(DescribeConfigsQuestion(version, body[:-1]))


@pytest.mark.parametrize("version", range(5))
def test_answers(version):
    entries = [encode_config_entry(version, entry) for entry in ENTRIES]
    results = [
        encode_described(version, ResourceDescribed(2, "t", entries=entries)),
        encode_described(version, ResourceDescribed(2, "u", 29, "no")),
    ]
    found = cold.decode_response(API, version, encode_describe_configs_response(version, results))
    first, second = found.results
    assert (second.error_code, second.error_message, second.resource_name, second.configs) == (29, "no", "u", ())
    assert (first.error_code, first.error_message, first.resource_type) == (0, "", 2)
    for config, entry in zip(first.configs, ENTRIES, strict=True):
        assert (config.name, config.value, config.read_only, config.is_sensitive) == (
            entry.name,
            entry.value,
            entry.read_only,
            entry.sensitive,
        )
        if version == 0:
            assert config.is_default is False
        else:
            assert config.config_source == entry.source
            assert [(s.name, s.value, s.source) for s in config.synonyms] == list(entry.synonyms)
        if version >= 3:
            assert (config.config_type, config.documentation) == (entry.type, None)


def test_what_a_broker_tells_of_itself():
    body = encode_describe_broker_request(1, 7, ["log.roll.ms"])
    assert list(DescribeConfigsQuestion(1, body)) == [ResourceAsked(4, "7", frozenset({"log.roll.ms"}))]
    entries = [encode_config_entry(1, entry) for entry in ENTRIES]
    answer = encode_describe_configs_response(1, [encode_described(1, ResourceDescribed(4, "7", entries=entries))])
    assert decode_describe_broker_response(1, answer) == (
        0,
        [
            ("retention.ms", "5", [("retention.ms", "5", 1), ("log.retention.ms", None, 4)]),
            ("secret", None, []),
        ],
    )


def test_no_more_resources_are_asked_for_than_needed() -> None:
    """130,000 without a name, in 512 KiB, held the loop for a second."""

    def body(resources: int, keys: int) -> bytes:
        resource = {"resource_type": 2, "resource_name": "", "configuration_keys": [""] * keys}
        request = cold.request(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * resources)
        return cold.encode_request(ApiKey.DESCRIBE_CONFIGS, 4, request)

    for n, keys in ((MAX_NAMED + 1, 0), (1, MAX_NAMED)):
        with pytest.raises(FrameError, match="1 elements too many"):
            list(DescribeConfigsQuestion(4, body(n, keys)))
