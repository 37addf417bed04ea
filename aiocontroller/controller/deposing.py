"""Deposing a broker that is the controller, without making it unfit to be one again.

A broker that loses the role while it stops replicas, as it deletes a topic, keeps half a batch of requests.  In all its
later terms it can then move no replica to another state ("Controller to broker state change requests batch is not
empty"): topics are not deleted, and brokers that start receive no LeaderAndIsr.  Only a restart helps.  This is
KAFKA-12315, in all releases up to 3.9.

So a takeover registers only at a moment at which no topic is being deleted (``registration``).  After ``IDLE_WITHIN_S``
it does so anyway; what the broker was deleting shows in requests that it can no longer remove.

A rollback of a migration does not wait.  It replaces a KRaft controller that is gone; a broker that holds the role in
its place, as after a rollback by hand, may become unfit.
"""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.text import as_a_name
from aiocontroller.zookeeper import paths

IDLE_WITHIN_S = 2.0
"""After this time the broker is deposed anyway: a deletion that waits for a dead broker never ends."""
LOOK_EVERY_S = 0.02


class LeftUnfinished(NamedTuple):
    """What a broker was doing when it was deposed."""

    broker: int
    topics: tuple[str, ...]
    """Those that it was about to delete."""
    broker_epoch: int = 0
    """Of its registration then; a later one may be that of a restarted broker."""

    def __str__(self) -> str:
        return (
            f"broker {self.broker} lost the role while it was deleting {', '.join(map(as_a_name, self.topics[:5]))}"
            f"{', …' if len(self.topics) > 5 else ''}: restart it before it becomes the controller again (KAFKA-12315)"
        )


async def wait_until_idle(shell: ControllerShell, give_up_s: float) -> None:
    """Wait until no topic is being deleted, or until ``give_up_s`` by the monotonic clock."""
    clock = shell.world.clock
    while await shell.zk.get_topic_deletions(watch=False) and clock.monotonic() < give_up_s:
        await clock.sleep(LOOK_EVERY_S)


async def left_unfinished(shell: ControllerShell, broker: int) -> LeftUnfinished | None:
    """Return what the broker just deposed may have been doing; None if it was idle, or is not registered."""
    topics = await shell.zk.get_topic_deletions(watch=False)
    registration = (await shell.zk.client.exists_many([paths.broker_id(broker)])).stat(0)
    return LeftUnfinished(broker, tuple(topics), registration.created_zxid) if topics and registration else None
