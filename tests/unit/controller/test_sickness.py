"""What follows from the judge's verdict: leaders move, ISRs shrink, the broker is unlisted, and all is undone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.controller.sickness import AGAIN, SAMPLE, UNLIST, schedule_sampling, status
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Event
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.sickness import DISK, Sickness
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0, T1, RF1 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("alone", 0)


class Probes:
    """What the consumer sees of the probes; the test gives the verdict."""

    def __init__(self, *, acts: bool = True) -> None:
        self.acts = acts
        self.judge = SimpleNamespace(sick=None)
        self.next_row = 0
        self.watched: list[Any] = []
        self.accusations: list[tuple[int, list[int]]] = []

    def busy(self) -> list[TopicPartition]:
        return []

    def watch(self, *given: Any) -> None:
        self.watched.append(given)

    def accused(self, leader: int, followers: list[int]) -> None:
        self.accusations.append((leader, followers))

    def begin(self) -> None:
        self.judge.sick = None

    def stop(self) -> None:
        pass


class Judging:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, acts: bool = True, min_isr: int = 2, **topics: Any) -> None:
        self.it: PureCluster = cluster(1, 2, 3, **(topics or {"t": [[2, 1, 3], [1, 2, 3]]}))
        shell = self.shell = self.it.shell
        self.probes = Probes(acts=acts)
        monkeypatch.setattr(shell, "sickness", self.probes)
        self.journal = MemoryJournal(1, shell.world.clock)
        monkeypatch.setattr(shell, "journal", self.journal)
        settings = ReportedSettings({"min.insync.replicas": str(min_isr)})
        shell.settings.heard({1: settings, 2: ReportedSettings({"min.insync.replicas": "1"})}, no_brokers=False)

    def judge(self, broker: int | None, *, epoch: int | None = None) -> None:
        known = self.shell.context.brokers
        if broker is None:
            self.probes.judge.sick = None
        else:
            at = known[broker].epoch if epoch is None else epoch
            self.probes.judge.sick = Sickness(broker, at, DISK, self.shell.world.clock.monotonic(), "1.4 s behind 1")
        self.due(ev.SicknessChange())

    def due(self, event: Event) -> None:
        self.it.queue.append(event)
        self.it.step()

    def end(self, *brokers: int) -> None:
        for broker in brokers:
            self.it.unregister(broker)
        self.due(ev.BrokerChange())

    def unlist(self, broker: int = 2) -> None:
        self.due(ev.UnlistSickBroker(broker, self.shell.context.brokers[broker].epoch))

    def states(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(state.leader, state.isr) for _, state in sorted(self.it.znodes.states.items())]

    def events(self) -> list[str | None]:
        return [record.event for record in self.journal.of_kind("sickness")]

    def listed(self, broker: int) -> list[int]:
        return sorted(self.it.views[broker].live_brokers)


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch) -> Judging:
    return Judging(monkeypatch)


def test_leaders_and_isrs_are_taken_from_a_sick_broker(it: Judging) -> None:
    it.judge(2)
    assert it.states() == [(1, (1, 3)), (1, (1, 3))]
    assert it.shell.context.live == {1, 2, 3}
    record, unlisted = it.journal.of_kind("sickness")
    assert (record.event, record.broker, record.partitions, record.count) == ("relieved", 2, 2, 1)
    assert (unlisted.event, unlisted.broker) == ("unlisted", 2)
    assert it.it.views[2].hosted[T0].leader == 1, "it hears of its leader, and follows"
    assert it.it.queue.scheduled(UNLIST)
    assert it.it.queue.scheduled(AGAIN)


def test_leaders_hear_for_whom_they_need_not_wait_before_they_hear_of_their_isrs(
    it: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look for whom to wait when they hear of their ISRs, and then perhaps for seconds not again."""
    heard: list[tuple[int, list[int]]] = []
    channels = type(it.shell.channels)
    deliver = channels._leader_and_isr  # type: ignore[union-attr]

    def hear(self: Any, broker: int, *given: Any) -> None:
        heard.append((broker, it.listed(broker)))
        deliver(self, broker, *given)

    monkeypatch.setattr(channels, "_leader_and_isr", hear)
    it.judge(2)
    assert {broker for broker, _ in heard} == {1, 2, 3}
    assert all(listed == [1, 3, it.shell.id] for _, listed in heard)
    assert {view.metadata[T0].leader for view in it.it.views.values()} == {1}


def test_it_is_unlisted_and_listed_again_when_it_is_well(it: Judging) -> None:
    it.judge(2)
    assert it.listed(1) == it.listed(2) == [1, 3, it.shell.id]
    it.unlist()
    assert status(it.shell)["unlisted"]
    it.judge(None)
    assert it.listed(1) == [1, 2, 3, it.shell.id]
    assert it.events() == ["relieved", "unlisted", "taken back"]
    assert it.shell.context.leader_preferences.sick is None


def test_a_broker_that_leads_what_nobody_else_can_stays_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Judging(monkeypatch, alone=[[2]], t=[[2, 1, 3]])
    it.judge(2)
    assert it.states() == [(2, (2,)), (1, (1, 3))]
    it.unlist()
    assert it.listed(1) == [1, 2, 3, it.shell.id]
    assert it.it.queue.scheduled(UNLIST), "it is looked at again"


def test_the_last_resort_of_an_election_is_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Judging(monkeypatch, t=[[1, 2, 3]], min_isr=3)
    it.judge(2)
    it.unlist()
    assert it.listed(2) == [1, 3, it.shell.id]
    it.end(1, 3)
    assert it.states() == [(2, (2,))]
    assert it.listed(2) == [2, it.shell.id]
    assert it.shell.context.sick is not None


@pytest.mark.parametrize("topic_min_isr, moved", [("1", True), ("3", False), ("nonsense", False)])
def test_the_topics_own_min_isr_counts(it: Judging, topic_min_isr: str, moved: bool) -> None:
    it.it.znodes.configs["t"] = {"min.insync.replicas": topic_min_isr}
    it.judge(2)
    assert (it.states() == [(1, (1, 3)), (1, (1, 3))]) == moved


def test_the_strictest_broker_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Judging(monkeypatch, min_isr=3)
    before = it.states()
    it.judge(2)
    assert it.states() == before


def test_nothing_is_done_while_no_broker_has_told_its_settings(it: Judging) -> None:
    it.shell.settings.heard({}, no_brokers=False)
    before = it.states()
    it.judge(2)
    assert it.states() == before


def test_advice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Judging(monkeypatch, acts=False)
    before = it.states()
    it.judge(2)
    it.unlist()
    assert it.states() == before
    assert it.shell.context.sick is None
    assert status(it.shell) == {
        "broker": 2,
        "kind": DISK,
        "evidence": "1.4 s behind 1",
        "for_s": 0.0,
        "treated": False,
        "relieved_partitions": 0,
        "unlisted": False,
    }


def test_an_isr_that_has_grown_is_relieved_later(it: Judging) -> None:
    it.end(3)
    it.judge(2)
    assert it.states()[0] == (2, (2, 1)), "two members are the least"
    it.it.register(3)
    it.due(ev.BrokerChange())
    state = it.shell.context.table.leadership(0)
    assert state is not None
    it.it.znodes.states[T0] = state = type(state)(2, state.leader_epoch, (2, 1, 3), 1, state.partition_epoch)
    it.shell.context.table.set_leadership(0, state)
    it.due(ev.SicknessChange())
    assert it.states()[0] == (1, (1, 3))


@pytest.mark.parametrize("epoch", [1, 10_000])
def test_a_verdict_on_another_incarnation_is_void(it: Judging, epoch: int) -> None:
    before = it.states()
    it.judge(2, epoch=epoch)
    assert it.states() == before
    it.unlist()
    assert it.listed(1) == [1, 2, 3, it.shell.id]


def test_a_sick_broker_that_is_gone_is_not_sick(it: Judging) -> None:
    it.judge(2)
    it.unlist()
    it.end(2)
    assert it.shell.context.sick is None
    it.judge(None)
    it.it.register(2)
    it.due(ev.BrokerChange())
    assert it.listed(1) == [1, 2, 3, it.shell.id]


def test_what_to_watch_is_chosen_all_the_time(it: Judging) -> None:
    it.it.queue.cancel_all()
    schedule_sampling(it.shell)
    it.due(ev.SampleReplicas())
    [(targets, leaving, partitions)] = it.probes.watched
    assert {broker: target.epoch for broker, target in targets.items()} == {
        broker: known.epoch for broker, known in it.shell.context.brokers.items()
    }
    assert leaving == ()
    assert set(partitions) == {T0, T1}
    assert it.it.queue.scheduled(SAMPLE)


def test_without_the_mode_nothing_is_scheduled(it: Judging) -> None:
    it.shell.sickness = None
    it.it.queue.cancel_all()
    schedule_sampling(it.shell)
    it.due(ev.SampleReplicas())
    it.due(ev.SicknessChange())
    assert not it.it.queue.scheduled(SAMPLE)
    assert status(it.shell) == {}


def test_a_new_term_begins_without_a_verdict_and_a_reload_with_it(it: Judging) -> None:
    it.judge(2)
    it.it.reload()
    assert it.probes.judge.sick is not None
    it.due(ev.SampleReplicas())
    assert it.shell.context.sick is not None
    it.it.failover()
    assert it.probes.judge.sick is None
