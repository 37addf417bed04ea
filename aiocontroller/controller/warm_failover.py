"""The failover of a warm standby: what it does before its first event does not grow with the cluster.

It goes on with the copy of the cluster that it has kept (``mirror``) and reads only what has changed since.  It begins
in Kafka's order: the epoch before all else, the brokers before any LeaderAndIsr, everything to brokers that have just
started.  Then comes the urgent work: new leaders in place of those on dead brokers, and the latest changes.  Afterwards
all brokers are sent everything, between other events (``warm_failover_sending``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from typing import Any

from aiocontroller.controller import (
    broker_starts,
    brokers,
    debts,
    failover,
    features,
    known_controllers,
    log_dirs,
    reassignment,
    topic_deletion,
    topics,
    unclean_elections,
    warm_failover_sending,
)
from aiocontroller.controller.failover import FailoverHandler, on_controller_failover
from aiocontroller.controller.leadership_writes import names_and_numbers
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import elect_and_take_offline
from aiocontroller.core import mirror
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import TopicsLoaded, TopicsRemoved
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import IsrChangeNotification
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr
from aiocontroller.core.reassignment import naming_controllers
from aiocontroller.core.warm_failover_sending import add_leader_and_isr
from aiocontroller.net.tasks import Tasks, task_group
from aiocontroller.zookeeper.znodes import BadZNode, PartitionStates

Read = Callable[[ControllerShell], Coroutine[Any, Any, Any]]

TOPICS_AT_ONCE = 100
FRESH_S = 30.0
"""Brokers that registered less than this before the election may not have received anything yet."""


class Ahead:
    """A step with reads that start as soon as the failover does, together with those of other steps.

    So a read must neither look at the context nor change it; ``take`` gets what was read when it is the step's turn.
    """

    def __init__(self, take: Callable[..., Awaitable[object]], *reads: Read) -> None:
        self.take = take
        self.reads = reads

    def begin(self, shell: ControllerShell, tasks: Tasks) -> FailoverHandler:
        """Begin to read; returns what to call when it is the step's turn."""
        found = [asyncio.get_running_loop().create_future() for _ in self.reads]

        async def run(read: Read, into: asyncio.Future[Any]) -> None:
            try:
                into.set_result(await read(shell))
            except Exception as error:  # raised when it is the step's turn
                into.set_exception(error)
                into.exception()  # marks it as retrieved, even if an earlier error ends the failover

        async def take(shell: ControllerShell) -> None:
            await self.take(shell, *[await one for one in found])

        for read, into in zip(self.reads, found, strict=True):
            tasks.start_soon(run, read, into)
        return take


async def take_notifications(shell: ControllerShell) -> None:
    """Delete notifications of failed log directories, which the answers to the full metadata show; queue ISR changes.

    A cold failover deletes both, as it reads all states afterwards.
    """
    await log_dirs.discard_log_dir_event_notifications(shell)
    shell.queue.append(IsrChangeNotification())


async def read_what_has_changed(shell: ControllerShell) -> None:
    """Read what may differ from the copy, and what a failover repairs as it reads: topics without an id, and
    assignments that name a controller."""
    assert shell.copy is not None
    context, table = shell.context, shell.context.table
    changed, rows = shell.copy.leftovers()
    repaired = [topic for topic in table.topic_by_name.values() if topic.id == NO_TOPIC_ID]
    if not shell.policy.topic_ids_supported:
        repaired = []
    repaired += [table.topic(row) for row in naming_controllers(context)]
    again = dict.fromkeys((*changed, *(topic.name for topic in repaired)))
    numbers = {table.topic_by_name[name].number for name in again if name in table.topic_by_name}
    await _read_states(shell, [row for row in rows if table.topic_of[row] not in numbers])
    apply(context, TopicsRemoved([table.topic_by_name[name] for name in again if name in table.topic_by_name]))
    wanted = list(again)
    for at in range(0, len(wanted), TOPICS_AT_ONCE):
        found = await topics.read_assignments(shell, wanted[at : at + TOPICS_AT_ONCE])
        await _read_states(shell, await topics.add_partitions(shell, found))


async def _read_states(shell: ControllerShell, rows: Sequence[int]) -> None:
    taken = 0

    async def take_slice(states: PartitionStates) -> None:
        nonlocal taken
        start, taken = taken, taken + len(states.number)
        shell.report_bad_znodes([value for value in states.values if isinstance(value, BadZNode)])
        readable = [value if isinstance(value, LeaderAndIsr) else None for value in states.values]
        mirror.load_again(shell.context, rows[start:taken], readable, states.number, states.version)
        assert shell.copy is not None
        shell.copy.highest_epoch = max([shell.copy.highest_epoch, *(s.controller_epoch for s in readable if s)])

    await shell.zk.each_topic_partition_states(*names_and_numbers(shell, rows), take_slice)


async def outrank_earlier_controllers(shell: ControllerShell) -> None:
    """As in a cold failover; the copy knows the highest epoch of what it has read, and of what was read again."""
    assert shell.copy is not None
    if shell.copy.highest_epoch >= shell.context.epoch:
        await failover.outrank_earlier_controllers(shell)


async def note_that_the_cluster_is_loaded(shell: ControllerShell) -> None:
    """Enter that all is loaded: the copy has states, and those that depend on live brokers are set by elections."""
    context = shell.context
    apply(context, TopicsLoaded())
    await broker_starts.prove(shell)
    shell.journal.append(
        "loaded", partitions=len(context.table), brokers=list(context.brokers), count=len(context.table.topic_by_name)
    )


async def read_settled_brokers(shell: ControllerShell) -> set[int]:
    """The epochs of brokers that have received what they host from earlier controllers."""
    return await shell.zk.epochs_registered_before(FRESH_S)


async def send_to_fresh_brokers(shell: ControllerShell, settled: Container[int]) -> None:
    """Send everything to brokers that have just started: to all but those of the epochs ``settled``.

    After its first LeaderAndIsr a Kafka broker begins to write to disk the high watermarks of the partitions that it
    has received; those of all others are lost.  So the first one must be complete, and only the controller under which
    the broker registered would have sent it.  This is also true of a broker that registers while brokers are read, so
    the read that accompanies it returns those that have *not* just started.
    """
    table, batch = shell.context.table, shell.new_batch()
    fresh = [broker.id for broker in shell.context.brokers.values() if broker.epoch not in settled]
    if not fresh:
        return
    for broker in fresh:
        add_leader_and_isr(batch, table, table.partitions_on_broker(broker), to=broker)
        await shell.breathe()
    batch.add_update_metadata_request_for_brokers(fresh, table.for_update_metadata(table.rows()))
    await shell.send(batch, in_one=True)


async def elect_leaders(shell: ControllerShell) -> None:
    """Elect new leaders, then remove replicas that are not online from ISRs, both piece by piece."""
    context = shell.context
    for away, rows in mirror.start_state_machines(context):
        batch = shell.new_batch()
        offline = psm.partitions_to_bring_online(context, among=rows)
        await elect_and_take_offline(shell, offline, Strategy.OFFLINE, away, batch)
        await shell.send(batch)


WARM_FAILOVER: tuple[tuple[str, FailoverHandler | Ahead], ...] = (
    ("read the brokers, start their senders", Ahead(brokers.take_brokers, brokers.read_brokers, broker_starts.read)),
    (
        "read the ids of earlier controllers",
        Ahead(known_controllers.take_known_controllers, known_controllers.read_known_controllers),
    ),
    ("send the new epoch and the broker list", failover.send_broker_list),
    ("read what has changed", read_what_has_changed),
    ("outrank earlier controllers", outrank_earlier_controllers),
    ("read debts", Ahead(debts.take_debts, debts.read_debts)),
    (
        "read the topics to be deleted",
        Ahead(topic_deletion.take_topic_deletions, topic_deletion.read_topic_deletions),
    ),
    ("note that the cluster is loaded", note_that_the_cluster_is_loaded),
    ("send everything to brokers that have just started", Ahead(send_to_fresh_brokers, read_settled_brokers)),
    ("elect leaders for New and Offline partitions", elect_leaders),
    ("set up feature versioning", features.set_up_feature_versioning),
    ("take notifications", take_notifications),
    ("read dynamic settings", unclean_elections.load_dynamic_settings),
    ("ask brokers to delete what they owe", debts.pay_all),
    ("resume reassignments", reassignment.initialize_partition_reassignments),
    ("resume topic deletions", topic_deletion.resume_deletions),
    ("carry out pending preferred elections", failover.pending_preferred_elections),
    ("schedule periodic work", failover.schedule_periodic_work),
    ("begin to send the full metadata", warm_failover_sending.begin),
)
"""The steps of a warm failover; ``docs/state-machines.md`` is drawn from this table.

They are in Kafka's order, except that whatever new leaders do not depend on comes after them, and what they do depend
on is read ahead: otherwise each step would wait for ZooKeeper at least once.
The guard has read the dynamic settings just before the term.
"""


async def on_warm_failover(shell: ControllerShell, confirm: Callable[[], Awaitable[None]]) -> None:
    """Take charge with the copy of the cluster; raises as ``on_controller_failover``.

    ``confirm`` runs before the first step, while the steps' reads are on their way; it raises if the role is gone.
    """
    failed: Exception | None = None
    async with task_group() as tasks:
        steps = [(name, step.begin(shell, tasks) if isinstance(step, Ahead) else step) for name, step in WARM_FAILOVER]
        try:
            await confirm()
            await on_controller_failover(shell, steps)
        except Exception as error:
            failed = error  # raised once the reads have ended: the watches they arm must not outlive the term
    if failed is not None:
        raise failed
