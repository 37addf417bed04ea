"""Controlled shutdown: the broker's leaders move first, then it leaves the ISRs (``ControlledShutdown``)."""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import elect_and_take_offline
from aiocontroller.core.columns import take
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import ControlledShutdown
from aiocontroller.core.ids import UNKNOWN_BROKER_EPOCH

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0
"""The broker stops serving once answered, so the answer waits for the other brokers' responses, at most this long."""


async def controlled_shutdown(shell: ControllerShell, event: ControlledShutdown) -> None:
    """Answers with the partitions that the broker still leads; an empty answer lets it shut down."""
    context, table = shell.context, shell.context.table
    known = context.brokers.get(event.broker)
    if known is None:
        event.reply.answer(KafkaErrorCode.BROKER_NOT_AVAILABLE)
        return
    if event.broker_epoch != UNKNOWN_BROKER_EPOCH and event.broker_epoch < known.epoch:
        event.reply.answer(KafkaErrorCode.STALE_BROKER_EPOCH)
        return
    log.info("Shutting down broker %d", event.broker)
    shell.journal.append("broker", broker=event.broker, detail="controlled shutdown")
    context.begin_shutdown(event.broker)
    hosted = table.with_leadership(table.staying(table.partitions_on_broker(event.broker)))
    await shell.breathe()
    assigned, leaders = take(hosted, table.assignment_of, table.leader)
    shared = {a for a in set(assigned) if len(table.assignments.values[a].replicas) > 1}
    replicas = list(zip(hosted, assigned, leaders, strict=True))
    led = [row for row, a, leader in replicas if leader == event.broker and a in shared]
    followed = [row for row, a, leader in replicas if leader != event.broker and a in shared]
    await shell.breathe()
    batch = shell.new_batch()
    await elect_and_take_offline(shell, led, Strategy.CONTROLLED_SHUTDOWN, {event.broker: followed}, batch)
    remaining = [table.topic_partition(row) for row in led if table.leader[row] == event.broker]
    if remaining:
        log.warning("Broker %d still leads %d partitions, the first is %s", event.broker, len(remaining), remaining[0])
    sent = await shell.send(batch)
    reply = event.reply
    reply.defer()
    timer = shell.world.clock.call_later(ANSWER_WITHIN_S, lambda: reply.ensure(remaining))

    def all_heard() -> None:
        timer.cancel()
        reply.ensure(remaining)

    sent.control.when_all(all_heard)
