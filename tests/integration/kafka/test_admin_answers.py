"""Compares a real broker's answers to administrators' requests with ours, field by field.

We stand by meanwhile.  Error messages may differ; all other differences are in docs/departures.md.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from aiocontroller.lab.kafka.controllers import until
from aiocontroller.net.ports import World
from aiocontroller.net.real import real_world
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from tests.integration.controller.asking import Asking, asking
from tests.integration.controller.harness import Cluster, running
from tests.integration.kafka.conftest import KafkaCluster
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)


class Both(NamedTuple):
    broker: Asking
    ours: Asking
    topic: str

    async def answers(self, api: ApiKey, version: int, **fields: Any) -> tuple[Any, Any]:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        theirs, ours = [await each.request(api, version, body) for each in (self.broker, self.ours)]
        return cold.decode_response(api, version, theirs), cold.decode_response(api, version, ours)


@pytest.fixture
async def both(kafka: KafkaCluster) -> AsyncIterator[Both]:
    if number(kafka.version) < (3, 9):
        pytest.skip(f"Kafka {kafka.version} has fewer settings than 3.9, whose answers these are")
    world: World = real_world()
    async with running(world, kafka.zookeeper.address) as cluster:
        service: Service = await cluster.add_controller(aiocontroller_takeover_policy="observe")
        name = f"asked-about-{uuid.uuid4().hex[:8]}"
        host, _, port = kafka.brokers.brokers[1].address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        broker = Asking(reader, writer)
        async with asking(service) as ours:
            both = Both(broker, ours, name)
            await _make_topic(cluster, both)
            yield both
        broker.close()
        await writer.wait_closed()


async def _make_topic(cluster: Cluster, both: Both) -> None:
    await cluster.create_topic(both.topic, {0: [1]})
    given = {"retention.ms": " 5000 ", "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.00010"}
    given |= {"segment.bytes": "+9999", "preallocate": "TRUE"}
    ops = [(name, SET, value) for name, value in given.items()]
    _, ours = await both.answers(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **altering((TOPIC, both.topic, ops)))
    assert ours.responses[0].error_code == 0
    known = {"resource_type": TOPIC, "resource_name": both.topic, "configuration_keys": []}

    async def heard() -> bool:
        theirs, _ = await both.answers(ApiKey.DESCRIBE_CONFIGS, 1, resources=[known])
        return any(c.name == "retention.ms" and c.value == "5000" for c in theirs.results[0].configs)

    await until(heard, "the broker knows the topic")


def altering(*resources: tuple[int, str, list[tuple[str, int, str | None]]]) -> dict[str, Any]:
    return {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": n, "config_operation": operation, "value": v} for n, operation, v in ops],
            }
            for kind, name, ops in resources
        ]
    }


def described(answer: Any) -> list[tuple[Any, ...]]:
    return [
        (
            int(result.error_code),
            result.resource_type,
            result.resource_name,
            {
                c.name: (
                    c.value,
                    c.read_only,
                    c.is_sensitive,
                    getattr(c, "config_source", None),
                    getattr(c, "is_default", None),
                    getattr(c, "config_type", None),
                    [(s.name, s.value, s.source) for s in getattr(c, "synonyms", ())],
                )
                for c in result.configs
            },
        )
        for result in answer.results
    ]


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.DESCRIBE_CONFIGS].max + 1))
async def test_every_setting_of_a_topic(both: Both, version: int) -> None:
    asked = [
        {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
        for name, keys in ((both.topic, None), (both.topic, ["retention.ms", "?"]), ("nope", None), ("a/b", None))
    ]
    for with_synonyms in (False, True):
        theirs, ours = await both.answers(
            ApiKey.DESCRIBE_CONFIGS, version, resources=asked, include_synonyms=with_synonyms
        )
        assert described(ours) == described(theirs)
    assert len(described(ours)[0][3]) == 36


async def test_what_is_set_for_all_brokers(both: Both) -> None:
    ops = [
        ("log.retention.ms", "123456"),
        ("leader.replication.throttled.rate", "100000000"),
        ("another.plugin", "x"),
        ("listener.name.plaintext.max.connections", "500"),
        ("log.index.interval.bytes", " 5000 "),
    ]
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((BROKER, ""), (TOPIC, both.topic))
    ]
    try:
        await both.answers(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **altering((BROKER, "", [(name, SET, value) for name, value in ops]))
        )

        async def the_same() -> bool:
            for with_synonyms in (False, True):
                theirs, ours = await both.answers(
                    ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=with_synonyms
                )
                if described(theirs) != described(ours) or len(described(ours)[0][3]) != len(ops):
                    return False
            return True

        await until(the_same, "both tell the same of all brokers and of the topic")
    finally:
        await both.answers(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **altering((BROKER, "", [(name, DELETE, None) for name, _ in ops]))
        )


@pytest.mark.parametrize(
    "kind, name",
    [
        (BROKER, "9"),
        (BROKER, "x"),
        (BROKER_LOGGER, "9"),
        (BROKER_LOGGER, ""),
        (CLIENT_METRICS, ""),
        (CLIENT_METRICS, "s"),
        (3, "x"),
    ],
)
async def test_what_is_answered_for_other_resource_types(both: Both, kind: int, name: str) -> None:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    theirs, ours = await both.answers(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked)
    assert described(ours) == described(theirs)
    theirs, ours = await both.answers(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **altering((kind, name, [("a", SET, "1")])), validate_only=True
    )
    assert codes(ours) == codes(theirs)


def codes(answer: Any) -> list[int]:
    return [int(result.error_code) for result in answer.responses]


ALTERATIONS: list[tuple[int, str, int, str | None]] = [
    (BROKER, "broker.id", SET, "5"),
    (BROKER, "log.segment.bytes", SET, "x"),
    (BROKER, "num.io.threads", SET, "50"),
    (BROKER, "num.io.threads", SET, "3"),
    (BROKER, "ssl.keystore.location", SET, "/x"),
    (BROKER, "listener.name.plaintext.ssl.keystore.location", SET, "/x"),
    (BROKER, "sasl.jaas.config", SET, "x"),
    (BROKER, "log.cleanup.policy", APPEND, "compact"),
    (BROKER, "log.cleanup.policy", APPEND, "shred"),
    (BROKER, "log.retention.ms", APPEND, "5"),
    (BROKER, "log.retention.ms", SET, None),
    (BROKER, "log.retention.ms", SET, "0"),
    (BROKER, "log.local.retention.ms", SET, "99999999999"),
    (BROKER, "min.insync.replicas", 9, "1"),
    (BROKER, "log.retention.ms", DELETE, "5"),
    (TOPIC, "retention.ms", SET, "x"),
    (TOPIC, "nope", SET, "x"),
    (TOPIC, "nope", DELETE, None),
    (TOPIC, "cleanup.policy", APPEND, "compact"),
    (TOPIC, "cleanup.policy", SUBTRACT, "compact"),
    (TOPIC, "cleanup.policy", SUBTRACT, "compact,delete"),
    (TOPIC, "retention.ms", APPEND, "5"),
    (TOPIC, "remote.storage.enable", SET, "true"),
    (TOPIC, "remote.log.copy.disable", SET, "true"),
    (TOPIC, "remote.log.copy.disable", SET, "false"),
    (TOPIC, "min.compaction.lag.ms", SET, "9"),
    (TOPIC, "leader.replication.throttled.replicas", APPEND, "0:1"),
    (TOPIC, "leader.replication.throttled.replicas", APPEND, "bad"),
    (TOPIC, "message.format.version", SET, "9.9"),
    (TOPIC, "min.insync.replicas", SET, None),
    (TOPIC, "segment.bytes", SET, ""),
    (TOPIC, "segment.bytes", SET, "13"),
]


async def test_alterations_are_judged_alike(both: Both) -> None:
    different = []
    for kind, name, operation, value in ALTERATIONS:
        resource = (kind, both.topic if kind == TOPIC else "", [(name, operation, value)])
        asked = altering(resource)
        theirs, ours = await both.answers(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **asked, validate_only=True)
        if codes(theirs) != codes(ours):
            different.append((resource, codes(theirs), codes(ours)))
    assert different == []


async def test_resources_that_are_wrong_as_a_whole(both: Both) -> None:
    twice = (TOPIC, both.topic, [("retention.ms", SET, "5")])
    for resources in (
        [twice, twice],
        [(TOPIC, both.topic, [("retention.ms", SET, "5"), ("retention.ms", SET, "6")])],
        [(TOPIC, "nope", [("retention.ms", SET, "5")]), (TOPIC, "", []), (TOPIC, "a/b", [])],
    ):
        theirs, ours = await both.answers(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, **altering(*resources), validate_only=True
        )
        assert codes(ours) == codes(theirs)


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.ALTER_CONFIGS].max + 1))
async def test_alterations_that_replace_everything(both: Both, version: int) -> None:
    for kind, name, value in (
        (TOPIC, both.topic, "9"),
        (TOPIC, both.topic, None),
        (TOPIC, both.topic, "x"),
        (TOPIC, "nope", "9"),
        (BROKER, "9", "9"),
        (BROKER_LOGGER, "9", "9"),
        (CLIENT_METRICS, "s", "9"),
    ):
        config = {"name": "retention.ms", "value": value}
        asked = [{"resource_type": kind, "resource_name": name, "configs": [config]}]
        theirs, ours = await both.answers(ApiKey.ALTER_CONFIGS, version, resources=asked, validate_only=True)
        assert codes(ours) == codes(theirs), (kind, name, value)


# -- quotas and credentials --------------------------------------------------------------------------------------------

Entity = dict[str, str | None]
QUOTAS: list[tuple[Entity, dict[str, float]]] = [
    ({"user": "u"}, {"producer_byte_rate": 10.0, "request_percentage": 12.5}),
    ({"user": None}, {"consumer_byte_rate": 9e18}),
    ({"user": "ü ~*"}, {"producer_byte_rate": 5.0}),
    ({"client-id": "c"}, {"controller_mutation_rate": 1e-4}),
    ({"client-id": None}, {"producer_byte_rate": 5.0}),
    ({"user": "u", "client-id": "c"}, {"producer_byte_rate": 6.0}),
    ({"user": "u", "client-id": None}, {"producer_byte_rate": 7.0}),
    ({"user": None, "client-id": None}, {"producer_byte_rate": 8e9}),
    ({"ip": "1.2.3.4"}, {"connection_creation_rate": 5.0}),
]
NO_QUOTAS: list[tuple[Entity, dict[str, float]]] = [
    ({"user": "u"}, {"nope": 1.0}),
    ({"user": "u"}, {"producer_byte_rate": 1.5}),
    ({"user": "u"}, {"producer_byte_rate": 1e30}),
    ({"user": "u"}, {"producer_byte_rate": -5.0}),
    ({"user": "u"}, {"connection_creation_rate": 1.0}),
    ({"client-id": "c"}, {"SCRAM-SHA-256": 1.0}),
    ({}, {"producer_byte_rate": 1.0}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({"group": "u"}, {"producer_byte_rate": 1.0}),
    ({"ip": "1.2.3.4", "user": "u"}, {}),
    ({"ip": "::1"}, {"connection_creation_rate": 1.0}),
    ({"ip": "nope.invalid"}, {"connection_creation_rate": 1.0}),
    ({"ip": "1.2.3.4"}, {"connection_creation_rate": -1.0}),
    ({"ip": "1.2.3.4"}, {"producer_byte_rate": 1.0}),
]
FILTERS: list[list[tuple[str, int, str | None]]] = [
    [],
    [("user", 0, "u")],
    [("user", 1, None)],
    [("user", 2, None)],
    [("client-id", 0, "c")],
    [("client-id", 2, None)],
    [("user", 0, "u"), ("client-id", 0, "c")],
    [("user", 0, "u"), ("client-id", 2, None)],
    [("user", 2, None), ("client-id", 2, None)],
    [("user", 1, None), ("client-id", 1, None)],
    [("ip", 0, "1.2.3.4")],
    [("ip", 1, None)],
    [("ip", 2, None)],
    [("user", 0, "unknown")],
    [("user", 0, "ü ~*")],
    [("ip", 2, None), ("user", 2, None)],
    [("user", 2, None), ("user", 2, None)],
    [("", 2, None)],
    [("group", 2, None)],
]


def altered_quotas(quotas: list[tuple[Entity, dict[str, float]]], *, remove: bool = False) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [{"key": key, "value": value, "remove": remove} for key, value in values.items()],
            }
            for entity, values in quotas
        ]
    }


def entity_of(entry: Any) -> list[tuple[str, str | None]]:
    return sorted((each.entity_type, each.entity_name) for each in entry.entity)


def quotas_described(answer: Any) -> Any:
    entries = None
    if answer.entries is not None:
        entries = sorted(
            (str(entity_of(entry)), sorted((each.key, each.value) for each in entry.values)) for entry in answer.entries
        )
    return int(answer.error_code), entries


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas(both: Both, version: int) -> None:
    async def outcome(quotas: list[tuple[Entity, dict[str, float]]], **fields: Any) -> tuple[Any, Any]:
        answers = await both.answers(ApiKey.ALTER_CLIENT_QUOTAS, version, **altered_quotas(quotas), **fields)
        theirs, ours = [
            sorted((str(entity_of(entry)), int(entry.error_code)) for entry in answer.entries) for answer in answers
        ]
        return theirs, ours

    try:
        theirs, ours = await outcome(QUOTAS)
        assert ours == theirs
        assert {code for _, code in ours} == {0}
        for components in FILTERS:
            for strict in (False, True):
                asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
                their_answer, our_answer = await both.answers(
                    ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict
                )
                assert quotas_described(our_answer) == quotas_described(their_answer), (components, strict)
        for one in NO_QUOTAS:
            theirs, ours = await outcome([one], validate_only=True)
            assert ours == theirs, one
    finally:
        await both.answers(ApiKey.ALTER_CLIENT_QUOTAS, 1, **altered_quotas(QUOTAS, remove=True))
    their_answer, our_answer = await both.answers(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=[])
    assert quotas_described(our_answer) == quotas_described(their_answer) == (0, [])


async def test_credentials(both: Both) -> None:
    made = [("a", 1), ("a", 2), ("ü ~", 1)]
    upsertions = [
        {"name": name, "mechanism": n, "iterations": 4096 + n, "salt": b"abc", "salted_password": b"x" * 32}
        for name, n in made
    ]
    deletions = [{"name": name, "mechanism": n} for name, n in made]
    controller = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    def results_of(answer: Any) -> Any:
        return int(answer.error_code), [
            (r.user, int(r.error_code), [(c.mechanism, c.iterations) for c in r.credential_infos])
            for r in answer.results
        ]

    async def altered(**fields: Any) -> bool:
        """Alter credentials by the real broker; return whether it did, for which it must be the controller."""
        theirs, _ = await both.answers(controller, 0, **{"deletions": [], "upsertions": [], **fields})
        return all(result.error_code == 0 for result in theirs.results)

    if not await altered(upsertions=upsertions):
        pytest.skip("another broker is controller")
    try:
        for users in (None, [], ["a"], ["a", "a"], ["unknown"], [""], ["ü ~", "a", "unknown"]):
            asked = None if users is None else [{"name": name} for name in users]
            theirs, ours = await both.answers(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
            assert results_of(ours) == results_of(theirs), users
    finally:
        await altered(deletions=deletions)
