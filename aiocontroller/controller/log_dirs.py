"""Log directory failures that brokers announce in ZooKeeper (``LogDirEventNotification``).

``broker_responses`` learns from LeaderAndIsr which replicas have failed.
"""

from __future__ import annotations

import logging

from aiocontroller.controller import broker_starts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_replica_state_changes
from aiocontroller.core.events import LogDirEventNotification
from aiocontroller.core.states import ReplicaState

log = logging.getLogger(__name__)


async def log_dir_event_notification(shell: ControllerShell, event: LogDirEventNotification) -> None:
    """Send each affected broker LeaderAndIsr for all its replicas; its response has errors for the failed ones."""
    names, found = await _read(shell)
    if not names:
        return
    brokers = [broker for broker in found if broker in shell.context.brokers]
    log.info("Log directory failures announced by brokers %s", brokers)
    replicas = {broker: shell.context.table.partitions_on_broker(broker) for broker in brokers}
    await handle_replica_state_changes(shell, replicas, ReplicaState.OnlineReplica)
    await shell.zk.delete_log_dir_event_notifications(names, fence=shell.context.epoch_zk_version)


async def discard_log_dir_event_notifications(shell: ControllerShell) -> None:
    """At failover, delete old notifications: brokers are sent all their replicas, and respond with the failed ones."""
    names, _ = await _read(shell)
    await shell.zk.delete_log_dir_event_notifications(names, fence=shell.context.epoch_zk_version)


async def _read(shell: ControllerShell) -> tuple[list[str], list[int]]:
    """Return the notifications' names, and the brokers that announce failures; arms the watch.

    The failures are recorded here: a broker that is stopping may never respond to LeaderAndIsr, and its disk may be
    replaced before its next start.
    """
    names = await shell.zk.get_all_log_dir_event_notifications(watch=True)
    if not names:
        return [], []
    found, bad = await shell.zk.get_brokers_from_log_dir_event_notifications(names)
    shell.report_bad_znodes(bad)
    for broker in dict.fromkeys(found):
        await broker_starts.disk_failed(shell, broker)
    return names, list(dict.fromkeys(found))
