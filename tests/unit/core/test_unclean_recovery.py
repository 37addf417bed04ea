"""Which elections wait for evidence, and what an operator's request finds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.core.broker_starts import BrokerStarts, Incarnation
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import NEVER_UNCLEAN, Elections, Strategy, UncleanPolicy, elect
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import RecoverPartitions
from aiocontroller.core.ids import NO_LEADER, Eligible, TopicPartition
from aiocontroller.core.log_evidence import NO_RECORDS, UNKNOWN_EPOCH, Evidence, LogEnd, Question
from aiocontroller.core.request_content import PartitionRecovery, ReplicaLog
from aiocontroller.core.states import PartitionState
from aiocontroller.core.unclean_recovery import (
    CAME_LATER,
    STARTED_AGAIN,
    Recovery,
    choose_best_logs,
    evidence_by_row,
    questions_about,
    reason_not_to_recover,
    recoveries,
    rows_to_recover,
    still_offline,
    waited_for,
)
from tests.builders import ctx, lead, row_of, topic_id

ALLOWED = UncleanPolicy(True)
T0 = TopicPartition("t", 0)


def cluster(*, dead: tuple[int, ...] = (1,)) -> ControllerContext:
    """t-0 on 1, 2 and 3 had broker 1 alone in its ISR, which is dead; t-1 has broker 2 in it; u-0 is on 1 and 2."""
    context = ctx(brokers=[1, 2, 3], topics={"t": [[1, 2, 3], [1, 2, 3]], "u": [[1, 2]]}, dead=list(dead))
    lead(context, "t-0", 1, (1,))
    lead(context, "t-1", 1, (1, 2))
    lead(context, "u-0", 1, (1,))
    context.table.set_state(list(context.table.rows()), PartitionState.OfflinePartition)
    return context


def chosen(context: ControllerContext, evidence: Any) -> Elections:
    rows = list(context.table.rows())
    return choose_best_logs(context, elect(context, rows, Strategy.OFFLINE, ALLOWED), evidence, unclean=ALLOWED)


def test_only_a_choice_among_replicas_outside_the_isr_waits() -> None:
    context = cluster()
    found = chosen(context, {})
    assert found.unasked == [row_of(context, "t-0")]
    assert found.rows == [row_of(context, "t-1"), row_of(context, "u-0")]
    assert [outcome.leader for outcome in found.outcomes] == [2, 2]
    assert [outcome.unclean for outcome in found.outcomes] == [False, True]


@pytest.mark.parametrize(
    "ends, leader",
    [
        ({2: LogEnd(1, 5), 3: LogEnd(2, 4)}, 3),
        ({2: LogEnd(1, 5), 3: LogEnd(1, 4)}, 2),
        ({1: LogEnd(9, 9), 3: LogEnd(1, 4)}, 3),  # broker 1 is dead
        ({}, 2),
    ],
)
def test_the_best_of_those_that_live_leads_alone(ends: dict[int, LogEnd], leader: int) -> None:
    context = cluster()
    row = row_of(context, "t-0")
    found = chosen(context, {row: Evidence(ends)})
    assert found.unasked == []
    outcome = found.outcomes[found.rows.index(row)]
    assert (outcome.leader, outcome.isr, outcome.recipients, outcome.unclean) == (leader, (leader,), (2, 3), True)


def test_clean_elections_are_passed_through() -> None:
    context = cluster(dead=())
    elections = elect(context, list(context.table.rows()), Strategy.OFFLINE, ALLOWED)
    assert choose_best_logs(context, elections, {}) is elections


# -- an ISR member that started uncleanly, without a strategy ----------------------------------------------------------


def returned(*, dead: tuple[int, ...] = (), kept: bool = True) -> ControllerContext:
    """t-0 had broker 1 alone in its ISR; it died, and has started uncleanly."""
    context = cluster(dead=dead)
    row = row_of(context, "t-0")
    state = context.table.leadership(row)
    assert state is not None
    context.table.set_leadership(row, msgspec.structs.replace(state, leader=NO_LEADER))
    epoch = context.brokers[1].epoch
    if kept:
        context.keep_starts(BrokerStarts(1, 1, 3, 1, {1: Incarnation(epoch, epoch)}))
    return context


def after(context: ControllerContext, reported: Evidence | None = None, **more: Any) -> Elections:
    """The election of a leader of t-0."""
    row = row_of(context, "t-0")
    strategy = more.get("strategy", Strategy.OFFLINE)
    unclean = more.get("unclean", NEVER_UNCLEAN)
    elections = elect(context, [row], strategy, unclean)
    return choose_best_logs(context, elections, {} if reported is None else {row: reported}, **more)


def test_the_replicas_that_live_are_asked_before_it_leads() -> None:
    context = returned()
    assert after(context).unasked == [row_of(context, "t-0")]
    assert not after(context).rows


@pytest.mark.parametrize(
    "context",
    [returned(dead=(2, 3)), returned(kept=False)],
    ids=["no other replica lives", "unclean starts are not recorded"],
)
def test_it_leads_at_once_where_nobody_can_be_asked_or_nothing_is_known(context: ControllerContext) -> None:
    found = after(context)
    assert not found.unasked
    assert [outcome[:2] for outcome in found.outcomes] == [(1, (1,))]


def test_one_that_is_suspected_or_has_a_failed_disk_does_not_live() -> None:
    context = returned()
    context.suspect([2])
    context.set_offline_dir_replicas(3, [row_of(context, "t-0")], ())
    assert [outcome.leader for outcome in after(context).outcomes] == [1]


OWN = LogEnd(4, 70)


@pytest.mark.parametrize(
    "ends, leader",
    [
        ({1: OWN, 2: LogEnd(4, 71)}, 2),
        ({1: OWN, 3: LogEnd(5, 1)}, 3),
        ({1: OWN, 2: LogEnd(4, 70), 3: LogEnd(3, 99)}, 1),
        ({1: LogEnd(NO_RECORDS, 0), 2: LogEnd(0, 1)}, 2),
        ({1: LogEnd(NO_RECORDS, 90, 90), 2: LogEnd(4, 80)}, 1),  # retention has emptied it
        ({2: LogEnd(4, 71), 3: LogEnd(4, 72)}, 1),  # it may hold more than those that have told
        ({1: LogEnd(UNKNOWN_EPOCH, 70), 2: LogEnd(UNKNOWN_EPOCH, 71)}, 1),  # a longer log may be another
        ({1: LogEnd(NO_RECORDS, 70), 2: LogEnd(NO_RECORDS, 71)}, 1),  # so it may where records have no epochs
        ({1: LogEnd(NO_RECORDS, 70), 2: LogEnd(0, 60)}, 2),
        ({1: LogEnd(NO_RECORDS, 0), 2: LogEnd(NO_RECORDS, 60)}, 2),
        ({1: LogEnd(UNKNOWN_EPOCH, 0), 2: LogEnd(UNKNOWN_EPOCH, 60)}, 2),
        ({1: LogEnd(UNKNOWN_EPOCH, 70), 2: LogEnd(5, 71)}, 1),
        ({}, 1),
    ],
)
def test_only_a_log_that_is_known_to_be_better_leads_in_its_place(ends: dict[int, LogEnd], leader: int) -> None:
    context = returned()
    silent = {broker: "silent" for broker in (1, 2, 3) if broker not in ends}
    found = after(context, Evidence(ends, silent))
    [outcome] = found.outcomes
    assert (outcome.leader, outcome.isr, outcome.unclean) == (leader, (leader,), leader != 1)
    assert found.by_logs == found.rows


def test_only_what_an_operator_demands_leads_without_its_word() -> None:
    context = returned()
    reported = Evidence({3: LogEnd(4, 10)}, {1: "silent"})
    assert after(context, reported, unclean=ALLOWED).outcomes[0].leader == 1
    assert after(context, reported, unclean=ALLOWED, recovery=Recovery(demanded=True)).outcomes[0].leader == 3


@pytest.mark.parametrize(
    "reported",
    [
        Evidence({2: LogEnd(4, 71)}),
        Evidence({2: LogEnd(4, 71)}, {1: STARTED_AGAIN}),
        Evidence({1: OWN, 2: LogEnd(4, 69)}, {3: STARTED_AGAIN}),
        Evidence({1: OWN, 2: LogEnd(4, 69)}, {3: CAME_LATER}),
    ],
)
@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_one_that_has_started_since_the_others_were_asked_is_asked_too(reported: Evidence, strategy: Any) -> None:
    context = returned()
    assert after(context, reported, recovery=Recovery(strategy)).unasked == [row_of(context, "t-0")]


@pytest.mark.parametrize("patient, unheard, waits", [(True, (1,), True), (True, (3,), False), (False, (1, 3), False)])
def test_one_that_has_answered_nothing_yet_is_asked_some_more_times(
    patient: bool, unheard: tuple[int, ...], waits: bool
) -> None:
    """A broker registers before it accepts connections; until then it could not lead either."""
    context = returned()
    row = row_of(context, "t-0")
    reported = Evidence({2: LogEnd(4, 71)}, {1: "refused", 3: "refused"}, unheard=unheard)
    found = after(context, reported, recovery=Recovery(patient=patient))
    assert found.waiting == ({row: (1,)} if waits else {})
    assert [outcome.leader for outcome in found.outcomes] == ([] if waits else [1])
    assert waited_for(context, row, reported, "None") == list(unheard)
    assert waited_for(context, row, reported._replace(ends={1: OWN, 3: OWN}), "None") == []
    assert waited_for(context, row, reported, "Balanced") == list(dict.fromkeys((1, *unheard)))
    demanded = after(context, reported, recovery=Recovery(patient=patient, demanded=True))
    assert [outcome.leader for outcome in demanded.outcomes] == [2]


def test_who_is_demanded_leads_without_the_word_of_one_that_has_just_started() -> None:
    context = returned()
    reported = Evidence({1: OWN, 2: LogEnd(4, 69)}, {3: CAME_LATER})
    assert not after(context, reported, recovery=Recovery(demanded=True)).unasked


@pytest.mark.parametrize("strategy", ["Balanced", "Aggressive"])
def test_it_leads_at_once_if_it_is_all_that_could_be_asked(strategy: Any) -> None:
    """Whatever it told, it would lead; and it may be forbidden to ask it."""
    context = returned(dead=(2, 3))
    found = after(context, recovery=Recovery(strategy))
    assert (found.unasked, found.waiting, [outcome.leader for outcome in found.outcomes]) == ([], {}, [1])
    write(context, eligible=Eligible(0, ((2, 102),)))
    assert after(context, recovery=Recovery(strategy)).waiting == {row_of(context, "t-0"): (1, 2)}


def test_a_broker_that_is_no_replica_any_more_is_not_awaited() -> None:
    context = returned()
    write(context, isr=(1, 8), eligible=Eligible(0, ((2, 102), (7, 107))))
    [question] = questions_about(context, [row_of(context, "t-0")])
    assert question.awaited == (1, 2)


def write(context: ControllerContext, **fields: Any) -> None:
    """Change t-0's state."""
    row = row_of(context, "t-0")
    state = context.table.leadership(row)
    assert state is not None
    context.table.set_leadership(row, msgspec.structs.replace(state, **fields))


@pytest.mark.parametrize("strategy", [Strategy.PREFERRED, Strategy.REASSIGN])
@pytest.mark.parametrize("dead", [(), (2, 3)])
def test_only_an_election_of_offline_partitions_asks(strategy: Strategy, dead: tuple[int, ...]) -> None:
    """Nobody else lives, or so it seems: while a move ends, the replicas to be removed are not named any more."""
    context = returned(dead=dead)
    found = after(context, strategy=strategy)
    assert (found.rows, found.unasked, found.failed) == ([], [], [row_of(context, "t-0")])


def test_a_partition_that_is_led_asks_nobody() -> None:
    context = returned()
    row = row_of(context, "t-0")
    lead(context, "t-0", 2, (1, 2))
    context.remove_brokers([2])
    elections = elect(context, [row], Strategy.OFFLINE)
    assert choose_best_logs(context, elections, {}) is elections
    assert elections.outcomes[0].leader == 1


# -- questions ---------------------------------------------------------------------------------------------------------


def test_online_replicas_are_asked_and_the_isr_is_awaited() -> None:
    context = cluster()
    context.set_offline_dir_replicas(3, [row_of(context, "t-0")], ())
    assert questions_about(context, [row_of(context, "t-0")]) == [
        Question(T0, 0, (2,), (1,), (1,), (102,), topic_id("t"))
    ]


def test_evidence_holds_while_nobody_leads() -> None:
    context = cluster()
    row, other = row_of(context, "t-0"), row_of(context, "t-1")
    asked = [
        Question(T0, 0, (2,)),
        Question(TopicPartition("t", 1), 7, (2,)),  # of another epoch
        Question(TopicPartition("u", 0), 0, (2,)),  # not told
        Question(TopicPartition("gone", 0), 0, (2,)),
        Question(TopicPartition("t", 9), 0, (2,)),
    ]
    reported = {
        question.partition: Evidence({2: LogEnd(0, 1)}) for question in asked if question.partition.topic != "u"
    }
    silent = {1: "it is dead; it was in the last ISR, and the end of its log is unknown", 3: CAME_LATER}
    assert evidence_by_row(context, asked, reported) == {row: reported[T0]._replace(silent=silent)}
    assert still_offline(context, [other, row, -1]) == [row, other]
    context.table.set_state([row], PartitionState.OnlinePartition)
    assert evidence_by_row(context, asked, reported) == {}


def test_what_was_told_of_an_earlier_topic_of_the_name_is_void() -> None:
    """It was deleted and created again while its replicas were asked, and both have lost their leaders as often."""
    context = cluster()
    row = row_of(context, "t-0")
    [question] = questions_about(context, [row])
    reported = {T0: Evidence({2: LogEnd(0, 5)})}
    assert row in evidence_by_row(context, [question], reported)
    assert evidence_by_row(context, [question._replace(topic_id=topic_id("earlier"))], reported) == {}


def test_an_answer_from_before_a_brokers_restart_is_void() -> None:
    context = cluster()
    row = row_of(context, "t-0")
    questions = questions_about(context, [row])
    reported = {T0: Evidence({2: LogEnd(0, 5), 3: LogEnd(0, 4)})}
    assert evidence_by_row(context, questions, reported)[row].ends == reported[T0].ends
    context.brokers[2] = msgspec.structs.replace(context.brokers[2], epoch=context.brokers[2].epoch + 1)
    found = evidence_by_row(context, questions, reported)[row]
    assert found.ends == {3: LogEnd(0, 4)}
    assert found.silent[2] == "it has started again since it answered"


@pytest.mark.parametrize("suspected", [False, True])
def test_no_deadline_takes_a_partition_from_a_member_of_the_isr_that_is_only_suspected(suspected: bool) -> None:
    context = cluster(dead=() if suspected else (1,))
    if suspected:
        context.suspect([1])
    row = row_of(context, "t-0")
    found = choose_best_logs(
        context, elect(context, [row], Strategy.OFFLINE), {}, Recovery("Aggressive", overdue=frozenset([row]))
    )
    assert (found.unasked, found.failed) == (([], [row]) if suspected else ([row], []))


def test_who_was_eligible_is_awaited_also_after_an_unclean_start() -> None:
    context = cluster()
    row = row_of(context, "t-0")
    state = context.table.leadership(row)
    assert state is not None
    context.table.set_leadership(row, msgspec.structs.replace(state, eligible=Eligible(0, ((3, 103), (1, 101)))))
    [question] = questions_about(context, [row])
    assert (question.awaited, question.isr) == ((1, 3), (1,))


# -- an operator's request ---------------------------------------------------------------------------------------------


def asked(leader: int | None = None, *, dry_run: bool = True) -> RecoverPartitions:
    return RecoverPartitions(reply=Reply(lambda _: None), topic="t", leader=leader, dry_run=dry_run)


def recovered(context: ControllerContext, request: RecoverPartitions, evidence: Evidence) -> PartitionRecovery:
    """Of t-0."""
    question = Question(T0, 0, (2, 3), (1,))
    [found] = recoveries(context, request, [row_of(context, "t-0")], {T0: (question, evidence)})
    return found


BOTH = Evidence({2: LogEnd(1, 500), 3: LogEnd(2, 400)}, {}, {2: 350})


def test_a_dry_run_names_the_best_and_its_price() -> None:
    found = recovered(cluster(), asked(), BOTH)
    assert (found.result, found.leader, found.lost_at_most, found.unknown) == ("would elect", 3, 150, (1,))
    assert found.logs == (ReplicaLog(2, False, 1, 500, 0), ReplicaLog(3, False, 2, 400, 0))


def test_a_dry_run_for_another_broker_names_its_price() -> None:
    found = recovered(cluster(), asked(2), BOTH)
    assert (found.result, found.leader, found.lost_at_most) == ("would elect", 2, 50)


@pytest.mark.parametrize(
    "leader, words",
    [
        (1, "broker 1 has not reported how far its log reaches (it has no live replica)"),
        (2, "broker 2 has not reported how far its log reaches (it is silent)"),
        (None, "no live replica has reported how far its log reaches"),
    ],
)
def test_who_has_not_told_is_not_elected(leader: int | None, words: str) -> None:
    ends = {} if leader is None else {3: LogEnd(2, 400)}
    found = recovered(cluster(), asked(leader), Evidence(ends, {2: "it is silent"}))
    assert (found.result, found.leader, found.lost_at_most, found.detail) == ("failed", None, None, words)


def test_an_election_that_has_failed_says_so() -> None:
    found = recovered(cluster(), asked(dry_run=False), BOTH)
    assert (found.result, found.leader, found.detail) == ("failed", None, "no live replica could be elected")
    found = recovered(cluster(), asked(2, dry_run=False), BOTH)
    assert found.detail == "broker 2 was not elected: another replica leads, or it is no longer alive"


def test_an_election_that_has_succeeded_says_what_it_cost() -> None:
    context = cluster()
    lead(context, "t-0", 3, (3,))
    found = recovered(context, asked(dry_run=False), BOTH)
    assert (found.result, found.leader, found.lost_at_most) == ("elected", 3, 150)


def test_what_is_led_is_left_alone_and_what_has_never_been_is_named() -> None:
    context = cluster()
    lead(context, "t-1", 2, (2,))
    topic = context.table.add_topic("new")
    context.table.add_partitions(topic, {0: context.table.assignment(0)})
    [led] = recoveries(context, asked(), [row_of(context, "t-1")], {})
    assert (led.result, led.leader) == ("led", 2)
    request = RecoverPartitions(reply=Reply(lambda _: None), topic="new")
    [never] = recoveries(context, request, rows_to_recover(context, "new", None), {})
    assert (never.result, never.detail) == ("failed", "it has never had a leader")


def test_what_cannot_be_recovered() -> None:
    context = cluster()
    context.queue_topic_deletion(["u"])
    assert reason_not_to_recover(context, "t", None) is None
    assert reason_not_to_recover(context, "t", 1) is None
    assert reason_not_to_recover(context, "t", 2) == "topic t has no partition 2"
    assert reason_not_to_recover(context, "v", None) == "no such topic: v"
    assert reason_not_to_recover(context, "u", 0) == "topic u is being deleted"
    assert rows_to_recover(context, "t", 1) == [row_of(context, "t-1")]
    assert len(rows_to_recover(context, "t", None)) == 2
