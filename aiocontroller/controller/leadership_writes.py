"""Carries out leadership changes: decides, writes under the fence, applies to the context, and sends to brokers.

States are not read before the first write, which is conditional on the version that the context holds.  On a version
conflict (brokers of an old protocol version write ISRs themselves), the state is read and the change is decided again,
at most ``MAX_ATTEMPTS`` times.

A write of many partitions is split into steps, and several ``LeadershipChange``s share one stream of steps: while one
step is applied and sent, ZooKeeper works on the next, of the same change or another.  A step is decided just before it
is written, so changes in one stream must concern different partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aiocontroller.controller import broker_starts
from aiocontroller.controller.obeyed_settings import MIN_ISR, UNCLEAN, positive_int
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import eligible_replicas
from aiocontroller.core.apply import adopt, apply
from aiocontroller.core.columns import take
from aiocontroller.core.decisions import Decisions, commit, joined
from aiocontroller.core.effects import Effects
from aiocontroller.core.election import NEVER_UNCLEAN, NO_MIN_ISRS, UncleanPolicy
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import MAX_CONTROLLER_EPOCH, NO_TOPIC_ID, LeaderAndIsr, MinIsr, of_different_topics
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, LeadershipPlan, Written
from aiocontroller.core.partitions import NO_ISR, Topic
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState
from aiocontroller.journal.records import PartitionColumns
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.found import EntityConfigs
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.writes import Writes
from aiocontroller.zookeeper.znodes import BadZNode

MAX_ATTEMPTS = 16
WRITTEN_AT_ONCE = 4_000
"""The most partitions in one step."""
WRITTEN_FIRST = 2_000
"""Partitions in the first of several steps, so that the first requests leave early."""
READ_AT_ONCE = 2_000
"""States taken in before other tasks may run."""
STATE_NAMES = [state.name for state in sorted(PartitionState)]
TOPIC_REPLACED = "its topic was replaced by another of the same name"
NO_CONFIGS: Mapping[str, Mapping[str, str]] = {}

Step = list[tuple[LeadershipChange[Any], Sequence[int]]]
"""One step: rows of one change, or of several small ones."""


async def carry_out(shell: ControllerShell, *changes: LeadershipChange[Any], batch: RequestBatch | None = None) -> None:
    """Carry out the changes in order, in one stream, until nothing is undecided.

    The requests go into the batch, which is sent early when it becomes large.
    """
    stream = Stream(shell, batch, send_early=True)
    await broker_starts.follow_min_isr(shell)
    for _attempt in range(MAX_ATTEMPTS):
        steps = _steps(changes)
        if not steps:
            for change in changes:
                await _read_doubtful(shell, change)
            steps = _steps(changes)
        if not steps:
            return
        await overlapped(steps, stream.begin, stream.finish)
    for change in changes:
        change.failed |= dict.fromkeys(change.undecided, f"its state znode changed {MAX_ATTEMPTS} times meanwhile")


async def carry_out_pieces(
    shell: ControllerShell, pieces: Iterable[LeadershipChange[Any]], batch: RequestBatch | None = None
) -> None:
    """Carry out each change once, as one step of a stream; rows that conflicted stay undecided."""
    stream = Stream(shell, batch)
    await broker_starts.follow_min_isr(shell)
    steps: list[Step] = [[(change, change.undecided)] for change in pieces]
    for [(change, _)] in steps:
        change.undecided = ()
    await overlapped(steps, stream.begin, stream.finish)


class Stream:
    """The four steps of every change: *plan* (core), *write*, *apply* (core), *send*.

    ``begin`` has the first two, ``finish`` the last two; a step begins while the one before it is being finished.
    """

    def __init__(self, shell: ControllerShell, batch: RequestBatch | None, *, send_early: bool = False) -> None:
        self._shell = shell
        self._batch = batch
        self._send_early = send_early
        self._started_s = shell.world.clock.monotonic()

    async def begin(self, step: Step) -> tuple[list[LeadershipPlan], Writes]:
        """Plan a step and write it.  Raises ControllerMovedError."""
        shell = self._shell
        facts = await read_facts(shell, step)
        plans = []
        for change, rows in step:  # a comprehension would be one more frame
            plans.append(change.plan(shell.context, rows, facts))
        await _enter_eligible(shell, [plan.decisions for plan in plans])
        decisions, fence = joined(plan.decisions for plan in plans), shell.context.epoch_zk_version
        if decisions.rows:
            return plans, await _write(shell, decisions, creates=_creates(step), fence=fence)
        if any(change.needs_confirmation(plan) for (change, _), plan in zip(step, plans, strict=True)):
            await shell.zk.check_controller_epoch(fence=fence)
        return plans, Writes(0)

    async def finish(self, step: Step, begun: tuple[list[LeadershipPlan], Writes]) -> None:
        """Apply what ZooKeeper has accepted, and send it."""
        plans, writes = begun
        written, at = [], 0
        for (change, _), plan in zip(step, plans, strict=True):
            end = at + len(plan.decisions.rows)
            written.append(await _apply_written(self._shell, change, plan.decisions, writes.part(at, end)))
            at = end
        if at and step[0][0].recorded:
            self._record(at, written, writes)
        for (change, _), plan, done in zip(step, plans, written, strict=True):
            effects = plan.effects(self._shell.context, done)
            change.carried_out(plan, effects)
            carry_out_effects(self._shell, effects, self._batch)
            if self._batch is not None and self._send_early:
                await self._shell.send_if_large(self._batch)

    def _record(self, partitions: int, written: Sequence[Written], writes: Writes) -> None:
        self._shell.journal.append(
            "write",
            partitions=partitions,
            count=sum(len(done.again) for done in written),
            bytes=writes.largest,
            duration_us=int((self._shell.world.clock.monotonic() - self._started_s) * 1e6),
        )


async def _write(shell: ControllerShell, decisions: Decisions, *, creates: bool, fence: int) -> Writes:
    topics, numbers = names_and_numbers(shell, decisions.rows)
    if not creates:
        return await shell.zk.set_topic_partition_states(topics, numbers, decisions.leaderships, fence=fence)
    by_name = shell.context.table.topic_by_name
    ids = {name: by_name[name].id for name in dict.fromkeys(topics)}
    return await shell.zk.create_topic_partition_states(topics, numbers, decisions.leaderships, ids=ids, fence=fence)


def _creates(step: Step) -> bool:
    """Whether the step creates its znodes; a step that does has one change."""
    return step[0][0].creates


async def read_facts(shell: ControllerShell, step: Step) -> LeadershipFacts:
    """Read the settings of topics that may need an unclean election, just before it."""
    topics: list[str] = []
    for change, rows in step:
        topics += change.topics_asked_for(shell.context, rows)
    unclean, min_isrs = NEVER_UNCLEAN, NO_MIN_ISRS
    if topics:
        configs = await shell.zk.get_topic_configs(topics)
        brokers = [paths.DEFAULT_ENTITY, *map(str, shell.context.brokers)]
        dynamic = await shell.zk.get_broker_configs(brokers) if shell.context.table.eligible else EntityConfigs()
        min_isrs = _remember_min_isrs(shell, configs, dynamic)
        if configs.bad:
            shell.report_bad_znodes(configs.bad)
        overrides = {
            topic: config[UNCLEAN].strip().lower() == "true" for topic, config in configs.items() if UNCLEAN in config
        }
        overrides |= {topic: False for topic in topics if topic not in configs}  # it may forbid what brokers allow
        unclean = UncleanPolicy(shell.policy.unclean_leader_election_enable, overrides)
    return LeadershipFacts(unclean, shell.policy.leader_recovery_supported, min_isrs)


async def _enter_eligible(shell: ControllerShell, decisions: Sequence[Decisions]) -> None:
    """Add to each state that is about to be written its eligible replicas."""
    context, known = shell.context, shell.min_isrs
    if not eligible_replicas.are_kept(context):
        return
    concerned = [(each, at) for each in decisions if (at := eligible_replicas.concerned(context, each))]
    topics = [topic for each, at in concerned for topic in eligible_replicas.topics_of(context, each, at)]
    unread = dict.fromkeys(topic.name for topic in topics if topic.id not in known)
    if unread:
        _remember_min_isrs(shell, await shell.zk.get_topic_configs(list(unread)))
    for each, at in concerned:
        eligible_replicas.enter(context, each, at, known)


async def min_isrs_of(shell: ControllerShell, topics: Iterable[Topic]) -> Mapping[bytes, MinIsr]:
    """``min.insync.replicas`` by topic id; values that are not known are read.

    Empty below protocol 3.7, where leaders commit with fewer replicas.
    """
    if not shell.policy.commits_at_min_isr:
        return {}
    unread = [topic.name for topic in topics if topic.id not in shell.min_isrs]
    if unread:
        _remember_min_isrs(shell, await shell.zk.get_topic_configs(unread))
    return shell.min_isrs


def _remember_min_isrs(
    shell: ControllerShell, configs: EntityConfigs, dynamic: Mapping[str, Mapping[str, str]] = NO_CONFIGS
) -> dict[str, MinIsr]:
    """Return each topic's ``min.insync.replicas``, its own or the brokers' lowest, and remember it by topic id.

    ``dynamic`` has brokers' settings, which may have changed since ``follow_min_isr``.
    """
    starts, topics = shell.context.starts, shell.context.table.topic_by_name
    lowest = (shell.settings.lowest_min_isr or 1) if starts is None else starts.min_isr
    lowest = min([lowest, *(own for config in dynamic.values() if (own := positive_int(config.get(MIN_ISR, ""))))])
    found = {
        topic: MinIsr(
            (positive_int(config[MIN_ISR]) or 1) if MIN_ISR in config else lowest, configs.changed_zxid[topic]
        )
        for topic, config in configs.items()
    }
    shell.min_isrs.update((topics[name].id, min_isr) for name, min_isr in found.items() if name in topics)
    return found


def carry_out_effects(shell: ControllerShell, effects: Effects, batch: RequestBatch | None) -> None:
    """Journal the effects, apply them to the context, add their requests to the batch, and answer clients."""
    for entered in effects.entered:
        journal_partitions(shell, entered.rows, entered.state, entered.why)
    journal_isrs(shell, effects.isrs)
    apply(shell.context, effects)
    if batch is not None:
        effects.add_to(batch, shell.context.brokers)
    for _ in range(effects.unclean_elections):
        shell.counts.unclean_elections.mark()
    for request, answer in effects.answers:
        request.reply.answer(answer)


def _steps(changes: Sequence[LeadershipChange[Any]]) -> list[Step]:
    """Split all undecided rows into steps."""
    steps: list[Step] = []
    undecided, room = sum(len(change.undecided) for change in changes), 0
    for change in changes:
        rows, change.undecided = change.undecided, []
        at = 0
        while at < len(rows):
            if not room:
                room = WRITTEN_AT_ONCE if steps or undecided <= WRITTEN_AT_ONCE else WRITTEN_FIRST
                steps.append([])
            piece = rows[at : at + (room if change.at_once is None else min(room, change.at_once))]
            steps[-1].append((change, piece))
            at, room = at + len(piece), 0 if len(piece) == change.at_once else room - len(piece)
    return steps


async def _apply_written(
    shell: ControllerShell, change: LeadershipChange[Any], step: Decisions, writes: Writes
) -> Written:
    """Apply what ZooKeeper accepted to the context; read states again that another process has written."""
    created = [0] * len(step.rows) if change.creates else None
    if writes.ok:
        commit(shell.context.table, step, created or writes.version)
        change.done += step.rows
        return Written(step)
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    done = step.select(ok)
    commit(shell.context.table, done, [0 if created else writes.version[i] for i in ok])
    change.done += done.rows
    conflict = Code.NODE_EXISTS if change.creates else Code.BAD_VERSION
    conflicts = [row for row, code in zip(step.rows, writes.code, strict=True) if code == conflict]
    for row, code in zip(step.rows, writes.code, strict=True):
        if code == Code.NO_NODE:
            _deleted_by_another(shell, row)
    change.failed |= {
        row: "its state znode is gone" if code == Code.NO_NODE else f"ZooKeeper answered {code}"
        for row, code in zip(step.rows, writes.code, strict=True)
        if code not in (Code.OK, conflict)
    }
    unread = await read_states_again(shell, conflicts)
    change.failed |= unread
    again = [row for row in conflicts if row not in unread]
    change.undecided = [*change.undecided, *again]
    return Written(done, conflicts, again)


async def _read_doubtful(shell: ControllerShell, change: LeadershipChange[Any]) -> None:
    """Read states that may be stale in memory; rows with a foreign write become undecided again."""
    rows = change.doubtful(shell.context)
    epochs = shell.context.table.partition_epoch
    before = take(rows, epochs)[0]
    unread = await read_states_again(shell, rows)
    change.failed |= unread
    change.reopen([row for row, epoch in zip(rows, before, strict=True) if row not in unread and epochs[row] != epoch])


def is_of_a_later_controller(shell: ControllerShell, state: LeaderAndIsr) -> bool:
    """Whether the state was written in a later epoch than ours, and that epoch is possible."""
    return shell.context.epoch < state.controller_epoch <= MAX_CONTROLLER_EPOCH


async def read_states_again(shell: ControllerShell, rows: Sequence[int]) -> dict[int, str]:
    """Read states from ZooKeeper into the context; returns row -> why it failed.

    ControllerMovedError when a later controller has written a state: the next fenced write would raise it too.
    """
    if not rows:
        return {}
    failed: dict[int, str] = {}
    states = await shell.zk.get_topic_partition_states(*names_and_numbers(shell, rows))
    others = await _replaced_among_foreign(shell, rows, states)
    for number, (row, state) in enumerate(zip(rows, states, strict=True)):
        if number % READ_AT_ONCE == READ_AT_ONCE - 1:
            await shell.breathe()
        if shell.context.table.topic(row).name in others:
            failed[row] = TOPIC_REPLACED
        elif state is None:
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
            shell.auditor.note_foreign_write(shell.topic_partition(row), shell.context.table.leadership(row), state)
            adopt(shell.context, row, state)
    return failed


async def _replaced_among_foreign(
    shell: ControllerShell, rows: Sequence[int], states: Sequence[LeaderAndIsr | BadZNode | None]
) -> Collection[str]:
    """Check the topics of states that no leader can have written; the others are too many.  Returns replaced topics."""
    foreign = []
    for number, (row, state) in enumerate(zip(rows, states, strict=True)):
        if number % READ_AT_ONCE == READ_AT_ONCE - 1:
            await shell.breathe()
        known = shell.context.table.leadership(row)
        if isinstance(state, LeaderAndIsr) and shell.auditor.is_foreign_write(known, state):
            foreign.append(row)
    return await find_replaced_topics(shell, foreign) if foreign else ()


async def find_replaced_topics(shell: ControllerShell, rows: Sequence[int]) -> Collection[str]:
    """Return the names of topics that were replaced: their znodes have other ids than ours.

    The caller must not change the new topics.  The audit, which is notified here, ends the old ones.
    """
    by_name = shell.context.table.topic_by_name
    ids = await shell.zk.get_topic_ids(list(dict.fromkeys(names_and_numbers(shell, rows)[0])))
    found = [name for name, topic_id in ids.items() if of_different_topics(topic_id, by_name[name].id)]
    shell.auditor.check_soon(found)
    return found


def _deleted_by_another(shell: ControllerShell, row: int) -> None:
    if not shell.context.table.topic(row).deleting:
        shell.auditor.check_soon((shell.context.table.topic(row).name,))


async def is_still_there(shell: ControllerShell, topic: Topic) -> bool:
    """Whether a topic whose znode has lost or changed its id is the one we know.

    It is if one of its states is as we know it, or differs only by an ISR that its leader may have written.  A topic
    that was deleted and created again has lost all states; one whose partitions never had a leader has none.
    """
    rows = topic.partitions()
    states = await shell.zk.get_topic_partition_states(*names_and_numbers(shell, rows))
    return any(
        isinstance(state, LeaderAndIsr)
        and not shell.auditor.is_foreign_write(shell.context.table.leadership(row), state)
        for row, state in zip(rows, states, strict=True)
    )


async def is_different_topic(shell: ControllerShell, topic: Topic, topic_id: bytes) -> bool:
    """Whether a topic's znode, with this id (16 bytes), belongs to another topic of the same name.

    If the znode has no id, an old tool may have dropped it; then the partitions' states decide.
    """
    if topic_id == NO_TOPIC_ID != topic.id:
        return not await is_still_there(shell, topic)
    return of_different_topics(topic_id, topic.id)


def names_and_numbers(shell: ControllerShell, rows: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    """The rows' topic names and partition numbers, in two sequences of equal length."""
    table = shell.context.table
    topics, numbers = take(rows, table.topic_of, table.index_of)
    names = {number: topic.name for number in set(topics) if (topic := table.topics[number]) is not None}
    return list(map(names.__getitem__, topics)), numbers


def journal_partitions(
    shell: ControllerShell, rows: Sequence[int], after: PartitionState | None = None, why: str | None = None
) -> None:
    """Journal a record for each partition: its change to state ``after``, or, without it, its present leadership."""
    if not rows or not shell.journal.enabled:
        return
    table = shell.context.table
    topics, numbers = names_and_numbers(shell, rows)
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
        *names_and_numbers(shell, rows),
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
