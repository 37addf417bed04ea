"""What a broker's metadata cache would tell of the cluster, read from a controller's context.

In office that context is the controller's own, which its consumer changes between any two steps of the loop: a view is
made for one step and not kept over an ``await``.
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
    """``own`` is this controller as brokers know it, None while they do not."""

    def __init__(self, config: Config, context: ControllerContext, own: Broker | None) -> None:
        self._config = config
        self.context = context
        self._own = own

    # -- topics ----------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """None for a topic that does not exist, or is being deleted: brokers forget it when its deletion begins."""
        found = self.context.table.topic_by_name.get(name)
        return None if found is None or found.deleting else found

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        found = self.context.table.topic_by_id.get(topic_id)
        return None if found is None or found.deleting else found

    def contains(self, name: str, partition: int) -> bool:
        """Whether brokers have been told of the partition: it has had a leader."""
        return self._led(name, partition) >= 0

    def leader(self, name: str, partition: int) -> tuple[int, int]:
        """Its id and epoch."""
        pid = self._led(name, partition)
        if pid < 0:
            return NO_LEADER, -1
        return self.context.table.leader[pid], self.context.table.leader_epoch[pid]

    def _led(self, name: str, partition: int) -> int:
        topic = self.topic(name)
        if topic is None or not 0 <= partition < len(topic.pids):
            return -1
        pid = topic.pids[partition]
        return pid if pid >= 0 and self.context.table.isr_of[pid] != NO_ISR else -1

    # -- nodes -----------------------------------------------------------------------------------------------------

    def brokers(self) -> list[Broker]:
        """All that brokers believe to be alive, this controller among them."""
        return [*self.context.brokers.values(), *([] if self._own is None else [self._own])]

    def nodes(self, at: Endpoint) -> dict[int, MetadataBroker]:
        """Where clients of the listener ``at`` find them; those without such a listener are left out."""
        brokers = self.brokers()
        name = at.listener
        if not any(broker.endpoint(name) for broker in self.context.brokers.values()):
            name = inter_broker_listener(self._config, self.context.brokers.values())  # for which ours stands in
        found = [(broker, broker.endpoint(name)) for broker in brokers]
        return {b.id: MetadataBroker(b.id, e.host, e.port, b.rack) for b, e in found if e is not None}


class UnknownCluster(ClusterView):
    """While this controller is not in office, or has not read all topics: it leads nothing, whatever there is."""

    def contains(self, name: str, partition: int) -> bool:
        return True


def in_charge(shell: ControllerShell) -> bool:
    """In office, with all that there is read from ZooKeeper."""
    return shell.channels is not None and shell.context.loaded


def cluster_view(shell: ControllerShell) -> ClusterView:
    """For the step in which it is asked for."""
    if in_charge(shell):
        return ClusterView(shell.config, shell.context, shell.own_entry())
    return UnknownCluster(shell.config, ControllerContext(), None)
