"""What a rollback of a migration to KRaft (KIP-866) will write: one multi, so that no broker is elected in between.

By Kafka's own instructions an operator deletes ``/controller``.  A broker is elected at once, with the next epoch after
``/controller_epoch``.  The states bear the KRaft controller's epoch, which may be far above it: the broker cannot write
them, and other brokers refuse its requests (KAFKA-20488).  Here the same transaction raises the epoch above everything
that KRaft has written.

 1. Read ``/migration`` at version m, and everything else after it.
 2. Each write of a migrating KRaft controller also sets ``/migration``.
 3. The multi demands version m: if anything that the plan is based on has changed, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiocontroller.core.errors import AioControllerError, ControllerEpochError
from aiocontroller.core.ids import MAX_CONTROLLER_EPOCH, LeaderAndIsr, TopicAssignment, distinct
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode, decode_migration
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znode_access import error_at
from aiocontroller.zookeeper.znode_json import BadZNode, excerpt
from aiocontroller.zookeeper.znodes import SOFTWARE, ControllerZNode, PartitionStates


class RollbackRefusedError(AioControllerError):
    """Nothing can be rolled back, or not by this command; the message says what to do."""


class ZNodeAt(NamedTuple):
    """A znode at a version, as the multi expects it."""

    path: str
    version: int
    value: str
    """What it holds now, printable."""


class Rollback(NamedTuple):
    """One multi: set ``/controller_epoch``, delete ``deleted``, create ``/controller``."""

    epoch: int
    epoch_before: ZNodeAt
    because: str
    """What has the highest epoch so far."""
    deleted: tuple[ZNodeAt, ...]
    missing_brokers: tuple[int, ...]
    """Those that have replicas and are not registered: dead, or still in KRaft mode."""


async def plan_rollback(zk: KafkaZkClient) -> Rollback:
    """Read everything that bears an epoch.

    RollbackRefusedError if there is no migration to roll back, ControllerEpochError for an epoch that cannot be raised.
    """
    await zk.client.sync(paths.MIGRATION)
    reads = await zk.client.get_many([paths.MIGRATION])
    if reads.code[0] == Code.NO_NODE:
        raise RollbackRefusedError(
            f"there is no {paths.MIGRATION}: nothing to roll back; to take the role: aiocontroller takeover"
        )
    if reads.code[0]:
        raise error_at(paths.MIGRATION, reads.code[0])
    deleted = [ZNodeAt(paths.MIGRATION, reads.version[0], excerpt(reads.data[0]))]
    migration = decode_migration(reads.data[0])
    present = await zk.client.get_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
    holder = None
    if present.code[0] != Code.NO_NODE:
        deleted.insert(0, ZNodeAt(paths.CONTROLLER, present.version[0], excerpt(present.data[0])))
        holder = znodes.decode_controller(present.data[0])
    _check(migration, holder)
    if present.code[1]:
        raise error_at(paths.CONTROLLER_EPOCH, present.code[1])
    now = znodes.decode_controller_epoch(present.data[1])
    if isinstance(now, BadZNode):
        raise ControllerEpochError(f"{now.path}: found {now.found}, expected {now.expected}")
    known = {paths.CONTROLLER_EPOCH: now}
    if isinstance(migration, MigrationZNode):
        known[f"{paths.MIGRATION} (kraft_controller_epoch)"] = migration.kraft_controller_epoch
    if isinstance(holder, ControllerZNode):
        known[f"{paths.CONTROLLER} (kraftControllerEpoch)"] = holder.kraft_controller_epoch
    topics = (await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)).found
    known |= await _highest_of_states(zk, topics)
    where, highest = max(known.items(), key=lambda each: each[1])
    if highest > MAX_CONTROLLER_EPOCH:
        raise ControllerEpochError(f"{where}: found {highest}, expected at most {MAX_CONTROLLER_EPOCH}")
    return Rollback(
        highest + 1,
        ZNodeAt(paths.CONTROLLER_EPOCH, present.version[1], str(now)),
        f"{where} has {highest}",
        tuple(deleted),
        await _missing_brokers(zk, topics),
    )


def _check(migration: MigrationZNode | BadZNode, holder: ControllerZNode | BadZNode | None) -> None:
    """RollbackRefusedError if this is not a state to roll back from.  Unreadable znodes are no reason to refuse."""
    of_kraft = isinstance(holder, ControllerZNode) and holder.kraft_controller_epoch > 0
    if isinstance(holder, ControllerZNode) and holder.software == SOFTWARE:
        raise RollbackRefusedError(
            f"controller {holder.controller_id} is an aiocontroller already; {paths.MIGRATION} may be deleted"
        )
    if isinstance(migration, MigrationZNode) and not migration.claimed and not of_kraft:
        raise RollbackRefusedError(
            f"{paths.MIGRATION} names no KRaft controller: one is provisioned and has not begun. To give up: stop it, "
            f"delete {paths.MIGRATION}, restart the brokers without zookeeper.metadata.migration.enable"
        )


async def _missing_brokers(zk: KafkaZkClient, topics: Sequence[TopicAssignment]) -> tuple[int, ...]:
    brokers, bad = await zk.get_all_brokers_in_cluster(watch=False)
    there = {paths.broker_id(broker.id) for broker in brokers}.union(each.path for each in bad)
    replicas = {broker for topic in topics for each in distinct(topic.partitions.values()) for broker in each.replicas}
    return tuple(sorted(broker for broker in replicas if paths.broker_id(broker) not in there))


async def _highest_of_states(zk: KafkaZkClient, found: Sequence[TopicAssignment]) -> dict[str, int]:
    """The path of a state with the highest epoch that is possible -> that epoch; empty without states."""
    keys = [(each.topic, number) for each in found for number in sorted(each.partitions)]
    topics, numbers = [topic for topic, _ in keys], [number for _, number in keys]
    highest, where, at = -1, "", 0

    async def take(states: PartitionStates) -> None:
        nonlocal highest, where, at
        for state in states.states():
            if isinstance(state, LeaderAndIsr) and highest < state.controller_epoch <= MAX_CONTROLLER_EPOCH:
                highest, where = state.controller_epoch, paths.topic_partition_state(topics[at], numbers[at])
            at += 1

    await zk.each_topic_partition_states(topics, numbers, take)
    return {where: highest} if where else {}
