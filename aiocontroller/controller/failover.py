"""Failover and resignation: ``onControllerFailover`` and ``onControllerResignation``, in Kafka's order."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from aiocontroller.controller import (
    audit,
    broker_starts,
    brokers,
    debts,
    delegation_tokens,
    features,
    known_controllers,
    leader_elections,
    log_dirs,
    reassignment,
    repairs,
    sickness,
    topic_deletion,
    topics,
    unclean_elections,
    warm_failover_sending,
)
from aiocontroller.controller.broker_requests import PARTITIONS_PER_REQUEST
from aiocontroller.controller.leadership_writes import names_and_numbers
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    handle_replica_state_changes,
    trigger_online_partition_state_change,
)
from aiocontroller.controller.warm_failover_sending import FULL_METADATA
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import apply, load_states
from aiocontroller.core.audit import replaced_topics, rewritten_topics
from aiocontroller.core.context_changes import NonReplicasNoted, TopicsLoaded, TopicsRemoved
from aiocontroller.core.errors import AioControllerError, ControllerMovedError, OutrankedError
from aiocontroller.core.events import FailoverStep, ZkPreferredReplicaElection
from aiocontroller.core.ids import MAX_CONTROLLER_EPOCH, LeaderAndIsr
from aiocontroller.core.reassignment import non_replicas_in_isrs
from aiocontroller.core.states import ReplicaState
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.overlap import Give, taken_in
from aiocontroller.zookeeper.znodes import BadZNode, PartitionStates

log = logging.getLogger(__name__)

CONNECT_GRACE_S = 0.1
"""How long to wait for brokers that neither answer nor refuse.  Requests are encoded when they are queued, in versions
that the broker offers; for one whose versions are unknown they may have to be encoded again later, from a newer state
(``ControllerChannelManager.send``)."""
RESTORES = 3
"""How often a reload tries to restore topics whose znodes change meanwhile."""
GROUPS_AT_ONCE = 3
"""Groups of topics in progress: one being read, one being added, and one whose states are being read."""
GROUP_PARTITIONS = 10_000
FIRST_GROUP = 100
"""Topics in a group before their sizes are known."""


async def on_controller_resignation(shell: ControllerShell) -> None:
    """Drop all watches, timers, senders and state of the term."""
    stop_hearing(shell)
    shell.faults.forget()
    epoch = shell.context.epoch
    shell.end_term()
    log.info("Resigned as the controller of epoch %d", epoch)


def stop_hearing(shell: ControllerShell) -> None:
    """Stop watches, timers and brokers' responses that refer to the current context."""
    shell.zk.forget_watches()
    shell.queue.cancel_all()
    shell.queue.drop_responses()


async def load_topics(shell: ControllerShell) -> None:
    """Load every topic's assignment and partition states; some topics are read while others are added."""
    await _load(shell, await shell.zk.get_all_topics_in_cluster(watch=True))


async def _load(shell: ControllerShell, names: Sequence[str]) -> None:
    groups = _groups(shell, names)

    async def read(give: Give) -> None:
        for group in groups:
            found = await topics.read_assignments(shell, group)
            rows = await give(partial(topics.add_partitions, shell, found))
            await _read_partition_states(shell, rows, give)

    await taken_in(min(GROUPS_AT_ONCE, -(-len(names) // FIRST_GROUP)), read)


def _groups(shell: ControllerShell, topics: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split topics into groups of about ``GROUP_PARTITIONS``, estimated from the topics loaded so far."""
    table = shell.context.table
    at, size = 0, FIRST_GROUP
    while at < len(topics):
        yield topics[at : at + size]
        at += size
        if len(table):  # the first groups are read at the same time
            size = max(1, GROUP_PARTITIONS * len(table.topic_by_name) // len(table))


async def _read_partition_states(shell: ControllerShell, rows: Sequence[int], give: Give) -> None:
    """Read the partitions' leadership; those without a state znode have none yet."""
    taken = 0

    async def take_slice(states: PartitionStates) -> None:
        nonlocal taken
        start, taken = taken, taken + len(states.number)
        await give(partial(_take, shell, rows[start:taken], states))

    await shell.zk.each_topic_partition_states(*names_and_numbers(shell, rows), take_slice)


async def end_replaced_topics(shell: ControllerShell) -> None:
    """End topics that a foreign write replaced before the audit had looked; debts record their replicas.

    Only the context from before the reload shows that brokers have such replicas.  No other controller has sent them
    anything in this term, so what they have under these names belongs to the earlier topics.
    """
    before, context = shell.before_reload, shell.context
    known = context.table.topic_by_name
    replaced = topics.replaced_by(shell, [(name, topic.id) for name, topic in known.items()])
    if before is not None:
        replaced += [topics.as_assignment(before, topic) for topic in replaced_topics(before, context.table)]
        for name, topic in before.topic_by_name.items():
            if name not in known and not topic.deleting:
                shell.vanished[name] = topics.as_assignment(before, topic)
    if replaced:
        names = [earlier.topic for earlier in replaced]
        log.warning("Topics replaced by a foreign write: %s", names)
        await _wait_for_senders(shell)  # a request is encoded when it is queued, and their rows go
        apply(context, TopicsRemoved([known[name] for name in names]))
        await topics.end_earlier_topics(shell, replaced)
        await _load(shell, names)


async def restore_lost_partitions(shell: ControllerShell) -> None:
    """Write ids and partitions back that a foreign write removed from topics' znodes, as the audit would have: brokers
    have them.  A znode that changes meanwhile is read and written again, at most ``RESTORES`` times."""
    before, context = shell.before_reload, shell.context
    for _attempt in range(RESTORES):
        rewritten = [] if before is None else rewritten_topics(before, context.table)
        if not rewritten:
            break
        log.warning("Restoring topics rewritten by a foreign write: %s", [topic.topic for topic in rewritten])
        known = context.table.topic_by_name
        for assignment in rewritten:
            await repairs.restore_partitions(shell, assignment, known[assignment.topic].id)
        apply(context, TopicsRemoved([known[topic.topic] for topic in rewritten]))
        await _load(shell, [topic.topic for topic in rewritten])
    shell.before_reload = None


async def outrank_earlier_controllers(shell: ControllerShell) -> None:
    """Restart the term with a higher epoch, by OutrankedError, if a partition state has an epoch above ours.

    ``/controller_epoch`` can fall behind: a rollback from KRaft leaves states with KRaft's higher epochs, and a
    restored backup an old znode.  Brokers that have seen a higher epoch refuse every request with a lower one.
    """
    context = shell.context
    highest = max(context.table.controller_epoch, default=0)
    if highest > MAX_CONTROLLER_EPOCH:
        log.error("Partitions have controller epoch %d, which is impossible and therefore ignored", highest)
        highest = max((e for e in context.table.controller_epoch if e <= MAX_CONTROLLER_EPOCH), default=0)
    if highest < context.epoch or (shell.reloaded and highest == context.epoch):
        return
    log.error("Partitions have controller epoch %d, above ours, %d: raising ours", highest, context.epoch)
    shell.journal.append("outranked", controller_epoch=highest)
    await shell.zk.raise_controller_epoch(highest, fence=context.epoch_zk_version)
    raise OutrankedError(f"epoch {context.epoch} gives way to {highest + 1}")


async def _take(shell: ControllerShell, rows: Sequence[int], states: PartitionStates) -> None:
    """Take states into the table."""
    shell.report_bad_znodes([value for value in states.values if isinstance(value, BadZNode)])
    readable = [value if isinstance(value, LeaderAndIsr) else None for value in states.values]
    load_states(shell.context, rows, readable, states.number, states.version)


async def discard_notifications(shell: ControllerShell) -> None:
    """Delete old notifications, which the following full read covers; reading the lists arms their watches."""
    await log_dirs.discard_log_dir_event_notifications(shell)
    fence = shell.context.epoch_zk_version
    await shell.zk.delete_isr_change_notifications(await shell.zk.get_all_isr_change_notifications(), fence=fence)


async def send_broker_list(shell: ControllerShell) -> None:
    """Send the broker list before any LeaderAndIsr, since followers look up their leader in it.

    Kafka sends it later.  From now on brokers refuse the requests that an earlier controller still has queued.
    """
    await shell.send_update_metadata(shell.context.brokers)


async def _wait_for_senders(shell: ControllerShell) -> None:
    if shell.channels is not None:
        await shell.channels.wait_until_connected(CONNECT_GRACE_S)


async def _startup_partitions(shell: ControllerShell) -> None:
    context = shell.context
    apply(context, TopicsLoaded(), NonReplicasNoted(non_replicas_in_isrs(context)))
    await broker_starts.prove(shell)
    psm.initialize_partition_states(context)
    await shell.breathe()
    shell.journal.append(
        "loaded", partitions=len(context.table), brokers=list(context.brokers), count=len(context.table.topic_by_name)
    )


async def _startup_replicas(shell: ControllerShell) -> None:
    rsm.initialize_replica_states(shell.context)
    online: dict[int, list[int]] = {}
    offline: dict[int, list[int]] = {}
    for broker in shell.context.table.brokers_with_replicas():
        await shell.breathe()
        online[broker], away = rsm.online_and_offline(shell.context, broker)
        if away:
            offline[broker] = away
    for low, high in _ranges(len(shell.context.table.topic_of)):
        batch = shell.new_batch()
        for broker, rows in online.items():
            # They are OnlineReplica already, but their broker has to receive LeaderAndIsr.
            own = rows[bisect_left(rows, low) : bisect_left(rows, high)]
            batch.add_leader_and_isr_request_for_brokers((broker,), own, is_new=False)
        await shell.send(batch)
    await handle_replica_state_changes(shell, offline, ReplicaState.OfflineReplica)


def _ranges(rows: int) -> list[tuple[int, int]]:
    """All rows in ranges of about the same length, one request for each."""
    pieces = -(-rows // PARTITIONS_PER_REQUEST)
    return [(rows * at // pieces, rows * (at + 1) // pieces) for at in range(pieces)]


async def pending_preferred_elections(shell: ControllerShell) -> None:
    """At failover: carry out what ``/admin/preferred_replica_election`` asks for."""
    await leader_elections.zk_preferred_replica_election(shell, ZkPreferredReplicaElection())


async def schedule_periodic_work(shell: ControllerShell) -> None:
    """At failover: schedule the rebalance, the expiry of tokens, the audit and the other periodic work."""
    leader_elections.schedule_auto_leader_rebalance(shell, leader_elections.FIRST_RUN_S)
    leader_elections.schedule_avoided_leaders(shell)
    sickness.schedule_sampling(shell)
    delegation_tokens.schedule_expiry(shell)
    audit.schedule_audit(shell)


FailoverHandler = Callable[[ControllerShell], Awaitable[object]]

FAILOVER: tuple[tuple[str, FailoverHandler], ...] = (
    ("set up feature versioning", features.set_up_feature_versioning),
    ("read the brokers, start their senders", brokers.load_brokers),
    ("read the ids of earlier controllers", known_controllers.load_known_controllers),
    ("send the new epoch and the broker list", send_broker_list),
    ("discard notifications", discard_notifications),
    ("read dynamic settings", unclean_elections.load_dynamic_settings),
    ("read topics, assignments and partition states", load_topics),
    ("outrank earlier controllers", outrank_earlier_controllers),
    ("read debts", debts.load_debts),
    ("end replaced topics", end_replaced_topics),
    ("restore lost partitions", restore_lost_partitions),
    ("read the topics to be deleted", topic_deletion.load_topic_deletions),
    ("wait for the senders", _wait_for_senders),
    ("start the partition state machine", _startup_partitions),
    ("start the replica state machine", _startup_replicas),
    ("ask brokers to delete what they owe", debts.pay_all),
    ("elect leaders for New and Offline partitions", trigger_online_partition_state_change),
    ("resume reassignments", reassignment.initialize_partition_reassignments),
    ("resume topic deletions", topic_deletion.resume_deletions),
    ("carry out pending preferred elections", pending_preferred_elections),
    ("schedule periodic work", schedule_periodic_work),
)
"""The steps of a failover, in Kafka's order; ``docs/state-machines.md`` is drawn from this table."""


POSTPONABLE = frozenset(
    {
        "ask brokers to delete what they owe",
        "elect leaders for New and Offline partitions",
        "resume reassignments",
        "resume topic deletions",
        "carry out pending preferred elections",
    }
)
"""The other steps do not need these; one that fails must not leave the cluster without a controller."""


class StepFailedError(AioControllerError):
    """A postponable step failed and may have left memory half changed: load the cluster again without it."""

    def __init__(self, event: FailoverStep, error: Exception) -> None:
        super().__init__(f"{event.step}: {error!r}")
        self.event = event
        self.error = error


async def failover_step(shell: ControllerShell, event: FailoverStep) -> None:
    """Retry a step that was left out of the failover, or go on with one that is taken in parts."""
    await dict((*FAILOVER, (FULL_METADATA, warm_failover_sending.go_on)))[event.step](shell)


async def on_controller_failover(shell: ControllerShell, steps: Iterable[tuple[str, FailoverHandler]] = ()) -> None:
    """Load the cluster and take charge.  The reads that fill the context also arm the watches.

    Raises StepFailedError when a postponable step fails; the reload leaves it out.
    ``steps``: steps to take in place of those of ``FAILOVER``.
    """
    clock = shell.world.clock
    for name, step in steps or FAILOVER:
        if name in POSTPONABLE and shell.faults.suspect(FailoverStep(name), ()):
            log.error("Postponing a step of the failover that failed: %s", name)
            continue
        started_s = clock.monotonic()
        try:
            await step(shell)
        except (ControllerMovedError, SessionExpiredError):
            raise
        except Exception as error:
            if name not in POSTPONABLE:
                raise
            raise StepFailedError(FailoverStep(name), error) from error
        kind = "reload" if shell.reloaded else "failover"
        shell.journal.append(kind, event=name, duration_us=int((clock.monotonic() - started_s) * 1e6))
    log.info(
        "Ready to serve as the %s controller with epoch %d: %d brokers, %d partitions",
        "reloaded" if shell.reloaded else "new",
        shell.context.epoch,
        len(shell.context.brokers),
        len(shell.context.table),
    )
