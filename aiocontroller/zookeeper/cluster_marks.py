"""A cheap look at the cluster: three small reads that say whether a whole one would find anything new."""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient


class ClusterMarks(NamedTuple):
    """Equal ones were read from a cluster with the same registrations, the same incarnations included."""

    registrations: int
    """The zxid of the last broker that came or went; 0 without ``/brokers/ids``."""
    migration: bool
    acls: bool


async def read_cluster_marks(client: ZooKeeperClient) -> ClusterMarks:
    found = await client.exists_many([paths.BROKER_IDS, paths.MIGRATION, paths.ACL])
    ids = found.stat(0)
    return ClusterMarks(0 if ids is None else ids.last_modified_children, found.code[1] == 0, found.code[2] == 0)
