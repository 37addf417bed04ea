"""Writes one partition's state znode so that its version exceeds a given one.

A state's version is the partition epoch, which brokers use as a clock: a leader ignores a request with an older one.
Deleting and recreating a state znode sets that clock back to 0.  So the znode is written as often as necessary in one
multi, and no reader sees the versions in between.
"""

from __future__ import annotations

from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Op, SetData
from aiocontroller.zookeeper.errors import MaybeAppliedError, NotSentError

MOST_WRITES = 2_000
"""Maximum writes in one multi: some 400 KB.  Versions further away are not reached."""


async def settle_partition_state(
    client: ZooKeeperClient, partition: TopicPartition, leadership: LeaderAndIsr, above: int, *, fence: int
) -> int:
    """The znode's new version; -1 if the znode changed meanwhile or the outcome of the write is unknown.

    ``leadership.partition_epoch`` is the znode's present version, or -1 if there is none.
    """
    path = paths.topic_partition_state(*partition)
    [data] = znodes.encode_partition_states([leadership])
    version = leadership.partition_epoch
    ops: list[Op] = []
    if version < 0:
        parents = [paths.topic_partitions(partition.topic), path.rpartition("/")[0]]
        found = await client.exists_many(parents)
        ops += [Create(parent, None) for parent, code in zip(parents, found.code, strict=True) if code]
        ops.append(Create(path, data))
        version = 0
    else:
        ops.append(SetData(path, data, version))
        version += 1
    last = min(above + 1, version + MOST_WRITES)
    while version < last:
        ops.append(SetData(path, data, version))
        version += 1
    try:
        results = await client.fenced_multi(ops, fence=fence)
    except (MaybeAppliedError, NotSentError):
        return -1
    return version if all(result.code == 0 for result in results) else -1
