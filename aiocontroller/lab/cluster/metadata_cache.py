"""A broker's knowledge of the whole cluster, from its controller's requests (Kafka's ``ZkMetadataCache``).

The rules are Kafka's:
 * Every UpdateMetadata replaces the live brokers and the controller's id, even if it carries no partitions.
 * Partition states are merged; leader -2 deletes one.  A topic id overwrites the old one; a missing id does so since
   3.1 only.
 * A request of an older controller epoch is not accepted (the caller checks, with ``ReplicaManager``).
"""

from __future__ import annotations

from aiocontroller.core.ids import LEADER_DURING_DELETE, NO_TOPIC_ID, Endpoint
from aiocontroller.lab.cluster.broker_requests import STEP, LiveBroker, PartitionState, Steps, UpdateMetadataRequest


class CachedTopic:
    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = NO_TOPIC_ID
        self.partitions: dict[int, PartitionState] = {}


class MetadataCache:
    """``controller_id`` is -1 while no controller is known; with ``ids_may_go``, an UpdateMetadata without topic ids
    removes the known ids."""

    def __init__(self, *, ids_may_go: bool = True) -> None:
        self._ids_may_go = ids_may_go
        self.controller_id = -1
        self.alive: dict[int, LiveBroker] = {}
        self.topics: dict[str, CachedTopic] = {}
        self.topic_by_id: dict[bytes, CachedTopic] = {}
        self.partition_count = 0
        self.voters: dict[int, Endpoint] = {}
        """A KRaft controller that migrates the cluster is not among the live brokers."""

    def update(self, request: UpdateMetadataRequest) -> Steps[None]:
        """Apply the request; pauses after every ``STEP`` partitions, so readers may see it partly applied."""
        self.controller_id = request.controller_id if request.controller_id >= 0 else -1
        self.alive = {broker.id: broker for broker in request.live_brokers}
        since_pause = 0
        for name, topic_id, states in request.topics:
            self._update_topic(name, topic_id, states)
            since_pause += len(states)
            if since_pause >= STEP:
                since_pause = 0
                yield

    def endpoint(self, broker: int, listener: str) -> Endpoint | None:
        """Return a live broker's or a voter's endpoint; None for other brokers."""
        live = self.alive.get(broker)
        return next((e for e in live.endpoints if e.listener == listener), None) if live else self.voters.get(broker)

    def _update_topic(self, name: str, topic_id: bytes, states: list[PartitionState]) -> None:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = CachedTopic(name)
        if topic_id != topic.id and (topic_id != NO_TOPIC_ID or self._ids_may_go):
            self.topic_by_id.pop(topic.id, None)
            topic.id = topic_id
            if topic_id != NO_TOPIC_ID:
                self.topic_by_id[topic_id] = topic
        partitions = topic.partitions
        self.partition_count -= len(partitions)
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition, None)
            else:
                partitions[state.partition] = state
        self.partition_count += len(partitions)
        if not partitions:
            del self.topics[name]
            self.topic_by_id.pop(topic.id, None)
