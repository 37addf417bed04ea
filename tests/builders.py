"""Builders for tests: a cluster in one readable line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.states import PartitionState, ReplicaState

Replicas = Sequence[int] | ReplicaAssignment


def topic_id(name: str) -> bytes:
    """Return the id that builders give a topic: 16 bytes that begin with its name."""
    return name.encode()[:16].ljust(16, b".")


def assignment(replicas: Replicas) -> ReplicaAssignment:
    return replicas if isinstance(replicas, ReplicaAssignment) else ReplicaAssignment(tuple(replicas))


def leadership(
    leader: int,
    isr: Sequence[int],
    *,
    leader_epoch: int = 0,
    controller_epoch: int = 1,
    partition_epoch: int = 0,
    recovery_state: int = 0,
) -> LeaderAndIsr:
    return LeaderAndIsr(leader, leader_epoch, tuple(isr), controller_epoch, partition_epoch, recovery_state)


def add_topics(table: PartitionTable, topics: Mapping[str, Sequence[Replicas]], *, online: bool = False) -> None:
    """Add topics as ``{"t": [[1, 2, 3], …]}``, one replica list for each partition.

    New rows are NonExistentPartition without leadership; ``online`` makes them OnlinePartition, all replicas
    OnlineReplica and in the ISR, led by their first replica.
    """
    for name, partitions in topics.items():
        topic = table.add_topic(name, topic_id(name))
        for number, replicas in enumerate(partitions):
            row = table.add_partition(topic, number, assignment(replicas))
            if online:
                held = table.replicas(row)
                table.set_leadership(row, leadership(held[0], held))
                table.set_state((row,), PartitionState.OnlinePartition)
                table.replica_states_of[row] = table.replica_states.id((ReplicaState.OnlineReplica,) * len(held))


def table(topics: Mapping[str, Sequence[Replicas]], *, online: bool = False) -> PartitionTable:
    """A partition table that holds ``topics``; see ``add_topics``."""
    made = PartitionTable()
    add_topics(made, topics, online=online)
    return made


def broker(id: int, *, epoch: int | None = None, rack: str | None = None) -> Broker:
    """A registered broker that listens on ``b<id>:9092``; its epoch is 100 + id unless given."""
    return Broker(id, 100 + id if epoch is None else epoch, (Endpoint("PLAINTEXT", f"b{id}", 9092),), rack)


def ctx(
    brokers: int | Iterable[int] = 3,
    topics: Mapping[str, Sequence[Replicas]] | None = None,
    *,
    epoch: int = 1,
    online: bool = True,
    dead: Iterable[int] = (),
    shutting_down: Iterable[int] = (),
) -> ControllerContext:
    """A controller's context in its ``epoch``: brokers 1 to n (or the ids given) and ``topics`` as for ``add_topics``.

    The ``dead`` brokers are removed after the topics were built, so partitions that they led still name them.
    """
    context = ControllerContext(epoch, epoch_zk_version=epoch)
    context.add_brokers(broker(i) for i in (range(1, brokers + 1) if isinstance(brokers, int) else brokers))
    add_topics(context.table, topics or {}, online=online)
    context.remove_brokers(dead)
    for going in shutting_down:
        context.begin_shutdown(going)
    return context


def row_of(context: ControllerContext, name: str) -> int:
    """Return the row of a partition by its name in logs: ``t-0``."""
    topic, _, partition = name.rpartition("-")
    found = context.table.row(topic, int(partition))
    assert found >= 0, name
    return found


def lead(context: ControllerContext, name: str, leader: int, isr: Sequence[int], **fields: int) -> int:
    """Give the partition this leadership (fields as in ``leadership``); return its row."""
    row = row_of(context, name)
    context.table.set_leadership(row, leadership(leader, isr, **fields))
    return row
