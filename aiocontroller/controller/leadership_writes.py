"""Leadership changes: decided, written under the fence, applied to the context, and sent to brokers.

States are not read before the first write, which is conditional on the version that the context holds.  On a version
conflict (a broker of an old protocol version writes ISRs itself), the state is read and the change decided again, a
bounded number of times.

A write of many partitions is split into steps, and several ``Change``s share one stream of steps: while one step is
applied and sent, ZooKeeper works on the next, whichever change it belongs to.  A step is decided just before it is
written, so changes in one stream must be about different partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.apply import adopt, apply
from aiocontroller.core.columns import take
from aiocontroller.core.decisions import Decisions, commit, joined
from aiocontroller.core.effects import Effects
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.partitions import NO_ISR, Topic
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState
from aiocontroller.journal.records import PartitionColumns
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.writes import Writes

MAX_ATTEMPTS = 16
WRITTEN_AT_ONCE = 4_000
"""Partitions in one step."""
WRITTEN_FIRST = 2_000
"""Partitions in the first of several steps, so that the first brokers are told soon."""
STATE_NAMES = [state.name for state in sorted(PartitionState)]


class Planned(NamedTuple):
    """A step: the states to write, and a pure function from the written ones, which the context holds, to effects."""

    decisions: Decisions
    effects: Callable[[Decisions], Effects]


class Change(ABC):
    """New leaderships for partitions, decided anew until ZooKeeper has taken them."""

    def __init__(self, rows: Sequence[int], batch: RequestBatch | None = None) -> None:
        self.batch = batch
        """Takes the requests; None for a change that sends none."""
        self.undecided = rows
        """rows still to be decided, or to be decided again after a foreign write that the context has adopted."""
        self.done: list[int] = []
        self.failed: dict[int, str] = {}
        """row -> why it stays unchanged."""

    @abstractmethod
    async def decide(self, rows: Sequence[int]) -> Planned:
        """Plan a step without changing the context: an earlier step may still be in flight."""

    def carried_out(self, effects: Effects) -> None:  # noqa: B027  # most changes do not look
        """Called with the effects of each step."""

    async def reconsider(self) -> None:  # noqa: B027  # most changes have nothing to reconsider
        """Called when nothing is undecided or in flight: reopen rows that stale memory may have decided wrongly."""

    async def _read_what_changed(self, shell: ControllerShell, rows: Sequence[int]) -> list[int]:
        """Read these states from ZooKeeper; rows with a foreign write become undecided again."""
        versions = take(rows, shell.context.table.partition_epoch)[0]
        unread = await read_states_again(shell, rows)
        changed = [
            row
            for row, before in zip(rows, versions, strict=True)
            if row not in unread and shell.context.table.partition_epoch[row] != before
        ]
        self.failed |= unread
        self.undecided = [*self.undecided, *changed]
        return changed


Step = list[tuple[Change, Sequence[int]]]
"""One step: rows of one change, or of several small ones."""


async def carry_out(shell: ControllerShell, *changes: Change) -> None:
    """Carry out the changes in order, in one stream: a step starts while the one before it is being finished."""
    started_s = shell.world.clock.monotonic()

    async def begin(step: Step) -> tuple[list[Planned], Writes]:
        planned = [await change.decide(rows) for change, rows in step]
        rows, leaderships, _ = joined(plan.decisions for plan in planned)
        if not rows:
            return planned, Writes(0)
        topics, numbers = names(shell, rows)
        writes = await shell.zk.set_topic_partition_states(
            topics, numbers, leaderships, fence=shell.context.epoch_zk_version
        )
        return planned, writes

    async def finish(step: Step, begun: tuple[list[Planned], Writes]) -> None:
        planned, writes = begun
        written, conflicts, at = [], 0, 0
        for (change, _), plan in zip(step, planned, strict=True):
            end = at + len(plan.decisions.rows)
            done, again = await _commit(shell, plan.decisions, writes.part(at, end), change.failed)
            at = end
            written.append(done)
            change.done += done.rows
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
        for (change, _), plan, done in zip(step, planned, written, strict=True):
            effects = plan.effects(done)
            change.carried_out(effects)
            if change.batch is not None:
                carry_out_effects(shell, effects, change.batch)
                await shell.send_if_large(change.batch)

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


def carry_out_effects(shell: ControllerShell, effects: Effects, batch: RequestBatch) -> None:
    """Record the states that partitions enter, bring them into the context, and add the requests to the batch."""
    for entered in effects.entered:
        journal_partitions(shell, entered.rows, entered.state, entered.why)
    apply(shell.context, effects)
    effects.add_to(batch, shell.context.brokers)


def _steps(changes: Sequence[Change]) -> list[Step]:
    """Split all undecided rows into steps."""
    steps: list[Step] = []
    open_, room = sum(len(change.undecided) for change in changes), 0
    for change in changes:
        rows, change.undecided = change.undecided, []
        at = 0
        while at < len(rows):
            if not room:
                room = WRITTEN_AT_ONCE if steps or open_ <= WRITTEN_AT_ONCE else WRITTEN_FIRST
                steps.append([])
            piece = rows[at : at + room]
            steps[-1].append((change, piece))
            at, room = at + len(piece), room - len(piece)
    return steps


async def _commit(
    shell: ControllerShell, step: Decisions, writes: Writes, failed: dict[int, str]
) -> tuple[Decisions, list[int]]:
    """Write a step; returns the written states, and the rows with conflicts.  Permanent failures go to ``failed``."""
    if writes.ok:
        commit(shell.context.table, step, writes.version)
        return step, []
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    done = step.select(ok)
    commit(shell.context.table, done, [writes.version[i] for i in ok])
    conflicts = [row for row, code in zip(step.rows, writes.code, strict=True) if code == Code.BAD_VERSION]
    for row, code in zip(step.rows, writes.code, strict=True):
        if code == Code.NO_NODE:
            _deleted_by_another(shell, row)
    failed |= {
        row: "its state znode is gone" if code == Code.NO_NODE else f"ZooKeeper answered {code}"
        for row, code in zip(step.rows, writes.code, strict=True)
        if code not in (Code.OK, Code.BAD_VERSION)
    }
    failed |= await read_states_again(shell, conflicts)
    return done, [row for row in conflicts if row not in failed]


MAX_CONTROLLER_EPOCH = 2_000_000_000
"""No controller can have had a higher epoch.  A state with one is damaged; outranking it would exhaust the epochs."""


def is_of_a_later_controller(shell: ControllerShell, state: LeaderAndIsr) -> bool:
    return shell.context.epoch < state.controller_epoch <= MAX_CONTROLLER_EPOCH


async def read_states_again(shell: ControllerShell, rows: Sequence[int]) -> dict[int, str]:
    """Read states from ZooKeeper into the context; returns row -> why it failed.

    ControllerMovedError when a later controller has written a state: the next fenced write would raise it too.
    """
    if not rows:
        return {}
    failed: dict[int, str] = {}
    states = await shell.zk.get_topic_partition_states(*names(shell, rows))
    for row, state in zip(rows, states, strict=True):
        if state is None:
            failed[row] = "its state znode is gone"
            _deleted_by_another(shell, row)
        elif not isinstance(state, LeaderAndIsr):
            shell.report_bad_znodes([state])
            failed[row] = "its state znode cannot be read"
        elif is_of_a_later_controller(shell, state):
            raise ControllerMovedError(
                f"the state of {shell.topic_partition(row)} was written in controller epoch {state.controller_epoch}, "
                f"later than ours, {shell.context.epoch}"
            )
        else:
            shell.auditor.read_anew(shell.topic_partition(row), shell.context.table.leadership(row), state)
            adopt(shell.context, row, state)
    return failed


def _deleted_by_another(shell: ControllerShell, row: int) -> None:
    if not shell.context.table.topic(row).deleting:
        shell.auditor.look_soon((shell.context.table.topic(row).name,))


async def is_still_there(shell: ControllerShell, topic: Topic) -> bool:
    """Whether a topic whose znode has lost or changed its id is the one we know: one of its states is unchanged.

    A topic that was deleted and created again has lost all states.  One whose partitions never had a leader has none.
    """
    rows = topic.partitions()
    states = await shell.zk.get_topic_partition_states(*names(shell, rows))
    return any(
        state is not None and state == shell.context.table.leadership(row)
        for row, state in zip(rows, states, strict=True)
    )


def names(shell: ControllerShell, rows: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    """Topic names and partition numbers, as the ZooKeeper client takes them."""
    table = shell.context.table
    topics, numbers = take(rows, table.topic_of, table.index_of)
    names = {number: topic.name for number in set(topics) if (topic := table.topics[number]) is not None}
    return list(map(names.__getitem__, topics)), numbers


def journal_partitions(
    shell: ControllerShell, rows: Sequence[int], after: PartitionState | None = None, why: str | None = None
) -> None:
    """Journal a record per partition: from its present state to ``after``, or its present leadership."""
    if not rows or not shell.journal.enabled:
        return
    table = shell.context.table
    topics, numbers = names(shell, rows)
    states, assignments, isrs, *leadership = take(
        rows,
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
        before if after is None else [after.name] * len(rows),
        leader,
        leader_epoch,
        [None if isr == NO_ISR else table.isrs.values[isr] for isr in isrs],
        [table.assignments.values[assignment].replicas for assignment in assignments],
        controller_epoch,
        partition_epoch,
        [state or None for state in recovery_state],
    )
    shell.journal.append_partitions("partition", columns, detail=why)


def journal_isrs(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Journal a record for each partition whose leader has changed its ISR."""
    if not rows or not shell.journal.enabled:
        return
    table = shell.context.table
    nothing = [None] * len(rows)
    isrs, assignments, *leadership = take(
        rows, table.isr_of, table.assignment_of, table.leader, table.leader_epoch, table.partition_epoch
    )
    leader, leader_epoch, partition_epoch = leadership
    columns = PartitionColumns(
        *names(shell, rows),
        nothing,
        nothing,
        leader,
        leader_epoch,
        list(map(table.isrs.values.__getitem__, isrs)),
        [table.assignments.values[assignment].replicas for assignment in assignments],
        [shell.context.epoch] * len(rows),
        partition_epoch,
        nothing,
    )
    shell.journal.append_partitions("isr", columns)
