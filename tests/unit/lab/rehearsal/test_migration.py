"""The migration to KRaft and its rollback, rehearsed: what happens, and that a defect of the rollback does not pass."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from aiocontroller.controller import controller_election
from aiocontroller.controller.controller_election import ControllerElection
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.lab.rehearsal import rehearsal
from aiocontroller.lab.rehearsal.rehearsal import MIGRATION, Event, Rehearsed, events, rehearse
from aiocontroller.lab.rehearsal.stage import Stage, stage
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.zookeeper import registration
from aiocontroller.zookeeper.cluster_tree import Partition
from aiocontroller.zookeeper.migration_rollback import Rollback, plan_rollback
from tests.unit.lab.rehearsal.trees import healthy, tree_of

logging.getLogger().addHandler(logging.NullHandler())


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "events", lambda stage, moves: [Event(MIGRATION)])


def small() -> Stage:
    return stage(healthy([11, 12, 13], 6, 3, min_isr=2), 100)


def played(seed: int = 1) -> Rehearsed:
    return rehearse(small(), {}, seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leaders_move_with_each_restart_and_nothing_is_violated(seed: int) -> None:
    found = played(seed)
    assert found.violations == ()
    (result,) = found.results
    assert result.event == Event(MIGRATION)
    assert result.went.leaders_moved >= 12  # all brokers are restarted twice
    assert result.went.leaderless_s < 1.0
    assert (result.went.under_min_isr, result.also) == (0, "")
    assert result.went.acknowledged


def test_a_second_seed_of_hashes_gives_the_same() -> None:
    code = (
        "import json; from tests.unit.lab.rehearsal.test_migration import *\n"
        "rehearsal.events = lambda stage, moves: [Event(MIGRATION)]\n"
        "found = played(); print(json.dumps([found.digest, found.virtual_s, repr(found.results)]))"
    )
    given = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert given[0] == given[1]
    assert json.loads(given[0])[0] == played().digest


def test_a_rollback_that_does_not_raise_the_epoch_above_all_states_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAFKA-20488: the controller's epoch is below that of states, which it cannot write."""

    async def too_low(zk: Any) -> Rollback:
        plan = await plan_rollback(zk)
        return plan._replace(epoch=int(plan.epoch_before.value) + 1)

    monkeypatch.setattr(controller_election, "plan_rollback", too_low)
    (wrong,) = played().violations
    assert wrong.startswith("I2 /controller_epoch: 11 after KRaft, which has written states of ")


def test_a_rollback_that_leaves_the_mark_of_the_migration_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = registration.roll_back_migration

    async def without(client: Any, plan: Rollback, *args: Any, **named: Any) -> tuple[int, int]:
        return await original(client, plan._replace(deleted=plan.deleted[:1]), *args, **named)

    monkeypatch.setattr(registration, "roll_back_migration", without)
    assert played().violations


def test_a_controller_that_does_not_step_aside_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fence keeps it from writing; clients and brokers would still find two controllers."""

    async def stay(self: ControllerElection) -> None:
        pass

    monkeypatch.setattr(ControllerElection, "maybe_resign", stay)
    assert played().violations[0].endswith("has not stepped aside for the KRaft controller")


def test_a_rollback_under_a_running_kraft_controller_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Simulation.kill

    def kill(self: Simulation, process: Any) -> None:
        if process.name != "kraft":
            original(self, process)

    monkeypatch.setattr(Simulation, "kill", kill)
    assert played().violations[0].startswith("the rollback was refused: /migration changes")


def test_without_one_of_its_brokers_a_cluster_is_not_migrated() -> None:
    tree = healthy([11, 12, 13], 6, 3)
    del tree.brokers[12]
    staged = stage(tree, 100)
    assert staged.missing == (12,)
    assert Event(MIGRATION) not in events(staged, {})
    assert (small().missing, events(small(), {})[-1]) == ((), Event(MIGRATION))


@pytest.mark.parametrize("deleted", [False, True])
def test_a_replica_that_blocks_the_claim_does_so_in_a_partition_that_is_not_rehearsed(deleted: bool) -> None:
    rare = Partition(TopicPartition("rare", 0), ReplicaAssignment((11, 99)), LeaderAndIsr(11, 0, (11,), 3, 0))
    tree = healthy([11, 12, 13], 6, 3)
    tree = tree_of([*tree.partitions, rare], [11, 12, 13], deletions=["rare"] if deleted else [])
    staged = stage(tree, 3)
    assert (staged.brokers, staged.missing) == ((11, 12, 13), (99,))
    assert Event(MIGRATION) not in events(staged, {})
