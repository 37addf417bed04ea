"""What brokers and operators leave in ZooKeeper for the controller: notifications, and requests below ``/admin``.

A handler reads all of a kind, carries them out, and deletes those that are done, under the fence.  Damaged znodes are
returned as ``BadZNode``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.core.ids import TopicPartition
from aiocontroller.zookeeper import cluster_znodes, paths, znodes
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.znode_access import ZNodeAccess
from aiocontroller.zookeeper.znode_json import BadZNode


class RequestZNodes:
    """A part of ``KafkaZkClient``, whose rules it follows."""

    def __init__(self, access: ZNodeAccess) -> None:
        self._znodes = access

    # -- notifications ---------------------------------------------------------------------------------------------

    async def get_all_isr_change_notifications(self, *, watch: bool = True) -> list[str]:
        """Sorted names, oldest first."""
        return await self._znodes.children(paths.ISR_CHANGE_NOTIFICATION, watch=watch)

    async def get_partitions_from_isr_change_notifications(
        self, names: Sequence[str]
    ) -> tuple[list[TopicPartition], list[BadZNode]]:
        """Each partition once, in the order of the notifications."""
        found: dict[TopicPartition, None] = {}
        bad: list[BadZNode] = []
        for path, data in await self._znodes.read_present([paths.isr_change(name) for name in names], bad):
            partitions = znodes.decode_partitions(path, data)
            if isinstance(partitions, BadZNode):
                bad.append(partitions)
            else:
                found.update(dict.fromkeys(partitions))
        return list(found), bad

    async def delete_isr_change_notifications(self, names: Sequence[str], *, fence: int) -> None:
        """Delete handled notifications; missing ones are fine."""
        await self._znodes.delete([paths.isr_change(name) for name in names], fence)

    async def propagate_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Announce changed ISRs, as brokers without AlterPartition do."""
        await self._znodes.create_sequential(
            paths.isr_change(paths.ISR_CHANGE_PREFIX), znodes.encode_partitions(partitions)
        )

    async def get_all_log_dir_event_notifications(self, *, watch: bool = True) -> list[str]:
        """Sorted names, oldest first."""
        return await self._znodes.children(paths.LOG_DIR_EVENT_NOTIFICATION, watch=watch)

    async def get_brokers_from_log_dir_event_notifications(
        self, names: Sequence[str]
    ) -> tuple[list[int], list[BadZNode]]:
        """Each broker once, in the order of the notifications."""
        found: dict[int, None] = {}
        bad: list[BadZNode] = []
        for path, data in await self._znodes.read_present([paths.log_dir_event(name) for name in names], bad):
            broker = znodes.decode_log_dir_event(path, data)
            if isinstance(broker, BadZNode):
                bad.append(broker)
            else:
                found[broker] = None
        return list(found), bad

    async def delete_log_dir_event_notifications(self, names: Sequence[str], *, fence: int) -> None:
        """Delete handled notifications; missing ones are fine."""
        await self._znodes.delete([paths.log_dir_event(name) for name in names], fence)

    async def propagate_log_dir_event(self, broker_id: int) -> None:
        """Announce a failed log directory, as a broker does."""
        await self._znodes.create_sequential(
            paths.log_dir_event(paths.LOG_DIR_EVENT_PREFIX), znodes.encode_log_dir_event(broker_id)
        )

    async def get_all_config_changes(self, *, watch: bool = True) -> list[str]:
        """Sorted names, oldest first; brokers remove them after 15 minutes."""
        return await self._znodes.children(paths.CONFIG_CHANGES, watch=watch)

    async def get_entities_from_config_changes(self, names: Sequence[str]) -> tuple[list[str], list[BadZNode]]:
        """Paths below ``/config`` (``topics/T``), each once, in the order of the notifications."""
        found: dict[str, None] = {}
        bad: list[BadZNode] = []
        for path, data in await self._znodes.read_present([paths.config_change(name) for name in names], bad):
            entity = cluster_znodes.decode_config_change(path, data)
            if isinstance(entity, BadZNode):
                bad.append(entity)
            else:
                found[entity] = None
        return list(found), bad

    async def create_config_change_notification(self, entity_path: str) -> None:
        """Notify all nodes that the settings at this entity path changed."""
        await self._znodes.create_sequential(
            paths.config_change(paths.CONFIG_CHANGE_PREFIX),
            cluster_znodes.encode_config_change(entity_path),
        )

    # -- admin requests --------------------------------------------------------------------------------------------

    async def get_topic_deletions(self, *, watch: bool = True) -> list[str]:
        """Topics queued for deletion, sorted."""
        return await self._znodes.children(paths.DELETE_TOPICS, watch=watch)

    async def delete_topic_deletions(self, topics: Sequence[str], *, fence: int) -> None:
        """Delete requests to delete topics; missing ones are fine."""
        await self._znodes.delete([paths.delete_topics_topic(topic) for topic in topics], fence)

    async def get_partition_reassignment(
        self, *, watch: bool = True
    ) -> dict[TopicPartition, tuple[int, ...]] | BadZNode | None:
        """The request in ``/admin/reassign_partitions``; None if there is none."""
        reads = await self._znodes.read(paths.REASSIGN_PARTITIONS, watch=watch)
        return None if reads is None else znodes.decode_reassignment(reads.data[0])

    async def set_or_create_partition_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]], *, fence: int
    ) -> bool:
        """Replace the present reassignment; the new one lacks the completed and refused entries.

        Returns False and writes nothing if ZooKeeper would not accept the size: other tools may write a shorter form.
        """
        data = znodes.encode_reassignment(reassignment)
        if len(data) > MAX_DATA_BYTES:
            return False
        await self._znodes.set_or_create(paths.REASSIGN_PARTITIONS, data, fence)
        return True

    async def delete_partition_reassignment(self, *, fence: int) -> None:
        """Delete ``/admin/reassign_partitions``; fine if it is gone."""
        await self._znodes.delete([paths.REASSIGN_PARTITIONS], fence)

    async def get_preferred_replica_election(self, *, watch: bool = True) -> list[TopicPartition] | BadZNode | None:
        """The partitions in ``/admin/preferred_replica_election``; None if there is no request."""
        reads = await self._znodes.read(paths.PREFERRED_REPLICA_ELECTION, watch=watch)
        if reads is None:
            return None
        return znodes.decode_partitions(paths.PREFERRED_REPLICA_ELECTION, reads.data[0])

    async def delete_preferred_replica_election(self, *, fence: int) -> None:
        """Delete ``/admin/preferred_replica_election``; fine if it is gone."""
        await self._znodes.delete([paths.PREFERRED_REPLICA_ELECTION], fence)
