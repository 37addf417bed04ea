"""Who waits for whose log before a leader is elected, by ``unclean.recovery.strategy``, and what is said about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import unclean_recovery
from aiocontroller.controller.log_questions import LogQuestions
from aiocontroller.controller.state_changes import SWEEP, SWEEP_S
from aiocontroller.core import events as ev
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import NO_RECORDS, NOT_IN_TIME, UNKNOWN_EPOCH, Evidence, LogEnd
from aiocontroller.core.request_content import AlterPartition, PartitionRecovery
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.leaderless import T0, Asking, change, die, leader, records, stop
from tests.unit.controller.pure_cluster import PureCluster, StillClock, cluster

TIMEOUT_S = 300
CUT = LogEnd(4, 70)
WHOLE = LogEnd(4, 100)


def begun(strategy: str, *isr: int, min_isr: int = 1, **properties: Any) -> tuple[PureCluster, Asking]:
    """t-0 has replicas 1, 2 and 3, all alive, led by the first of this ISR; unclean elections are not allowed."""
    it = cluster(1, 2, 3, t=[[1, 2, 3]])
    it.shell.journal = MemoryJournal(0, StillClock())
    it.znodes.configs["t"] = {"min.insync.replicas": str(min_isr)}
    it.znodes.unclean_by_request = True  # an election by logs may go beyond the ISR
    given = {f"aiocontroller_{name}": value for name, value in properties.items()}
    it.shell.config = msgspec.structs.replace(
        it.shell.config, aiocontroller_unclean_recovery_strategy=strategy, **given
    )
    for size in (2, 1) if len(isr) == 1 else (2,):
        shrink(it, *(isr + tuple(b for b in (1, 2, 3) if b not in isr))[:size])
    return it, Asking(it)


def shrink(it: PureCluster, *isr: int, of: TopicPartition = T0) -> None:
    state = it.znodes.states[of]
    wanted = AlterPartition(*of, state.leader_epoch, isr, state.partition_epoch, 0)
    epoch = it.znodes.brokers[state.leader].epoch
    answer = it.ask(ev.AlterPartitionReceived, broker=state.leader, broker_epoch=epoch, version=3, partitions=(wanted,))
    assert [result.error_code for result in answer] == [0]


OFFLINE = "OfflinePartitionLeaderElectionStrategy"


def reasons(it: PureCluster) -> list[Any]:
    """Of the leaders that offline partitions got."""
    assert isinstance(it.shell.journal, MemoryJournal)
    elected = [r for r in it.shell.journal.of_kind("partition") if r.from_state == "OfflinePartition"]
    return [r.detail for r in elected if r.to_state == "OnlinePartition"]


def come(it: PureCluster, *brokers: int) -> None:
    for broker in brokers:
        it.register(broker)
    change(it)


def sweep(it: PureCluster, monkeypatch: pytest.MonkeyPatch, at_s: float) -> None:
    monkeypatch.setattr(StillClock, "monotonic", lambda self: at_s)
    it.queue.append(ev.OfflinePartitionsSweep())
    it.step()


def state(it: PureCluster) -> tuple[int, tuple[int, ...]]:
    return it.znodes.states[T0].leader, it.znodes.states[T0].isr


# -- an ISR member that started uncleanly ------------------------------------------------------------------------------


def test_by_default_those_that_live_are_asked_once() -> None:
    it, asking = begun("None", 1, 2)
    dead_isr(it)
    come(it, 1)
    assert leader(it) == -1
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))  # nobody dead is awaited
    assert state(it) == (3, (3,))
    assert [question.brokers for question in asking.rounds[0].values()] == [(1, 3)]
    assert len(asking.rounds) == 1
    assert it.shell.counts.unclean_elections.count == 1


@pytest.mark.parametrize(
    "reported",
    [
        Evidence({}, {1: "silent", 2: "silent", 3: "silent"}),
        Evidence({2: WHOLE}, {1: NOT_IN_TIME, 3: "silent"}),
        Evidence({1: CUT}, {2: NOT_IN_TIME, 3: "silent"}),
    ],
)
def test_by_default_it_leads_as_in_kafka_where_no_better_log_is_known(reported: Evidence) -> None:
    it, asking = begun("None", 1)
    die(it, 1)
    come(it, 1)
    asking.answer(t0=reported)
    assert state(it) == (1, (1,))
    assert len(asking.rounds) == 1
    assert records(it)[-1][0] == "elected"


def test_by_default_it_leads_at_once_if_no_other_lives() -> None:
    it, asking = begun("None", 1)
    it.unregister(2)
    die(it, 3)
    die(it, 1)
    come(it, 1)
    assert state(it) == (1, (1,))
    assert not asking.waits


def test_by_default_it_leads_at_once_where_unclean_starts_are_not_recorded() -> None:
    it, asking = begun("None", 1)
    it.shell.policy = msgspec.structs.replace(it.shell.policy, aiocontroller_eligible_leader_replicas=False)
    it.failover()
    die(it, 1)
    come(it, 1)
    assert state(it) == (1, (1,))
    assert not asking.waits


def test_a_controller_that_cannot_ask_elects_by_rule() -> None:
    it, _ = begun("None", 1)
    it.shell.log_questions = LogQuestions(it.queue, it.shell.world.clock)
    die(it, 1)
    come(it, 1)
    assert state(it) == (1, (1,))


def test_by_default_one_that_comes_while_others_are_asked_is_asked_too() -> None:
    """They are asked since unclean elections are allowed; its log may be better than theirs."""
    it, asking = begun("None", 1)
    it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    die(it, 1)
    gather = asking.gather

    async def gather_before_it_returns(brokers: Any, questions: Any, within_s: float) -> Any:
        asking.evidence = {T0: Evidence({2: LogEnd(4, 60), 3: LogEnd(4, 50), **({1: CUT} if 1 in brokers else {})})}
        found = await gather(brokers, questions, within_s)
        if 1 not in brokers:
            it.register(1)
            it.queue.append(ev.BrokerChange())
        return found

    it.shell.log_questions.start(asking, gather_before_it_returns)
    asking.answer()
    assert [sorted(question.brokers) for asked in asking.rounds for question in asked.values()] == [[2, 3], [1, 2, 3]]
    assert state(it) == (1, (1,))


def test_by_default_an_operator_may_choose_another() -> None:
    it, asking = begun("None", 1)
    die(it, 1)
    come(it, 1)
    operator = Operator(it, leader=3)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: LogEnd(4, 10)}))
    assert (operator.found.result, operator.found.leader) == ("elected", 3)
    assert state(it) == (3, (3,))


def test_by_default_the_answer_of_one_that_started_again_is_void() -> None:
    """It has lost power once more since it told where its log ends."""
    it, asking = begun("None", 1)
    die(it, 1)
    come(it, 1)
    gather = asking.gather

    async def gather_before_another_power_loss(brokers: Any, questions: Any, within_s: float) -> Any:
        asking.evidence = {T0: Evidence({1: CUT, 2: LogEnd(4, 65)}) if asking.rounds else Evidence({1: WHOLE, 2: CUT})}
        found = await gather(brokers, questions, within_s)
        if len(asking.rounds) == 1:
            asking.evidence = {}
            it.unregister(1)
            it.register(1)
            it.queue.append(ev.BrokerChange())
        return found

    it.shell.log_questions.start(asking, gather_before_another_power_loss)
    asking.answer()
    assert len(asking.rounds) == 2
    assert state(it) == (1, (1,))


@pytest.mark.parametrize("strategy", ["None", "Balanced", "Aggressive"])
@pytest.mark.parametrize(
    "ends, after",
    [
        ({1: CUT, 2: WHOLE, 3: LogEnd(4, 90)}, 2),
        ({1: CUT, 2: LogEnd(4, 60), 3: LogEnd(4, 90)}, 3),
        ({1: CUT, 2: LogEnd(4, 70), 3: LogEnd(4, 70)}, 1),
        ({1: LogEnd(3, 200), 2: CUT}, 2),
        ({1: LogEnd(NO_RECORDS, 200, 200), 2: LogEnd(4, 200), 3: LogEnd(4, 90)}, 1),
        ({1: LogEnd(NO_RECORDS, 0), 2: WHOLE, 3: LogEnd(4, 90)}, 2),
        ({1: CUT, 2: LogEnd(UNKNOWN_EPOCH, 100), 3: LogEnd(4, 60)}, 1),
        ({1: LogEnd(NO_RECORDS, 70), 2: LogEnd(NO_RECORDS, 100), 3: LogEnd(NO_RECORDS, 60)}, 1),
    ],
)
def test_it_leads_only_if_no_live_replica_has_a_better_log(strategy: str, ends: dict[int, LogEnd], after: int) -> None:
    it, asking = begun(strategy, 1)
    die(it, 1)
    assert not asking.waits
    come(it, 1)
    assert leader(it) == -1
    asking.answer(t0=Evidence(ends))
    assert state(it) == (after, (after,))
    assert [question.awaited for question in asking.rounds[0].values()] == [(1,)]


def test_the_records_and_counters_tell_the_isr_from_others() -> None:
    it, asking = begun("Balanced", 1)
    die(it, 1)
    come(it, 1)
    asking.answer(t0=Evidence({1: CUT, 2: CUT}))
    assert it.shell.counts.unclean_elections.count == 0
    assert records(it) == [("evidence", "t", 0, -1, 0, []), ("elected", "t", 0, 1, 0, [])]
    die(it, 1)
    come(it, 1)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert it.shell.counts.unclean_elections.count == 1
    assert records(it)[2:] == [("evidence", "t", 0, -1, 0, []), ("elected", "t", 0, 2, 0, [])]
    assert reasons(it) == [OFFLINE, f"{OFFLINE}, complete"]


@pytest.mark.parametrize(
    "isr, reported, ending",
    [
        ((1, 2), Evidence({1: CUT, 3: WHOLE}), "unclean"),  # nobody knows what 2 held
        ((1,), Evidence({1: CUT, 3: WHOLE}, {2: "silent"}), "complete"),  # 2 had left the ISR
        ((1,), Evidence({1: LogEnd(3, 90), 3: WHOLE}, diverging={1: 80}), "unclean"),
        ((1,), Evidence({1: LogEnd(3, 90), 3: WHOLE}, diverging={1: 90}), "complete"),
        ((1,), Evidence({1: LogEnd(3, 90), 3: WHOLE}), "unclean"),  # it is not known where they diverge
        ((1,), Evidence({1: LogEnd(NO_RECORDS, 0), 3: LogEnd(UNKNOWN_EPOCH, 9)}), "complete"),
    ],
)
def test_the_record_says_whether_a_leader_from_outside_has_everything(
    isr: tuple[int, ...], reported: Evidence, ending: str
) -> None:
    it, asking = begun("None", *isr)
    dead_isr(it) if len(isr) == 2 else die(it, 1)
    come(it, 1)
    asking.answer(t0=reported)
    assert state(it) == (3, (3,))
    assert reasons(it) == [f"{OFFLINE}, {ending}"]
    (elected,) = [each for each in records(it) if each[0] == "elected"]
    assert (elected[4:] == (0, [])) == (ending == "complete")
    assert it.shell.counts.unclean_elections.count == 1


def test_one_that_stopped_cleanly_leads_at_once() -> None:
    it, asking = begun("Balanced", 1)
    stop(it, 1)
    come(it, 1)
    assert state(it) == (1, (1,))
    assert not asking.waits


def test_one_whose_disk_failed_before_does_not() -> None:
    """The disk may have been replaced by an empty one."""
    it, asking = begun("Balanced", 1)
    it.views[1].failed_dirs.add(T0)
    row = it.shell.context.table.row("t", 0)
    topic_id = it.znodes.topics["t"].topic_id
    it.queue.append(ev.LeaderAndIsrResponseReceived(1, it.znodes.brokers[1].epoch, 0, ((topic_id, 0, 56),), (row,)))
    it.step()
    stop(it, 1)
    come(it, 1)
    asking.answer(t0=Evidence({1: LogEnd(-1, 0), 2: WHOLE}))
    assert state(it) == (2, (2,))


def test_an_eligible_replica_leads_at_once() -> None:
    it, asking = begun("Balanced", 1, min_isr=2)
    stop(it, 2)
    die(it, 1)
    come(it, 1)
    assert leader(it) == -1  # broker 2 is awaited
    assert not asking.waits
    come(it, 2)
    assert state(it) == (2, (2,))
    assert not asking.waits


@pytest.mark.parametrize("failover", [False, True])
def test_a_broker_is_unproven_until_its_partition_is_led(failover: bool) -> None:
    """The next term knows it from the record."""
    it, _ = begun("Balanced", 1, min_isr=2)
    stop(it, 2)
    die(it, 1)
    come(it, 1)
    assert it.shell.context.unproven_brokers() == {1}
    if failover:
        it.failover()
        assert (leader(it), it.shell.context.unproven_brokers()) == (-1, {1})
    come(it, 2)
    assert state(it) == (2, (2,))
    change(it)
    if failover:
        it.failover()
    assert it.shell.context.unproven_brokers() == set()
    assert 1 in it.shell.context.started_uncleanly()
    assert it.znodes.starts == it.shell.context.starts


def test_so_does_one_that_started_uncleanly_before_it_was_in_sync() -> None:
    """Its start is older than its membership: what it had when it left the ISR, it has still."""
    it = cluster(1, 2, 3, t=[[1, 2, 3]])
    it.znodes.configs["t"] = {"min.insync.replicas": "2"}
    it.shell.config = msgspec.structs.replace(it.shell.config, aiocontroller_unclean_recovery_strategy="Balanced")
    asking = Asking(it)
    die(it, 2)
    come(it, 2)
    shrink(it, 1, 2)  # it has caught up, and broker 3 falls behind
    assert 2 in it.shell.context.started_uncleanly()
    shrink(it, 1)
    it.unregister(1)
    led = it.znodes.states[T0]
    it.znodes.states[T0] = msgspec.structs.replace(led, leader=-1, partition_epoch=led.partition_epoch + 1)
    it.failover()  # the controller before got no further
    assert state(it) == (2, (2,))
    assert not asking.waits


# -- Balanced ----------------------------------------------------------------------------------------------------------


def dead_isr(it: PureCluster) -> None:
    """Brokers 1 and 2, the ISR, die at once."""
    it.unregister(1)
    die(it, 2)
    assert state(it) == (-1, (1, 2))


def test_all_members_of_the_last_isr_are_awaited() -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    assert not asking.waits
    assert unclean_recovery.status(it.shell)["waiting_for"] == {"t-0": [2]}
    come(it, 2)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: LogEnd(3, 20)}))
    assert state(it) == (2, (2,))
    assert unclean_recovery.status(it.shell)["waiting"] == 0


def test_one_that_was_eligible_and_started_uncleanly_is_awaited() -> None:
    it, asking = begun("Balanced", 1, min_isr=2)
    die(it, 2)
    die(it, 1)
    come(it, 1)
    assert not asking.waits
    come(it, 2)
    assert [question.awaited for question in asking.it.shell.log_questions._waiting.values()] == [(1, 2)]
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert state(it) == (2, (2,))


def test_time_does_not_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    for at_s in (5, 305, 100_000):
        sweep(it, monkeypatch, at_s)
    assert not asking.waits
    assert leader(it) == -1


def test_a_live_broker_that_has_not_told_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1, 2)
    silent = Evidence({1: CUT, 3: CUT}, {2: "it answers KAFKA_STORAGE_ERROR"})
    for at_s in (5, 10):
        asking.answer(t0=silent)
        assert leader(it) == -1
        sweep(it, monkeypatch, at_s)
    assert len(records(it)) == 1, "the same is recorded once"
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: CUT}))
    assert state(it) == (2, (2,))
    assert [record[0] for record in records(it)] == ["evidence", "evidence", "elected"]


@pytest.mark.parametrize("reported_in_the_end, after", [(True, 2), (False, 1)])
def test_a_live_replica_that_is_late_gets_some_more_time(
    monkeypatch: pytest.MonkeyPatch, reported_in_the_end: bool, after: int
) -> None:
    """It is not awaited, but its log may be the best: a busy machine must not decide."""
    it, asking = begun("Balanced", 1)
    die(it, 1)
    come(it, 1)
    late = Evidence({1: CUT, 3: CUT}, {2: NOT_IN_TIME})
    for at_s in (1, 2, 3):
        asking.answer(t0=late)
        assert leader(it) == -1
        sweep(it, monkeypatch, at_s)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE, 3: CUT}) if reported_in_the_end else late)
    assert state(it) == (after, (after,))


def test_where_unclean_elections_are_allowed_one_round_is_enough() -> None:
    it, asking = begun("Balanced", 1)
    it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    die(it, 1)
    asking.answer()
    assert state(it) == (2, (2,))


def test_where_they_are_allowed_the_dead_are_not_awaited() -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1)
    it.znodes.configs["t"]["unclean.leader.election.enable"] = "true"
    it.queue.append(ev.OfflinePartitionsSweep())
    it.step()
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert state(it) == (3, (3,))


def test_a_topic_may_have_a_strategy_of_its_own() -> None:
    it, asking = begun("Balanced", 1, 2, unclean_recovery_strategy_overrides={"t": "None"})
    dead_isr(it)
    come(it, 1)
    assert asking.waits
    it, asking = begun("None", 1, 2, unclean_recovery_strategy_overrides={"t": "Balanced"})
    dead_isr(it)
    come(it, 1)
    assert not asking.waits, "broker 2 is awaited"


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_the_next_controller_goes_on_waiting(strategy: str) -> None:
    it, asking = begun(strategy, 1)
    die(it, 1)
    come(it, 1)
    it.failover()
    assert leader(it) == -1
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert state(it) == (2, (2,))


def test_the_answer_of_a_broker_that_started_again_is_void() -> None:
    it, asking = begun("Balanced", 1, 2)
    dead_isr(it)
    come(it, 1, 2)
    gather = asking.gather

    async def gather_before_another_power_loss(*args: Any) -> Any:
        found = await gather(*args)
        if len(asking.rounds) == 1:
            it.unregister(2)
            it.register(2)
            it.queue.append(ev.BrokerChange())
        return found

    it.shell.log_questions.start(asking, gather_before_another_power_loss)
    asking.answer(t0=Evidence({1: LogEnd(4, 80), 2: WHOLE}))
    epochs = [asked[T0].epochs for asked in asking.rounds]
    assert len(epochs) == 2
    assert epochs[0] < epochs[1]


def test_unclean_starts_are_known_where_no_replica_is_eligible() -> None:
    it, asking = begun("Balanced", 1)
    it.shell.policy = msgspec.structs.replace(it.shell.policy, aiocontroller_eligible_leader_replicas=False)
    it.failover()
    die(it, 1)
    come(it, 1)
    assert leader(it) == -1
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert state(it) == (2, (2,))
    shrink(it, 2, 3)
    shrink(it, 2)
    assert it.znodes.states[T0].eligible is None


# -- Aggressive --------------------------------------------------------------------------------------------------------


def test_after_the_deadline_the_best_of_those_known_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    it, asking = begun("Aggressive", 1, 2)
    dead_isr(it)
    come(it, 1)
    for at_s in (5, 304):
        sweep(it, monkeypatch, at_s)
        assert not asking.waits
    sweep(it, monkeypatch, 305)
    asking.answer(t0=Evidence({1: CUT, 3: LogEnd(4, 80)}))
    assert state(it) == (3, (3,))


def test_elections_that_go_on_failing_do_not_put_the_deadline_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the sweep looks at the clock, five seconds after the first of them."""
    put_off: list[float] = []

    def call_later(self: StillClock, delay_s: float, callback: object) -> Any:
        return SimpleNamespace(cancel=lambda: put_off.append(delay_s))

    monkeypatch.setattr(StillClock, "call_later", call_later)
    it, _ = begun("Aggressive", 1, 2)
    dead_isr(it)
    for _ in range(3):
        die(it, 3)
        come(it, 3)
    assert it.queue.scheduled(SWEEP)
    assert SWEEP_S not in put_off


def test_without_any_answer_the_member_of_the_isr_leads_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where an authorizer refuses the questions."""
    it, asking = begun("Aggressive", 1)
    die(it, 1)
    come(it, 1)
    asking.answer()
    assert leader(it) == -1
    for at_s in (5, 305):
        sweep(it, monkeypatch, at_s)
        asking.answer()
    assert state(it) == (1, (1,))
    assert records(it)[-1] == ("elected", "t", 0, 1, 0, [1])


def test_nobody_waits_for_the_deadline_once_all_have_told() -> None:
    it, asking = begun("Aggressive", 1, 2)
    dead_isr(it)
    come(it, 1, 2)
    asking.answer(t0=Evidence({1: CUT, 2: WHOLE}))
    assert state(it) == (2, (2,))


# -- by request --------------------------------------------------------------------------------------------------------


class Operator:
    """Asks for a recovery of topic t, and keeps the answer."""

    def __init__(self, it: PureCluster, *, leader: int | None = None, dry_run: bool = False) -> None:
        self.answers: list[list[PartitionRecovery]] = []
        reply = Reply(self.answers.append)
        it.queue.append(ev.RecoverPartitions(reply=reply, topic="t", leader=leader, dry_run=dry_run))
        it.step()

    @property
    def found(self) -> PartitionRecovery:
        [[found]] = self.answers
        return found


@pytest.mark.parametrize("wanted, after", [(None, 3), (1, 1), (3, 3)])
def test_an_operator_ends_the_wait(wanted: int | None, after: int) -> None:
    it, asking = begun("Balanced", 1, 2, min_isr=2)
    dead_isr(it)
    come(it, 1)
    operator = Operator(it, leader=wanted)
    asking.answer(t0=Evidence({1: CUT, 3: WHOLE}))
    assert (operator.found.result, operator.found.leader) == ("elected", after)
    assert state(it) == (after, (after,))


def test_a_leader_below_min_isr_leads_and_cannot_be_read() -> None:
    it, asking = begun("Balanced", 1, min_isr=2)
    die(it, 2)
    die(it, 1)
    come(it, 1, 2)
    operator = Operator(it, dry_run=True)
    reported = Evidence({1: CUT, 2: WHOLE, 3: CUT})
    asking.answer(t0=reported)
    assert (operator.found.leader, operator.found.readable) == (2, False)
    assert state(it) == (2, (2,))
    assert isinstance(it.shell.journal, MemoryJournal)
    detail = it.shell.journal.of_kind("recovery")[-1].detail
    assert detail is not None
    assert detail.endswith("; it leads, but serves no reads until 2 replicas are in sync")
    found = unclean_recovery.status(it.shell)
    assert (found["lead_but_not_readable"], found["not_readable"]) == (1, ["t-0"])
    shrink(it, 2, 1)  # broker 1 joins
    assert unclean_recovery.status(it.shell)["lead_but_not_readable"] == 0


def test_a_leader_of_a_large_enough_isr_can_be_read() -> None:
    it, asking = begun("Balanced", 1)
    die(it, 1)
    operator = Operator(it)
    asking.answer(t0=Evidence({2: CUT, 3: WHOLE}))
    assert (operator.found.leader, operator.found.readable) == (3, True)
    assert unclean_recovery.status(it.shell)["lead_but_not_readable"] == 0


def test_what_the_dead_may_have_held_is_said_as_far_as_it_is_known() -> None:
    it, asking = begun("Balanced", 1, min_isr=2)
    die(it, 2)
    die(it, 1)
    come(it, 2)
    operator = Operator(it, dry_run=True)
    asking.answer(t0=Evidence({2: CUT, 3: LogEnd(4, 60)}))
    assert (
        "broker 1 has not answered (it is dead; it was in the last ISR, "
        "which was too small to acknowledge more than broker 2 had)"
    ) in operator.found.detail
    die(it, 2)
    come(it, 1)
    operator = Operator(it, dry_run=True)
    asking.answer(t0=Evidence({1: CUT, 3: LogEnd(4, 60)}))
    assert (
        "broker 2 has not answered (it is dead; it had everything acknowledged when it left the ISR, "
        "which was then too small to acknowledge more)"
    ) in operator.found.detail
