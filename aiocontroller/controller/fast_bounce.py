"""Removes a dead broker's registration before its session expires, so that the restarted broker can register at once.

A restarted Kafka broker finds its old ``/brokers/ids/N`` and dies with NodeExists, repeatedly, until the old session
has expired.  With ``aiocontroller.early.fast.bounce.ms`` set, the registration is removed once the broker's listener
has refused connections for that long without a break.

Only the incarnation that was seen to die is removed, and under the fence.  It is optional because a live process whose
listener is closed would not register again before its session ends: brokers do not watch their own registration.
"""

from __future__ import annotations

import logging

from aiocontroller.controller import broker_starts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import StaleRegistration
from aiocontroller.core.suspicions import is_stale_registration

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1


def schedule_removal(shell: ControllerShell, broker: int) -> None:
    """Check a newly suspected broker when the configured time has passed."""
    wait_ms = shell.config.aiocontroller_early_fast_bounce_ms
    if wait_ms:
        _schedule(shell, StaleRegistration(broker, shell.context.brokers[broker].epoch), wait_ms / 1000)


def _schedule(shell: ControllerShell, event: StaleRegistration, delay_s: float) -> None:
    shell.queue.schedule(f"stale registration of {event.broker}", delay_s, event)


async def remove_stale_registration(shell: ControllerShell, event: StaleRegistration) -> None:
    """Remove the registration if its broker has refused connections for long enough; else look again later."""
    context, channels = shell.context, shell.channels
    if not is_stale_registration(context, event.broker, event.broker_epoch):
        return
    known = context.brokers[event.broker]
    assert channels is not None
    left_s = shell.config.aiocontroller_early_fast_bounce_ms / 1000 - channels.refusing_s(event.broker)
    if left_s > 0:
        _schedule(shell, event, max(left_s, LOOK_AGAIN_S))  # it is silent, or has not refused for long enough
        return
    await broker_starts.removed(shell, event.broker, known.epoch)
    if await shell.zk.delete_broker_registration(event.broker, known.epoch, fence=context.epoch_zk_version):
        log.warning("Removed the registration of broker %d (epoch %d): its listener is closed", known.id, known.epoch)
        shell.journal.append(
            "suspicion", event="registration removed", state="broker", broker=known.id, broker_epoch=known.epoch
        )
