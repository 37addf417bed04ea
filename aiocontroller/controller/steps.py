"""Carries out the steps that ``core`` decides on (``core/steps.py``): one function for each kind of step.

Each of them writes under the fence and applies to the context what ZooKeeper has accepted, before the next step is
decided.  Nothing is decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar, cast

from aiocontroller.controller import debts
from aiocontroller.controller.assignment_writes import too_large, write_assignments
from aiocontroller.controller.known_controllers import load_known_controllers
from aiocontroller.controller.leadership_writes import carry_out_effects
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    bump_leader_epochs,
    handle_partition_state_changes,
    handle_replica_state_changes,
    remove_from_isr,
)
from aiocontroller.controller.topic_deletion import mark_ineligible, resume_deletion_for_topics
from aiocontroller.core import steps as st
from aiocontroller.core.apply import apply
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.reassignment import debts_of
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.znodes import BadZNode, topic_znode_bytes

R = TypeVar("R")
log = logging.getLogger(__name__)


async def carry_out_steps(shell: ControllerShell, steps: st.Steps[R]) -> R:
    """Carry out the steps in order, and return what they end with.  An error ends them."""
    run, result = Run(shell), None
    with closing(steps):
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return cast(R, end.value)
            result = await DRIVERS[type(step)](run, step)


class Run:
    """The shell, and the batch of requests that the steps are filling."""

    def __init__(self, shell: ControllerShell) -> None:
        self.shell = shell
        self._batch: RequestBatch | None = None

    @property
    def batch(self) -> RequestBatch:
        """The batch that is being filled."""
        if self._batch is None:
            self._batch = self.shell.new_batch()
        return self._batch

    async def send(self) -> None:
        """Send the batch; the next step that needs one begins another."""
        batch, self._batch = self.batch, None
        await self.shell.send(batch)


# -- the context, and requests to brokers ------------------------------------------------------------------------------


async def _apply(run: Run, step: st.Apply) -> None:
    apply(run.shell.context, step.change)


async def _carry_out(run: Run, step: st.CarryOut) -> None:
    carry_out_effects(run.shell, step.effects, run.batch)


async def _hold_requests(run: Run, step: st.HoldRequests) -> None:
    run.batch.held_back = True
    assert run.shell.channels is not None
    run.shell.channels.encode_merged()


async def _send_requests(run: Run, step: st.SendRequests) -> None:
    await run.send()


async def _send_metadata(run: Run, step: st.SendMetadata) -> None:
    await run.shell.send_update_metadata(step.brokers, step.rows)


async def _breathe(run: Run, step: st.Breathe) -> None:
    await run.shell.breathe()


# -- leaderships and replicas ------------------------------------------------------------------------------------------


async def _elect_leaders(run: Run, step: st.ElectLeaders) -> frozenset[int]:
    online = PartitionState.OnlinePartition
    result = await handle_partition_state_changes(run.shell, step.rows, online, step.strategy, batch=run.batch)
    return frozenset(result.elected)


async def _move_replicas(run: Run, step: st.MoveReplicas) -> None:
    await handle_replica_state_changes(run.shell, step.replicas, step.state, batch=run.batch)


async def _shrink_isrs(run: Run, step: st.ShrinkIsrs) -> Mapping[int, str]:
    return await remove_from_isr(run.shell, step.replicas, run.batch)


async def _raise_leader_epochs(run: Run, step: st.RaiseLeaderEpochs) -> Sequence[int]:
    return (await bump_leader_epochs(run.shell, step.rows)).done


async def _follow_isrs(run: Run, step: st.FollowIsrs) -> None:
    await follow_isrs(run.shell, step.rows)


# -- assignments, debts and deletions ----------------------------------------------------------------------------------


async def _write_assignments(run: Run, step: st.WriteAssignments) -> Mapping[int, str]:
    return await write_assignments(run.shell, step.wanted, step.removed)


async def _reason_against_size(run: Run, step: st.ReasonAgainstSize) -> str | None:
    size = topic_znode_bytes(step.assignment)
    return too_large(step.assignment.topic, size, step.reassigned) if size > MAX_DATA_BYTES else None


async def _owe_deletions(run: Run, step: st.OweDeletions) -> None:
    await debts.write(run.shell, debts_of(run.shell.context, step.removed), step.why)


async def _ask_for_debts(run: Run, step: st.AskForDebts) -> None:
    await debts.look_and_pay(run.shell, step.broker)


async def _halt_deletions(run: Run, step: st.HaltDeletions) -> None:
    mark_ineligible(run.shell, step.topics, step.why)


async def _resume_deletions(run: Run, step: st.ResumeDeletions) -> None:
    await resume_deletion_for_topics(run.shell, step.topics)


# -- what ZooKeeper holds besides --------------------------------------------------------------------------------------


async def _read_requested(
    run: Run, step: st.ReadRequestedReassignments
) -> Mapping[TopicPartition, Sequence[int]] | None:
    requested = await run.shell.zk.get_partition_reassignment(watch=step.watch)
    if isinstance(requested, BadZNode):  # left in place for its author
        if step.watch:
            run.shell.report_bad_znodes([requested])
        return None
    return requested


async def _write_requested(run: Run, step: st.WriteRequestedReassignments) -> None:
    zk, fence = run.shell.zk, run.shell.context.epoch_zk_version
    if not step.entries:
        await zk.delete_partition_reassignment(fence=fence)
    elif not await zk.set_or_create_partition_reassignment(step.entries, fence=fence):
        log.error("/admin/reassign_partitions is too large to be rewritten: finished reassignments stay in it")


async def _load_known_controllers(run: Run, step: st.LoadKnownControllers) -> None:
    await load_known_controllers(run.shell)


# -- later, and for people ---------------------------------------------------------------------------------------------


async def _enqueue(run: Run, step: st.Enqueue) -> None:
    run.shell.queue.append(step.event)


async def _schedule(run: Run, step: st.Schedule) -> None:
    run.shell.queue.schedule(step.name, step.delay_s, step.event)


async def _record_reassigned(run: Run, step: st.RecordReassigned) -> None:
    table = run.shell.context.table
    for row, cancelled in step.cancelled.items():
        run.shell.journal.append(
            "reassigned",
            topic=table.topic(row).name,
            partition=table.index_of[row],
            replicas=table.replicas(row),
            detail="cancelled" if cancelled else None,
        )


async def _report(run: Run, step: st.WriteToLog) -> None:
    log.log({"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}[step.severity], "%s", step.text)


DRIVERS: Mapping[type[st.Step[Any]], Callable[[Run, Any], Awaitable[Any]]] = {
    st.Apply: _apply,
    st.AskForDebts: _ask_for_debts,
    st.Breathe: _breathe,
    st.CarryOut: _carry_out,
    st.ElectLeaders: _elect_leaders,
    st.Enqueue: _enqueue,
    st.FollowIsrs: _follow_isrs,
    st.HaltDeletions: _halt_deletions,
    st.HoldRequests: _hold_requests,
    st.LoadKnownControllers: _load_known_controllers,
    st.MoveReplicas: _move_replicas,
    st.OweDeletions: _owe_deletions,
    st.RaiseLeaderEpochs: _raise_leader_epochs,
    st.ReadRequestedReassignments: _read_requested,
    st.ReasonAgainstSize: _reason_against_size,
    st.RecordReassigned: _record_reassigned,
    st.WriteToLog: _report,
    st.ResumeDeletions: _resume_deletions,
    st.Schedule: _schedule,
    st.SendMetadata: _send_metadata,
    st.SendRequests: _send_requests,
    st.ShrinkIsrs: _shrink_isrs,
    st.WriteAssignments: _write_assignments,
    st.WriteRequestedReassignments: _write_requested,
}
"""Every kind of step has its function here (``tests/unit/controller/test_steps.py``)."""
