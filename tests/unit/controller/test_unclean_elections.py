"""Unclean elections that are allowed while partitions are offline: which notifications lead to which elections."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from aiocontroller.controller.obeyed_settings import UNCLEAN, ReportedSettings
from aiocontroller.core.events import (
    BrokerChange,
    ConfigChange,
    OfflinePartitionsSweep,
    UncleanLeaderElectionEnable,
)
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.states import PartitionState
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.zookeeper.kafka_zk_client import EntityConfigs
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster
from tests.unit.controller.virtual_cluster import (
    Stage,
    add_silent_broker,
    begin,
    dynamic,
    is_active,
    offline_topic,
    stage,
    state,
    with_topic,
)


async def lose_the_isr(it: Stage) -> None:
    """t-0 on 1 and 2: 2 falls out of the ISR and is back, then 1 dies."""
    await with_topic(it, [1, 2], 1)
    await it.kill_broker(2)
    await it.until(lambda: 2 not in it.brokers)
    await it.sleep(10)
    found = await state(it)
    assert found is not None
    assert found.isr == (1,)
    await it.add_broker(2)
    await it.sleep(5)
    await it.kill_broker(1)
    await it.sleep(20)


def led(service: Service) -> bool:
    table = service.shell.context.table
    return bool(table.count_by_state[PartitionState.OnlinePartition])


T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
ALLOWED = {"unclean.leader.election.enable": " True "}


class Changes:
    """``/config/changes``: the changed entity by name."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._it = it
        self._found: dict[str, str] = {}
        self.bad: list[BadZNode] = []
        self.read: list[list[str]] = []
        monkeypatch.setattr(it.znodes, "get_all_config_changes", self._names)
        monkeypatch.setattr(it.znodes, "get_entities_from_config_changes", self._entities, raising=False)

    async def _names(self, *, watch: bool) -> list[str]:
        assert watch
        return sorted(self._found)

    async def _entities(self, names: Sequence[str]) -> tuple[list[str], list[BadZNode]]:
        self.read.append(list(names))
        return list(dict.fromkeys(self._found[name] for name in names)), self.bad

    def notify(self, *entities: str) -> None:
        for entity in entities:
            self._found[f"config_change_{len(self._found):010d}"] = entity
        self._it.queue.append(ConfigChange())
        self._it.step()


@pytest.fixture
def it() -> PureCluster:
    """t-0 and u-0 had broker 1 alone in their ISRs, which died; broker 2 has replicas and lives."""
    made = cluster(1, t=[[1, 2]], u=[[1, 2]])
    made.register(2)
    made.queue.append(BrokerChange())
    made.step()
    for tp in (T0, U0):
        assert made.znodes.states[tp].isr == (1,)
    made.unregister(1)
    made.queue.append(BrokerChange())
    made.step()
    assert leaders(made) == (-1, -1)
    return made


def leaders(it: PureCluster) -> tuple[int, int]:
    return it.znodes.states[T0].leader, it.znodes.states[U0].leader


def test_a_topic_that_allows_it_now_gets_a_leader_and_no_other_does(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = Changes(it, monkeypatch)
    it.znodes.configs["t"] = ALLOWED
    changes.notify("topics/t", "topics/gone", "users/t", "topics/u")
    assert leaders(it) == (2, -1)


def test_a_topic_whose_setting_forbids_it_stays_offline(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(it, monkeypatch)
    it.znodes.configs |= {"t": {"unclean.leader.election.enable": "false"}, "u": {}}
    changes.notify("topics/t", "topics/u")
    assert leaders(it) == (-1, -1)


def test_each_notification_is_read_once(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes(it, monkeypatch)
    changes.bad = [BadZNode("/config/changes/config_change_0000000000", "{", "JSON")]
    changes.notify("topics/t")
    changes.notify("topics/u")
    assert changes.read == [["config_change_0000000000"], ["config_change_0000000001"]]
    assert list(it.shell.bad_paths()) == [changes.bad[0].path]


def test_quotas_of_the_entity_are_read_again(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(it.shell.mutation_quotas, "changed", heard.append)
    Changes(it, monkeypatch).notify("users/alice", "topics/t")
    assert heard == ["users/alice", "topics/t"]


def test_dynamic_settings_are_read_again_where_a_broker_is_named(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    real = it.znodes.get_broker_configs

    async def noting(names: Sequence[str]) -> object:
        read.append(list(names))
        return await real(names)

    monkeypatch.setattr(it.znodes, "get_broker_configs", noting)
    changes = Changes(it, monkeypatch)
    changes.notify("topics/t", "users/brokers/2")
    assert read == []
    changes.notify("brokers/2")
    assert read == [["<default>", "2"]]


def test_what_brokers_allow_from_now_on_counts_at_once_and_at_the_next_failover(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.znodes.unclean_by_request = True  # the model knows topics' settings alone
    configs = EntityConfigs()
    configs["<default>"] = ALLOWED

    async def read(names: Sequence[str]) -> EntityConfigs:
        return configs

    it.shell.settings.heard({2: ReportedSettings({"unclean.leader.election.enable": "false"})}, no_brokers=False)
    changes = Changes(it, monkeypatch)
    monkeypatch.setattr(it.znodes, "get_broker_configs", read)
    changes.notify("brokers/<default>")
    assert it.shell.policy.unclean_leader_election_enable
    assert leaders(it) == (2, 2)
    configs["<default>"] = {}
    it.failover()
    assert not it.shell.policy.unclean_leader_election_enable
    assert it.shell.config_changes_seen == {"config_change_0000000000"}


def test_the_default_counts_for_all_topics_but_those_that_forbid_it(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.znodes.configs["t"] = {"unclean.leader.election.enable": "false"}
    it.znodes.unclean_by_request = True  # the model knows topics' settings alone
    it.shell.policy = msgspec.structs.replace(it.shell.policy, unclean_leader_election_enable=True)
    it.queue.append(UncleanLeaderElectionEnable())
    it.step()
    assert leaders(it) == (-1, 2)


@virtual_time
async def test_a_topic_may_forbid_what_is_allowed_by_default() -> None:
    for default, own, leader in (
        (True, None, 2),
        (True, "false", -1),
        (True, " FALSE ", -1),
        (True, "true", 2),
        (False, None, -1),
        (False, "true", 2),
        (False, "false", -1),
    ):
        async with stage() as it:
            await begin(it, 2, unclean_leader_election_enable=default)
            if own is not None:
                config = {"version": 1, "config": {"unclean.leader.election.enable": own}}
                await it.create("/config/topics/t", msgspec.json.encode(config))
            await lose_the_isr(it)
            found = await state(it)
            assert found is not None
            assert found.leader == leader, (default, own)


@virtual_time
async def test_unclean_elections_that_brokers_allow_happen_at_once() -> None:
    """Finding 7: the partition stayed offline until a broker's controller elected it."""
    async with stage() as it:
        await it.add_broker(1, unclean_leader_election_enable="true")
        await offline_topic(it)
        service = await it.add_controller()
        await it.until(lambda: led(service), 1)


@pytest.mark.parametrize("entity", ["<default>", "1"])
@virtual_time
async def test_unclean_elections_allowed_while_brokers_run_happen_at_once(entity: str) -> None:
    async with stage() as it:
        await it.add_broker(1)
        await offline_topic(it)
        service = await it.add_controller()
        assert is_active(service)
        assert not led(service)
        await dynamic(it, entity, unclean_leader_election_enable="true")
        await it.until(lambda: led(service), 1)
        assert service.shell.settings["unclean.leader.election.enable"].source.startswith("dynamic")


@virtual_time
async def test_topics_own_setting_goes_before_the_brokers() -> None:
    async with stage() as it:
        await it.add_broker(1, unclean_leader_election_enable="true")
        await it.create("/config/topics/t", b'{"version":1,"config":{"unclean.leader.election.enable":"false"}}')
        await offline_topic(it)
        service = await it.add_controller()
        await it.sleep(30)
        assert is_active(service)
        assert not led(service)


@virtual_time
async def test_rolling_restart_that_allows_unclean_elections_is_followed_when_most_brokers_have_it() -> None:
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker, unclean_leader_election_enable="false")
        await offline_topic(it)
        service = await it.add_controller()
        await it.restart_broker(1, unclean_leader_election_enable="true")
        await it.sleep(5)
        assert not led(service)
        assert [s.name for s in service.shell.settings.differing] == ["unclean.leader.election.enable"]
        await it.restart_broker(2, unclean_leader_election_enable="true")
        await it.until(lambda: led(service), 5)


@pytest.mark.parametrize("allowed", ["true", "false"])
@virtual_time
async def test_no_unclean_election_before_a_broker_has_answered_that_it_allows_it(allowed: str) -> None:
    """Ours says true, and the first broker to come is out of sync.  As a controller it would follow its own file."""
    async with stage() as it:
        await offline_topic(it)
        service = await it.add_controller(given={UNCLEAN: "true"}, unclean_leader_election_enable=True)
        assert is_active(service)
        broker = await add_silent_broker(it, 1, unclean_leader_election_enable=allowed)
        await it.sleep(60)
        assert not led(service)
        broker.unanswered.clear()
        await it.sleep(20)
        assert led(service) is (allowed == "true")


@virtual_time
async def test_unclean_elections_that_the_operator_insists_on_wait_for_no_answer() -> None:
    async with stage() as it:
        await offline_topic(it)
        service = await it.add_controller(
            given={UNCLEAN: "true"}, unclean_leader_election_enable=True, aiocontroller_keep_ours=(UNCLEAN,)
        )
        await add_silent_broker(it, 1, unclean_leader_election_enable="false")
        await it.until(lambda: led(service), 2)


def test_a_topic_whose_settings_cannot_be_read_has_no_unclean_election() -> None:
    """It may forbid what the brokers allow.  Broker 1, alone in the ISR, dies; 2 lives outside."""
    it = cluster(1, t=[[1, 2]])
    it.register(2)
    it.queue.append(BrokerChange())
    it.step()
    it.shell.policy = msgspec.structs.replace(it.shell.policy, unclean_leader_election_enable=True)
    it.znodes.unclean_by_request = True
    readable = it.znodes.get_topic_configs

    async def refused(topics: Sequence[str]) -> EntityConfigs:
        configs = EntityConfigs()
        configs.bad = [BadZNode(f"/config/topics/{topic}", "NoAuth", "the settings") for topic in topics]
        return configs

    it.znodes.get_topic_configs = refused  # type: ignore[method-assign]
    it.unregister(1)
    it.queue.append(BrokerChange())
    it.step()
    assert it.znodes.states[T0].leader == -1
    assert list(it.shell.bad_paths()) == ["/config/topics/t"]
    it.znodes.get_topic_configs = readable  # type: ignore[method-assign]
    it.queue.append(OfflinePartitionsSweep())
    it.step()
    assert it.znodes.states[T0].leader == 2
