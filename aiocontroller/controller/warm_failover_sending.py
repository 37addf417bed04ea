"""After a warm failover: sends all brokers everything, and arms the watches on topics, between other events.

Our epoch has silenced the previous controller, and the latest changes were sent at once.  Brokers know most of the rest
already, so it goes out in steps, each when brokers have acknowledged the one before.  A step is an event like any
other, so no event waits for more than one of them.
"""

from __future__ import annotations

import logging

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import FailoverStep, TopicChange
from aiocontroller.core.warm_failover_sending import FullMetadata, add_leader_and_isr
from aiocontroller.zookeeper.state_watches import watch_topics

log = logging.getLogger(__name__)

FULL_METADATA = "send the full metadata"
WAIT_S = 0.1
"""How long a step waits for the brokers' acknowledgements of the one before it."""


async def begin(shell: ControllerShell) -> None:
    """Send the latest changes, and queue the first step."""
    table, copy = shell.context.table, shell.copy
    assert copy is not None
    started_s = shell.world.clock.monotonic()
    shell.full_metadata = FullMetadata(len(table.topic_of), table.topic_by_name, started_s)
    recent = sorted(row for row in copy.recent if table.topic_of[row] >= 0)
    if recent:
        batch = shell.new_batch()
        add_leader_and_isr(batch, table, recent)
        batch.add_update_metadata_request_for_brokers(shell.context.brokers, table.for_update_metadata(recent))
        await shell.send(batch)
    shell.queue.append(TopicChange())  # reads the list of topics, which arms the watch on it
    shell.queue.append(FailoverStep(FULL_METADATA))


async def go_on(shell: ControllerShell) -> None:
    """Take the next step."""
    work = shell.full_metadata
    if work is None:
        return
    names = work.take_topics()
    if names:
        await watch_topics(shell.zk.client, names)
    batch = shell.new_batch()
    work.fill(batch, shell.context.table, shell.context.brokers)
    sent = await shell.send(batch)
    if work.is_complete:
        shell.drop_copy()
        duration_us = int((shell.world.clock.monotonic() - work.started_s) * 1e6)
        shell.journal.append("failover", event=FULL_METADATA, duration_us=duration_us)
        log.info("Sent all %d partitions to all brokers", work.rows)
        return
    shell.queue.schedule(FULL_METADATA, WAIT_S, FailoverStep(FULL_METADATA))

    def acknowledged() -> None:
        if shell.full_metadata is work:
            shell.queue.schedule(FULL_METADATA, 0.0, FailoverStep(FULL_METADATA))

    sent.control.when_all(acknowledged)
