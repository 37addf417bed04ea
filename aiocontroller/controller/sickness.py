"""Sick brokers: what is watched, and what follows from a verdict of the judge (``core.sickness``).

The judge is fed by tasks that do not touch the context (``sickness_probes``).  Here the consumer tells them what to
watch, and in the mode ``act`` treats the broker that is judged sick:

 1. its leaders move to other members of their ISRs, and it leaves the ISRs that can do without it, in one fenced write
    for each partition (``core.sick_brokers`` has the limits);
 2. if it then leads nothing, UpdateMetadata no longer lists it as live, since leaders would otherwise go on waiting for
    it.  Leaders get this list before their new ISRs: a Kafka leader checks which followers to wait for only when its
    ISR changes or a follower advances, and a follower that has everything does not advance while producers wait;
 3. every ``AGAIN_S``, ISRs that could not do without it are checked again, since they may have grown;
 4. once it has been well for a while, it is listed again, and leaders may add it to their ISRs.  It becomes leader
    again as after a restart, by the election of preferred leaders.

In the mode ``advise`` nothing is changed.  A new term begins without a verdict, and sends brokers the full list.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from aiocontroller.controller.broker_fencing import schedule_fencing_of_sick
from aiocontroller.controller.leadership_writes import carry_out
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.sickness_probes import Target
from aiocontroller.core.apply import apply
from aiocontroller.core.context import SickBroker
from aiocontroller.core.context_changes import BrokerSick
from aiocontroller.core.events import SampleReplicas, SicknessChange, UnlistSickBroker
from aiocontroller.core.replica_samples import choose_partitions
from aiocontroller.core.sick_brokers import MinIsrs, SickReplicas, held_by

log = logging.getLogger(__name__)

SAMPLE = "replicas to watch for sickness"
SAMPLE_EVERY_S = 2.0
UNLIST = "sick broker to unlist"
UNLIST_AGAIN_S = 1.0
"""Between two checks whether a broker that still led something now leads nothing."""
AGAIN = "replicas of a sick broker"
AGAIN_S = 10.0
MIN_ISR = "min.insync.replicas"


def schedule_sampling(shell: ControllerShell, delay_s: float = 0.0) -> None:
    """Choose what to watch after ``delay_s``, unless sickness is not judged."""
    if shell.sickness is not None:
        shell.queue.schedule(SAMPLE, delay_s, SampleReplicas())


async def sample_replicas(shell: ControllerShell, event: SampleReplicas) -> None:
    """Tell the probes which brokers and partitions to ask about."""
    probes, context = shell.sickness, shell.context
    if probes is None:
        return
    schedule_sampling(shell, SAMPLE_EVERY_S)
    sample = choose_partitions(context, probes.busy(), probes.next_row)
    probes.next_row = sample.next_row
    targets = {broker.id: Target(broker.epoch, shell.endpoint_of(broker)) for broker in context.brokers.values()}
    probes.watch(targets, (*context.shutting_down, *context.suspected), sample.partitions)
    await _follow_verdict(shell)


async def sickness_change(shell: ControllerShell, event: SicknessChange) -> None:
    """Follow the verdict, which may have changed, and remove replicas from ISRs that can do without them now."""
    known = shell.context.sick
    await _follow_verdict(shell)
    if known is not None and shell.context.sick is known:
        await _relieve(shell, known)


async def _follow_verdict(shell: ControllerShell) -> None:
    """Bring the context into line with the present verdict."""
    probes, context = shell.sickness, shell.context
    if probes is None or not probes.acts:
        return
    verdict, known = probes.judge.sick, context.sick
    if known is not None and (verdict is None or (verdict.broker, verdict.epoch) != (known.broker, known.epoch)):
        apply(context, BrokerSick(None))
        shell.journal.append("sickness", event="taken back", broker=known.broker, broker_epoch=known.epoch)
        if known.unlisted:
            await shell.send_update_metadata(context.brokers)
    if verdict is None or context.sick is not None:
        return
    broker = context.brokers.get(verdict.broker)
    if broker is None or broker.epoch != verdict.epoch:
        return
    apply(context, BrokerSick(SickBroker(verdict.broker, verdict.epoch)))
    await _relieve(shell, context.sick)
    shell.queue.schedule(UNLIST, UNLIST_AGAIN_S, UnlistSickBroker(verdict.broker, verdict.epoch))


async def _relieve(shell: ControllerShell, sick: SickBroker | None) -> None:
    """Move its leaders, and remove it from ISRs, as far as the limits allow now."""
    assert sick is not None
    context = shell.context
    shell.queue.schedule(AGAIN, AGAIN_S, SicknessChange())
    rows = held_by(context, sick.broker)
    min_isr = await _read_min_isr(shell, rows)
    if not rows or min_isr is None:
        return
    change, batch = SickReplicas(sick.broker, rows, min_isr), shell.new_batch()
    await carry_out(shell, change, batch=batch)
    if not change.done:
        return
    if change.moved:
        schedule_fencing_of_sick(shell, sick.broker, sick.epoch)
    sick = sick._replace(relieved=sick.relieved.union(change.done))
    apply(context, BrokerSick(sick))
    shell.journal.append(
        "sickness",
        event="relieved",
        broker=sick.broker,
        broker_epoch=sick.epoch,
        partitions=len(change.done),
        count=change.moved,
    )
    log.warning(
        "Sick broker %d: removed from %d of %d ISRs, %d leaders moved",
        sick.broker,
        len(change.done),
        len(rows),
        change.moved,
    )
    if not context.leads_any(sick.broker):
        await _unlist(shell, sick, change.done)
    await shell.send(batch)


async def unlist_sick_broker(shell: ControllerShell, event: UnlistSickBroker) -> None:
    """Leave it out of the live brokers if it leads nothing; else look again later."""
    context = shell.context
    sick = context.sick
    if sick is None or (sick.broker, sick.epoch) != (event.broker, event.broker_epoch) or sick.unlisted:
        return
    if context.leads_any(sick.broker):
        shell.queue.schedule(UNLIST, UNLIST_AGAIN_S, event)
        return
    await _unlist(shell, sick)


async def _unlist(shell: ControllerShell, sick: SickBroker, rows: Sequence[int] = ()) -> None:
    """Send all brokers a list without it, with the present leaders of these rows."""
    if sick.unlisted:
        return
    apply(shell.context, BrokerSick(sick._replace(unlisted=True)))
    shell.journal.append("sickness", event="unlisted", broker=sick.broker, broker_epoch=sick.epoch)
    await shell.send_update_metadata(shell.context.brokers, rows)


async def _read_min_isr(shell: ControllerShell, rows: Sequence[int]) -> MinIsrs | None:
    """Return the topics' settings, and the strictest of the brokers'; None while no broker has reported its own."""
    table, settings = shell.context.table, shell.settings
    reported = [value for broker in settings.brokers if (value := settings.reported(broker, MIN_ISR))]
    if not reported or not rows:
        return None
    topics = list(dict.fromkeys(table.topic(row).name for row in rows))
    configs = await shell.zk.get_topic_configs(topics)
    own = {topic: _number(config[MIN_ISR]) for topic, config in configs.items() if MIN_ISR in config}
    return MinIsrs(max(map(_number, reported)), own)


def _number(text: str) -> int:
    """Parse a setting; a value that cannot be read counts as one that forbids everything."""
    try:
        return int(text)
    except ValueError:
        return 1 << 30


def status(shell: ControllerShell) -> dict[str, Any]:
    """Status as JSON values; empty while no broker is sick."""
    verdict = None if shell.sickness is None else shell.sickness.judge.sick
    if verdict is None or not shell.is_active:
        return {}
    treated = shell.context.sick
    return {
        "broker": verdict.broker,
        "kind": verdict.kind,
        "evidence": verdict.evidence,
        "for_s": round(shell.world.clock.monotonic() - verdict.since_s, 1),
        "treated": treated is not None and treated.broker == verdict.broker,
        "relieved_partitions": 0 if treated is None else len(treated.relieved),
        "unlisted": treated is not None and treated.unlisted,
    }
