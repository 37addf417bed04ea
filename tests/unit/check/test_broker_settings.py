"""What brokers' own settings show, and how they are asked."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aiocontroller.check.broker_settings import (
    ASKED,
    NOTHING_REPORTED,
    Reported,
    ask_brokers,
    settings_hits,
    with_files,
)
from aiocontroller.check.rules import MIN_ISR, UNCLEAN, all_hits
from aiocontroller.config import Config
from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.cluster.simulated_broker import LOOPBACK, BrokerConfig, SimulatedBroker
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from tests.unit.check.test_rules import OF_BROKERS, tree

REBALANCE = "auto.leader.rebalance.enable"


def reported(*of_brokers: dict[str, str], silent: dict[int, str] | None = None, **defaults: str) -> Reported:
    """``of_brokers`` are their files, from broker 1 on."""
    found = {n: ReportedSettings(static, defaults) for n, static in enumerate(of_brokers, 1)}
    return Reported(found, silent or {})


def hits(found: Reported) -> set[tuple[str, str, str]]:
    return {(hit.kind, hit.subject, hit.why) for hit in settings_hits(tree(), found)}


def test_brokers_that_are_alike_are_no_finding() -> None:
    alike = {REBALANCE: "true", "log.retention.ms": "1000"}
    assert hits(reported(alike, alike, alike)) == set()
    assert hits(reported({REBALANCE: "True"}, {REBALANCE: "true "})) == set()
    assert hits(NOTHING_REPORTED) == set()


def test_a_difference_names_the_brokers_and_what_a_takeover_changes() -> None:
    found = reported({REBALANCE: "false"}, {REBALANCE: "true"}, {REBALANCE: "true"})
    assert hits(found) == {
        ("settings-differ", REBALANCE, "false on broker 1; true on broker 2, 3"),
        ("takeover-changes", REBALANCE, "broker 1, the controller, obeys false; aiocontroller obeys true"),
    }
    of_topics = reported({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "2"})
    assert hits(of_topics) == {("settings-differ", "log.retention.ms", "1 on broker 1; 2 on broker 2, 3")}


def test_a_dynamic_default_is_above_files() -> None:
    found = reported({MIN_ISR: "1"}, {MIN_ISR: "2"})
    assert hits(found) == set()  # the tree has a default


def test_threads_are_each_brokers_own_business() -> None:
    assert "num.io.threads" not in ASKED


@pytest.mark.parametrize("name", ["create.topic.policy.class.name", "authorizer.class.name"])
def test_what_a_takeover_needs_first_is_said(name: str) -> None:
    own = {name: "org.acme.It"}
    assert hits(reported(own, own)) == {("takeover-needs", name, "brokers have org.acme.It")}


def test_silent_brokers_are_named_with_their_reason() -> None:
    assert hits(reported({}, silent={3: "no answer"})) == {("settings-not-told", "broker 3", "no answer")}


def test_all_kinds_of_brokers_settings_are_found_here() -> None:
    found = hits(reported({REBALANCE: "false", "authorizer.class.name": "x"}, {REBALANCE: "true"}, silent={3: "x"}))
    found |= hits(reported({REBALANCE: "false"}, {REBALANCE: "true"}, {REBALANCE: "true"}))
    assert {kind for kind, _, _ in found} == OF_BROKERS


def test_files_tell_how_many_replicas_must_be_in_sync() -> None:
    bare = msgspec.structs.replace(tree(), broker_configs={}, topic_configs={})
    strict = with_files(bare, reported({MIN_ISR: "2"}, {MIN_ISR: "2"}, {MIN_ISR: "3"}))
    assert strict.broker_configs == {"<default>": {MIN_ISR: "2"}}
    assert not all_hits(strict)
    loose = with_files(bare, reported({UNCLEAN: "true"}, {UNCLEAN: "true"}))
    assert [hit.kind for hit in all_hits(loose)] == ["unclean-elections"]
    assert with_files(bare, NOTHING_REPORTED) is bare
    dynamic = with_files(tree(), reported({MIN_ISR: "3"}))
    assert dynamic.broker_configs["<default>"][MIN_ISR] == "1"


def remedies(found: Reported, of_brokers: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    bare = msgspec.structs.replace(tree(), broker_configs=of_brokers, topic_configs={})
    hits = [*all_hits(with_files(bare, found, (MIN_ISR,))), *settings_hits(bare, found)]
    return [(hit.path, hit.why, hit.remedy) for hit in hits if hit.kind == "unclean-elections"]


def test_unclean_elections_are_ended_where_they_are_switched_on() -> None:
    on, off = {UNCLEAN: "true"}, {UNCLEAN: "false"}
    in_files = ("/brokers/ids/1", "by the files of broker 1, 3")
    ((path, why, remedy),) = remedies(reported(on, off, on), {})
    assert (path, why) == in_files
    assert "server.properties" in remedy
    assert "--delete-config" not in remedy
    ((path, why, remedy),) = remedies(reported(on, on, on), {"<default>": on})
    assert (path, why) == ("/config/brokers/<default>", "by the default")
    assert remedy.endswith(f"--entity-default --alter --delete-config {UNCLEAN}")
    ((path, why, remedy),) = remedies(reported(off, off, off), {"1": on, "2": on})[:1]
    assert (path, why) == ("/config/brokers/1", "by a dynamic setting of broker 1")
    assert remedy.endswith(f"--entity-name 1 --alter --delete-config {UNCLEAN}")
    assert len(remedies(reported(off, off, on), {"1": on})) == 2, "each place has to be changed"
    assert remedies(reported(on, off, off), {}) == [], "the value of most applies"
    assert remedies(reported(on, on, on), {"<default>": off}) == []
    assert remedies(reported({}, {}, {}), {}) == []


async def test_a_broker_is_asked_and_one_that_is_not_there_is_silent(world: World) -> None:
    server = await ZooKeeperServer(world, ZooKeeperModel()).start()
    config = BrokerConfig(1, f"127.0.0.1:{server.port}", None, settings={MIN_ISR: "2"}, reports_policy=True)
    broker = SimulatedBroker(config, world)
    running = asyncio.ensure_future(broker.run())
    while broker.epoch <= 0:
        await world.clock.sleep(0.01)
    there, gone, mute = (
        Broker(1, 1, (Endpoint("PLAINTEXT", LOOPBACK, broker.port),)),
        Broker(2, 1, (Endpoint("PLAINTEXT", LOOPBACK, 1),)),
        Broker(3, 1, ()),
    )
    found = await ask_brokers(world, Config(), [gone, there, mute])
    assert set(found.settings) == {1}, found.silent
    assert found.settings[1].static[MIN_ISR] == "2"
    assert set(found.silent) == {2, 3}
    assert found.silent[3] == "it has no listener PLAINTEXT"
    broker.stop(controlled=False)
    await running
    server.stop()
