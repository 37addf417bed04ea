"""What the controller knows: brokers, partitions, and what is under way (Kafka's ``ControllerContext``).

One coroutine owns it.  It is emptied by making a new one: nothing of one term can leak into the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.core.ids import Broker
from aiocontroller.core.partitions import PartitionTable, Topic


class ControllerContext:
    def __init__(self, epoch: int = 0, epoch_zk_version: int = 0) -> None:
        self.epoch = epoch
        """This term's controller epoch; 0 when not in office."""
        self.epoch_zk_version = epoch_zk_version
        """Version of ``/controller_epoch`` won at election: the fence of every write."""
        self.loaded = False
        """All topics have been read: what is not in the table does not exist."""
        self.table = PartitionTable()
        self.brokers: dict[int, Broker] = {}
        """Every registered broker, also those shutting down, by id."""
        self.shutting_down: dict[int, None] = {}
        """Brokers in controlled shutdown, in order of their request."""
        self.suspected: dict[int, None] = {}
        """Registered brokers that seem to be dead (early detection), in the order of their suspicions."""
        self.leaving: frozenset[int] = frozenset()
        """Ids of those that shut down or are suspected: registered, and not to lead or to be in sync."""
        self.live: frozenset[int] = frozenset()
        """Ids of the brokers that may lead: registered and not leaving."""
        self.controllers: frozenset[int] = frozenset()
        """Ids of this and of earlier controllers of our kind, none of them a broker's: nobody there holds a replica."""
        self.offline_dirs: dict[int, set[int]] = {}
        """Broker -> pids whose replica there is on a failed log directory."""
        self.partitions_being_reassigned: dict[int, None] = {}
        self.replicas_being_removed: dict[int, dict[int, int]] = {}
        """pid -> {broker that a reassignment takes it from: how often StopReplica was sent}; until it is answered.

        Brokers that are away stand here too, as long as one that is there is waited for."""
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: dict[str, None] = {}
        self.topics_ineligible_for_deletion: dict[str, None] = {}

    # -- brokers ---------------------------------------------------------------------------------------------------

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        for broker in brokers:
            self.brokers[broker.id] = broker
        self._brokers_changed()

    def remove_brokers(self, ids: Iterable[int]) -> None:
        for broker in ids:
            self.brokers.pop(broker, None)
            self.shutting_down.pop(broker, None)
            self.suspected.pop(broker, None)
            self.offline_dirs.pop(broker, None)
        self._brokers_changed()

    def begin_shutdown(self, broker: int) -> None:
        self.shutting_down[broker] = None
        self._brokers_changed()

    def suspect(self, brokers: Iterable[int]) -> None:
        self.suspected.update(dict.fromkeys(brokers))
        self._brokers_changed()

    def trust(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            self.suspected.pop(broker, None)
        self._brokers_changed()

    def _brokers_changed(self) -> None:
        self.brokers = dict(sorted(self.brokers.items()))
        self.leaving = frozenset((*self.shutting_down, *self.suspected))
        self.live = frozenset(self.brokers).difference(self.leaving)

    # -- topics ----------------------------------------------------------------------------------------------------

    def remove_topic(self, topic: Topic) -> None:
        """Forget the topic and all that is known by its pids, since their rows are used again."""
        gone = topic.partitions()
        for pid in gone:
            self.partitions_being_reassigned.pop(pid, None)
            self.replicas_being_removed.pop(pid, None)
        for broker in list(self.offline_dirs):
            self.set_offline_dir_replicas(broker, (), gone)
        for names in (
            self.topics_to_be_deleted,
            self.topics_with_deletion_started,
            self.topics_ineligible_for_deletion,
        ):
            names.pop(topic.name, None)
        self.table.remove_topic(topic)

    # -- replicas --------------------------------------------------------------------------------------------------

    def is_replica_online(self, pid: int, broker: int, *, include_shutting_down: bool = False) -> bool:
        """Whether the broker is there and its log directory for the partition works."""
        alive = self.brokers if include_shutting_down else self.live
        return broker in alive and pid not in self.offline_dirs.get(broker, ())

    def offline_dir_replicas(self, pid: int) -> tuple[int, ...]:
        """The partition's replicas that are on failed log directories."""
        if not self.offline_dirs:
            return ()
        return tuple(r for r in self.table.replicas(pid) if pid in self.offline_dirs.get(r, ()))

    def set_offline_dir_replicas(self, broker: int, offline: Iterable[int], online: Iterable[int]) -> list[int]:
        """Record which of a broker's replicas are on failed directories; returns the pids that newly are, ascending."""
        before = self.offline_dirs.get(broker, set())
        offline = set(offline)
        after = (before - set(online)) | offline
        if after:
            self.offline_dirs[broker] = after
        else:
            self.offline_dirs.pop(broker, None)
        return sorted(offline - before)
