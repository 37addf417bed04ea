"""Both state machines in action: core plans, the plan is written under the fence and committed, and core says what
follows (``core/effects.py``), which is carried out here.

``handle_partition_state_changes`` and ``handle_replica_state_changes`` are Kafka's ``handleStateChanges`` of
``PartitionStateMachine`` and ``ReplicaStateMachine``.  As in Kafka, illegal transitions are logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from aiocontroller.controller.leadership_writes import (
    Change,
    Planned,
    carry_out,
    carry_out_effects,
    names,
    read_states_again,
)
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import apply
from aiocontroller.core.decisions import commit
from aiocontroller.core.effects import Effects, Entered, Replicas
from aiocontroller.core.election import (
    NEVER_UNCLEAN,
    Strategy,
    UncleanPolicy,
    with_online_replica,
    without_online_isr,
)
from aiocontroller.core.events import OfflinePartitionsSweep
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.errors import Code

log = logging.getLogger(__name__)

CHUNK = 20_000
"""Partitions handled at a time, so that no pass blocks the event loop for long."""


SWEEP_S = 5.0
"""How often elections are retried for partitions without a leader that have a replica online."""
SWEEP = "offline partitions sweep"


class ElectionResult(NamedTuple):
    elected: list[int]
    failed: dict[int, str]
    """row -> why it has no new leader."""


# -- partitions --------------------------------------------------------------------------------------------------------


async def handle_partition_state_changes(
    shell: ControllerShell,
    rows: Sequence[int],
    target: PartitionState,
    strategy: Strategy | None = None,
    *,
    force_unclean: bool = False,
    batch: RequestBatch | None = None,
) -> ElectionResult:
    """Move the partitions to ``target``; to OnlinePartition with an election by ``strategy`` where they had a leader.

    The requests are sent at the end, or stay in ``batch`` if one is given.
    """
    if target is not PartitionState.OnlinePartition:
        valid = _valid_partitions(shell, rows, target)
        for start in range(0, len(valid), CHUNK):
            entered = Entered(valid[start : start + CHUNK], target)
            carry_out_effects(shell, Effects((entered,)), shell.new_batch())
            await shell.breathe()
        return ElectionResult([], {})
    assert strategy is not None
    own = shell.new_batch() if batch is None else batch
    elections = await _begin_elections(shell, rows, strategy, own, force_unclean=force_unclean)
    await carry_out(shell, elections)
    if batch is None:
        await shell.send(own)
    return elections.result()


async def elect_and_take_offline(
    shell: ControllerShell, rows: Sequence[int], strategy: Strategy, replicas: Replicas, batch: RequestBatch
) -> ElectionResult:
    """Move ``rows`` to OnlinePartition and ``replicas`` to OfflineReplica, leaders first, in one stream of writes.

    The requests stay in ``batch``, unless it becomes large and is sent early.
    """
    elections = await _begin_elections(shell, rows, strategy, batch)
    await _offline_replicas(shell, _valid_replicas(shell, replicas, ReplicaState.OfflineReplica), batch, elections)
    return elections.result()


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


async def _initialize(shell: ControllerShell, rows: Sequence[int], batch: RequestBatch) -> list[int]:
    """Elect first leaders of New partitions.  Returns those that had a leader before and need an ordinary election."""
    context = shell.context
    decisions, leaderless = psm.plan_initialization(context, rows)
    if leaderless:
        log.warning("No live replica to lead the new partitions %s", shell.sample(leaderless))
    if not decisions.rows:
        return []
    topics, numbers = names(shell, decisions.rows)
    writes = await shell.zk.create_topic_partition_states(
        topics, numbers, decisions.leaderships, fence=context.epoch_zk_version
    )
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    done = decisions.select(ok)
    commit(context.table, done, [0] * len(ok))
    carry_out_effects(shell, psm.effects_of_initialization(done), batch)
    # A state that exists already was written by an earlier attempt of ours whose answer was lost, or by an earlier
    # term: Kafka leaves such a partition New and leaderless until the next failover; it is adopted here.
    existing = [row for row, code in zip(decisions.rows, writes.code, strict=True) if code == Code.NODE_EXISTS]
    lost = [
        row for row, code in zip(decisions.rows, writes.code, strict=True) if code not in (Code.OK, Code.NODE_EXISTS)
    ]
    if lost:
        log.error("Could not create the state of the new partitions %s", shell.sample(lost))
    failed = await read_states_again(shell, existing)
    return [row for row in existing if row not in failed]


async def _begin_elections(
    shell: ControllerShell,
    rows: Sequence[int],
    strategy: Strategy,
    batch: RequestBatch,
    *,
    force_unclean: bool = False,
) -> Elections:
    """Give New partitions their first leaders; the remaining ones need an ordinary election."""
    table = shell.context.table
    valid = _valid_partitions(shell, rows, PartitionState.OnlinePartition)
    new = {row: None for row in valid if table.state[row] == PartitionState.NewPartition}
    waiting, found = list(new), list[int]()
    for start in range(0, len(waiting), CHUNK):
        found += await _initialize(shell, waiting[start : start + CHUNK], batch)
        await shell.breathe()
    led = [row for row in valid if table.isr_of[row] != NO_ISR and row not in new]
    return Elections(shell, led + found, strategy, batch, force_unclean=force_unclean)


class Elections(Change):
    """Elects leaders by a strategy."""

    def __init__(
        self,
        shell: ControllerShell,
        rows: Sequence[int],
        strategy: Strategy,
        batch: RequestBatch,
        *,
        force_unclean: bool,
    ) -> None:
        super().__init__(rows, batch)
        self._shell = shell
        self._strategy = strategy
        self._force_unclean = force_unclean
        self._hopeless: list[int] = []
        """rows that no replica can lead according to memory, not checked in ZooKeeper yet."""
        self._read_again: set[int] = set()

    async def decide(self, rows: Sequence[int]) -> Planned:
        shell, strategy = self._shell, self._strategy
        unclean = await _unclean_policy(shell, rows, strategy, self._force_unclean)
        decisions, elections = psm.plan_elections(
            shell.context, rows, strategy, unclean, recovery_supported=shell.policy.leader_recovery_supported
        )
        self.failed.update(dict.fromkeys(elections.failed, f"the {strategy.value} finds none"))
        self._hopeless += elections.failed
        unclean_rows = {row for row, outcome in zip(decisions.rows, elections.outcomes, strict=True) if outcome.unclean}
        for _ in unclean_rows:
            shell.unclean_elections.mark()
        return Planned(decisions, partial(psm.effects_of_elections, strategy, unclean_rows))

    async def reconsider(self) -> None:
        """Read ZooKeeper before concluding that no replica can lead (Kafka always reads first).

        Brokers with inter.broker.protocol.version below 2.7 write ISRs themselves, so a replica that is out of sync in
        memory may be in sync.  Partitions with no replica online cannot gain from it and are skipped.
        """
        hopeless, self._hopeless = self._hopeless, []
        rows = [row for row in with_online_replica(self._shell.context, hopeless) if row not in self._read_again]
        self._read_again.update(rows)
        changed = await self._read_what_changed(self._shell, rows)
        for row in changed:
            del self.failed[row]

    def result(self) -> ElectionResult:
        if self.failed:
            some = list(self.failed)
            level = logging.DEBUG if self._shell.reported_offline.issuperset(some) else logging.WARNING
            log.log(level, "No leader elected for %s: %s", self._shell.sample(some), self.failed[some[0]])
            self._shell.reported_offline = frozenset(some)
            if self._strategy is Strategy.OFFLINE and with_online_replica(self._shell.context, some):
                self._shell.queue.schedule(SWEEP, SWEEP_S, OfflinePartitionsSweep())
        return ElectionResult(self.done, self.failed)


async def _unclean_policy(
    shell: ControllerShell, rows: Sequence[int], strategy: Strategy, force: bool
) -> UncleanPolicy:
    """Read the unclean election policy, only for topics with partitions that would need an unclean leader."""
    if strategy is not Strategy.OFFLINE:
        return NEVER_UNCLEAN
    if force:
        return UncleanPolicy(True)
    needy = without_online_isr(shell.context, rows)
    if not needy:
        return NEVER_UNCLEAN
    table = shell.context.table
    topics = list(dict.fromkeys(table.topic(row).name for row in needy))
    configs = await shell.zk.get_topic_configs(topics)
    overrides = {
        topic: config["unclean.leader.election.enable"].strip().lower() == "true"
        for topic, config in configs.items()
        if "unclean.leader.election.enable" in config
    }
    return UncleanPolicy(shell.policy.unclean_leader_election_enable, overrides)


# -- replicas ----------------------------------------------------------------------------------------------------------


async def handle_replica_state_changes(
    shell: ControllerShell,
    replicas: Replicas,
    target: ReplicaState,
    *,
    batch: RequestBatch | None = None,
) -> None:
    """Move replicas, ``{broker: rows}``, to ``target``; the requests are sent at the end, or stay in ``batch``."""
    valid = _valid_replicas(shell, replicas, target)
    own = shell.new_batch() if batch is None else batch
    if target is ReplicaState.OfflineReplica:
        await _offline_replicas(shell, valid, own)
    else:
        for broker, rows in valid.items():
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


async def _offline_replicas(
    shell: ControllerShell, replicas: Replicas, batch: RequestBatch, elections: Elections | None = None
) -> None:
    """Stop replicas, remove them from the ISRs and tell the other replicas; for topics being deleted, only stop them.

    ``elections`` come first, in the same stream.  New leaders get an ISR without the offline replicas.
    """
    context, table = shell.context, shell.context.table
    staying = {broker: sorted(table.staying(rows)) for broker, rows in replicas.items()}
    electing = frozenset() if elections is None else frozenset(elections.undecided)
    await shell.breathe()
    shrinking = Shrinking(shell, _without(staying, electing), batch, stop=True)
    await carry_out(shell, *((shrinking,) if elections is None else (elections, shrinking)))
    failed = shrinking.report()
    if elections is not None:
        # All live brokers have been sent the new leaders.
        all_live = context.live.issuperset(context.brokers) and not context.offline_dirs
        again = electing.difference(elections.done) if all_live else electing
        failed |= await remove_from_isr(shell, rsm.among(staying, sorted(again)), batch)
    carry_out_effects(shell, Effects(stopped=_without(replicas, shrinking.stopped)), batch)
    for broker, rows in _without(replicas, failed).items():
        for start in range(0, len(rows), CHUNK):
            piece = {broker: rows[start : start + CHUNK]}
            apply(context, Effects(replicas=[(piece, ReplicaState.OfflineReplica)]))
            await shell.breathe()


def _without(replicas: Replicas, rows: Collection[int]) -> Replicas:
    if not rows:
        return replicas
    return {broker: [row for row in own if row not in rows] for broker, own in replicas.items()}


async def remove_from_isr(shell: ControllerShell, replicas: Replicas, batch: RequestBatch) -> dict[int, str]:
    """Shrink the ISRs and tell the remaining replicas; returns row -> why the write failed."""
    shrinking = Shrinking(shell, replicas, batch)
    await carry_out(shell, shrinking)
    return shrinking.report()


class Shrinking(Change):
    """Removes replicas from ISRs and tells the others.  With ``stop``, the removed replicas are stopped."""

    def __init__(self, shell: ControllerShell, replicas: Replicas, batch: RequestBatch, *, stop: bool = False) -> None:
        ascending = {broker: sorted(rows) for broker, rows in replicas.items()}
        several = len(ascending) != 1
        rows = sorted(set[int]().union(*ascending.values())) if several else next(iter(ascending.values()))
        super().__init__(rows, batch)
        self.stopped: set[int] = set()
        self._unchanged: list[int] = []
        """rows with none of the replicas in sync according to memory, not checked in ZooKeeper yet."""
        self._read_again: set[int] = set()
        self._shell = shell
        self._replicas = ascending
        self._stop = stop and not shell.context.brokers.keys().isdisjoint(replicas)

    async def decide(self, rows: Sequence[int]) -> Planned:
        context, replicas = self._shell.context, rsm.among(self._replicas, rows)
        plan = rsm.plan_offline(context, replicas)
        self._unchanged += plan.unchanged
        return Planned(plan.shrink, partial(rsm.effects_of_offline, context, replicas, plan, self._stop))

    def carried_out(self, effects: Effects) -> None:
        self.stopped.update(*effects.stopped.values())

    async def reconsider(self) -> None:
        """Read ZooKeeper where there seems to be nothing to do: a leader may have added the replica to its ISR, and it
        does not remove a dead follower that was caught up."""
        rows = sorted(set(self._unchanged).difference(self._read_again))
        self._unchanged = []
        self._read_again.update(rows)
        await self._read_what_changed(self._shell, rows)

    def report(self) -> dict[int, str]:
        """Log and return why some replicas stay in their ISRs."""
        if self.failed:
            some = list(self.failed)
            log.error("Replicas stay in the ISR of %s: %s", self._shell.sample(some), self.failed[some[0]])
        return self.failed


class EpochRise(Change):
    """Raises leader epochs and changes nothing else."""

    def __init__(self, shell: ControllerShell, rows: Sequence[int]) -> None:
        super().__init__(rows)
        self._shell = shell

    async def decide(self, rows: Sequence[int]) -> Planned:
        return Planned(psm.plan_leader_epochs(self._shell.context, rows), lambda _: Effects())


async def bump_leader_epochs(shell: ControllerShell, rows: Sequence[int]) -> Change:
    """Raise the leader epochs and change nothing else (``updateLeaderEpoch``), with retries on conflicts."""
    rise = EpochRise(shell, rows)
    await carry_out(shell, rise)
    if rise.failed:
        some = list(rise.failed)
        log.error("Leader epochs not raised for %s: %s", shell.sample(some), rise.failed[some[0]])
    return rise
