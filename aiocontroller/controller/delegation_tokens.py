"""Expiry of delegation tokens: brokers issue and check them, the controller deletes expired ones."""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import ExpireDelegationTokens

log = logging.getLogger(__name__)

EXPIRY_CHECK = "delete-expired-tokens"


def schedule_expiry(shell: ControllerShell) -> None:
    """Look for expired tokens after the brokers' check interval."""
    interval_ms = shell.policy.delegation_token_expiry_check_interval_ms
    shell.queue.schedule(EXPIRY_CHECK, interval_ms / 1000, ExpireDelegationTokens())


async def expire_delegation_tokens(shell: ControllerShell, event: ExpireDelegationTokens) -> None:
    """Delete tokens past their expiry time or the end of their maximum lifetime, whichever is earlier.

    This decision alone needs wall-clock time, since tokens carry timestamps.
    """
    try:
        tokens, bad = await shell.zk.get_delegation_tokens()
        shell.report_bad_znodes(bad)
        now_ms = shell.world.clock.wall_time_us() // 1000
        over = [t.token_id for t in tokens if t.has_expired(now_ms)]
        if over:
            log.info("Expired delegation tokens deleted: %d", len(over))
            await shell.zk.delete_delegation_tokens(over, fence=shell.context.epoch_zk_version)
    finally:
        schedule_expiry(shell)
