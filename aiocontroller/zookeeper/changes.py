"""What a watch event means: raw (type, path) -> which part of the cluster changed.

A change carries no data: whoever hears of it reads again, which arms the one-shot watch again.  Events that need no
reading give no change: that a broker's or a topic's own znode came or went is told by its parent's children.

``/admin/reassign_partitions`` and ``/admin/preferred_replica_election`` report their deletion and their data changes
too, though Kafka reads only new ones: an event uses the watch up, so without another read the next request would go
unnoticed (Kafka's controller loses it that way when somebody else deletes the znode).
"""

from __future__ import annotations

from enum import Enum

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.watches import CHANGED, CHILD, CREATED, DELETED


class Change(Enum):
    """The second half of an ``on_change`` call is a name for BROKER (its id) and TOPIC, else ''."""

    CONTROLLER_CHANGED = "CONTROLLER_CHANGED"
    CONTROLLER_DELETED = "CONTROLLER_DELETED"
    BROKER_IDS = "BROKER_IDS"
    BROKER = "BROKER"
    TOPICS = "TOPICS"
    TOPIC = "TOPIC"
    TOPIC_DELETIONS = "TOPIC_DELETIONS"
    ISR_CHANGE = "ISR_CHANGE"
    LOG_DIR_EVENT = "LOG_DIR_EVENT"
    REASSIGN_PARTITIONS = "REASSIGN_PARTITIONS"
    PREFERRED_ELECTION = "PREFERRED_ELECTION"
    CONFIG_CHANGES = "CONFIG_CHANGES"


_PARENTS = {
    paths.BROKER_IDS: Change.BROKER_IDS,
    paths.TOPICS: Change.TOPICS,
    paths.DELETE_TOPICS: Change.TOPIC_DELETIONS,
    paths.ISR_CHANGE_NOTIFICATION: Change.ISR_CHANGE,
    paths.LOG_DIR_EVENT_NOTIFICATION: Change.LOG_DIR_EVENT,
    paths.CONFIG_CHANGES: Change.CONFIG_CHANGES,
}
_NODES = {
    paths.REASSIGN_PARTITIONS: Change.REASSIGN_PARTITIONS,
    paths.PREFERRED_REPLICA_ELECTION: Change.PREFERRED_ELECTION,
}
_NAMED = {paths.BROKER_IDS: Change.BROKER, paths.TOPICS: Change.TOPIC}


def translate(kind: int, path: str) -> tuple[Change, str] | None:
    """The change behind one watch event; None when it tells nothing that another event does not."""
    parent = _PARENTS.get(path)
    if parent is not None:
        # coming and going of the parent itself is news of its children; its data means nothing
        return (parent, "") if kind in (CHILD, CREATED, DELETED) else None
    if kind not in (CREATED, CHANGED, DELETED):
        return None
    if path == paths.CONTROLLER:
        return (Change.CONTROLLER_DELETED if kind == DELETED else Change.CONTROLLER_CHANGED), ""
    node = _NODES.get(path)
    if node is not None:
        return node, ""
    above, _, name = path.rpartition("/")
    named = _NAMED.get(above)
    if named is not None and kind == CHANGED:
        return named, name
    return None
