"""Both state machines in action: plan, write under the fence, apply, tell the brokers.

``handle_partition_state_changes`` and ``handle_replica_state_changes`` are Kafka's ``handleStateChanges`` of
``PartitionStateMachine`` and ``ReplicaStateMachine``.  Illegal steps are logged and left out, like Kafka's.

Nothing is read before the first write: what the context holds is written conditionally on the version it came with.
Where ZooKeeper says that the version has moved on (a broker of an old protocol version writes ISRs itself), the
state is read again and decided anew, a bounded number of times.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.columns import take
from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.election import NEVER_UNCLEAN, Strategy, UncleanPolicy, without_online_isr
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.journal.records import PartitionColumns
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.writes import Writes

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 16
CHUNK = 20_000
"""Partitions decided at a time, so that no pass holds the loop for long."""
OFFLINE_CHUNK = 50_000
"""Partitions taken out of their ISRs at a time: cheaper ones, and most events have fewer."""
WRITTEN_AT_ONCE = 4_000
"""Partitions of one step of a write."""
STATE_NAMES = [state.name for state in sorted(PartitionState)]


class ElectionResult(NamedTuple):
    elected: list[int]
    failed: dict[int, str]
    """pid -> why it has no new leader."""


class Written(NamedTuple):
    done: list[int]
    conflicts: list[int]
    """Pids whose znode had another version: the context now holds what is there, decide again."""
    failed: dict[int, str]


# -- partitions --------------------------------------------------------------------------------------------------------


async def handle_partition_state_changes(
    shell: ControllerShell,
    pids: Sequence[int],
    target: PartitionState,
    strategy: Strategy | None = None,
    *,
    force_unclean: bool = False,
    batch: RequestBatch | None = None,
) -> ElectionResult:
    """Move the partitions to ``target``; to OnlinePartition with an election by ``strategy`` where they had a leader.

    The requests go out at the end, or stay in ``batch`` if one is given.
    """
    checked = psm.check_valid_previous_states(shell.context.table, pids, target)
    if checked.refused:
        log.error("Partitions that may not become %s stay as they are: %s", target.name, shell.sample(checked.refused))
    if target is not PartitionState.OnlinePartition:
        _move(shell, checked.valid, target)
        return ElectionResult([], {})
    assert strategy is not None
    own = shell.new_batch() if batch is None else batch
    result = ElectionResult([], {})
    for start in range(0, len(checked.valid), CHUNK):
        chunk = checked.valid[start : start + CHUNK]
        new = {pid: None for pid in chunk if shell.context.table.state[pid] == PartitionState.NewPartition}
        found = await _initialize(shell, list(new), own) if new else []
        led = [pid for pid in chunk if shell.context.table.isr_of[pid] != NO_ISR and pid not in new]
        await _elect(shell, led + found, strategy, force_unclean, own, result)
        await shell.breathe()
    if batch is None:
        await shell.send(own)
    if result.failed:
        some = list(result.failed)
        log.warning("No leader elected for %s: %s", shell.sample(some), result.failed[some[0]])
    return result


async def trigger_online_partition_state_change(shell: ControllerShell, topic: str | None = None) -> ElectionResult:
    """Try to bring every New and Offline partition online (``triggerOnlinePartitionStateChange``)."""
    pids = psm.partitions_to_bring_online(shell.context, topic)
    if not pids:
        return ElectionResult([], {})
    return await handle_partition_state_changes(shell, pids, PartitionState.OnlinePartition, Strategy.OFFLINE)


def _move(shell: ControllerShell, pids: Sequence[int], target: PartitionState) -> None:
    table = shell.context.table
    _journal(shell, pids, target)
    table.set_state(pids, target)


async def _initialize(shell: ControllerShell, pids: Sequence[int], batch: RequestBatch) -> list[int]:
    """First leaders of New partitions.  Returns those that turn out to have had one: they are to be elected instead."""
    context = shell.context
    decisions, leaderless = psm.plan_initialization(context, pids)
    if leaderless:
        log.warning("No live replica to lead the new partitions %s", shell.sample(leaderless))
    if not decisions.pids:
        return []
    topics, numbers = _names(shell, decisions.pids)
    writes = await shell.zk.create_topic_partition_states(
        topics, numbers, decisions.leaderships, fence=context.epoch_zk_version
    )
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    done = decisions.select(ok)
    commit(context.table, done, [0] * len(ok))
    _online(shell, done.pids, "initialized")
    batch.add_leader_and_isr_requests(done.pids, done.recipients, is_new=True)
    # A state that exists already was written by an earlier attempt of ours whose answer was lost, or by an earlier
    # term: Kafka leaves such a partition New and leaderless until the next failover; it is adopted here.
    existing = [pid for pid, code in zip(decisions.pids, writes.code, strict=True) if code == Code.NODE_EXISTS]
    lost = [
        pid for pid, code in zip(decisions.pids, writes.code, strict=True) if code not in (Code.OK, Code.NODE_EXISTS)
    ]
    if lost:
        log.error("Could not create the state of the new partitions %s", shell.sample(lost))
    failed = await read_states_again(shell, existing)
    return [pid for pid in existing if pid not in failed]


async def _elect(
    shell: ControllerShell,
    pids: Sequence[int],
    strategy: Strategy,
    force_unclean: bool,
    batch: RequestBatch,
    result: ElectionResult,
) -> None:
    context = shell.context
    for _attempt in range(MAX_ATTEMPTS):
        if not pids:
            return
        unclean = await _unclean_policy(shell, pids, strategy, force_unclean)
        decisions, elections = psm.plan_elections(
            context, pids, strategy, unclean, recovery_supported=shell.config.leader_recovery_supported
        )
        result.failed.update(dict.fromkeys(elections.failed, f"the {strategy.value} finds none"))
        unclean_pids = {pid for pid, outcome in zip(decisions.pids, elections.outcomes, strict=True) if outcome.unclean}
        for _ in unclean_pids:
            shell.unclean_elections.mark()

        async def tell(done: Decisions, unclean_pids: set[int] = unclean_pids) -> None:
            _online(shell, [pid for pid in done.pids if pid not in unclean_pids], strategy.value)
            _online(shell, [pid for pid in done.pids if pid in unclean_pids], f"{strategy.value}, unclean")
            batch.add_leader_and_isr_requests(done.pids, done.recipients)
            await shell.send_if_large(batch)

        written = await _write(shell, decisions, tell)
        result.elected.extend(written.done)
        result.failed.update(written.failed)
        pids = written.conflicts
    result.failed.update(dict.fromkeys(pids, f"its state znode changed {MAX_ATTEMPTS} times meanwhile"))


async def _unclean_policy(
    shell: ControllerShell, pids: Sequence[int], strategy: Strategy, force: bool
) -> UncleanPolicy:
    """Topic settings are read only for partitions that would need an unclean leader."""
    if strategy is not Strategy.OFFLINE:
        return NEVER_UNCLEAN
    if force:
        return UncleanPolicy(True)
    needy = without_online_isr(shell.context, pids)
    if not needy:
        return NEVER_UNCLEAN
    table = shell.context.table
    topics = list(dict.fromkeys(table.topic(pid).name for pid in needy))
    configs = await shell.zk.get_topic_configs(topics)
    overrides = {
        topic: config["unclean.leader.election.enable"].strip().lower() == "true"
        for topic, config in configs.items()
        if "unclean.leader.election.enable" in config
    }
    return UncleanPolicy(shell.unclean_default, overrides)


def _online(shell: ControllerShell, pids: Sequence[int], why: str) -> None:
    _journal(shell, pids, PartitionState.OnlinePartition, why)
    shell.context.table.set_state(pids, PartitionState.OnlinePartition)


# -- replicas ----------------------------------------------------------------------------------------------------------


async def handle_replica_state_changes(
    shell: ControllerShell,
    replicas: rsm.Replicas,
    target: ReplicaState,
    *,
    batch: RequestBatch | None = None,
) -> None:
    """Move replicas, ``{broker: pids}``, to ``target``; the requests go out at the end, or stay in ``batch``."""
    table = shell.context.table
    valid, refused = rsm.check_valid_previous_states(table, replicas, target)
    for broker, pids in refused.items():
        log.error(
            "Replicas on broker %d that may not become %s stay as they are: %s", broker, target.name, shell.sample(pids)
        )
    own = shell.new_batch() if batch is None else batch
    match target:
        case ReplicaState.NewReplica:
            _new_replicas(shell, valid, own)
        case ReplicaState.OnlineReplica:
            await _online_replicas(shell, valid, own)
        case ReplicaState.OfflineReplica:
            await _offline_replicas(shell, valid, own)
        case ReplicaState.ReplicaDeletionStarted:
            for broker, pids in valid.items():
                own.add_stop_replica_request_for_brokers((broker,), pids, delete=True)
            rsm.set_replica_states(table, valid, target)
        case ReplicaState.ReplicaDeletionSuccessful | ReplicaState.ReplicaDeletionIneligible:
            rsm.set_replica_states(table, valid, target)
        case ReplicaState.NonExistentReplica:
            rsm.set_replica_states(table, valid, target)
            rsm.drop_replicas(table, valid)
    if batch is None:
        await shell.send(own)


def _new_replicas(shell: ControllerShell, replicas: rsm.Replicas, batch: RequestBatch) -> None:
    table = shell.context.table
    for broker, pids in replicas.items():
        leading = [pid for pid in pids if table.isr_of[pid] != NO_ISR and table.leader[pid] == broker]
        if leading:
            log.error("Replicas on broker %d that lead cannot be new: %s", broker, shell.sample(leading))
        fresh = [pid for pid in pids if pid not in set(leading)] if leading else list(pids)
        batch.add_leader_and_isr_request_for_brokers((broker,), fresh, is_new=True)
        rsm.set_replica_states(table, {broker: fresh}, ReplicaState.NewReplica)


async def _online_replicas(shell: ControllerShell, replicas: rsm.Replicas, batch: RequestBatch) -> None:
    table = shell.context.table
    for broker, pids in replicas.items():
        # A new replica has had its request (is_new) from whoever made it new.
        known = rsm.not_in_state(table, broker, pids, ReplicaState.NewReplica)
        batch.add_leader_and_isr_request_for_brokers((broker,), known, is_new=False)
        rsm.set_replica_states(table, {broker: pids}, ReplicaState.OnlineReplica)
        await shell.breathe()


async def _offline_replicas(shell: ControllerShell, replicas: rsm.Replicas, batch: RequestBatch) -> None:
    """Stop them, take them out of the ISRs, tell the other replicas; of topics being deleted, only stop them."""
    table = shell.context.table
    failed: dict[int, str] = {}
    for chunk in rsm.in_chunks(replicas, OFFLINE_CHUNK):
        staying = {broker: table.staying(pids) for broker, pids in chunk.items()}
        failed |= await remove_from_isr(shell, staying, batch)
        await shell.breathe()
    for broker, pids in replicas.items():
        batch.add_stop_replica_request_for_brokers((broker,), pids, delete=False)
    rsm.set_replica_states(
        table,
        {broker: [p for p in pids if p not in failed] if failed else pids for broker, pids in replicas.items()},
        ReplicaState.OfflineReplica,
    )


async def bump_leader_epochs(shell: ControllerShell, pids: Sequence[int]) -> Written:
    """Raise the leader epochs and change nothing else (``updateLeaderEpoch``); conflicts are resolved here."""
    done: list[int] = []
    failed: dict[int, str] = {}
    for _attempt in range(MAX_ATTEMPTS):
        written = await _write(shell, psm.plan_leader_epochs(shell.context, pids))
        done += written.done
        failed |= written.failed
        pids = written.conflicts
        if not pids:
            break
    failed |= dict.fromkeys(pids, f"its state znode changed {MAX_ATTEMPTS} times meanwhile")
    if failed:
        log.error("Leader epochs not raised for %s: %s", shell.sample(list(failed)), next(iter(failed.values())))
    return Written(done, [], failed)


async def remove_from_isr(shell: ControllerShell, replicas: rsm.Replicas, batch: RequestBatch) -> dict[int, str]:
    """Shrink the ISRs and tell the remaining replicas; returns pid -> why it could not be written."""
    context, table = shell.context, shell.context.table
    failed: dict[int, str] = {}
    gone = {broker: frozenset(pids) for broker, pids in replicas.items()}

    async def tell(done: Decisions) -> None:
        _journal(shell, done.pids, why="OfflineReplica")
        batch.add_leader_and_isr_requests(done.pids, done.recipients)
        await shell.send_if_large(batch)

    plan = rsm.plan_offline(context, replicas)
    if plan.without_leadership:
        batch.add_update_metadata_request_for_brokers(context.brokers, plan.without_leadership)
    for _attempt in range(MAX_ATTEMPTS):
        others = [tuple(r for r in table.replicas(pid) if pid not in gone.get(r, ())) for pid in plan.unchanged]
        batch.add_leader_and_isr_requests(plan.unchanged, others, unless_told=True)
        written = await _write(shell, plan.shrink, tell)
        failed |= written.failed
        again = set(written.conflicts)
        if not again:
            break
        plan = rsm.plan_offline(context, {broker: [p for p in pids if p in again] for broker, pids in replicas.items()})
    else:
        failed |= dict.fromkeys(plan.shrink.pids, f"its state znode changed {MAX_ATTEMPTS} times meanwhile")
    if failed:
        log.error("Replicas stay in the ISR of %s: %s", shell.sample(list(failed)), next(iter(failed.values())))
    return failed


# -- the write beat ----------------------------------------------------------------------------------------------------


async def _write(
    shell: ControllerShell, decisions: Decisions, tell: Callable[[Decisions], Awaitable[None]] | None = None
) -> Written:
    """Write the decisions under the fence and commit what ZooKeeper took.

    In steps: while one is committed and told, ZooKeeper works on the next.
    """
    result = Written([], [], {})

    async def begin(step: Decisions) -> Writes:
        topics, numbers = _names(shell, step.pids)
        return await shell.zk.set_topic_partition_states(
            topics, numbers, step.leaderships, fence=shell.context.epoch_zk_version
        )

    async def finish(step: Decisions, writes: Writes) -> None:
        done, conflicts = await _commit(shell, step, writes, result.failed)
        result.done.extend(done.pids)
        result.conflicts.extend(conflicts)
        shell.journal.append(
            "write",
            partitions=len(step.pids),
            count=len(conflicts),
            bytes=writes.largest,
            duration_us=int((shell.world.clock.monotonic() - started_s) * 1e6),
        )
        if tell is not None:
            await tell(done)

    started_s = shell.world.clock.monotonic()
    await overlapped(decisions.steps(WRITTEN_AT_ONCE), begin, finish)
    return result


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
    states = await shell.zk.get_topic_partition_states(*_names(shell, pids))
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


def _names(shell: ControllerShell, pids: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    """Topic names and partition numbers, as the port takes them."""
    table = shell.context.table
    topics, numbers = take(pids, table.topic_of, table.index_of)
    names = {number: topic.name for number in set(topics) if (topic := table.topics[number]) is not None}
    return list(map(names.__getitem__, topics)), numbers


def _journal(
    shell: ControllerShell, pids: Sequence[int], after: PartitionState | None = None, why: str | None = None
) -> None:
    """A record for each partition: from the state that it has to ``after``, or the leadership that it has now."""
    if not pids or not shell.journal.enabled:
        return
    table = shell.context.table
    topics, numbers = _names(shell, pids)
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
