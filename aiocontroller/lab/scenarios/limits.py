"""Size limits of the program, drawn so small that a cluster of a few dozen partitions exceeds them.

This leads to requests and writes in several pieces, pieces that overlap, and errors in a later piece.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

SMALL: dict[str, tuple[int, ...]] = {
    "zookeeper.writes.MAX_OPS": (1, 2, 5),
    "zookeeper.writes.MAX_BYTES": (500, 2_000),
    "zookeeper.writes.WINDOW": (1, 2),
    "zookeeper.reads.MAX_READS": (1, 3, 10),
    "zookeeper.reads.FIRST_READS": (1, 3),
    "zookeeper.reads.PIPELINED": (1, 3),
    "zookeeper.reads.WINDOW": (1, 2),
    "zookeeper.kafka_zk_client.SLICE": (1, 3),
    "controller.leadership_writes.WRITTEN_AT_ONCE": (1, 2, 5),
    "controller.leadership_writes.WRITTEN_FIRST": (1, 2),
    "controller.alter_partition.WRITTEN_AT_ONCE": (1, 3),
    "controller.shell.SENT_AT_ONCE": (1, 3),
    "controller.state_changes.CHUNK": (1, 3),
    "controller.topics.STEP_PARTITIONS": (1, 3),
    "controller.failover.FIRST_GROUP": (1, 2),
    "controller.failover.GROUP_PARTITIONS": (1, 4),
    "controller.failover.PARTITIONS_PER_REQUEST": (1, 3),
    "controller.broker_requests.PARTITIONS_PER_REQUEST": (1, 3),
    "controller.request_queue.MERGED_FROM": (2, 4),
    "controller.request_queue.LITTLE": (1, 4),
    "controller.request_queue.MOST": (2, 8),
    "core.reassignment_phases.PARTITIONS_AT_ONCE": (1, 2),
    "controller.leader_elections.PARTITIONS_AT_ONCE": (1, 2),
    "controller.kafka_controller.MAX_GATHERED": (1, 3),
    "controller.auditor.SLICE": (1, 3),
    "controller.mirror.TOPICS_AT_ONCE": (1, 2),
    "controller.mirror.PARTITIONS_AT_ONCE": (1, 3),
    "controller.mirror.STATES_AT_ONCE": (1, 3),
    "controller.warm_failover.TOPICS_AT_ONCE": (1, 2),
    "core.warm_failover_sending.ROWS": (1, 3),
    "core.warm_failover_sending.METADATA_ROWS": (1, 4),
    "core.warm_failover_sending.TOPICS": (1, 2),
    "controller.warm_failover.FRESH_S": (0, 0, 3),
    "core.leader_balance.PARTITIONS_AT_ONCE": (1, 2),
    "core.suspicions.PARTITIONS_AT_ONCE": (1, 2),
    "zookeeper.reads.FEW_WATCHED": (0, 0, 1),
}

Limits = tuple[tuple[str, str], ...]


def draw_limits(seed: int) -> Limits:
    """Draw small values for about half of the limits, in half of the seeds."""
    chance = random.Random(f"limits {seed}")
    if chance.random() < 0.5:
        return ()
    return tuple((name, str(chance.choice(values))) for name, values in SMALL.items() if chance.random() < 0.5)


@contextmanager
def in_force(limits: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Change the modules' limits inside the block.  Raises KeyError for a limit that is not in SMALL."""
    before: list[tuple[object, str, object]] = []
    try:
        for limit, value in limits:
            if limit not in SMALL:
                raise KeyError(limit)
            path, _, name = limit.rpartition(".")
            module = importlib.import_module(f"aiocontroller.{path}")
            before.append((module, name, getattr(module, name)))
            setattr(module, name, int(value))
        yield
    finally:
        for changed, name, value_before in reversed(before):
            setattr(changed, name, value_before)
