"""ISR changes before inter.broker.protocol.version 2.7: a leader writes the state znode and notifies the controller.

After Kafka's ``ZkIsrManager`` (until 2.6 a part of ``Partition`` and ``ReplicaManager``).  A write is conditional on
the znode's version and carries no fence.  The controller is notified late: every 2.5 s the broker checks whether 5 s
have passed without a change, or 60 s since the last notification, and if so creates a notification in
``/isr_change_notification``.  Changes that are not yet notified when the process ends stay without a notification.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.lab.cluster.broker_links import Signal
from aiocontroller.lab.cluster.partition import IsrChange
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.errors import Code, SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Writes
from aiocontroller.zookeeper.znodes import encode_partition_states

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 2.5
LINGER_S = 5.0
MAX_DELAY_S = 60.0
MAX_CHANGES = 1000


class ZkIsrManager:
    """``run`` writes ISR changes after ``wake``; ``propagate`` notifies the controller."""

    def __init__(self, world: World, replicas: ReplicaManager, zk: KafkaZkClient) -> None:
        self._clock = world.clock
        self._replicas = replicas
        self._zk = zk
        self._wanted = Signal()
        self._changed: dict[TopicPartition, None] = {}
        self._last_change_s = self._last_propagation_s = self._clock.monotonic()

    def wake(self) -> None:
        """Called when ``replicas.isr_changes`` may have changes."""
        if self._replicas.isr_changes:
            self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            while changes := list(self._replicas.isr_changes.values())[:MAX_CHANGES]:
                try:
                    await self._write(changes)
                except SessionExpiredError:
                    log.info("the ZooKeeper session has expired: the ISRs of %d partitions stay", len(changes))
                    for change in changes:
                        self._replicas.revert_isr_change(change)

    async def _write(self, changes: list[IsrChange]) -> None:
        broker_id = self._replicas.broker_id
        states = [
            LeaderAndIsr(broker_id, c.leader_epoch, c.isr, c.partition.controller_epoch, c.partition_epoch)
            for c in changes
        ]
        names = [paths.topic_partition_state(c.partition.topic, c.partition.partition) for c in changes]
        encoded = encode_partition_states(states)
        writes = await self._zk.client.set_many(names, encoded, [c.partition_epoch for c in changes])
        there = await self._written_before(names, encoded, writes)
        for change, name, code, version in zip(changes, names, writes.code, writes.version, strict=True):
            if code == Code.OK or name in there:
                version = there.get(name, version)
                self._note(change)
                self._replicas.isr_change_answered(change, 0, change.leader_epoch, change.isr, version)
                continue
            log.info("%s: its state has another version than %d", change.partition, change.partition_epoch)
            if self._replicas.generation.awaits_isr_by_zookeeper:
                refusal = KafkaErrorCode.INVALID_UPDATE_VERSION
                self._replicas.isr_change_answered(change, refusal, change.leader_epoch, change.isr, -1)
            else:
                self._replicas.revert_isr_change(change)

    async def _written_before(self, names: Sequence[str], encoded: Sequence[bytes], writes: Writes) -> dict[str, int]:
        """Return the versions of rejected states that already hold the new data.

        An earlier attempt succeeded, but its answer was lost (``ReplicationUtils.checkLeaderAndIsrZkData``).
        """
        wanted = {n: e for n, e, code in zip(names, encoded, writes.code, strict=True) if code == Code.BAD_VERSION}
        if not wanted:
            return {}
        reads = await self._zk.client.get_many(list(wanted))
        found = enumerate(zip(wanted.items(), reads.data, strict=True))
        return {name: reads.version[at] for at, ((name, data), there) in found if there == data}

    def _note(self, change: IsrChange) -> None:
        self._changed[TopicPartition(change.partition.topic, change.partition.partition)] = None
        self._last_change_s = self._clock.monotonic()

    async def propagate(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL_S)
            now_s = self._clock.monotonic()
            if not self._changed:
                continue
            if self._last_change_s + LINGER_S < now_s or self._last_propagation_s + MAX_DELAY_S < now_s:
                changed = list(self._changed)
                try:
                    await self._zk.propagate_isr_changes(changed)
                except SessionExpiredError:
                    continue  # until the next check, in the next session
                for partition in changed:
                    self._changed.pop(partition, None)
                self._last_propagation_s = now_s
