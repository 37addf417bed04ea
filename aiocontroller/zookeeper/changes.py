"""Translates watch events, raw (type, path), into the part of the cluster that changed.

A change carries no data: its handler reads again, which re-arms the one-shot watch.  Events that need no read give no
change: the parent's children report the creation and deletion of a broker's or topic's znode.  A topic's deletion is
reported nevertheless: if the topic is created again at once, the parent's children look unchanged.

``/admin/reassign_partitions`` and ``/admin/preferred_replica_election`` also report deletions and data changes, though
Kafka reads only new ones: an event uses up the watch, so without another read the next request would go unnoticed
(Kafka's controller misses it if another client deletes the znode).
"""

from __future__ import annotations

import re
from enum import Enum

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.watches import CHANGED, CHILD, CREATED, DELETED


class ZNodeChange(Enum):
    """What changed, the first argument of ``on_change``.  The second is a name for BROKER (its id), TOPIC,
    TOPIC_DELETED and PARTITION_STATE (``topic-0``), else ''."""

    CONTROLLER_CHANGED = "CONTROLLER_CHANGED"
    CONTROLLER_DELETED = "CONTROLLER_DELETED"
    BROKER_IDS = "BROKER_IDS"
    BROKER = "BROKER"
    TOPICS = "TOPICS"
    TOPIC = "TOPIC"
    PARTITION_STATE = "PARTITION_STATE"
    TOPIC_DELETED = "TOPIC_DELETED"
    TOPIC_DELETIONS = "TOPIC_DELETIONS"
    ISR_CHANGE = "ISR_CHANGE"
    LOG_DIR_EVENT = "LOG_DIR_EVENT"
    REASSIGN_PARTITIONS = "REASSIGN_PARTITIONS"
    PREFERRED_ELECTION = "PREFERRED_ELECTION"
    CONFIG_CHANGES = "CONFIG_CHANGES"


_PARENTS = {
    paths.BROKER_IDS: ZNodeChange.BROKER_IDS,
    paths.TOPICS: ZNodeChange.TOPICS,
    paths.DELETE_TOPICS: ZNodeChange.TOPIC_DELETIONS,
    paths.ISR_CHANGE_NOTIFICATION: ZNodeChange.ISR_CHANGE,
    paths.LOG_DIR_EVENT_NOTIFICATION: ZNodeChange.LOG_DIR_EVENT,
    paths.CONFIG_CHANGES: ZNodeChange.CONFIG_CHANGES,
}
_NODES = {
    paths.REASSIGN_PARTITIONS: ZNodeChange.REASSIGN_PARTITIONS,
    paths.PREFERRED_REPLICA_ELECTION: ZNodeChange.PREFERRED_ELECTION,
}
_STATE = re.compile(re.escape(paths.TOPICS) + r"/([^/]+)/partitions/(\d+)/state")
_NAMED = {paths.BROKER_IDS: ZNodeChange.BROKER, paths.TOPICS: ZNodeChange.TOPIC}


def translate(kind: int, path: str) -> tuple[ZNodeChange, str] | None:
    """The change behind one watch event; None if another event reports it."""
    parent = _PARENTS.get(path)
    if parent is not None:
        # creation and deletion of the parent change its children; its data has no meaning
        return (parent, "") if kind in (CHILD, CREATED, DELETED) else None
    if kind not in (CREATED, CHANGED, DELETED):
        return None
    if path == paths.CONTROLLER:
        return (ZNodeChange.CONTROLLER_DELETED if kind == DELETED else ZNodeChange.CONTROLLER_CHANGED), ""
    node = _NODES.get(path)
    if node is not None:
        return node, ""
    above, _, name = path.rpartition("/")
    named = _NAMED.get(above)
    if named is not None and kind == CHANGED:
        return named, name
    if named is ZNodeChange.TOPIC and kind == DELETED:
        return ZNodeChange.TOPIC_DELETED, name
    state = _STATE.fullmatch(path) if kind == CHANGED else None
    return None if state is None else (ZNodeChange.PARTITION_STATE, f"{state[1]}-{state[2]}")
