"""Debts in action: read at failover, written in the step that incurs them, paid when brokers answer.

``docs/debts.md`` covers what may happen between these steps, and why nothing is deleted wrongly then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    bump_leader_epochs,
    handle_partition_state_changes,
    handle_replica_state_changes,
)
from aiocontroller.core import debt_changes as plan
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import (
    DebtAttempts,
    DebtParents,
    DebtParentsForgotten,
    DebtsGivenUp,
    DebtsNotAsked,
    DebtsRefused,
    DebtsStored,
    DebtsUnpaid,
    HeldBack,
    HoldReleased,
)
from aiocontroller.core.debts import Changes, Debt, Key
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import PayDebts, StopReplicaResponseReceived
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.debts import FoundDebts, Owed
from aiocontroller.zookeeper.errors import CONFLICTS, Code, is_refusal
from aiocontroller.zookeeper.znode_access import answered

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 16


# -- at the failover ---------------------------------------------------------------------------------------------------


async def load_debts(shell: ControllerShell) -> None:
    """Read the debts of earlier aiocontrollers, and give up those that another kind of controller has overtaken."""
    await take_debts(shell, await read_debts(shell))


async def read_debts(shell: ControllerShell) -> FoundDebts:
    """Read the debts of earlier aiocontrollers."""
    return await shell.zk.debts.load()


async def take_debts(shell: ControllerShell, found: FoundDebts) -> None:
    """Take debts over, and give up those that another kind of controller has overtaken."""
    context = shell.context
    shell.report_bad_znodes(found.bad)
    apply(context, *(DebtsStored(*owed) for owed in found.owed))
    if not context.debts:
        return
    gone, overtaken = plan.plan_giving_up(context, found.epoch)
    if overtaken:
        log.error(
            "Another controller was active since epoch %d, so these replicas may stay on their disks: %s",
            found.epoch,
            _sample(overtaken),
        )
    # Written before the note that we keep the debts: if we end in between, the next controller must be as careful.
    if not await write(shell, gone, "given up", noted=False):
        apply(context, DebtsGivenUp(gone.forgotten(), found.epoch))
    await _prepare(shell, context.debts.brokers())
    apply(context, HeldBack(plan.rows_of_debtors(context)))
    log.info("%d replicas are still to be deleted, on brokers %s", len(context.debts), context.debts.brokers())


async def pay_all(shell: ControllerShell) -> None:
    """At failover: ask all live brokers for what they owe."""
    await pay(shell, shell.context.debts)


# -- making and forgetting ---------------------------------------------------------------------------------------------


async def write(shell: ControllerShell, changes: Changes, why: str, *, noted: bool = True) -> bool:
    """Write the changes, then apply them: a debt is removed from ZooKeeper before other code relies on its removal.

    Returns whether they were written; False when conflicting writes kept coming, or ZooKeeper refused.  With ``noted``
    False only existing znodes change, and ZooKeeper does not record that this controller manages them.
    """
    refused: dict[Key, str] = {}
    for _attempt in range(MAX_ATTEMPTS):
        wanted = {key: partitions for key, partitions in changes.wanted().items() if key not in refused}
        if not wanted:
            break
        owed = await prepared(shell, wanted) if noted else _owed(shell, wanted)
        answers = await shell.zk.debts.write(owed, fence=shell.context.epoch_zk_version)
        codes = [(one, parent_refused(shell, [one]) or code) for one, code in zip(owed, answers, strict=True)]
        written(shell, [one for one, code in codes if code == Code.OK], why)
        await read_again(shell, [one for one, code in codes if code in CONFLICTS])
        refused |= {(one.broker, one.topic): answered(one.path, code) for one, code in codes if is_refusal(code)}
    if refused:
        log.error("Cannot record which replicas brokers must delete: %s", _listed(refused.values()))
    if changed := [key for key in changes.wanted() if key not in refused]:
        log.error("Debts changed %d times meanwhile and are left as they are: %s", MAX_ATTEMPTS, changed[:5])
    return not changes.wanted()


async def prepared(shell: ControllerShell, wanted: dict[Key, dict[int, bytes]]) -> list[Owed]:
    """The wanted debts as znodes to be written; creates their parents, if ZooKeeper allows it."""
    await _prepare(shell, [broker for broker, _ in wanted])
    return _owed(shell, wanted)


def _owed(shell: ControllerShell, wanted: dict[Key, dict[int, bytes]]) -> list[Owed]:
    version = shell.context.debts.version
    return [Owed(*key, partitions, version(*key)) for key, partitions in wanted.items()]


async def _prepare(shell: ControllerShell, brokers: Iterable[int]) -> None:
    """Create the brokers' parent znodes, once per term."""
    context = shell.context
    new = [broker for broker in dict.fromkeys(brokers) if context.debt_parents.get(broker) != Code.OK]
    if new:
        codes = await shell.zk.debts.prepare(context.debts_epoch, new, fence=context.epoch_zk_version)
        apply(context, DebtParents(codes))


def parent_refused(shell: ControllerShell, owed: Sequence[Owed]) -> int:
    """The code with which ZooKeeper refused a parent of these znodes; 0: they can be written."""
    return next((code for one in owed if (code := shell.context.debt_parents.get(one.broker, 0))), 0)


def written(shell: ControllerShell, owed: Iterable[Owed], why: str) -> None:
    """Apply debts that ZooKeeper has accepted."""
    context = shell.context
    for one in owed:
        before = len(context.debts.of(one.broker, one.topic))
        version = one.version + 1 if one.partitions else -1
        apply(context, DebtsStored(one.broker, one.topic, one.partitions, version))
        shell.journal.append(
            "debt", event=why, broker=one.broker, topic=one.topic, partitions=len(one.partitions), count=before
        )


async def read_again(shell: ControllerShell, owed: Sequence[Owed]) -> None:
    """Read debts again after a foreign write: an operator gives debts up by deleting their znodes."""
    if not owed:
        return
    apply(shell.context, DebtParentsForgotten())  # they may have been deleted, too
    found, bad = await shell.zk.debts.read([(one.broker, one.topic) for one in owed])
    shell.report_bad_znodes(bad)
    dropped: list[Debt] = []
    for one in found:
        before = list(shell.context.debts.of(one.broker, one.topic).values())
        apply(shell.context, DebtsStored(*one))
        dropped += [debt for debt in before if not shell.context.debts.holds(debt)]
    if dropped:
        log.warning("Their znodes were deleted, so these replicas may stay on their disks: %s", _sample(dropped))
        await _go_on_with(shell, dropped)


# -- paying ------------------------------------------------------------------------------------------------------------


async def pay(shell: ControllerShell, debts: Iterable[Debt]) -> None:
    """Ask live brokers for those of the debts that they have not been asked for yet."""
    batch = shell.new_batch()
    batch.add_debts(debts)
    await shell.send(batch)


async def pay_debts(shell: ControllerShell, event: PayDebts) -> None:
    """Ask a broker again, with leader epochs above those that it has refused."""
    await _look_who_gave_up(shell, event.broker)
    fenced = [debt for debt in shell.context.debts.of_broker(event.broker) if debt.fenced]
    await _outrank(shell, fenced)
    await pay(shell, shell.context.debts.of_broker(event.broker))


async def look_and_pay(shell: ControllerShell, broker: int) -> None:
    """Pay the broker's debts, except those that an operator has given up meanwhile."""
    if shell.context.debts.of_broker(broker):
        await _look_who_gave_up(shell, broker)
        await pay(shell, shell.context.debts.of_broker(broker))


async def _look_who_gave_up(shell: ControllerShell, broker: int) -> None:
    topics = dict.fromkeys(debt.topic for debt in shell.context.debts.of_broker(broker))
    version = shell.context.debts.version
    found, _ = await shell.zk.debts.read([(broker, topic) for topic in topics])
    await read_again(shell, [one for one in found if one.version != version(broker, one.topic)])


async def notice_given_up(shell: ControllerShell) -> None:
    """Drop debts whose znodes are gone; for absent brokers, which are not asked, only this notices it."""
    ledger = shell.context.debts
    if not ledger:
        return
    names, unreadable = await shell.zk.debts.names(ledger.brokers())
    shell.report_bad_znodes(unreadable)
    there = set(names)  # membership only
    known = [(b, t) for b in ledger.brokers() for t in dict.fromkeys(d.topic for d in ledger.of_broker(b))]
    await read_again(shell, [Owed(*key, {}, -1) for key in known if key not in there])


async def _outrank(shell: ControllerShell, debts: Sequence[Debt]) -> None:
    """Raise leader epochs: brokers before 3.7 obey a StopReplica only with a higher epoch than the one they know."""
    table = shell.context.table
    rows = [row for debt in debts if (row := table.row(debt.topic, debt.partition)) >= 0]
    risen = await bump_leader_epochs(shell, sorted(set(rows)))
    batch = shell.new_batch()
    batch.add_leader_and_isr_requests(risen.done, [table.replicas(row) for row in risen.done])
    await shell.send(batch)


def ask_again(shell: ControllerShell, brokers: Collection[int]) -> None:
    """Mark the debts of dead or bounced brokers as not asked for, since the brokers have lost the requests."""
    apply(shell.context, *map(DebtsNotAsked, brokers))


async def debts_answered(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """Remove the debts that the broker has paid, from ZooKeeper first; ask for the rest again after a pause."""
    context = shell.context
    paid, refused = plan.read_answer(context, event)
    if not (paid or refused):
        return
    apply(context, DebtsRefused(refused))
    changes = Changes(context.debts)
    for debt in paid:
        changes.forget(debt)
    await write(shell, changes, "paid")
    unwritten = [debt for debt in paid if context.debts.holds(debt)]
    apply(context, DebtsUnpaid(unwritten))
    failed = [*refused, *unwritten]
    if failed:
        _retry(shell, event.broker, failed, silent=event.error_code == KafkaErrorCode.REQUEST_TIMED_OUT)
    else:
        apply(context, DebtAttempts(event.broker, 0))
    await _go_on_with(shell, [debt for debt in paid if not context.debts.holds(debt)])


def _retry(shell: ControllerShell, broker: int, failed: Sequence[Debt], *, silent: bool) -> None:
    attempts = shell.context.debt_attempts.get(broker, 0)
    apply(shell.context, DebtAttempts(broker, attempts + 1))
    delay_s = plan.retry_delay_s(attempts, silent=silent)
    log.warning("Replicas not deleted yet, asking again in %.0f s: %s", delay_s, _sample(failed))
    shell.queue.schedule(f"debts of broker {broker}", delay_s, PayDebts(broker))


async def _go_on_with(shell: ControllerShell, gone: Iterable[Debt]) -> None:
    """Send the brokers the present topic's replicas, once those of the earlier topic are deleted."""
    context, table = shell.context, shell.context.table
    batch = shell.new_batch()
    for broker, rows in plan.rows_by_broker(context, gone).items():
        held = plan.held_back(context, broker, rows)
        apply(context, HoldReleased(broker, held))
        free = [row for row in held if broker in table.replicas(row)]
        if not free or broker not in context.brokers:
            continue
        log.info("Broker %d has deleted replicas of earlier topics: informing it of %s", broker, shell.sample(free))
        freed = plan.plan_freed(context, broker, free)
        batch.add_leader_and_isr_request_for_brokers((broker,), freed.new, is_new=True)
        await handle_replica_state_changes(shell, freed.staying, ReplicaState.OnlineReplica, batch=batch)
        if any(row in table.not_online for row in free):
            await handle_partition_state_changes(
                shell,
                psm.partitions_to_bring_online(context),
                PartitionState.OnlinePartition,
                Strategy.OFFLINE,
                batch=batch,
            )
    await shell.send(batch)


# -- for people --------------------------------------------------------------------------------------------------------


def status(shell: ControllerShell) -> list[dict[str, object]]:
    """Per broker: the number of replicas still to be deleted, and their topics."""
    ledger, found = shell.context.debts, []
    for broker in ledger.brokers():
        debts = ledger.of_broker(broker)
        topics = list(dict.fromkeys(debt.topic for debt in debts))
        found.append({"broker": broker, "replicas": len(debts), "topics": topics[:MOST_TOPICS_SHOWN]})
    return found


MOST_TOPICS_SHOWN = 100


def _sample(debts: Sequence[Debt]) -> str:
    return _listed(list(map(repr, debts)))


def _listed(texts: Collection[str], most: int = 5) -> str:
    names = ", ".join(list(texts)[:most])
    return f"{names}, … ({len(texts)} in all)" if len(texts) > most else names
