"""A cheap check of the cluster: four small reads that tell whether a full read would find anything new."""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient


class ClusterMarks(NamedTuple):
    """Equal marks mean the same registrations, including the same incarnations."""

    registrations: int
    """The zxid of the last broker registration or removal; 0 without ``/brokers/ids``."""
    migration: int
    """The zxid of the last change of ``/migration``; 0 without it."""
    acls: bool
    config_changes: int
    """The zxid of the last creation or deletion of a configuration change notification."""


async def read_cluster_marks(client: ZooKeeperClient) -> ClusterMarks:
    """Read the marks in one round trip."""
    found = await client.exists_many([paths.BROKER_IDS, paths.MIGRATION, paths.ACL, paths.CONFIG_CHANGES])
    ids, changes = (None if stat is None else stat.last_modified_children for stat in (found.stat(0), found.stat(3)))
    migration = found.stat(1)
    changed = 0 if migration is None else migration.last_modified_zxid
    return ClusterMarks(ids or 0, changed, found.code[2] == 0, changes or 0)
