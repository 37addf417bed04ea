"""The middle beat: leaderships are decided, written under the fence, taken into the context, and told.

Nothing is read before the first write: what the context holds is written conditionally on the version it came with.
Where ZooKeeper says that the version has moved on (a broker of an old protocol version writes ISRs itself), the state
is read again and decided anew, a bounded number of times.

A write of many partitions goes in steps, and several ``Change``s go in one stream of them: while one step is committed
and told, ZooKeeper works on the next, whichever change it belongs to.  A step is decided just before it is written, so
changes that go together must be about different partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.columns import take
from aiocontroller.core.decisions import Decisions, commit, joined
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.states import PartitionState
from aiocontroller.journal.records import PartitionColumns
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.writes import Writes

MAX_ATTEMPTS = 16
WRITTEN_AT_ONCE = 4_000
"""Partitions of one step."""
WRITTEN_FIRST = 2_000
"""Of the first of several, so that somebody hears soon."""
STATE_NAMES = [state.name for state in sorted(PartitionState)]


class Planned(NamedTuple):
    """A step: what to write, and what to do with those that were written, once the context holds them."""

    decisions: Decisions
    tell: Callable[[Decisions], Awaitable[None]]


class Change(ABC):
    """New leaderships for partitions, decided anew until ZooKeeper has taken them."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.undecided = pids
        """Not looked at yet, or changed by somebody else since: the context now holds what is there."""
        self.done: list[int] = []
        self.failed: dict[int, str] = {}
        """pid -> why it stays as it is."""

    @abstractmethod
    async def decide(self, pids: Sequence[int]) -> Planned:
        """Reads the context and changes nothing in it: an earlier step may be on its way still."""

    async def reconsider(self) -> None:  # noqa: B027  # most changes have nothing to reconsider
        """Called when nothing is undecided and nothing on its way: make undecided again what memory decided wrongly."""

    async def _read_what_changed(self, shell: ControllerShell, pids: Sequence[int]) -> list[int]:
        """Take these states from ZooKeeper; those that somebody else has written since are undecided again."""
        versions = take(pids, shell.context.table.partition_epoch)[0]
        unread = await read_states_again(shell, pids)
        changed = [
            pid
            for pid, before in zip(pids, versions, strict=True)
            if pid not in unread and shell.context.table.partition_epoch[pid] != before
        ]
        self.failed |= unread
        self.undecided = [*self.undecided, *changed]
        return changed


Step = list[tuple[Change, Sequence[int]]]
"""What is written at a time: pids of one change, or of several where there are few."""


async def carry_out(shell: ControllerShell, *changes: Change) -> None:
    """The first change, then the next, in one stream: a step begins while the one before it is being finished."""
    started_s = shell.world.clock.monotonic()

    async def begin(step: Step) -> tuple[list[Planned], Writes]:
        planned = [await change.decide(pids) for change, pids in step]
        pids, leaderships, _ = joined(plan.decisions for plan in planned)
        if not pids:
            return planned, Writes(0)
        topics, numbers = names(shell, pids)
        writes = await shell.zk.set_topic_partition_states(
            topics, numbers, leaderships, fence=shell.context.epoch_zk_version
        )
        return planned, writes

    async def finish(step: Step, begun: tuple[list[Planned], Writes]) -> None:
        planned, writes = begun
        written, conflicts, at = [], 0, 0
        for (change, _), plan in zip(step, planned, strict=True):
            end = at + len(plan.decisions.pids)
            done, again = await _commit(shell, plan.decisions, writes.part(at, end), change.failed)
            at = end
            written.append(done)
            change.done += done.pids
            change.undecided = [*change.undecided, *again]
            conflicts += len(again)
        if at:
            shell.journal.append(
                "write",
                partitions=at,
                count=conflicts,
                bytes=writes.largest,
                duration_us=int((shell.world.clock.monotonic() - started_s) * 1e6),
            )
        for plan, done in zip(planned, written, strict=True):
            await plan.tell(done)

    for _attempt in range(MAX_ATTEMPTS):
        steps = _steps(changes)
        if not steps:
            for change in changes:
                await change.reconsider()
            steps = _steps(changes)
        if not steps:
            return
        await overlapped(steps, begin, finish)
    for change in changes:
        change.failed |= dict.fromkeys(change.undecided, f"its state znode changed {MAX_ATTEMPTS} times meanwhile")


def _steps(changes: Sequence[Change]) -> list[Step]:
    """All that is undecided."""
    steps: list[Step] = []
    open_, room = sum(len(change.undecided) for change in changes), 0
    for change in changes:
        pids, change.undecided = change.undecided, []
        at = 0
        while at < len(pids):
            if not room:
                room = WRITTEN_AT_ONCE if steps or open_ <= WRITTEN_AT_ONCE else WRITTEN_FIRST
                steps.append([])
            piece = pids[at : at + room]
            steps[-1].append((change, piece))
            at, room = at + len(piece), room - len(piece)
    return steps


async def _commit(
    shell: ControllerShell, step: Decisions, writes: Writes, failed: dict[int, str]
) -> tuple[Decisions, list[int]]:
    """What was written, and the pids that somebody else wrote meanwhile; those that never will be go to ``failed``."""
    if writes.ok:
        commit(shell.context.table, step, writes.version)
        return step, []
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    done = step.select(ok)
    commit(shell.context.table, done, [writes.version[i] for i in ok])
    conflicts = [pid for pid, code in zip(step.pids, writes.code, strict=True) if code == Code.BAD_VERSION]
    failed |= {
        pid: "its state znode is gone" if code == Code.NO_NODE else f"ZooKeeper answered {code}"
        for pid, code in zip(step.pids, writes.code, strict=True)
        if code not in (Code.OK, Code.BAD_VERSION)
    }
    failed |= await read_states_again(shell, conflicts)
    return done, [pid for pid in conflicts if pid not in failed]


async def read_states_again(shell: ControllerShell, pids: Sequence[int]) -> dict[int, str]:
    """Take what ZooKeeper holds into the context; returns pid -> why not, where that cannot be.

    ControllerMovedError where a later controller has written: a fenced write would say so next.
    """
    if not pids:
        return {}
    failed: dict[int, str] = {}
    states = await shell.zk.get_topic_partition_states(*names(shell, pids))
    for pid, state in zip(pids, states, strict=True):
        if state is None:
            failed[pid] = "its state znode is gone"
        elif not isinstance(state, LeaderAndIsr):
            shell.report_bad_znodes([state])
            failed[pid] = "its state znode cannot be read"
        elif state.controller_epoch > shell.context.epoch:
            raise ControllerMovedError(
                f"the state of {shell.topic_partition(pid)} was written in controller epoch {state.controller_epoch}, "
                f"later than ours, {shell.context.epoch}"
            )
        else:
            shell.context.table.set_leadership(pid, state)
    return failed


def names(shell: ControllerShell, pids: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    """Topic names and partition numbers, as the port takes them."""
    table = shell.context.table
    topics, numbers = take(pids, table.topic_of, table.index_of)
    names = {number: topic.name for number in set(topics) if (topic := table.topics[number]) is not None}
    return list(map(names.__getitem__, topics)), numbers


def journal_partitions(
    shell: ControllerShell, pids: Sequence[int], after: PartitionState | None = None, why: str | None = None
) -> None:
    """A record for each partition: from the state that it has to ``after``, or the leadership that it has now."""
    if not pids or not shell.journal.enabled:
        return
    table = shell.context.table
    topics, numbers = names(shell, pids)
    states, assignments, isrs, *leadership = take(
        pids,
        table.state,
        table.assignment_of,
        table.isr_of,
        table.leader,
        table.leader_epoch,
        table.controller_epoch,
        table.partition_epoch,
        table.recovery_state,
    )
    before = list(map(STATE_NAMES.__getitem__, states))
    known: list[Sequence[int | None]] = [*leadership]
    if NO_ISR in isrs:
        led = [isr != NO_ISR for isr in isrs]
        known = [[value if it else None for value, it in zip(column, led, strict=True)] for column in leadership]
    leader, leader_epoch, controller_epoch, partition_epoch, recovery_state = known
    columns = PartitionColumns(
        topics,
        numbers,
        before,
        before if after is None else [after.name] * len(pids),
        leader,
        leader_epoch,
        [None if isr == NO_ISR else table.isrs.values[isr] for isr in isrs],
        [table.assignments.values[assignment].replicas for assignment in assignments],
        controller_epoch,
        partition_epoch,
        [state or None for state in recovery_state],
    )
    shell.journal.append_partitions("partition", columns, detail=why)


def journal_isrs(shell: ControllerShell, pids: Sequence[int]) -> None:
    """A record for each partition whose leader has changed its ISR."""
    if not pids or not shell.journal.enabled:
        return
    table = shell.context.table
    nothing = [None] * len(pids)
    isrs, assignments, *leadership = take(
        pids, table.isr_of, table.assignment_of, table.leader, table.leader_epoch, table.partition_epoch
    )
    leader, leader_epoch, partition_epoch = leadership
    columns = PartitionColumns(
        *names(shell, pids),
        nothing,
        nothing,
        leader,
        leader_epoch,
        list(map(table.isrs.values.__getitem__, isrs)),
        [table.assignments.values[assignment].replicas for assignment in assignments],
        [shell.context.epoch] * len(pids),
        partition_epoch,
        nothing,
    )
    shell.journal.append_partitions("isr", columns)
