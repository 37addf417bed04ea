"""The brokers of scenarios are of releases and protocols: what is drawn of them, and how what they are sent is read.

``tests/integration/kafka/test_generations.py`` holds the table of releases to real brokers; here the brokers of
scenarios are held to that table, and to the simulated broker, which is held to the real ones too.
"""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.cluster.controller_requests import alter_partition_version
from aiocontroller.lab.cluster.generations import GENERATIONS, Protocol, generation, protocol_of
from aiocontroller.lab.cluster.partition import IsrChange, Partition
from aiocontroller.lab.recording_brokers.recording_broker import SERVED, Received
from aiocontroller.lab.scenarios.fleet import PROTOCOLS, Version, knows
from aiocontroller.lab.scenarios.verbs import parse_line
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.messages import decode_api_versions_response
from aiocontroller.wire.protocol_versions import control_request_versions
from aiocontroller.wire.stop_replica import StopReplicaPartition, encode_stop_replica
from tests.differential.fleet import Listener
from tests.differential.observed_cluster import BROKERS
from tests.differential.random_scenarios import random_scenario
from tests.differential.scenarios import IN_ALL_RELEASES
from tests.differential.sent import NO_EPOCH, Receiver, Sent, sent_by
from tests.differential.subjects import OLDER_PROTOCOLS
from tests.differential.subjects import protocol_of as subjects_protocol

SEEDS = range(1, 201)


VERSIONS = [Version(release, protocol) for release in GENERATIONS for protocol in PROTOCOLS if knows(release, protocol)]


@pytest.fixture
def listener(world: World) -> Listener:
    made = Listener(world, "127.0.0.1:1", 1)
    made._listener = type("Listening", (), {"port": 9092})()
    return made


@pytest.mark.parametrize("version", VERSIONS, ids="/".join)
def test_broker_of_a_release_offers_registers_and_asks_as_the_table_says(listener: Listener, version: Version) -> None:
    listener.become(version)
    of, protocol = generation(version.release), protocol_of(generation(version.release), version.protocol)
    answer = listener.respond(ApiKey.API_VERSIONS, 0, None)
    offered = decode_api_versions_response(0, answer).versions
    assert {api: tuple(offered[api]) for api in SERVED} == {api: tuple(of.offered[api]) for api in SERVED}
    assert listener.info.version == protocol.registration_version
    partition = Partition("t", 0)
    partition.topic_id = b"1" * 16
    change = IsrChange(partition, 1, (1,), 1)
    expected = alter_partition_version([change], of.alter_partition, topic_ids=protocol.topic_ids)
    assert listener.alter_partition == (expected if protocol.isr_by_alter_partition else -1)
    for api, sent in control_request_versions(protocol).items():
        low, high = listener.served[api]
        assert low <= sent <= high, "a controller of its protocol sends nothing that it does not take"


def test_every_scenario_has_brokers_that_would_start() -> None:
    for scenario in [*map(random_scenario, SEEDS), *IN_ALL_RELEASES.values()]:
        spoken = {subjects_protocol(scenario.variant), *(version.protocol for version in scenario.versions)}
        for release, _ in scenario.versions:
            assert all(knows(release, protocol) for protocol in spoken), scenario.name


def test_seeds_draw_all_releases_and_protocols_mixed_and_rolled() -> None:
    drawn = [random_scenario(seed) for seed in SEEDS]
    assert {scenario.variant for scenario in drawn} == {"", *OLDER_PROTOCOLS}
    assert {version.release for scenario in drawn for version in scenario.versions} == {*GENERATIONS}
    for kind in (
        lambda s: len({version.release for version in s.versions}) > 1,
        lambda s: len({version.protocol for version in s.versions}) > 1,
        lambda s: any(" release=" in step.text for step in s.steps),
    ):
        assert sum(map(kind, drawn)) > len(drawn) / 20


def test_a_roll_never_goes_back_and_leaves_no_broker_behind_a_protocol() -> None:
    for seed in SEEDS:
        scenario = random_scenario(seed)
        now = dict(zip(BROKERS, scenario.versions, strict=True))
        for step in scenario.steps:
            given = parse_line(step.text).given
            if "release" not in given:
                continue
            broker, release, protocol = given["brokers"][0], given["release"], given["protocol"]
            releases = list(GENERATIONS)
            assert releases.index(release) >= releases.index(now[broker].release), step.text
            assert Protocol.of(protocol) >= Protocol.of(now[broker].protocol), step.text
            now[broker] = Version(release, protocol)
            assert all(knows(version.release, protocol) for version in now.values()), step.text


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_what_a_stop_replica_of_any_version_says(version: int) -> None:
    """Below version 3 it deletes all its partitions or none, so one batch is two requests, and names no epochs."""
    cold.preload([ApiKey.STOP_REPLICA])
    stopped = [StopReplicaPartition("t", 0, 5, False), StopReplicaPartition("t", 1, 6, True)]
    bodies = encode_stop_replica(version, controller_id=7, controller_epoch=1, broker_epoch=9, partitions=stopped)
    found: dict[TopicPartition, Sent] = {}
    for body in bodies:
        request: Any = cold.decode_request(ApiKey.STOP_REPLICA, version, body)
        received = Received(ApiKey.STOP_REPLICA, version, request)
        found |= sent_by(received, Receiver(9, 0, frozenset((7,)), {}, {}))
    epochs = (5, 6) if version >= 3 else (NO_EPOCH, NO_EPOCH)
    assert found == {
        TopicPartition("t", number): Sent("StopReplica", epochs[number], delete=bool(number), version=version)
        for number in (0, 1)
    }
    wrong = Received(ApiKey.STOP_REPLICA, version, cold.decode_request(ApiKey.STOP_REPLICA, version, bodies[0]))
    assert all(sent.wrong for _, sent in sent_by(wrong, Receiver(8, 0, frozenset((7,)), {}, {})))
