"""Judges a warm standby's copy of the cluster at the moment when a successor takes it.

Once its leftovers are read again, the copy must equal what a cold failover would read.  So everything else must be as
it was in ZooKeeper when the election's multi was applied: what differs from the present tree must have been written
later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiocontroller.core.ids import LeaderAndIsr, TopicAssignment
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.core.partitions import Topic
from aiocontroller.lab.zookeeper.zookeeper_tree import ZNode
from aiocontroller.zookeeper import paths, znodes

Nodes = Mapping[str, ZNode]
EVER = 2**63
"""Greater than every zxid."""


def stale_parts(cluster: MirroredCluster, nodes: Nodes, *, at_rest: bool = False) -> list[str]:
    """Return the parts of the copy that differ from ZooKeeper at the last election and are not marked.

    ``at_rest``: compare them with ZooKeeper's present content instead.
    """
    return list(_stale(cluster, nodes, EVER if at_rest else nodes[paths.CONTROLLER_EPOCH].mzxid))


def _stale(cluster: MirroredCluster, nodes: Nodes, election: int) -> Iterator[str]:
    table = cluster.context.table
    names, rows = cluster.leftovers()
    excused, marked = set(names), set(rows)
    present = {name for path in nodes if (name := paths.topic_of(path)) is not None}
    for name in sorted((present | set(table.topic_by_name)) - excused):
        topic, path = table.topic_by_name.get(name), paths.topic(name)
        node = nodes.get(path)
        found = None if node is None else znodes.decode_topic(name, node.data, node.version)
        if _assignment_differs(cluster, topic, found) and _last_written(path, nodes) <= election:
            yield f"topic {name}: the copy has {topic and topic.id.hex()} and other assignments than {found}"
        elif topic is not None and isinstance(found, TopicAssignment) and topic.id == found.topic_id:
            for row in topic.partitions():
                if row not in marked:
                    yield from _state(cluster, row, nodes, election)


def _assignment_differs(cluster: MirroredCluster, topic: Topic | None, found: object) -> bool:
    if topic is None or not isinstance(found, TopicAssignment):
        return not (topic is None and found is None)
    table = cluster.context.table
    known = {table.index_of[row]: table.assignment(row) for row in topic.partitions()}
    return topic.id != found.topic_id or known != found.partitions


def _state(cluster: MirroredCluster, row: int, nodes: Nodes, election: int) -> Iterator[str]:
    table = cluster.context.table
    path = paths.topic_partition_state(*table.topic_partition(row))
    node = nodes.get(path)
    found = None if node is None else znodes.decode_partition_state(path, node.data, node.version)
    known: LeaderAndIsr | None = table.leadership(row)
    if known != found and _last_written(path, nodes) <= election:
        yield f"{table.topic_partition(row)}: the copy has {known}, ZooKeeper {found}"


def _last_written(path: str, nodes: Nodes) -> int:
    """Return the zxid of the znode's last change; if it is missing, of the last deletion below its closest ancestor."""
    if (node := nodes.get(path)) is not None:
        return node.mzxid
    while path not in nodes:
        path = path.rpartition("/")[0] or "/"
    return nodes[path].pzxid
