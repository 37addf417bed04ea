"""The table of releases and protocols, as far as it can be wrong by itself."""

from __future__ import annotations

import itertools

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, Protocol, generation, protocol_of
from aiocontroller.lab.cluster.simulated_settings import Settings
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey


def test_a_later_release_offers_no_less() -> None:
    releases = list(GENERATIONS.values())
    assert [g.release for g in releases] == sorted(GENERATIONS)
    for earlier, later in itertools.pairwise(releases):
        assert all(later.offered[api].max >= versions.max for api, versions in earlier.offered.items())
        assert later.alter_partition >= earlier.alter_partition
    assert generation(NEWEST).offered == {api: SUPPORTED[api] for api in generation(NEWEST).offered}


@pytest.mark.parametrize(
    "text, by_request, topic_ids, registration, shutdown",
    [
        ("2.1", False, False, 4, 1),
        ("2.2", False, False, 4, 2),
        ("2.4-IV0", False, False, 4, 2),
        ("2.4-IV1", False, False, 4, 3),
        ("2.6", False, False, 4, 3),
        ("2.7-IV0", False, False, 5, 3),
        ("2.7-IV1", False, False, 5, 3),
        ("2.7-IV2", True, False, 5, 3),
        ("2.7", True, False, 5, 3),
        ("2.8-IV0", True, True, 5, 3),
        ("3.9", True, True, 5, 3),
    ],
)
def test_what_a_protocol_brings(text: str, by_request: bool, topic_ids: bool, registration: int, shutdown: int) -> None:
    spoken = Protocol.of(text)
    assert (spoken.isr_by_alter_partition, spoken.topic_ids) == (by_request, topic_ids)
    assert (spoken.registration_version, spoken.controlled_shutdown) == (registration, shutdown)


def test_a_broker_speaks_no_protocol_that_is_newer_than_it() -> None:
    old = generation("2.8")
    assert protocol_of(old, "") == (2, 8, 1)
    assert protocol_of(old, "2.8") == (2, 8, 99)
    with pytest.raises(BadInputError, match=r"found 3\.0, expected at most 2\.8-IV1"):
        protocol_of(old, "3.0")
    with pytest.raises(BadInputError, match=r"found 'new'"):
        protocol_of(old, "new")
    with pytest.raises(BadInputError, match=r"found '2\.9', expected one of 2\.2, 2\.4"):
        generation("2.9")


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_broker_tells_its_protocol(version: int) -> None:
    asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["inter.broker.protocol.version", "no"]}
    other = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    body = cold.encode_request(
        ApiKey.DESCRIBE_CONFIGS, version, cold.request(ApiKey.DESCRIBE_CONFIGS, version, resources=[asked, other])
    )
    for settings, value, source in (
        (Settings(generation("3.0")), "3.0-IV1", 5),
        (Settings(generation("3.0"), "2.6"), "2.6", 4),
    ):
        raw = settings.encode_describe_configs_response(version, body, 1)
        own, refused = cold.decode_response(ApiKey.DESCRIBE_CONFIGS, version, raw).results
        (config,) = own.configs
        assert (config.name, config.value) == ("inter.broker.protocol.version", value)
        assert getattr(config, "config_source", source) == source
        assert (int(own.error_code), int(refused.error_code), refused.configs) == (0, 42, ())
