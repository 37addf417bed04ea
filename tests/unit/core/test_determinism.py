"""The core is a function of its input: one script, three hash seeds, the same output to the last character.

Run as a program, this file plays the script and prints what every step decided.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.election import Strategy, UncleanPolicy
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.leader_balance import leader_imbalance, partitions_to_rebalance
from aiocontroller.core.partition_state_machine import (
    check_valid_previous_states,
    initialize_partition_states,
    partitions_to_bring_online,
    plan_elections,
    plan_initialization,
)
from aiocontroller.core.replica_placement import assign_replicas_to_brokers
from aiocontroller.core.replica_state_machine import (
    initialize_replica_states,
    online_and_offline,
    plan_offline,
    set_replica_states,
)
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from tests.builders import broker, ctx, topic_id
from tests.unit.core.playing import Played


def script() -> Iterator[object]:
    """Topics come, brokers fail, shut down and return; every result of every step, in order."""
    brokers = [(i, ("zone-b", "zone-a", "zone-c")[i % 3]) for i in range(1, 7)]
    context = ctx([i for i, _ in brokers], epoch=3)
    table = context.table
    batch = RequestBatch(context)

    def written(decisions: Decisions, *, new: bool = False) -> Iterator[object]:
        yield decisions
        commit(table, decisions, [w.partition_epoch + 1 for w in decisions.leaderships])
        table.set_state(decisions.rows, PartitionState.OnlinePartition)
        batch.add_leader_and_isr_requests(decisions.rows, decisions.recipients, is_new=new)

    for number, name in enumerate(("orders", "payments", "audit.log", "x")):
        topic = table.add_topic(name, topic_id(name))
        placed = assign_replicas_to_brokers(brokers, 5, 3, start_index=number)
        yield placed
        for partition, replicas in placed.items():
            table.add_partition(topic, partition, ReplicaAssignment(replicas))
    every = list(table.rows())
    table.set_state(
        check_valid_previous_states(table, every, PartitionState.NewPartition).valid, PartitionState.NewPartition
    )
    decisions, failed = plan_initialization(context, partitions_to_bring_online(context))
    yield failed
    yield from written(decisions, new=True)
    initialize_replica_states(context)
    yield [online_and_offline(context, broker) for broker in table.brokers_with_replicas()]
    yield batch.take()

    context.remove_brokers([2, 5])
    yield from written(plan_elections(context, table.partitions_on_brokers([5, 2]), Strategy.OFFLINE)[0])
    offline = {b: table.partitions_on_broker(b) for b in (5, 2)}
    plan = plan_offline(context, offline)
    yield plan
    yield from written(plan.shrink)
    set_replica_states(table, offline, ReplicaState.OfflineReplica)
    batch.add_stop_replica_request_for_brokers([5, 2, 4], every, delete=False)
    yield batch.take()

    yield context.set_offline_dir_replicas(3, table.partitions_on_broker(3)[::2], [])
    context.begin_shutdown(6)
    context.begin_shutdown(1)
    policy = UncleanPolicy(topics={"payments": True, "x": True})
    for strategy in (Strategy.CONTROLLED_SHUTDOWN, Strategy.OFFLINE):
        decisions, elections = plan_elections(context, every, strategy, policy)
        yield elections.failed
        yield from written(decisions)
    yield batch.take()

    table.remove_topic(table.topic_by_name["payments"])
    table.set_topic_deleting(table.topic_by_name["audit.log"], True)
    late = table.add_topic("late", topic_id("late"))
    yield [table.add_partition(late, n, ReplicaAssignment((n % 6 + 1, 4)).reassign_to((3, 1))) for n in range(7)]
    context.add_brokers([broker(5, epoch=500), broker(2, epoch=501)])
    initialize_partition_states(context)
    yield table.count_by_state, table.preferred_replica_imbalance, table.leadership_count, list(table.not_online)
    yield Played(context, leader_imbalance(context)).result
    yield Played(context, partitions_to_rebalance(context, 10)).result
    yield from written(plan_elections(context, list(table.rows()), Strategy.PREFERRED)[0])
    yield from written(plan_elections(context, list(table.rows()), Strategy.REASSIGN)[0])
    batch.add_update_metadata_request_for_brokers(context.brokers, table.rows())
    yield batch.take()
    yield table.assignments.values, table.isrs.values, table.replica_states.values
    yield [(str(table.topic_partition(p)), table.leadership(p), table.replica_states_of[p]) for p in table.rows()]


def play(hash_seed: int) -> str:
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_script_gives_one_output_under_every_hash_seed() -> None:
    first, *others = (play(seed) for seed in (0, 1, 2))
    assert len(first.splitlines()) > 20
    assert [other == first for other in others] == [True, True]


if __name__ == "__main__":
    for step in script():
        sys.stdout.write(f"{step}\n")
