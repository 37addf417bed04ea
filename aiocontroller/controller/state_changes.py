"""Both state machines in action: core plans, the plan is written under the fence and committed, and core says what
follows (``core/effects.py``), which is carried out here.

``handle_partition_state_changes`` and ``handle_replica_state_changes`` are Kafka's ``handleStateChanges`` of
``PartitionStateMachine`` and ``ReplicaStateMachine``.  As in Kafka, illegal transitions are logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

from aiocontroller.controller.leadership_writes import carry_out, carry_out_effects, carry_out_pieces
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import apply
from aiocontroller.core.effects import Effects, Entered, Replicas
from aiocontroller.core.election import (
    Strategy,
    with_online_replica,
)
from aiocontroller.core.events import OfflinePartitionsSweep, UncommittedReassignments
from aiocontroller.core.log_evidence import Question
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import completed_by_election
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.core.unclean_recovery import RowEvidence, questions_about

log = logging.getLogger(__name__)

CHUNK = 20_000
"""Partitions handled at a time, so that no pass blocks the event loop for long."""
ASKED_AT_ONCE = 2_000
"""Likewise, where each partition's replicas are looked at."""


SWEEP_S = 5.0
"""How often elections are retried for partitions without a leader that have a replica online."""
SWEEP = "offline partitions sweep"


class ElectionResult(NamedTuple):
    """Which partitions have a new leader."""

    elected: list[int]
    failed: dict[int, str]
    """row -> why it has no new leader."""
    unasked: Sequence[int] = ()
    """Those of them that wait for what their replicas report about their logs."""
    from_logs: Sequence[int] = ()
    """Elected partitions whose leader was chosen by its log, or comes from outside the ISR without being eligible."""


# -- partitions --------------------------------------------------------------------------------------------------------


async def handle_partition_state_changes(
    shell: ControllerShell,
    rows: Sequence[int],
    target: PartitionState,
    strategy: Strategy | None = None,
    *,
    force_unclean: bool = False,
    evidence: RowEvidence | None = None,
    batch: RequestBatch | None = None,
    why: str | None = None,
) -> ElectionResult:
    """Move the partitions to ``target``; to OnlinePartition with an election by ``strategy`` where they had a leader.

    The requests are sent at the end, or stay in ``batch`` if one is given.  ``evidence``: what is known of the logs.
    ``why``: for the journal, of a state without an election.
    """
    if target is not PartitionState.OnlinePartition:
        valid = _valid_partitions(shell, rows, target)
        for start in range(0, len(valid), CHUNK):
            entered = Entered(valid[start : start + CHUNK], target, why)
            carry_out_effects(shell, Effects((entered,)), shell.new_batch())
            await shell.breathe()
        return ElectionResult([], {})
    assert strategy is not None
    own = shell.new_batch() if batch is None else batch
    election = await _begin_election(shell, rows, strategy, own, force_unclean=force_unclean, evidence=evidence)
    await carry_out(shell, election, batch=own)
    if batch is None:
        await shell.send(own)
    return await _result(shell, election)


async def trigger_online_partition_state_change(shell: ControllerShell, topic: str | None = None) -> ElectionResult:
    """Try to bring every New and Offline partition online (``triggerOnlinePartitionStateChange``)."""
    rows = psm.partitions_to_bring_online(shell.context, topic)
    if not rows:
        return ElectionResult([], {})
    return await handle_partition_state_changes(shell, rows, PartitionState.OnlinePartition, Strategy.OFFLINE)


def _valid_partitions(shell: ControllerShell, rows: Sequence[int], target: PartitionState) -> list[int]:
    checked = psm.check_valid_previous_states(shell.context.table, rows, target)
    if checked.refused:
        log.error("Illegal change to %s refused for partitions %s", target.name, shell.sample(checked.refused))
    return checked.valid


async def _initialize(shell: ControllerShell, rows: Sequence[int], batch: RequestBatch) -> Sequence[int]:
    """Elect first leaders of New partitions.  Returns those that had a leader before and need an ordinary election."""
    first = psm.Initialization(rows)
    await carry_out_pieces(shell, [first], batch)
    if first.leaderless:
        log.warning("No live replica to lead the new partitions %s", shell.sample(first.leaderless))
    if first.failed:
        log.error("Could not create the state of the new partitions %s", shell.sample(list(first.failed)))
    return first.undecided


async def _begin_election(
    shell: ControllerShell,
    rows: Sequence[int],
    strategy: Strategy,
    batch: RequestBatch,
    *,
    force_unclean: bool = False,
    evidence: RowEvidence | None = None,
) -> psm.LeaderElection:
    """Give New partitions their first leaders; the remaining ones need an ordinary election."""
    table = shell.context.table
    valid = _valid_partitions(shell, rows, PartitionState.OnlinePartition)
    new = {row: None for row in valid if table.state[row] == PartitionState.NewPartition}
    waiting, found = list(new), list[int]()
    for start in range(0, len(waiting), CHUNK):
        found += await _initialize(shell, waiting[start : start + CHUNK], batch)
        await shell.breathe()
    await handle_partition_state_changes(shell, found, PartitionState.OfflinePartition, why="adopted")
    led = [row for row in valid if table.isr_of[row] != NO_ISR and row not in new]
    if evidence is None and shell.log_questions.can_ask:
        evidence = {}  # where logs decide, replicas are asked first
    asked = shell.log_questions
    recovery = shell.config.recovery._replace(
        overdue=asked.overdue_rows(table),
        patient=True,
        asked_enough=asked.rows_asked_enough(table),
        demanded=force_unclean,
    )
    return psm.LeaderElection(led + found, strategy, force_unclean=force_unclean, evidence=evidence, recovery=recovery)


async def ask_about(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Ask the live replicas of these partitions how far their logs reach."""
    questions: list[Question] = []
    for start in range(0, len(rows), ASKED_AT_ONCE):
        questions += questions_about(shell.context, rows[start : start + ASKED_AT_ONCE])
        await shell.breathe()
    shell.log_questions.ask(questions, shell.context.brokers)


async def _result(shell: ControllerShell, election: psm.LeaderElection) -> ElectionResult:
    """Log partitions that stay without a leader, and schedule a retry where a later election may help."""
    if election.unasked:
        await ask_about(shell, election.unasked)
    if election.failed:
        some = list(election.failed)
        level = logging.DEBUG if shell.reported_offline.issuperset(some) else logging.WARNING
        log.log(level, "No leader elected for %s: %s", shell.sample(some), election.failed[some[0]])
        shell.reported_offline = frozenset(some)
        is_swept = election.strategy is Strategy.OFFLINE and not shell.queue.scheduled(SWEEP)  # or it might never come
        if is_swept and with_online_replica(shell.context, some):
            shell.queue.schedule(SWEEP, SWEEP_S, OfflinePartitionsSweep())
    if completed_by_election(shell.context, election.done):
        shell.queue.append(UncommittedReassignments())
    from_logs = [row for row in election.done if row in election.from_logs]
    return ElectionResult(election.done, election.failed, election.unasked, from_logs)


# -- replicas ----------------------------------------------------------------------------------------------------------


async def handle_replica_state_changes(
    shell: ControllerShell,
    replicas: Replicas,
    target: ReplicaState,
    *,
    batch: RequestBatch | None = None,
) -> None:
    """Move replicas, ``{broker: rows}``, to ``target``; the requests are sent at the end, or stay in ``batch``."""
    own = shell.new_batch() if batch is None else batch
    if target is ReplicaState.OfflineReplica:
        await elect_and_take_offline(shell, (), Strategy.OFFLINE, replicas, own)
    else:
        for broker, rows in _valid_replicas(shell, replicas, target).items():
            carry_out_effects(shell, rsm.effects_of_transition(shell.context.table, {broker: rows}, target), own)
            if target is ReplicaState.OnlineReplica:
                await shell.breathe()
    if batch is None:
        await shell.send(own)


def _valid_replicas(shell: ControllerShell, replicas: Replicas, target: ReplicaState) -> dict[int, list[int]]:
    valid, refused = rsm.check_valid_previous_states(shell.context.table, replicas, target)
    for broker, rows in refused.items():
        log.error(
            "On broker %d, illegal change to %s refused for replicas of %s", broker, target.name, shell.sample(rows)
        )
    return valid


async def elect_and_take_offline(
    shell: ControllerShell, rows: Sequence[int], strategy: Strategy, replicas: Replicas, batch: RequestBatch
) -> None:
    """Move ``rows`` to OnlinePartition and ``replicas`` to OfflineReplica, leaders first, in one stream of writes.

    The replicas stop and leave the ISRs, and the other replicas are informed; for topics being deleted, they only stop.
    New leaders get an ISR without the offline replicas.  The requests stay in ``batch``, unless it becomes large and is
    sent early.
    """
    context = shell.context
    election = await _begin_election(shell, rows, strategy, batch)
    valid = _valid_replicas(shell, replicas, ReplicaState.OfflineReplica)
    staying = {broker: sorted(context.staying(own)) for broker, own in valid.items()}
    electing = frozenset(election.undecided)
    await shell.breathe()
    shrinking = rsm.IsrShrinking(_without(staying, electing), stop=not context.brokers.keys().isdisjoint(staying))
    await carry_out(shell, election, shrinking, batch=batch)
    failed = _report(shell, shrinking)
    # All live brokers have been sent the new leaders.
    all_live = context.live.issuperset(context.brokers) and not context.offline_dirs
    again = electing.difference(election.done) if all_live else electing
    failed |= await remove_from_isr(shell, rsm.among(staying, sorted(again)), batch)
    carry_out_effects(shell, Effects(stopped=_without(valid, shrinking.stopped)), batch)
    for broker, own in _without(valid, failed).items():
        for start in range(0, len(own), CHUNK):
            piece = {broker: own[start : start + CHUNK]}
            apply(context, Effects(replicas=[(piece, ReplicaState.OfflineReplica)]))
            await shell.breathe()
    await _result(shell, election)


def _without(replicas: Replicas, rows: Collection[int]) -> Replicas:
    if not rows:
        return replicas
    return {broker: [row for row in own if row not in rows] for broker, own in replicas.items()}


async def remove_from_isr(shell: ControllerShell, replicas: Replicas, batch: RequestBatch) -> dict[int, str]:
    """Shrink the ISRs and inform the remaining replicas; returns row -> why the write failed."""
    shrinking = rsm.IsrShrinking(replicas)
    await carry_out(shell, shrinking, batch=batch)
    return _report(shell, shrinking)


def _report(shell: ControllerShell, shrinking: rsm.IsrShrinking) -> dict[int, str]:
    """Log and return why some replicas stay in their ISRs."""
    if shrinking.failed:
        some = list(shrinking.failed)
        log.error("Replicas stay in the ISR of %s: %s", shell.sample(some), shrinking.failed[some[0]])
    return shrinking.failed


async def bump_leader_epochs(shell: ControllerShell, rows: Sequence[int]) -> psm.EpochRise:
    """Raise the leader epochs and change nothing else (``updateLeaderEpoch``), with retries on conflicts."""
    rise = psm.EpochRise(rows)
    await carry_out(shell, rise)
    if rise.failed:
        some = list(rise.failed)
        log.error("Leader epochs not raised for %s: %s", shell.sample(some), rise.failed[some[0]])
    return rise
