"""A dead broker's registration goes before its session has expired, so that its successor can register at once.

Kafka's broker that is started again finds its predecessor's ``/brokers/ids/N``, dies with NodeExists, and again, until
the old session has expired.  Where ``aiocontroller.early.fast.bounce.ms`` is set, the registration is removed once the
broker's listener has refused for so long without a break.

Only of the incarnation that was seen to die, and under the fence.  Why it is an option: a process that lives while its
listener is closed would not register again before its session ends, since brokers do not watch their own registration.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import StaleRegistration

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.1


def schedule_removal(shell: ControllerShell, broker: int) -> None:
    """The broker has come under suspicion: look at it when its time is up."""
    wait_ms = shell.config.aiocontroller_early_fast_bounce_ms
    if wait_ms:
        _schedule(shell, StaleRegistration(broker, shell.context.brokers[broker].epoch), wait_ms / 1000)


def _schedule(shell: ControllerShell, event: StaleRegistration, delay_s: float) -> None:
    shell.queue.schedule(f"stale registration of {event.broker}", delay_s, event)


async def remove_stale_registration(shell: ControllerShell, event: StaleRegistration) -> None:
    context, channels = shell.context, shell.channels
    known = context.brokers.get(event.broker)
    if known is None or known.epoch != event.broker_epoch or event.broker not in context.suspected:
        return  # it has been seen to go, or to be there
    assert channels is not None
    left_s = shell.config.aiocontroller_early_fast_bounce_ms / 1000 - channels.refusing_s(event.broker)
    if left_s > 0:
        _schedule(shell, event, max(left_s, LOOK_AGAIN_S))  # it is silent, or not refusing for long enough
        return
    if await shell.zk.delete_broker_registration(event.broker, known.epoch, fence=context.epoch_zk_version):
        log.warning("Removed the registration of broker %d (epoch %d): nobody listens there", known.id, known.epoch)
        shell.journal.append(
            "suspicion", event="registration removed", state="broker", broker=known.id, broker_epoch=known.epoch
        )
