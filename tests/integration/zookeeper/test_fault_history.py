"""A short storm and a short leak check on a real ZooKeeper; ``aiocontroller storm zookeeper`` plays long ones."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.storms.zookeeper_history import LOG, PAIR, HistoryVerdict, Reader, Storm, Writer
from aiocontroller.lab.zookeeper.zookeeper_faults import draw_schedule
from aiocontroller.lab.zookeeper.zookeeper_leaks import LeakReport, measure_leaks
from tests.integration.zookeeper.conftest import MakeClient


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_doubled_or_given_up(zookeeper: EmbeddedZooKeeper, zk_connect: str, seed: int) -> None:
    chroot = zk_connect[zk_connect.index("/") :]
    verdict = await Storm(draw_schedule(seed, 5), [zookeeper.port], chroot=chroot, session_timeout_s=3).run()
    assert [(f.check, f.examples) for f in verdict.findings if f.violations] == []
    assert verdict.rounds > 5
    assert sum(verdict.faults.values()) > 5
    assert verdict.suspensions > 5
    assert all(finding.examined for finding in verdict.findings)


@pytest.mark.timeout(240)
def test_reconnects_and_expiries_leave_nothing_behind(zookeeper: EmbeddedZooKeeper) -> None:
    """In a process of its own: clients of other tests open and close descriptors of this one from their threads."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        report = pool.submit(_measured, zookeeper.port).result()
    assert [row for row in report.rows if not row.ok] == []


def _measured(port: int) -> LeakReport:
    return asyncio.run(measure_leaks(port, 300, 60))


async def test_what_should_not_be_is_found(make_client: MakeClient) -> None:
    """The checks themselves: another client does what a broken one would."""
    client, other = await make_client(direct=True), await make_client(direct=True)
    verdict = HistoryVerdict(1, "", 1, 0.0)
    writer = Writer(client, 1, verdict)
    reader = Reader(client, list(writer.versions), verdict)
    await writer.set_up()
    for number in range(30):
        await writer.round(number)
    await writer.check()
    assert verdict.ok

    node = next(path for path in sorted(writer.present) if path.startswith("/n"))
    ephemeral = next(path for path in sorted(writer.present) if path.startswith("/e"))
    await other.set_data("/c000", b"again")
    await other.delete(node)
    await other.delete(ephemeral)
    await other.create(ephemeral, writer.present[ephemeral], ephemeral=True)
    await other.set_data(PAIR[0], b"")
    [first, *_] = sorted((await other.children_many([LOG])).names[0] or [])
    data, _ = await other.get(f"{LOG}/{first}")
    await other.create(f"{LOG}/e-", data, sequential=True)
    writer.versions["/c001"] += 1
    reader.known = dict.fromkeys(writer.versions, (-1, None))
    reader._learn("/c000", 5, b"", True)
    reader._learn("/c000", 5, b"", True)
    reader._learn("/c000", 4, b"", False)
    await writer.check()
    assert {finding.check: finding.violations for finding in verdict.findings if finding.violations} == {
        "lost": 2,  # the node; /c001, which is a version behind
        "doubled": 2,  # /c000; what was appended twice
        "misreported": 1,  # the pair's version
        "torn": 1,
        "ephemeral": 1,  # it belongs to another session
        "watch for nothing": 1,
        "back in time": 1,
    }
    assert not verdict.ok
