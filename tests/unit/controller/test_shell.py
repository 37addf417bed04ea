"""The tools of all handlers: the controller's own entry in the broker list, and the order of requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aiocontroller.config import load_config
from aiocontroller.controller.controller_eligibility import (
    BrokerAnswer,
    BrokerAnswers,
    ClusterFacts,
    ThisController,
    ineligibility_reasons,
)
from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange
from tests.unit.controller.pure_cluster import cluster
from tests.unit.controller.virtual_cluster import begin, stage

US = 1_000_001


def broker(number: int, *listeners: str, protocol: str = "PLAINTEXT") -> Broker:
    return Broker(
        number, 1, tuple(Endpoint(name, f"b{number}", 9000 + i, protocol) for i, name in enumerate(listeners))
    )


def shell(brokers: list[Broker], own: str = "PLAINTEXT://us:1", **properties: str) -> ControllerShell:
    reported = {"listeners": own} | {key.replace("_", "."): value for key, value in properties.items()}
    config, _ = load_config(overrides=reported)
    nothing: Any = None
    made = ControllerShell(
        config,
        simulated_world(SimulatedNetwork()),
        nothing,
        nothing,
        Metrics(),
        nothing,
        nothing,
        lambda: list(config.listeners),
    )
    made.context = ControllerContext()
    made.context.add_brokers(brokers)
    return made


def entry(of: ControllerShell) -> dict[str, str]:
    """Listener -> address."""
    own = of.own_entry()
    assert own is not None
    assert own.id == US
    return {e.listener: f"{e.host}:{e.port}" for e in own.endpoints}


def reasons(of: ControllerShell, brokers: list[Broker]) -> list[str]:
    us = ThisController(of.id, of.config, of.own_endpoints(), of.security, of.authorizer, of.settings)
    known = BrokerAnswers(
        {b.id: BrokerAnswer(b.id, b.epoch, VersionRange(0, 7), {}, ReportedSettings()) for b in brokers}, {}
    )
    return [reason.text for reason in ineligibility_reasons(us, ClusterFacts(brokers), known)]


def leaderships(broker: RecordingBroker, api: ApiKey = ApiKey.LEADER_AND_ISR) -> list[int]:
    """The leader in each LeaderAndIsr, or UpdateMetadata, that it has received."""
    return [p.leader for request in broker.of(api) for t in request.topic_states for p in t.partition_states]


def test_leaders_are_named_where_followers_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the control plane's listener, which takes the controller's requests alone."""
    it = cluster(1, 2)
    shell = it.shell
    listeners = {"inter_broker_listener_name": "INTERNAL", "control_plane_listener_name": "CONTROL"}
    shell.config = msgspec.structs.replace(shell.config, **listeners)
    for number, broker in it.znodes.brokers.items():
        endpoints = (Endpoint("CONTROL", f"b{number}", 9000), Endpoint("INTERNAL", f"b{number}", 9001))
        it.znodes.brokers[number] = msgspec.structs.replace(broker, endpoints=endpoints)
    it.failover()
    heard: list[Any] = []
    assert shell.channels is not None
    send = shell.channels.send

    def noting(broker: int, api: ApiKey, encode: Any, *more: Any, **merging: Any) -> None:
        if api is ApiKey.LEADER_AND_ISR:
            for pieces in encode(7, it.views[broker].epoch):
                heard.append(cold.decode_request(api, 7, b"".join(map(bytes, pieces))))
        send(broker, api, encode, *more, **merging)

    monkeypatch.setattr(shell.channels, "send", noting)
    it.create_topic("t", [[1, 2]])
    it.step()
    assert {(leader.host_name, leader.port) for request in heard for leader in request.live_leaders} == {("b1", 9001)}
    assert shell.endpoint_of(it.znodes.brokers[1]) == Endpoint("CONTROL", "b1", 9000)


@pytest.mark.parametrize("name", ["PLAINTEXT", "WHATEVER"])
def test_the_only_listener_is_where_we_are(name: str) -> None:
    assert entry(shell([broker(1, name), broker(2, name)])) == {name: "us:1"}


def test_clients_with_a_listener_of_their_own_find_a_broker() -> None:
    of = shell(
        [broker(2, "INTERNAL", "CLIENT"), broker(1, "INTERNAL", "CLIENT")], inter_broker_listener_name="INTERNAL"
    )
    assert entry(of) == {"INTERNAL": "us:1", "CLIENT": "b1:9001"}


def test_the_shadow_is_a_broker_that_lives() -> None:
    of = shell(
        [broker(1, "INTERNAL", "CLIENT"), broker(2, "INTERNAL", "CLIENT")], inter_broker_listener_name="INTERNAL"
    )
    of.context.remove_brokers([1])
    assert entry(of)["CLIENT"] == "b2:9001"


def test_a_listener_of_ours_is_real() -> None:
    brokers = [broker(1, "INTERNAL", "CLIENT")]
    of = shell(brokers, own="INTERNAL://us:1,CLIENT://us:2", inter_broker_listener_name="INTERNAL")
    assert entry(of) == {"INTERNAL": "us:1", "CLIENT": "us:2"}


def test_control_plane_listener_is_ours_too() -> None:
    brokers = [broker(1, "INTERNAL", "CONTROL", "CLIENT")]
    names = {"inter_broker_listener_name": "INTERNAL", "control_plane_listener_name": "CONTROL"}
    assert entry(shell(brokers, **names)) == {"INTERNAL": "us:1", "CONTROL": "us:1", "CLIENT": "b1:9002"}


def test_a_leaving_controller_has_no_entry_of_its_own() -> None:
    of = shell([broker(1, "PLAINTEXT")])
    of.leaving = True
    assert of.own_entry() is None


def test_listeners_that_brokers_do_not_have_are_named() -> None:
    brokers = [broker(1, "A", "B")]
    assert reasons(shell(brokers), brokers) == [
        "inter.broker.listener.name is PLAINTEXT, and brokers have the listeners A, B: set it to theirs"
    ]
    assert reasons(shell(brokers, inter_broker_listener_name="B"), brokers) == []


def test_protocols_that_brokers_do_not_speak_are_named() -> None:
    brokers = [broker(1, "SSL", protocol="SSL")]
    (reason,) = reasons(shell(brokers), brokers)
    assert reason.startswith("brokers speak SSL on their listener SSL, and ours, PLAINTEXT, speaks PLAINTEXT")
    assert reasons(shell(brokers, own="SSL://us:1"), brokers) == []
    assert reasons(shell([]), []) == []


@pytest.mark.parametrize(
    "listeners, expected",
    [
        ([("SECRET", "SSL"), ("OPEN", "PLAINTEXT"), ("OTHER", "PLAINTEXT")], "OPEN"),
        ([("SECRET", "SSL"), ("LOGIN", "SASL_SSL")], "SECRET"),
        ([("OPEN", "PLAINTEXT"), ("INTERNAL", "SSL")], "INTERNAL"),
        ([], None),
    ],
)
def test_brokers_are_found_at_the_inter_broker_listener_or_else_in_plaintext(
    listeners: list[tuple[str, str]], expected: str | None
) -> None:
    endpoints = tuple(Endpoint(name, "b1", 9000, protocol) for name, protocol in listeners)
    properties = {"inter.broker.listener.name": "INTERNAL", "listener.security.protocol.map": "INTERNAL:PLAINTEXT"}
    config, _ = load_config(overrides={"listeners": "INTERNAL://us:1", **properties})
    made = shell([])
    made.config = config
    found = made.endpoint_among_brokers(Broker(1, 1, endpoints))
    assert (None if found is None else found.listener) == expected


@virtual_time
async def test_followers_are_sent_requests_when_the_leader_has_answered() -> None:
    """The leader has the highest id and is slow: an order by ids, or followers first, is seen."""
    async with stage() as it:
        await begin(it, 3)
        it.brokers[3].unanswered.add(ApiKey.LEADER_AND_ISR)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,1,2]}}')
        await it.until(lambda: leaderships(it.brokers[3]))
        await it.sleep(0.3)
        assert [leaderships(it.brokers[n]) for n in (1, 2)] == [[], []]
        await it.until(lambda: leaderships(it.brokers[1]) == leaderships(it.brokers[2]) == [3], 1)


@pytest.mark.parametrize("how", ["its session ends", "it is suspected"])
@virtual_time
async def test_survivors_learn_the_leader_that_succeeds_a_dead_one_before_it_has_answered(how: str) -> None:
    """librdkafka asks them once, as soon as its connection to the dead leader ends."""
    early = {"aiocontroller_early_broker_detection": "full"} if how == "it is suspected" else {}
    async with stage() as it:
        await begin(it, 3, **early)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,1,2]}}')
        await it.until(lambda: leaderships(it.brokers[2]))
        await it.sleep(2)  # it has answered heartbeats
        it.brokers[1].unanswered.add(ApiKey.LEADER_AND_ISR)
        if early:
            it.brokers[3].unanswered.add(ApiKey.API_VERSIONS)
        else:
            await it.kill_broker(3)
        await it.until(lambda: leaderships(it.brokers[2], ApiKey.UPDATE_METADATA)[-1:] == [1], 5)
        assert leaderships(it.brokers[1])[-1:] == [1], "the leader's own request does not wait for the metadata"
        assert leaderships(it.brokers[2])[-1:] == [3]
        await it.until(lambda: leaderships(it.brokers[2])[-1:] == [1], 1)


@virtual_time
async def test_nobody_waits_for_a_leader_that_is_suspected() -> None:
    """Until the alarm, others' requests wait half a second for each batch that a dead leader has not answered."""
    async with stage() as it:
        service = await begin(it, 3, aiocontroller_early_broker_detection="full")
        for name in "abcde":
            await it.create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[3,1,2]}}')
        await it.create("/brokers/topics/only", b'{"version":1,"partitions":{"0":[3]}}')
        await it.until(lambda: len(leaderships(it.brokers[3])) == 6)
        await it.sleep(2)  # it has answered heartbeats
        it.brokers[3].unanswered |= {ApiKey.LEADER_AND_ISR, ApiKey.API_VERSIONS}
        assert service.shell.channels is not None
        made = 5
        while not service.shell.channels.suspects():
            await it.create(f"/brokers/topics/more-{made}", b'{"version":1,"partitions":{"0":[3,1,2]}}')
            await it.sleep(0.1)
            made += 1
        await it.sleep(0.05)
        assert leaderships(it.brokers[1]).count(1) >= 5
        assert leaderships(it.brokers[2]).count(1) >= 5
        moved = b'{"version":1,"partitions":[{"topic":"only","partition":0,"replicas":[3,1]}]}'
        await it.create("/admin/reassign_partitions", moved)
        await it.until(lambda: leaderships(it.brokers[1])[-1] == 3, 0.1)


def test_the_owner_of_a_copy_hears_that_it_is_no_longer_needed() -> None:
    it = shell([])
    heard: list[bool] = []
    it.on_copy_dropped = lambda: heard.append(it.copy is None)
    it.copy = MirroredCluster(ControllerContext())
    it.drop_copy()
    assert heard == [True]


def test_outside_a_term_there_is_no_epoch() -> None:
    """A standby's status shows it, and it is lower than that of any controller."""
    it = cluster(1).shell
    assert (it.is_active, it.context.epoch) == (True, 1)
    it.end_term()
    assert (it.is_active, it.context.epoch, it.context.epoch_zk_version) == (False, 0, 0)
    assert shell([]).context.epoch == 0


@pytest.mark.parametrize("active", [True, False])
def test_what_another_controller_hears_counts_in_every_term_and_between_them(active: bool) -> None:
    it = cluster(1).shell
    heard: list[Any] = []
    heartbeats: Any = SimpleNamespace(vouched=heard.append)
    it.vouched({1: 70})
    it.broker_heartbeats = heartbeats
    if not active:
        it.end_term()
    it.vouched({1: 71})
    assert heard == [{1: 71}]
