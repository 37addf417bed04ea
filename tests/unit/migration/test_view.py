"""Where a migration stands."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.migration.view import MigrationPhase
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from tests.unit.migration.views import (
    COPYING,
    FINALIZED,
    NOT_BEGUN,
    QUORUM,
    READY,
    ROLLED_BACK,
    VOTER_IDS,
    WAITING,
    Change,
    controller,
    in_kraft_mode,
    nodes,
    tree,
    view,
)


@pytest.mark.parametrize(
    "change, phase",
    [
        (NOT_BEGUN, MigrationPhase.NOT_BEGUN),
        (WAITING, MigrationPhase.WAITING),
        (COPYING, MigrationPhase.COPYING),
        (tree(), MigrationPhase.DUAL_WRITE),
        (in_kraft_mode(1), MigrationPhase.MOVING_BROKERS),
        (READY, MigrationPhase.READY_TO_FINALIZE),
        (FINALIZED, MigrationPhase.FINALIZED),
        (ROLLED_BACK, MigrationPhase.ROLLED_BACK),
        (tree(holder=None), MigrationPhase.ROLLED_BACK),
        (tree(holder=None, migration=None), MigrationPhase.NOT_BEGUN),
        (tree(migration=None), MigrationPhase.COPYING),
    ],
)
def test_the_phase_is_told_by_zookeeper_and_the_modes_of_brokers(change: Change, phase: MigrationPhase) -> None:
    assert change(view()).phase is phase


def test_one_controller_that_is_not_ready_yet_is_no_end() -> None:
    assert nodes(controllers={3001: controller(3001, ready=False)})(view()).phase is MigrationPhase.DUAL_WRITE


def test_silent_controllers_change_no_phase() -> None:
    quiet = msgspec.structs.replace(view(), answers=view().answers._replace(controllers={}))
    assert (quiet.phase, quiet.behind_records, quiet.quorum, quiet.metadata_version) == (
        MigrationPhase.DUAL_WRITE,
        None,
        None,
        None,
    )


@pytest.mark.parametrize("offset, behind", [(999, 0), (1_005, 0), (900, 99), (-1, None)])
def test_the_lag_counts_records_that_zookeeper_lacks(offset: int, behind: int | None) -> None:
    assert tree(migration=MigrationZNode(3000, 5, offset, 5))(view()).behind_records == behind


def test_the_latest_leader_of_the_quorum_is_believed() -> None:
    earlier = msgspec.structs.replace(QUORUM, leader=3001, leader_epoch=4, high_watermark=2_000)
    unknown = msgspec.structs.replace(QUORUM, leader=-1, leader_epoch=9)
    quorums = dict(zip(VOTER_IDS, (QUORUM, earlier, unknown), strict=True))
    seen = nodes(controllers={n: controller(n, quorum=quorum) for n, quorum in quorums.items()})(view())
    assert seen.quorum == QUORUM


def test_brokers_in_kraft_mode_live_although_zookeeper_does_not_know_them() -> None:
    seen = in_kraft_mode(2)(view())
    assert (seen.tree.live, seen.kraft_brokers, seen.migrating_brokers) == ({1}, {2}, {1})
    assert seen.with_all_brokers().live == {1, 2}
