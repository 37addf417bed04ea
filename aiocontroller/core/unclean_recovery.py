"""Decides which offline partitions are led by the best remaining log, and which replicas must be asked first.

An unclean election chooses among the live replicas.  Kafka elects the first of them, whatever its log holds; here the
replica with the best log leads (``core.log_evidence``), once the replicas have been asked.  Where there is no choice,
no replica is asked.

By Kafka's rule an ISR member leads when it returns, even if it started uncleanly and may lack what the ISR had.  All
other logs are truncated to match the leader's.  So where unclean starts are recorded, its log is compared first, as the
*recovery strategy* says (KIP-966's names):

 * ``None``: if there are several live replicas, they are asked once.  The returned member leads unless another log is
   better than its own: a better log has every committed record that its own still has.  If it does not report how far
   its log reaches, it leads by rule, as in Kafka; but while it answers nothing at all, because it has just started, it
   is asked a few more times.
 * ``Balanced``: the best log leads when all members of the last ISR, and all replicas that were eligible when it
   shrank, have reported how far their logs reach.  Dead ones are awaited for ever.
 * ``Aggressive``: the same, but after a deadline the best of the reported logs leads, in the ISR or not.

Where unclean elections are allowed, a partition waits for one round of answers at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import NEVER_UNCLEAN, ElectionOutcome, Elections, Strategy, UncleanPolicy
from aiocontroller.core.eligible_replicas import Replicas, needed_in_sync, unproven_replicas
from aiocontroller.core.events import RecoverPartitions
from aiocontroller.core.ids import NO_LEADER, MinIsr, TopicPartition, of_different_topics
from aiocontroller.core.log_evidence import NOT_IN_TIME, Evidence, Question, is_complete, loss
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_content import PartitionRecovery, ReplicaLog
from aiocontroller.core.states import PartitionState
from aiocontroller.core.text import brokers_named

RowEvidence = Mapping[int, Evidence]
NO_EVIDENCE = Evidence({})
STARTED_AGAIN = "it has started again since it answered"
CAME_LATER = "it has started since the others were asked"
RecoveryStrategy = Literal["None", "Balanced", "Aggressive"]


class Recovery(NamedTuple):
    """Where logs decide leaders instead of ISRs, and how long partitions wait for answers about them."""

    default: RecoveryStrategy = "None"
    topics: Mapping[str, RecoveryStrategy] = {}
    """Topics with a strategy of their own."""
    overdue: Collection[int] = frozenset()
    """Rows that have waited until the deadline of ``Aggressive``; membership only."""
    patient: bool = False
    """Live replicas that have not answered in time are waited for, even those that are not awaited."""
    asked_enough: Collection[int] = frozenset()
    """Rows about which they have been asked often enough, so that they are not; membership only."""
    demanded: bool = False
    """An operator or a client has asked for the best of the known logs to lead, even if some replicas do not answer."""

    def of(self, topic: str) -> RecoveryStrategy:
        """The topic's strategy."""
        return self.topics.get(topic, self.default)

    def has(self, *strategies: RecoveryStrategy) -> bool:
        """Whether any topic may have one of the strategies."""
        return self.default in strategies or any(own in strategies for own in self.topics.values())

    @property
    def compares(self) -> bool:
        """Whether any topic's partitions wait until the logs of others are known."""
        return self.has("Balanced", "Aggressive")


BY_RULE = Recovery()


def choose_best_logs(
    context: ControllerContext,
    elections: Elections,
    evidence: RowEvidence,
    recovery: Recovery = BY_RULE,
    *,
    strategy: Strategy = Strategy.OFFLINE,
    unclean: UncleanPolicy = NEVER_UNCLEAN,
) -> Elections:
    """Let the best log lead where ISRs do not decide; the replicas of rows without evidence must be asked first.

    If no live replica has reported its log, the choice stays Kafka's.
    """
    started = context.unproven_brokers()
    returns = started and any(context.table.leader[row] == NO_LEADER for row in elections.rows)
    if not (recovery.compares or returns or any(outcome.unclean for outcome in elections.outcomes)):
        return elections
    chosen, unasked, by_logs = Elections([], [], []), list[int](), list[int]()
    waiting: dict[int, Replicas] = {}
    topic = context.table.topic
    decided = zip(elections.rows, elections.outcomes, strict=True)
    for row, outcome in (*decided, *((row, None) for row in elections.failed)):
        if _needs_logs(context, row, outcome, recovery, started, strategy):
            waits = recovery.of(topic(row).name) != "None"
            hurried = not waits or row in recovery.overdue or unclean.allows(topic(row).name)
            reported = evidence.get(row, NO_EVIDENCE)
            needed = () if hurried else awaited(context, row)
            patient = recovery.patient and row not in recovery.asked_enough
            late: Sequence[int] = late_brokers(context, row, reported) if patient and not hurried else ()
            returned = None if recovery.demanded or outcome is None or outcome.unclean else outcome.leader
            by_rule = None if waits else returned
            if by_rule is not None and by_rule in reported.unheard and patient:
                late = (by_rule,)  # it has just started, and could not lead either
            if row in evidence:
                to_be_asked = returned is not None and _someone_was_not_asked(reported, returned)
            else:
                to_be_asked = all(context.is_replica_online(row, broker) for broker in needed)
            if strategy is not Strategy.OFFLINE:
                outcome = None  # the logs decide in an election of offline partitions
            elif to_be_asked:
                unasked.append(row)
                continue
            elif missing := tuple(
                dict.fromkeys((*(broker for broker in needed if broker not in reported.ends), *late))
            ):
                outcome, waiting[row] = None, missing
            else:
                outcome = _led_by_the_best(context, row, outcome, reported, by_rule)
                by_logs.append(row)
        if outcome is None:
            chosen.failed.append(row)
        else:
            chosen.rows.append(row)
            chosen.outcomes.append(outcome)
    return chosen._replace(unasked=unasked, waiting=waiting, by_logs=by_logs)


def late_brokers(context: ControllerContext, row: int, evidence: Evidence) -> list[int]:
    """The live brokers that were asked and have not answered in time, or do not listen yet; a later answer may show
    that theirs is the best log."""
    late = [broker for broker, why in evidence.silent.items() if why == NOT_IN_TIME or broker in evidence.unheard]
    return [broker for broker in late if context.is_replica_online(row, broker)]


def waited_for(context: ControllerContext, row: int, evidence: Evidence, strategy: RecoveryStrategy) -> list[int]:
    """The live brokers whose answers the partition may still wait for."""
    brokers = (
        evidence.unheard if strategy == "None" else (*awaited(context, row), *late_brokers(context, row, evidence))
    )
    return [
        broker
        for broker in dict.fromkeys(brokers)
        if broker not in evidence.ends and context.is_replica_online(row, broker)
    ]


def _someone_was_not_asked(evidence: Evidence, returned: int) -> bool:
    """Whether the returned replica or another one has not been asked yet in its present incarnation."""
    known = returned in evidence.ends or returned in evidence.silent
    return not known or not {STARTED_AGAIN, CAME_LATER}.isdisjoint(evidence.silent.values())


def _needs_logs(
    context: ControllerContext,
    row: int,
    outcome: ElectionOutcome | None,
    recovery: Recovery,
    started: frozenset[int],
    strategy: Strategy,
) -> bool:
    """Whether the logs decide; ``started``: the unproven brokers.

    Only an election of offline partitions considers all replicas: at the end of a move only those that stay are named.
    """
    table = context.table
    if outcome is not None and outcome.unclean:
        return len(outcome.recipients) > 1
    waits = table.isr_of[row] != NO_ISR and recovery.of(table.topic(row).name) != "None"
    if outcome is not None:
        if outcome.leader not in table.isr(row) or outcome.leader not in unproven_replicas(context, row, started):
            return False
        alone = (
            len(_online(context, row)) == 1
            and context.returning.isdisjoint(table.replicas(row))
            and not (waits and awaited_elsewhere(context, row))
        )
        return not alone or strategy is not Strategy.OFFLINE
    if not waits:
        return False
    # A suspected member of the ISR may hold more, and serve clients.
    return row in recovery.overdue and context.suspected.keys().isdisjoint(table.isr(row))


def _led_by_the_best(
    context: ControllerContext, row: int, outcome: ElectionOutcome | None, evidence: Evidence, by_rule: int | None
) -> ElectionOutcome | None:
    """Elect the replica with the best log, in an ISR of its own; among equal logs, an ISR member's.

    The rule's outcome stays if no replica has reported its log, or if the leader by the rule of ISRs may hold something
    committed that the best reported log lacks.
    """
    isr, online, last = context.table.isr(row), context.leader_order()(_online(context, row)), awaited(context, row)
    best = evidence.best(sorted(online, key=lambda replica: replica not in isr), last)
    if best is None or (by_rule is not None and not evidence.is_proven_better(best, by_rule, last)):
        return outcome
    unclean = best not in isr
    return ElectionOutcome(best, (best,), online, unclean, unclean and is_complete(evidence, best, last))


def _online(context: ControllerContext, row: int) -> Replicas:
    return tuple([replica for replica in context.table.replicas(row) if context.is_replica_online(row, replica)])


def questions_about(context: ControllerContext, rows: Iterable[int]) -> list[Question]:
    """Return the questions about these partitions: to all online replicas, how far their logs reach."""
    return [_question(context, row) for row in rows]


def _question(context: ControllerContext, row: int) -> Question:
    table = context.table
    online = _online(context, row)
    return Question(
        table.topic_partition(row),
        table.leader_epoch[row],
        online,
        awaited(context, row),
        table.isr(row),
        tuple(context.brokers[broker].epoch for broker in online),
        table.topic(row).id,
    )


def awaited(context: ControllerContext, row: int) -> Replicas:
    """The ISR, and the replicas that were eligible when it shrank, even those that lost their eligibility by an unclean
    start.

    Brokers that are no longer replicas are left out, and not asked.
    """
    written, replicas = context.table.eligible.get(row), context.table.replicas(row)
    eligible = () if written is None else tuple(broker for broker, _ in written.replicas)
    return tuple([broker for broker in dict.fromkeys((*context.table.isr(row), *eligible)) if broker in replicas])


def awaited_elsewhere(context: ControllerContext, row: int) -> Replicas:
    """The awaited replicas that cannot be asked now, because they are not online."""
    return tuple(broker for broker in awaited(context, row) if not context.is_replica_online(row, broker))


def all_awaited_elsewhere(context: ControllerContext, rows: Iterable[int]) -> dict[int, Replicas]:
    """Row -> the awaited replicas that are not online, where there are any; decided once for each combination."""
    table, memo, found = context.table, dict[object, Replicas](), dict[int, Replicas]()
    for row in rows:
        combination = (table.assignment_of[row], table.isr_of[row], table.eligible.get(row))
        if combination not in memo or context.offline_dirs:
            memo[combination] = awaited_elsewhere(context, row)
        if memo[combination]:
            found[row] = memo[combination]
    return found


def _absent(context: ControllerContext, row: int) -> dict[int, str]:
    """Broker -> why it cannot be asked, and what is known of the records that it alone may hold."""
    isr, written = context.table.isr(row), context.table.eligible.get(row)
    eligible = [] if written is None else [broker for broker, _ in written.replicas]
    last = "it was in the last ISR, and the end of its log is unknown"
    if eligible:
        last = f"it was in the last ISR, which was too small to acknowledge more than {brokers_named(eligible)} had"
    left = "it had everything acknowledged when it left the ISR, which was then too small to acknowledge more"
    return {
        broker: f"{_why_absent(context, row, broker)}; {last if broker in isr else left}"
        for broker in awaited_elsewhere(context, row)
    }


def _why_absent(context: ControllerContext, row: int, broker: int) -> str:
    if broker not in context.brokers:
        return "it is dead"
    if row in context.offline_dirs.get(broker, ()):
        return "its log directory has failed"
    return "it is suspected to be dead" if broker in context.suspected else "it is shutting down"


def readable(context: ControllerContext, row: int, in_sync: int, min_isr: MinIsr | None) -> bool | None:
    """Whether the leader of an ISR of this size lets clients read what it holds; None if that is not known.

    From Kafka 3.7 on the high watermark does not advance while the ISR is smaller than ``min.insync.replicas``, and
    after a crash of the leader it is 0 or the value last written to its disk.
    """
    return None if min_isr is None else in_sync >= needed_in_sync(context, row, min_isr)


def not_readable(needed: int) -> str:
    """What an election of a leader below ``min.insync.replicas`` means for its clients."""
    return f"it leads, but serves no reads until {needed} replicas are in sync"


def still_offline(context: ControllerContext, rows: Iterable[int]) -> list[int]:
    """Those of the rows that had a leader before, have none and need one, ascending; a row of -1 is left out."""
    table = context.table
    offline = sorted(
        row
        for row in rows
        if row >= 0 and table.isr_of[row] != NO_ISR and table.state[row] == PartitionState.OfflinePartition
    )
    return [row for row in offline if not context.needs_no_leader(row)]


def evidence_by_row(
    context: ControllerContext, asked: Iterable[Question], reported: Mapping[TopicPartition, Evidence]
) -> dict[int, Evidence]:
    """Row -> the evidence that still holds, with the reasons why some replicas were not asked.

    It holds while the partition is offline, has had no leader since the question, and the broker has not started again.
    """
    by_row = {context.table.row(*question.partition): question for question in asked}
    return {
        row: _that_holds(context, row, by_row[row], reported[by_row[row].partition])
        for row in still_offline(context, by_row)
        if _is_about(context, row, by_row[row]) and by_row[row].partition in reported
    }


def _is_about(context: ControllerContext, row: int, question: Question) -> bool:
    table = context.table
    is_other = of_different_topics(question.topic_id, table.topic(row).id)
    return table.leader_epoch[row] == question.leader_epoch and not is_other


def _that_holds(context: ControllerContext, row: int, question: Question, evidence: Evidence) -> Evidence:
    known = context.brokers
    again = [
        broker
        for broker, epoch in zip(question.brokers, question.epochs, strict=False)
        if broker in known and known[broker].epoch != epoch
    ]
    later = [broker for broker in _online(context, row) if broker not in question.brokers]
    silent = {**_absent(context, row), **evidence.silent, **dict.fromkeys(later, CAME_LATER)}
    if not again:
        return evidence._replace(silent=silent)
    ends = {broker: end for broker, end in evidence.ends.items() if broker not in again}
    silent |= dict.fromkeys(again, STARTED_AGAIN)
    return evidence._replace(ends=ends, silent=silent, diverging={})


# -- an operator's request ---------------------------------------------------------------------------------------------


def reason_not_to_recover(context: ControllerContext, topic: str, partition: int | None) -> str | None:
    """Why an operator's request cannot be carried out; None if it can."""
    table = context.table
    if topic not in table.topic_by_name:
        return f"no such topic: {topic}"
    if table.topic_by_name[topic].deleting:
        return f"topic {topic} is being deleted"
    if partition is not None and table.row(topic, partition) < 0:
        return f"topic {topic} has no partition {partition}"
    return None


def rows_to_recover(context: ControllerContext, topic: str, partition: int | None) -> list[int]:
    """The rows that a request names: of one partition of a topic, or of all of them."""
    table = context.table
    return list(table.topic_by_name[topic].partitions()) if partition is None else [table.row(topic, partition)]


def recoveries(
    context: ControllerContext,
    asked: RecoverPartitions,
    rows: Iterable[int],
    reported: Mapping[TopicPartition, tuple[Question, Evidence]],
    min_isr: MinIsr | None = None,
) -> list[PartitionRecovery]:
    """The answer to an operator's request; a topic that was deleted meanwhile is left out.

    ``min_isr``: the topic's; None if it is not known, or brokers commit below it (before Kafka 3.7).
    """
    table = context.table
    known = [row for row in rows if table.topic_of[row] >= 0 and table.topic(row).name == asked.topic]
    return [_recovery(context, asked, row, reported.get(table.topic_partition(row)), min_isr) for row in known]


def _recovery(
    context: ControllerContext,
    asked: RecoverPartitions,
    row: int,
    found: tuple[Question, Evidence] | None,
    min_isr: MinIsr | None,
) -> PartitionRecovery:
    table = context.table
    topic, partition = table.topic_partition(row)
    leader = table.leader[row] if table.isr_of[row] != NO_ISR and table.leader[row] in context.live else None
    if found is None:
        if leader is None:
            why = "its topic is being deleted" if table.topic(row).deleting else "it has never had a leader"
            return PartitionRecovery(topic, partition, "failed", detail=why)
        return PartitionRecovery(topic, partition, "led", leader, detail=f"broker {leader} leads it")
    question, evidence = found
    result = "would elect" if asked.dry_run else "elected"
    if asked.dry_run:
        leader = evidence.best(question.brokers, question.awaited) if asked.leader is None else asked.leader
    if leader is None or (asked.leader is not None and (leader != asked.leader or leader not in evidence.ends)):
        result, leader = "failed", None
    logs = tuple(_replica_log(question, evidence, broker) for broker in question.brokers)
    if leader is None:
        wanted = "no live replica" if asked.leader is None else f"broker {asked.leader}"
        return PartitionRecovery(topic, partition, result, None, logs, detail=f"{wanted} {_why_not(asked, evidence)}")
    lost = loss(evidence, leader, question.awaited)
    bound = lost.records if leader in evidence.ends else None
    can_be_read = readable(context, row, 1 if asked.dry_run else len(table.isr(row)), min_isr)
    return PartitionRecovery(topic, partition, result, leader, logs, bound, lost.unknown, lost.words, can_be_read)


def _why_not(asked: RecoverPartitions, evidence: Evidence) -> str:
    if asked.leader is None:
        return "has reported how far its log reaches" if not evidence.ends else "could be elected"
    if asked.leader in evidence.ends:
        return "was not elected: another replica leads, or it is no longer alive"
    return f"has not reported how far its log reaches ({evidence.silent.get(asked.leader, 'it has no live replica')})"


def _replica_log(question: Question, evidence: Evidence, broker: int) -> ReplicaLog:
    in_isr = broker in question.isr
    end = evidence.ends.get(broker)
    if end is None:
        return ReplicaLog(broker, in_isr, error=evidence.silent.get(broker, "not asked"))
    return ReplicaLog(broker, in_isr, end.epoch if end.epoch >= 0 else None, end.end_offset, end.start_offset)
