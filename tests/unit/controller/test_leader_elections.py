"""Elections by request, by znode and by the clock: what is answered for each partition, and what is looked at again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.controller import leader_elections
from aiocontroller.controller.leader_elections import (
    AUTO_REBALANCE,
    AVOIDED,
    schedule_auto_leader_rebalance,
    schedule_avoided_leaders,
)
from aiocontroller.controller.obeyed_settings import PROTOCOL, ReportedSettings
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.event_kinds import Event
from aiocontroller.core.events import ElectionType
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.leader_preferences import LeaderPreferences
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0, T1, U0, GONE = (TopicPartition(*tp) for tp in (("t", 0), ("t", 1), ("u", 0), ("gone", 0)))


@pytest.fixture
def it() -> PureCluster:
    """Broker 2 has come back and is in all ISRs again: it is the preferred leader of t-0 and t-1 and leads neither."""
    made = cluster(1, 2, t=[[2, 1], [2, 1]], u=[[1, 2]])
    made.unregister(2)
    made.queue.append(ev.BrokerChange())
    made.step()
    made.register(2)
    made.queue.append(ev.BrokerChange())
    made.step()
    for tp in (T0, T1, U0):
        rejoin(made, tp, (1, 2))
    assert leaders(made) == (1, 1, 1)
    return made


def rejoin(it: PureCluster, tp: TopicPartition, isr: tuple[int, ...]) -> None:
    state = it.znodes.states[tp]
    change = ev.AlterPartition(tp.topic, tp.partition, state.leader_epoch, isr, state.partition_epoch)
    epoch = it.views[state.leader].epoch
    it.ask(ev.AlterPartitionReceived, broker=state.leader, broker_epoch=epoch, version=1, partitions=(change,))
    it.step()
    assert it.znodes.states[tp].isr == isr


def leaders(it: PureCluster) -> tuple[int, ...]:
    return tuple(it.znodes.states[tp].leader for tp in (T0, T1, U0))


def elect(it: PureCluster, kind: ElectionType, *partitions: TopicPartition) -> dict[TopicPartition, Code]:
    """All partitions, if none is named."""
    found = it.ask(ev.ReplicaLeaderElection, partitions=partitions or None, election_type=kind)
    return {tp: code for tp, (code, _) in found.items()}


# -- by request --------------------------------------------------------------------------------------------------------


def test_each_named_partition_is_answered(it: PureCluster) -> None:
    assert elect(it, ElectionType.PREFERRED, T0, GONE, U0, T0) == {
        T0: Code.NONE,
        GONE: Code.UNKNOWN_TOPIC_OR_PARTITION,
        U0: Code.ELECTION_NOT_NEEDED,
    }
    assert leaders(it) == (2, 1, 1)


def test_without_names_those_that_needed_an_election_are_answered(it: PureCluster) -> None:
    assert elect(it, ElectionType.PREFERRED) == {T0: Code.NONE, T1: Code.NONE}
    assert leaders(it) == (2, 2, 1)
    assert elect(it, ElectionType.PREFERRED) == {}


def test_tools_of_old_releases_hear_that_an_election_that_was_not_needed_is_done(it: PureCluster) -> None:
    it.shell.settings.heard({1: ReportedSettings({}, {PROTOCOL: "2.2-IV1"})}, no_brokers=False)
    assert elect(it, ElectionType.PREFERRED, U0) == {U0: Code.NONE}


def test_a_preferred_replica_that_is_not_in_sync_is_not_elected(it: PureCluster) -> None:
    rejoin(it, T0, (1,))
    assert elect(it, ElectionType.PREFERRED, T0, T1) == {T0: Code.PREFERRED_LEADER_NOT_AVAILABLE, T1: Code.NONE}
    assert leaders(it) == (1, 2, 1)


def test_an_unclean_election_takes_a_replica_from_outside_the_isr_and_a_clean_one_does_not(it: PureCluster) -> None:
    rejoin(it, T0, (1,))
    it.unregister(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert leaders(it) == (-1, 2, 2)
    assert elect(it, ElectionType.PREFERRED, T0) == {T0: Code.PREFERRED_LEADER_NOT_AVAILABLE}
    it.znodes.unclean_by_request = True
    assert elect(it, ElectionType.UNCLEAN, T0, T1) == {T0: Code.NONE, T1: Code.ELECTION_NOT_NEEDED}
    assert leaders(it) == (2, 2, 2)
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert elect(it, ElectionType.UNCLEAN, T0) == {T0: Code.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_many_partitions_let_other_tasks_run(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    breaths = 0

    async def breathe() -> None:
        nonlocal breaths
        breaths += 1

    monkeypatch.setattr(leader_elections, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(it.shell, "breathe", breathe)
    elect(it, ElectionType.PREFERRED, U0)
    one = breaths
    elect(it, ElectionType.PREFERRED, *(TopicPartition("gone", n) for n in range(4)))
    assert breaths - one == one + 1


# -- by the znode ------------------------------------------------------------------------------------------------------


def test_the_znodes_request_is_carried_out_and_deleted(it: PureCluster) -> None:
    it.znodes.election = [T0, GONE]
    it.queue.append(ev.ZkPreferredReplicaElection())
    it.step()
    assert leaders(it) == (2, 1, 1)
    assert it.znodes.election is None


def test_a_damaged_request_is_reported_and_deleted(it: PureCluster) -> None:
    bad = BadZNode("/admin/preferred_replica_election", "{", "JSON")
    it.znodes.election = bad  # type: ignore[assignment]
    it.queue.append(ev.ZkPreferredReplicaElection())
    it.step()
    assert leaders(it) == (1, 1, 1)
    assert it.znodes.election is None
    assert list(it.shell.bad_paths()) == [bad.path]


def test_without_a_request_nothing_is_deleted(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(*, fence: int) -> None:
        raise AssertionError("there is none")

    async def get(*, watch: bool) -> None:
        assert watch, "the next request would not be noticed"

    monkeypatch.setattr(it.znodes, "get_preferred_replica_election", get)
    monkeypatch.setattr(it.znodes, "delete_preferred_replica_election", delete)
    it.queue.append(ev.ZkPreferredReplicaElection())
    it.step()


def test_the_znode_is_looked_at_again_after_it_was_deleted(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request may have been written before the watch was set again."""
    later = [[T1]]
    delete = it.znodes.delete_preferred_replica_election

    async def then_another_comes(*, fence: int) -> None:
        await delete(fence=fence)
        it.znodes.election = later.pop() if later else None

    monkeypatch.setattr(it.znodes, "delete_preferred_replica_election", then_another_comes)
    it.znodes.election = [T0]
    it.queue.append(ev.ZkPreferredReplicaElection())
    it.step()
    assert leaders(it) == (2, 2, 1)


# -- by the clock ------------------------------------------------------------------------------------------------------


def rebalancing(it: PureCluster, **settings: Any) -> None:
    it.shell.policy = msgspec.structs.replace(it.shell.policy, **settings)
    it.queue.cancel(AUTO_REBALANCE)
    it.queue.append(ev.AutoPreferredReplicaLeaderElection())
    it.step()


@pytest.mark.parametrize("percentage, after", [(99, (2, 2, 1)), (100, (1, 1, 1))])
def test_leaders_go_back_where_more_than_the_allowed_share_is_away(
    it: PureCluster, percentage: int, after: tuple[int, ...]
) -> None:
    rebalancing(it, leader_imbalance_per_broker_percentage=percentage)
    assert leaders(it) == after
    assert it.queue.scheduled(AUTO_REBALANCE)


def test_rebalancing_that_was_switched_off_moves_nothing_and_comes_no_more(it: PureCluster) -> None:
    rebalancing(it, auto_leader_rebalance_enable=False)
    assert leaders(it) == (1, 1, 1)
    assert not it.queue.scheduled(AUTO_REBALANCE)


def test_rebalancing_comes_again_after_its_interval(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float, Event]] = []
    monkeypatch.setattr(it.queue, "schedule", lambda *given: asked.append(given))
    schedule_auto_leader_rebalance(it.shell)
    schedule_auto_leader_rebalance(it.shell, 5.0)
    it.shell.policy = msgspec.structs.replace(it.shell.policy, auto_leader_rebalance_enable=False)
    schedule_auto_leader_rebalance(it.shell)
    event = ev.AutoPreferredReplicaLeaderElection()
    assert asked == [(AUTO_REBALANCE, 300, event), (AUTO_REBALANCE, 5.0, event)]


def test_the_sweep_elects_where_zookeeper_shows_a_live_replica(it: PureCluster) -> None:
    rejoin(it, T0, (1,))
    it.unregister(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    state = it.znodes.states[T0]
    assert state.leader == -1
    it.znodes.states[T0] = msgspec.structs.replace(state, isr=(1, 2), partition_epoch=state.partition_epoch + 1)
    it.queue.append(ev.OfflinePartitionsSweep())
    it.step()
    assert leaders(it) == (2, 2, 2)


def avoiding(it: PureCluster, *brokers: int) -> None:
    it.shell.context.leader_preferences = LeaderPreferences(frozenset(brokers))
    schedule_avoided_leaders(it.shell, 0.0)
    it.queue.append(ev.AvoidedLeaders())
    it.step()


def test_a_broker_that_should_not_lead_loses_its_leaders_and_stays_in_sync(it: PureCluster) -> None:
    it.shell.policy = msgspec.structs.replace(it.shell.policy, auto_leader_rebalance_enable=False)
    avoiding(it, 1)
    assert leaders(it) == (2, 2, 2)
    assert {it.znodes.states[tp].isr for tp in (T0, T1, U0)} == {(1, 2)}
    assert it.queue.scheduled(AVOIDED)  # another replica may join an ISR later
    assert elect(it, ElectionType.PREFERRED, U0) == {U0: Code.ELECTION_NOT_NEEDED}


def test_a_broker_that_should_not_lead_leads_what_no_other_can(it: PureCluster) -> None:
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    avoiding(it, 1)
    assert leaders(it) == (1, 1, 1)


def test_the_search_for_leaders_to_avoid_lets_others_run(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def none_to_move(context: object, hosted: list[int]) -> list[int]:
        looked_at.append(len(hosted))
        return []

    monkeypatch.setattr(leader_elections, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(leader_elections, "leaders_to_move", none_to_move)
    breaths: list[int] = []

    async def breathe() -> None:
        breaths.append(len(looked_at))

    monkeypatch.setattr(it.shell, "breathe", breathe)
    avoiding(it, 1)
    assert (looked_at, breaths) == ([2, 1], [1, 2])


def test_nobody_looks_for_leaders_to_avoid_without_brokers_to_avoid(it: PureCluster) -> None:
    schedule_avoided_leaders(it.shell)
    assert not it.queue.scheduled(AVOIDED)
