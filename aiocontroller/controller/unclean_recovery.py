"""Unclean elections by evidence: the replica with the best remaining log leads, and the journal says what is lost.

1. An election finds several replicas, but all outside the ISR.  It asks how far their logs reach (``log_questions``);
   meanwhile the partitions stay offline.
2. ``LogEndsReceived`` brings the brokers' answers.  An ordinary election under the fence makes the replica with the
   best log the leader.  Before it, the journal records what is known; after it, what was lost.
3. If no live replica has reported anything in time, the first live one leads, as under Kafka's controller.

A controller that dies in between leaves partitions without a leader; the next one begins with step 1.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aiocontroller.controller.leadership_writes import min_isrs_of
from aiocontroller.controller.log_questions import WaitingRequest
from aiocontroller.controller.reassignment import maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import ASKED_AT_ONCE, SWEEP, ask_about, handle_partition_state_changes
from aiocontroller.core.election import Strategy, with_online_replica
from aiocontroller.core.election_requests import answers_after_questions
from aiocontroller.core.eligible_replicas import needed_in_sync
from aiocontroller.core.events import LogEndsReceived, OfflinePartitionsSweep, RecoverPartitions
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import Evidence, Loss, Question, loss
from aiocontroller.core.partition_state_machine import COMPARED_AT_ONCE, partitions_to_bring_online
from aiocontroller.core.request_content import PartitionRecovery
from aiocontroller.core.states import PartitionState
from aiocontroller.core.unclean_recovery import (
    RowEvidence,
    all_awaited_elsewhere,
    evidence_by_row,
    not_readable,
    readable,
    reason_not_to_recover,
    recoveries,
    rows_to_recover,
    still_offline,
    waited_for,
)

log = logging.getLogger(__name__)

SHOWN = 20
"""Partitions that the status names."""


async def log_ends_received(shell: ControllerShell, event: LogEndsReceived) -> None:
    """Elect the replicas with the best logs; ask again about partitions whose leadership has changed meanwhile."""
    context = shell.context
    questions = {context.table.row(*question.partition): question for question in event.asked}
    evidence = await _take_in(shell, event, questions)
    by_request = _by_request(shell, evidence)
    offline = still_offline(context, questions)
    led: list[int] = []
    from_logs: list[int] = []
    for requested in (True, False):
        rows = [row for row in offline if (row in by_request) == requested]
        usable = {row: _what_counts(evidence[row], by_request.get(row)) for row in rows if row in evidence}
        if requested:  # without evidence a lone replica would lead, wanted or not
            rows = [row for row in usable if _may_lead(shell, usable[row], row, by_request[row])]
        if rows:
            result = await handle_partition_state_changes(
                shell,
                rows,
                PartitionState.OnlinePartition,
                Strategy.OFFLINE,
                force_unclean=requested,
                evidence=usable,
            )
            led += result.elected
            from_logs += result.from_logs
    await _report(shell, from_logs, evidence, questions, event.duration_us)
    await _ask_again(shell, {row: evidence[row] for row in still_offline(context, evidence)})
    undecided = set(offline).difference(evidence)
    await _ask_for_requests(shell, undecided)
    await _answer(
        shell, [question for question in event.asked if context.table.row(*question.partition) not in undecided]
    )
    await maybe_complete_reassignment(shell, led)


async def _take_in(
    shell: ControllerShell, event: LogEndsReceived, questions: Mapping[int, Question]
) -> dict[int, Evidence]:
    """Record what is newly known, and pass it to the requests that wait for it; returns the evidence that holds."""
    evidence: dict[int, Evidence] = {}
    for start in range(0, len(event.asked), COMPARED_AT_ONCE):
        await shell.breathe()
        some = evidence_by_row(shell.context, event.asked[start : start + COMPARED_AT_ONCE], event.evidence)
        for row in some:
            if shell.log_questions.is_new(questions[row], some[row]):
                lost = _loss_by_best(shell, some, row, questions[row])
                _record(shell, "evidence", row, some[row].ends, lost, event.duration_us)
            for request in shell.log_questions.requests:
                request.add_evidence(questions[row], some[row])
        evidence |= some
    return evidence


async def _ask_for_requests(shell: ControllerShell, void: Collection[int]) -> None:
    """Ask again about partitions that requests wait for and whose answers are all void."""
    table = shell.context.table
    waiting = dict.fromkeys(table.row(*tp) for request in shell.log_questions.requests for tp in request.waiting)
    await ask_about(shell, [row for row in waiting if row in void])


def _by_request(shell: ControllerShell, evidence: RowEvidence) -> dict[int, WaitingRequest]:
    """Row -> the request to elect a leader that came first, of those whose leader may be elected if there are any."""

    def may_elect(row: int, request: WaitingRequest) -> bool:
        return row in evidence and _may_lead(shell, _what_counts(evidence[row], request), row, request)

    found: dict[int, WaitingRequest] = {}
    for request in shell.log_questions.requests:
        if request.elects:
            for tp in request.waiting:
                row = shell.context.table.row(*tp)
                if row not in found or (not may_elect(row, found[row]) and may_elect(row, request)):
                    found[row] = request
    return found


def _what_counts(evidence: Evidence, request: WaitingRequest | None) -> Evidence:
    """Return only the log of the leader that an operator has chosen, or all logs if there is no such choice."""
    if request is None or request.leader is None:
        return evidence
    return Evidence({request.leader: evidence.ends[request.leader]} if request.leader in evidence.ends else {})


def _may_lead(shell: ControllerShell, evidence: Evidence, row: int, request: WaitingRequest) -> bool:
    """Whether the chosen leader, if any, is live and has reported its log's end; no other broker leads in its place."""
    if request.leader is None:
        return True
    return any(shell.context.is_replica_online(row, broker) for broker in evidence.ends)


def _loss_by_best(shell: ControllerShell, evidence: RowEvidence, row: int, question: Question) -> Loss | None:
    online = [broker for broker in question.brokers if shell.context.is_replica_online(row, broker)]
    best = evidence[row].best(online, question.awaited)
    return None if best is None else loss(evidence[row], best, question.awaited)


async def _ask_again(shell: ControllerShell, waiting: RowEvidence) -> None:
    """Schedule a sweep, which asks again, if an awaited live broker has not reported where its log ends."""
    context, silent, awaited = shell.context, False, False
    for number, (row, known) in enumerate(waiting.items()):
        if number % ASKED_AT_ONCE == ASKED_AT_ONCE - 1:
            await shell.breathe()
        strategy = shell.config.recovery.of(context.table.topic(row).name)
        if waited_for(context, row, known, strategy):
            silent, awaited = True, strategy != "None"
            if awaited:
                break
    after_s = shell.log_questions.ask_again_after_s(fruitless=silent, too_short=awaited)
    if silent:
        shell.queue.schedule(SWEEP, after_s, OfflinePartitionsSweep())


async def _report(
    shell: ControllerShell,
    elected: Sequence[int],
    evidence: RowEvidence,
    questions: dict[int, Question],
    duration_us: int,
) -> None:
    """Record what each election by logs loses and whether its leader serves reads; log a summary with an example."""
    table, questions_asked = shell.context.table, shell.log_questions
    rows = [row for row in elected if row in evidence]
    if not rows:
        return
    questions_asked.decided(map(table.topic_partition, rows))
    min_isrs = await min_isrs_of(shell, {topic.id: topic for topic in map(table.topic, rows)}.values())
    example, unreadable = "", 0
    for number, row in enumerate(rows):
        if number % COMPARED_AT_ONCE == 0:
            await shell.breathe()
        lost = loss(evidence[row], table.leader[row], questions[row].awaited)
        min_isr = min_isrs.get(table.topic(row).id)
        if readable(shell.context, row, len(table.isr(row)), min_isr) is False:
            assert min_isr is not None
            needed = needed_in_sync(shell.context, row, min_isr)
            questions_asked.led_below_min_isr[table.topic_partition(row)] = needed
            lost = lost._replace(words=f"{lost.words}; {not_readable(needed)}")
            unreadable += 1
        _record(shell, "elected", row, evidence[row].ends, lost, duration_us)
        example = example or f"{shell.topic_partition(row)}: {lost.words}"
    more = f" ({unreadable} of them serve no reads yet)" if unreadable else ""
    log.warning("Elected leaders of %d partitions%s by their replicas' logs; %s", len(rows), more, example)


def status(shell: ControllerShell) -> dict[str, Any]:
    """Status as JSON values: which partitions wait for which brokers, and which leaders serve no reads yet."""
    context, table, config = shell.context, shell.context.table, shell.config
    offline = with_online_replica(context, still_offline(context, partitions_to_bring_online(context)))
    waiting = all_awaited_elsewhere(context, offline)
    below = shell.log_questions.led_below_min_isr
    for tp, needed in list(below.items()):
        row = table.row(*tp)
        if row < 0 or table.leader[row] not in context.live or len(table.isr(row)) >= needed:
            del below[tp]
    return {
        "strategy": config.aiocontroller_unclean_recovery_strategy,
        "strategy_overrides": dict(config.aiocontroller_unclean_recovery_strategy_overrides),
        "asked": shell.log_questions.open,
        "waiting": len(waiting),
        "waiting_for": {_name(table.topic_partition(row)): list(waiting[row]) for row in list(waiting)[:SHOWN]},
        "lead_but_not_readable": len(below),
        "not_readable": [_name(tp) for tp in list(below)[:SHOWN]],
    }


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _record(
    shell: ControllerShell, event: str, row: int, reported: Iterable[int], lost: Loss | None, duration_us: int
) -> None:
    table = shell.context.table
    topic, partition = table.topic_partition(row)
    shell.journal.append(
        "recovery",
        event=event,
        topic=topic,
        partition=partition,
        leader=table.leader[row],
        leader_epoch=table.leader_epoch[row],
        replicas=list(reported),
        brokers=None if lost is None else list(lost.unknown),
        count=None if lost is None else lost.records,
        duration_us=duration_us,
        detail="no live replica has told where its log ends" if lost is None else lost.words,
    )


# -- requests that wait ------------------------------------------------------------------------------------------------


def wait_for_logs(shell: ControllerShell, request: WaitingRequest) -> None:
    """Answer the request when everything it waits for is decided; NOT_CONTROLLER if the term ends first."""
    request.reply.defer()
    shell.log_questions.requests.append(request)


async def _answer(shell: ControllerShell, decided: Sequence[Question]) -> None:
    requests = shell.log_questions.requests
    for request in list(requests):
        partitions = [question.partition for question in decided if question.partition in request.waiting]
        for start in range(0, len(partitions), ASKED_AT_ONCE):
            if start:
                await shell.breathe()
            some = partitions[start : start + ASKED_AT_ONCE]
            await request.decided(answers_after_questions(shell.context, some))
        if not request.waiting:
            requests.remove(request)


async def recover_partitions(shell: ControllerShell, event: RecoverPartitions) -> None:
    """Ask how far the logs of a topic's offline partitions reach and, unless it is a dry run, elect leaders by them."""
    context, table = shell.context, shell.context.table
    refusal = reason_not_to_recover(context, event.topic, event.partition)
    if refusal is None and not shell.log_questions.can_ask:
        refusal = "this controller cannot ask brokers"
    if refusal is not None:
        event.reply.answer(refusal)
        return
    rows = rows_to_recover(context, event.topic, event.partition)
    offline = still_offline(context, rows)
    topic = table.topic_by_name[event.topic]
    min_isrs = await min_isrs_of(shell, [topic])

    async def present(request: WaitingRequest) -> list[PartitionRecovery]:
        found: list[PartitionRecovery] = []
        for start in range(0, len(rows), COMPARED_AT_ONCE):
            if start:
                await shell.breathe()
            some = rows[start : start + COMPARED_AT_ONCE]
            found += recoveries(context, event, some, request.evidence, min_isrs.get(topic.id))
        return found

    request = WaitingRequest(
        event.reply, map(table.topic_partition, offline), present, elects=not event.dry_run, leader=event.leader
    )
    if offline:
        wait_for_logs(shell, request)
        await ask_about(shell, offline)
    else:
        await request.decided({})


# -- by the clock ------------------------------------------------------------------------------------------------------


def note_leaderless(shell: ControllerShell) -> None:
    """Note since when partitions with a live replica have had no leader, for the deadline of ``Aggressive``."""
    context, config, table = shell.context, shell.config, shell.context.table
    if not config.recovery.has("Aggressive"):
        return
    waiting = with_online_replica(context, still_offline(context, partitions_to_bring_online(context)))
    rows = [row for row in waiting if config.recovery.of(table.topic(row).name) == "Aggressive"]
    shell.log_questions.note_leaderless(
        [(table.topic_partition(row), table.leader_epoch[row]) for row in rows],
        config.aiocontroller_unclean_recovery_timeout_ms / 1000,
    )
