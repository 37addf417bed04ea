"""Controlled shutdown: the broker's leaders move first, then it leaves the ISRs (``ControlledShutdown``)."""

from __future__ import annotations

import logging

from aiocontroller.controller import broker_starts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import elect_and_take_offline
from aiocontroller.core import controlled_shutdown as plan
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import ShutdownBegun
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import ControlledShutdown

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0
"""The broker stops serving once answered, so the answer waits for the other brokers' responses, at most this long."""


async def controlled_shutdown(shell: ControllerShell, event: ControlledShutdown) -> None:
    """Answers with the partitions that the broker still leads; an empty answer lets it shut down."""
    context, broker = shell.context, event.broker
    error = plan.check_request(context, broker, event.broker_epoch)
    if error:
        event.reply.answer(error)
        return
    log.info("Shutting down broker %d", broker)
    shell.journal.append("broker", broker=broker, detail="controlled shutdown")
    apply(context, ShutdownBegun(broker))
    hosted = plan.hosted(context, broker)
    if not plan.is_unproven(context, broker, hosted):
        await broker_starts.stopping(shell, broker, event.broker_epoch)
    await shell.breathe()
    moves = plan.plan_moves(context, broker, hosted)
    await shell.breathe()
    batch = shell.new_batch()
    await elect_and_take_offline(shell, moves.led, Strategy.CONTROLLED_SHUTDOWN, {broker: moves.followed}, batch)
    remaining = plan.still_led(context, broker, moves)
    if remaining:
        log.warning("Broker %d still leads %d partitions, the first is %s", broker, len(remaining), remaining[0])
    if plan.hears_nothing(moves, remaining):
        # Its answer shows that it was alive; without one, its stop would not count as clean (``broker_starts``).
        batch.add_update_metadata_request_for_brokers((broker,), ())
    sent = await shell.send(batch)
    reply = event.reply
    reply.defer()
    timer = shell.world.clock.call_later(ANSWER_WITHIN_S, lambda: reply.ensure(remaining))

    def all_heard() -> None:
        timer.cancel()
        reply.ensure(remaining)

    sent.control.when_all(all_heard)
