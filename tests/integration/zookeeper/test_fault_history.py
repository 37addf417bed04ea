"""A short storm and a short leak check on a real ZooKeeper; ``scripts/storm zookeeper`` plays long ones."""

from __future__ import annotations

import pytest

from aiocontroller.chaos.zookeeper_faults import draw_schedule
from aiocontroller.chaos.zookeeper_leaks import measure_leaks
from aiocontroller.chaos.zookeeper_storm import Storm
from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_doubled_or_given_up(zookeeper: EmbeddedZooKeeper, zk_connect: str, seed: int) -> None:
    chroot = zk_connect[zk_connect.index("/") :]
    verdict = await Storm(draw_schedule(seed, 5), [zookeeper.port], chroot=chroot, session_timeout_s=3).run()
    assert [(f.check, f.examples) for f in verdict.findings if f.violations] == []
    assert verdict.rounds > 5
    assert sum(verdict.faults.values()) > 5
    assert verdict.suspensions > 5
    assert all(finding.examined for finding in verdict.findings)


async def test_reconnects_and_expiries_leave_nothing_behind(zookeeper: EmbeddedZooKeeper) -> None:
    report = await measure_leaks(zookeeper.port, 300, 60)
    assert [row for row in report.rows if not row.ok] == []
