"""Which offline partitions are led by the best log that is left, and what must be asked before.

An unclean election chooses among the live replicas.  Kafka takes the first of them, whatever its log; here the best log
leads (``core.log_evidence``), once the replicas have been asked.  Where there is no choice, nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Elections
from aiocontroller.core.events import RecoverPartitions
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import Evidence, Question, loss
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_content import PartitionRecovery, ToldLog
from aiocontroller.core.states import PartitionState

RowEvidence = Mapping[int, Evidence]


def choose_best_logs(elections: Elections, evidence: RowEvidence) -> Elections:
    """Let the best log lead where an unclean election has a choice; rows without evidence must be asked about first.

    If no live replica has told anything, the choice stays Kafka's.
    """
    if not any(outcome.unclean for outcome in elections.outcomes):
        return elections
    chosen, unasked = Elections([], [], list(elections.failed)), []
    for row, outcome in zip(elections.rows, elections.outcomes, strict=True):
        if outcome.unclean and len(outcome.recipients) > 1:
            if row not in evidence:
                unasked.append(row)
                continue
            best = evidence[row].best(outcome.recipients)
            if best is not None:
                outcome = outcome._replace(leader=best, isr=(best,))
        chosen.rows.append(row)
        chosen.outcomes.append(outcome)
    return chosen._replace(unasked=unasked)


def questions_about(context: ControllerContext, rows: Iterable[int]) -> list[Question]:
    """What to ask about these partitions: all online replicas, how far their logs reach."""
    table = context.table
    return [
        Question(
            table.topic_partition(row),
            table.leader_epoch[row],
            tuple(r for r in table.replicas(row) if context.is_replica_online(row, r)),
            _awaited(context, row),
            table.isr(row),
        )
        for row in rows
    ]


def _awaited(context: ControllerContext, row: int) -> tuple[int, ...]:
    """The ISR, and what was eligible when it shrank, even if it has lost its eligibility with an unclean start."""
    written = context.table.eligible.get(row)
    eligible = () if written is None else tuple(broker for broker, _ in written.replicas)
    return tuple(dict.fromkeys((*context.table.isr(row), *eligible)))


def still_offline(context: ControllerContext, rows: Iterable[int]) -> list[int]:
    """Those of the rows, -1 for none, that still wait for a leader that they had before; ascending."""
    table = context.table
    return sorted(
        row
        for row in rows
        if row >= 0 and table.isr_of[row] != NO_ISR and table.state[row] == PartitionState.OfflinePartition
    )


def evidence_by_row(
    context: ControllerContext, asked: Iterable[Question], told: Mapping[TopicPartition, Evidence]
) -> dict[int, Evidence]:
    """The evidence that still holds: its partition is offline, and had no leader since it was asked about."""
    table = context.table
    by_row = {table.row(*question.partition): question for question in asked}
    return {
        row: told[by_row[row].partition]
        for row in still_offline(context, by_row)
        if table.leader_epoch[row] == by_row[row].leader_epoch and by_row[row].partition in told
    }


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
    """The rows that a request names; of a topic's partition, or of all of them."""
    table = context.table
    return list(table.topic_by_name[topic].partitions()) if partition is None else [table.row(topic, partition)]


def recoveries(
    context: ControllerContext,
    asked: RecoverPartitions,
    rows: Iterable[int],
    told: Mapping[TopicPartition, tuple[Question, Evidence]],
) -> list[PartitionRecovery]:
    """The answer to an operator's request; a topic that was deleted meanwhile is left out."""
    table = context.table
    known = [row for row in rows if table.topic_of[row] >= 0 and table.topic(row).name == asked.topic]
    return [_recovery(context, asked, row, told.get(table.topic_partition(row))) for row in known]


def _recovery(
    context: ControllerContext, asked: RecoverPartitions, row: int, found: tuple[Question, Evidence] | None
) -> PartitionRecovery:
    table = context.table
    topic, partition = table.topic_partition(row)
    leader = table.leader[row] if table.isr_of[row] != NO_ISR and table.leader[row] in context.live else None
    if found is None:
        if leader is None:
            return PartitionRecovery(topic, partition, "failed", detail="it has never had a leader")
        return PartitionRecovery(topic, partition, "led", leader, detail=f"broker {leader} leads it")
    question, evidence = found
    result = "would elect" if asked.dry_run else "elected"
    if asked.dry_run:
        leader = evidence.best(question.brokers) if asked.leader is None else asked.leader
    if leader is None or (asked.leader is not None and (leader != asked.leader or leader not in evidence.ends)):
        result, leader = "failed", None
    logs = tuple(_told_log(question, evidence, broker) for broker in question.brokers)
    if leader is None:
        wanted = "no live replica" if asked.leader is None else f"broker {asked.leader}"
        return PartitionRecovery(topic, partition, result, None, logs, detail=f"{wanted} {_why_not(asked, evidence)}")
    lost = loss(evidence, leader, question.awaited)
    bound = lost.records if leader in evidence.ends else None
    return PartitionRecovery(topic, partition, result, leader, logs, bound, lost.unknown, lost.words)


def _why_not(asked: RecoverPartitions, evidence: Evidence) -> str:
    if asked.leader is None:
        return "has told how far its log reaches" if not evidence.ends else "could be elected"
    if asked.leader in evidence.ends:
        return "was not elected: another replica leads, or it is not alive any more"
    return f"has not told how far its log reaches ({evidence.silent.get(asked.leader, 'it has no live replica')})"


def _told_log(question: Question, evidence: Evidence, broker: int) -> ToldLog:
    in_isr = broker in question.isr
    end = evidence.ends.get(broker)
    if end is None:
        return ToldLog(broker, in_isr, error=evidence.silent.get(broker, "not asked"))
    return ToldLog(broker, in_isr, end.epoch if end.epoch >= 0 else None, end.end_offset, end.start_offset)
