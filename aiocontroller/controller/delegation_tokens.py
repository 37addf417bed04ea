"""Delegation tokens end: brokers issue and check them, the controller clears away those that are over."""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import ExpireDelegationTokens

log = logging.getLogger(__name__)

EXPIRY_CHECK = "delete-expired-tokens"


def schedule_expiry(shell: ControllerShell) -> None:
    interval_ms = shell.config.delegation_token_expiry_check_interval_ms
    shell.queue.schedule(EXPIRY_CHECK, interval_ms / 1000, ExpireDelegationTokens())


async def expire_delegation_tokens(shell: ControllerShell, event: ExpireDelegationTokens) -> None:
    """A token is over at the earlier of its expiry and its maximum life.

    The one decision here that needs the date of the world outside: tokens carry it.
    """
    try:
        tokens, bad = await shell.zk.get_delegation_tokens()
        shell.report_bad_znodes(bad)
        now_ms = shell.world.clock.wall_time_us() // 1000
        over = [t.token_id for t in tokens if min(t.expiry_timestamp_ms, t.max_timestamp_ms) < now_ms]
        if over:
            log.info("Delegation tokens that are over are deleted: %d", len(over))
            await shell.zk.delete_delegation_tokens(over, fence=shell.context.epoch_zk_version)
    finally:
        schedule_expiry(shell)
