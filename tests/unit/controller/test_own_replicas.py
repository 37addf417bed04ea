"""Assignments that name a controller as a replica: brokers that create topics take it for one of theirs."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.controller import own_replicas
from aiocontroller.core import events as ev
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

EARLIER = 77
"""The id of an earlier controller."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def it() -> PureCluster:
    made = cluster(1, 2, 3)
    made.znodes.known_controllers |= {EARLIER}
    made.failover()
    made.step()
    return made


def us(it: PureCluster) -> int:
    return it.shell.id


def replicas(it: PureCluster, topic: str = "t") -> list[tuple[int, ...]]:
    return [each.replicas for each in it.znodes.topics[topic].partitions.values()]


def led_by_a_broker(it: PureCluster, tp: TopicPartition, leader: int, *isr: int) -> None:
    """As a broker's own controller leaves it."""
    it.znodes.states[tp] = LeaderAndIsr(leader, 0, isr, it.znodes.epoch, 0)


# -- before the first election -----------------------------------------------------------------------------------------


def test_a_broker_takes_the_controllers_place_before_the_first_election(it: PureCluster) -> None:
    it.create_topic("t", [[us(it), 2], [1, EARLIER], [1, 2]])
    it.create_topic("u", [[1, 3]])
    it.step()
    first, second, third = replicas(it)
    assert set(first) <= {1, 2, 3}
    assert set(second) <= {1, 2, 3}
    assert (len(set(first)), first[1]) == (2, 2)
    assert (len(set(second)), second[0]) == (2, 1)
    assert third == (1, 2)
    assert it.znodes.topics["u"].version == 0, "what names no controller is not written"
    assert {tp: state.leader for tp, state in it.znodes.states.items() if tp.topic == "t"} == {
        T0: first[0],
        T1: 1,
        TopicPartition("t", 2): 1,
    }
    assert not it.shell.context.partitions_being_reassigned


def test_without_a_live_broker_the_assignment_waits_for_one() -> None:
    it = cluster()
    it.create_topic("t", [[us(it)]])
    it.step()
    assert replicas(it) == [(us(it),)]
    it.register(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert replicas(it) == [(1,)]
    assert it.znodes.states[T0].leader == 1


# -- after it ----------------------------------------------------------------------------------------------------------


def test_a_partition_that_has_a_leader_is_moved_by_a_reassignment(it: PureCluster) -> None:
    it.create_topic("t", [[1, EARLIER], [2, 3]])
    led_by_a_broker(it, T0, 1, 1)
    it.step()
    row = it.shell.context.table.row("t", 0)
    assert row in it.shell.context.partitions_being_reassigned
    moving = it.shell.context.table.assignment(row)
    assert EARLIER in moving.removing
    assert set(moving.target) <= {1, 2, 3}
    assert len(set(moving.target)) == 2
    before = it.znodes.topics["t"]
    it.queue.append(ev.OwnReplicas())
    it.step()
    assert it.znodes.topics["t"] == before, "what moves away already is left to go on"


def test_a_topic_that_is_being_deleted_is_left_alone(it: PureCluster) -> None:
    it.create_topic("t", [[1, 2]])
    it.step()
    table = it.shell.context.table
    row, topic = table.row("t", 0), table.topic_by_name["t"]
    ours = ReplicaAssignment((1, EARLIER))
    table.set_assignment(row, ours)
    topic.deleting = True
    run(own_replicas.move_own_replicas(it.shell, ev.OwnReplicas()))
    assert table.assignment(row) == ours
    topic.deleting = False
    run(own_replicas.move_own_replicas(it.shell, ev.OwnReplicas()))
    assert EARLIER not in table.assignment(row).target


def test_where_no_other_broker_lives_the_replica_is_dropped() -> None:
    it = cluster(1)
    it.create_topic("t", [[1, us(it)]])
    led_by_a_broker(it, T0, 1, 1)
    it.step()
    assert replicas(it) == [(1,)]
    assert not it.shell.context.partitions_being_reassigned


# -- which ids are controllers' ----------------------------------------------------------------------------------------


def test_earlier_ids_are_kept_and_those_of_brokers_are_dropped(it: PureCluster) -> None:
    assert it.znodes.known_controllers == {us(it), EARLIER} == it.shell.context.controllers
    it.register(EARLIER)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert it.znodes.known_controllers == {us(it)} == it.shell.context.controllers


def test_ids_that_cannot_be_read_are_reported_and_ours_is_known(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = BadZNode("/aiocontroller/controllers", "{", "JSON")

    async def damaged() -> tuple[Any, int]:
        return bad, 4

    monkeypatch.setattr(it.znodes, "get_known_controllers", damaged)
    it.failover()
    assert it.shell.context.controllers == {us(it)}
    assert list(it.shell.bad_paths()) == [bad.path]


@pytest.mark.parametrize("losses, written", [(15, True), (16, False)])
def test_ids_that_another_writes_meanwhile_are_read_again(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch, losses: int, *, written: bool
) -> None:
    tries = 0

    async def lose(ids: frozenset[int], version: int, *, fence: int) -> bool:
        nonlocal tries
        tries += 1
        if tries <= losses:
            it.znodes.known_controllers = frozenset({100 + tries})
            return False
        it.znodes.known_controllers = ids
        return True

    monkeypatch.setattr(it.znodes, "set_known_controllers", lose)
    it.znodes.known_controllers = frozenset()
    it.failover()
    assert tries == 16
    assert it.shell.context.controllers == {us(it), 115}
    assert (us(it) in it.znodes.known_controllers) is written
