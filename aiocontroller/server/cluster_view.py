"""The cluster as a broker's metadata cache has it, read from a controller's context.

An active controller's own context can change between any two steps of the event loop, so a view is valid for one step
and must not be kept across an ``await``.
"""

from __future__ import annotations

from aiocontroller.config import Config
from aiocontroller.controller.shell import ControllerShell, inter_broker_listener
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import NO_LEADER, Broker, Endpoint
from aiocontroller.core.partitions import NO_ISR, Topic
from aiocontroller.wire.messages import MetadataBroker

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class ClusterView:
    """A view of ``context``; ``own`` is this controller's entry in the brokers' live broker list, None without one."""

    def __init__(self, config: Config, context: ControllerContext, own: Broker | None) -> None:
        self._config = config
        self.context = context
        self._own = own

    # -- topics ----------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """The topic; None if it does not exist or is being deleted: brokers drop it when its deletion starts."""
        found = self.context.table.topic_by_name.get(name)
        return None if found is None or found.deleting else found

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id (16 bytes); None if unknown or being deleted."""
        found = self.context.table.topic_by_id.get(topic_id)
        return None if found is None or found.deleting else found

    def contains(self, name: str, partition: int) -> bool:
        """Whether brokers know the partition, because it has had a leader."""
        return self._led(name, partition) >= 0

    def leader(self, name: str, partition: int) -> tuple[int, int]:
        """The leader's id and epoch."""
        row = self._led(name, partition)
        if row < 0:
            return NO_LEADER, -1
        return self.context.table.leader[row], self.context.table.leader_epoch[row]

    def _led(self, name: str, partition: int) -> int:
        topic = self.topic(name)
        if topic is None or not 0 <= partition < len(topic.rows):
            return -1
        row = topic.rows[partition]
        return row if row >= 0 and self.context.table.isr_of[row] != NO_ISR else -1

    # -- nodes -----------------------------------------------------------------------------------------------------

    def brokers(self) -> list[Broker]:
        """The live broker list as brokers have it, including this controller."""
        return [*self.context.listed(), *([] if self._own is None else [self._own])]

    def nodes(self, at: Endpoint) -> dict[int, MetadataBroker]:
        """Nodes with their addresses for clients of the listener ``at``, without nodes that lack such a listener."""
        brokers = self.brokers()
        name = at.listener
        if not any(broker.endpoint(name) for broker in self.context.brokers.values()):
            name = inter_broker_listener(self._config, self.context.brokers.values())  # which our listener stands for
        found = [(broker, broker.endpoint(name)) for broker in brokers]
        return {b.id: MetadataBroker(b.id, e.host, e.port, b.rack) for b, e in found if e is not None}


class UnknownCluster(ClusterView):
    """Used while this controller is not active or has not read all topics: knows no partitions."""

    def contains(self, name: str, partition: int) -> bool:
        """True for every partition, so that a request is not refused for one that is merely unknown yet."""
        return True


def in_charge(shell: ControllerShell) -> bool:
    """Whether this controller is active and has loaded the whole cluster."""
    return shell.channels is not None and shell.context.loaded


def cluster_view(shell: ControllerShell) -> ClusterView:
    """A view that is valid until the next ``await``."""
    if in_charge(shell):
        return ClusterView(shell.config, shell.context, shell.own_entry())
    return UnknownCluster(shell.config, ControllerContext(), None)
