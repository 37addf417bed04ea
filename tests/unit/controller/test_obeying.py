"""Settings that change during a term: what is recorded, and what the controller does about them."""

from __future__ import annotations

import pytest

from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.controller.obeying import apply_settings
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Event
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, cluster

UNCLEAN = "unclean.leader.election.enable"
DELETE = "delete.topic.enable"
REBALANCE = "auto.leader.rebalance.enable"


def hear(it: PureCluster, **settings: str) -> list[Event]:
    """The events that follow when all brokers have these values in their files."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    it.shell.settings.heard({1: ReportedSettings(names), 2: ReportedSettings(names)}, no_brokers=False)
    apply_settings(it.shell)
    found = []
    while it.queue:
        found.append(it.queue.take().event)
    return found


def recording() -> PureCluster:
    it = cluster(1, 2, t=[[1, 2]])
    it.shell.journal = MemoryJournal(1, it.shell.world.clock)
    return it


def recorded(it: PureCluster) -> list[str]:
    assert isinstance(it.shell.journal, MemoryJournal)
    return [record.detail or "" for record in it.shell.journal.of_kind("setting")]


def test_what_stays_changes_nothing() -> None:
    it = recording()
    hear(it)
    before = recorded(it)
    assert hear(it) == []
    assert recorded(it) == before


@pytest.mark.parametrize(
    "name, on, off",
    [(UNCLEAN, [ev.UncleanLeaderElectionEnable], []), (DELETE, [], [ev.TopicDeletion]), (REBALANCE, [], [])],
)
def test_a_setting_that_changes_is_recorded_and_has_its_effect(
    name: str, on: list[type[Event]], off: list[type[Event]]
) -> None:
    it = recording()
    key = name.replace(".", "_")
    hear(it, **{key: "false"})
    assert [type(event) for event in hear(it, **{key: "true"})] == on
    assert recorded(it)[-1] == f"{name}: false -> true"
    assert [type(event) for event in hear(it, **{key: "false"})] == off
    assert recorded(it)[-1] == f"{name}: true -> false"


def test_another_protocol_is_an_event() -> None:
    it = recording()
    hear(it, inter_broker_protocol_version="3.9")
    found = hear(it, inter_broker_protocol_version="2.6")
    assert ev.ProtocolChange() in found
    assert not it.shell.policy.alter_partition_supported


def test_a_process_that_is_not_active_takes_the_settings_and_does_nothing() -> None:
    it = recording()
    hear(it, unclean_leader_election_enable="false")
    it.shell.channels = None
    before = recorded(it)
    assert hear(it, unclean_leader_election_enable="true") == []
    assert it.shell.policy.unclean_leader_election_enable
    assert recorded(it) == before
