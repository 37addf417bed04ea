"""Follows the ISRs of partitions being reassigned, where leaders write ISRs to ZooKeeper themselves.

Below inter.broker.protocol.version 2.7 an added replica is in sync once the leader has written the ISR, but the
leader's notification may come seconds later.  So, as in Kafka, the state znodes of these partitions are watched.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.controller.leadership_writes import names_and_numbers, read_states_again
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.zookeeper.state_watches import watch_topic_partition_states


async def follow_isrs(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Read the states from ZooKeeper and watch them; does nothing where brokers send AlterPartition."""
    if rows and not shell.policy.alter_partition_supported:
        await watch_topic_partition_states(shell.zk.client, *names_and_numbers(shell, rows))
        await read_states_again(shell, rows)
