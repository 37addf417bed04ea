"""Registrations that change while the broker runs, and registrations that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.ids import Broker, Endpoint, TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0 = TopicPartition("t", 0)


class Watched:
    """Which senders start and end, and how often brokers get the broker list."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._it = it
        self.started: list[Broker] = []
        self.ended: list[int] = []
        self.lists: list[list[int]] = []
        shell = it.shell
        assert shell.channels is not None
        monkeypatch.setattr(shell.channels, "add_brokers", self.started.extend)
        monkeypatch.setattr(shell.channels, "remove_brokers", self.ended.extend)
        send = shell.send_update_metadata

        async def noting(brokers: Sequence[int], rows: Sequence[int] = ()) -> None:
            self.lists.append(sorted(brokers))
            await send(brokers, rows)

        monkeypatch.setattr(shell, "send_update_metadata", noting)
        monkeypatch.setattr(it.znodes, "get_broker", self._get, raising=False)

    async def _get(self, broker: int, *, watch: bool) -> Any:
        assert watch, "the next change would not be noticed"
        return self._it.znodes.brokers.get(broker)

    def change(self, broker: int, **fields: Any) -> None:
        known = self._it.znodes.brokers[broker]
        self._it.znodes.brokers[broker] = msgspec.structs.replace(known, **fields)
        self.modified(broker)

    def modified(self, broker: int) -> None:
        self._it.queue.append(ev.BrokerModifications(broker))
        self._it.step()


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, t=[[1, 2]])


@pytest.fixture
def watched(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(it, monkeypatch)


def test_a_broker_that_moves_gets_another_sender_and_all_hear_of_it(it: PureCluster, watched: Watched) -> None:
    watched.change(2, endpoints=(Endpoint("PLAINTEXT", "elsewhere", 9092),))
    assert watched.ended == [2]
    assert [broker.endpoints[0].host for broker in watched.started] == ["elsewhere"]
    assert watched.lists == [[1, 2]]
    assert it.shell.context.brokers[2].endpoints[0].host == "elsewhere"


def test_a_broker_with_another_rack_keeps_its_sender(it: PureCluster, watched: Watched) -> None:
    watched.change(2, rack="r")
    assert (watched.started, watched.ended) == ([], [])
    assert watched.lists == [[1, 2]]
    assert it.shell.context.brokers[2].rack == "r"


def test_what_has_not_changed_is_sent_to_none(it: PureCluster, watched: Watched) -> None:
    watched.modified(2)
    watched.modified(9)
    assert (watched.started, watched.ended, watched.lists) == ([], [], [])


def test_another_incarnation_is_left_to_the_change_of_brokers(it: PureCluster, watched: Watched) -> None:
    before = it.shell.context.brokers[2]
    it.register(2)
    watched.modified(2)
    assert it.shell.context.brokers[2] == before
    assert (watched.started, watched.ended, watched.lists) == ([], [], [])


def test_a_broker_that_appears_is_started(it: PureCluster, watched: Watched) -> None:
    it.register(3)
    watched.modified(3)
    assert [broker.id for broker in watched.started] == [3]
    assert 3 in it.shell.context.brokers


def test_a_registration_that_cannot_be_read_changes_nothing(
    it: PureCluster, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = BadZNode("/brokers/ids/2", "{", "JSON")

    async def one(broker: int, *, watch: bool) -> BadZNode:
        return bad

    async def every(*, watch: bool = True) -> tuple[list[Broker], list[BadZNode]]:
        return [it.znodes.brokers[1]], [bad, BadZNode("/brokers/ids/x", "x", "a number")]

    monkeypatch.setattr(it.znodes, "get_broker", one)
    monkeypatch.setattr(it.znodes, "get_all_brokers_in_cluster", every)
    watched.modified(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert (watched.started, watched.ended, watched.lists) == ([], [], [])
    assert 2 in it.shell.context.live
    assert list(it.shell.bad_paths()) == ["/brokers/ids/2", "/brokers/ids/x"]


def test_changes_of_brokers_are_recorded_by_their_kind(it: PureCluster) -> None:
    it.shell.journal = journal = MemoryJournal(1, it.shell.world.clock)
    it.register(1)
    it.register(3)
    it.unregister(2)
    it.queue.append(ev.BrokerChange())
    it.step()
    assert sorted((r.broker, r.detail) for r in journal.of_kind("broker")) == [
        (1, "bounced"),
        (2, "dead"),
        (3, "added"),
    ]
    # In Kafka's order, 2 would be elected while 1 counts as dead, and then turn out to be dead.
    assert (it.znodes.states[T0].leader, it.znodes.states[T0].isr) == (1, (1,))
    before = len(journal.of_kind("broker"))
    it.queue.append(ev.BrokerChange())
    it.step()
    assert len(journal.of_kind("broker")) == before


def test_a_partition_whose_deletion_waits_for_its_reassignment_loses_a_dead_leader(it: PureCluster) -> None:
    """Until the reassignment ends it is treated like any other: it needs a leader, and replicas may join its ISR."""
    it.create_topic("u", [[1], [1]])
    it.step()
    it.ask(ev.ApiPartitionReassignment, targets={TopicPartition("u", 0): (2,)})
    it.znodes.deletions["u"] = None
    it.queue.append(ev.TopicDeletion())
    it.step()
    it.unregister(1)
    it.queue.append(ev.BrokerChange())
    it.step()
    states = it.znodes.states
    assert [states[TopicPartition("u", number)].leader for number in (0, 1)] == [-1, 1]
