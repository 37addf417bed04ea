"""``aiocontroller storm zookeeper``: the ZooKeeper client under faults drawn from a seed, or its leaks over reconnects.

``zookeeper_history`` lists what is checked.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.lab.storms.zookeeper_history import HistoryVerdict, Storm
from aiocontroller.lab.zookeeper.zookeeper_faults import Schedule
from aiocontroller.lab.zookeeper.zookeeper_leaks import LeakReport, measure_leaks

SESSION_TIMEOUT_S = 4.0
ENSEMBLE_SESSION_TIMEOUT_S = 8.0
"""Long enough for a session to survive an election followed by a silent connection."""


class Servers(NamedTuple):
    ports: list[int]
    ensemble: ZooKeeperEnsemble | None


@contextlib.contextmanager
def servers(connect: str | None, *, ensemble: bool) -> Iterator[Servers]:
    """Start one server or three for the block; with ``connect`` (``HOST:PORT,…`` of this machine), none."""
    if connect:
        yield Servers([int(address.rpartition(":")[2]) for address in connect.split(",")], None)
        return
    with tempfile.TemporaryDirectory(prefix="storm-zookeeper-") as folder:
        started = ZooKeeperEnsemble(Path(folder)) if ensemble else EmbeddedZooKeeper(Path(folder))
        try:
            started.start()
            if isinstance(started, ZooKeeperEnsemble):
                yield Servers([server.port for server in started.servers], started)
            else:
                yield Servers([started.port], None)
        finally:
            started.stop()


async def storm(schedule: Schedule, seed: int, targets: Servers, console: Console) -> HistoryVerdict:
    """Play the schedule; returns the verdict, which is shown on the console too."""
    count = sum(map(len, schedule.segments))
    console.print(f"seed {seed} draws {count} faults in {len(schedule.segments)} segments: {schedule.digest}")
    run = Storm(
        schedule,
        targets.ports,
        chroot=f"/storm-{seed}",
        session_timeout_s=ENSEMBLE_SESSION_TIMEOUT_S if targets.ensemble else SESSION_TIMEOUT_S,
        ensemble=targets.ensemble,
        progress=console.print,
    )
    verdict = await run.run()
    _show(verdict, console)
    return verdict


async def leaks(seed: int, targets: Servers, reconnects: int, expiries: int, console: Console) -> LeakReport:
    """Measure what many reconnects and expiries leave behind; returns the report, which is shown on the console too."""
    report = await measure_leaks(targets.ports[0], reconnects, expiries, seed=seed, progress=console.print)
    table = Table(title=f"{report.reconnects:,} reconnects, {report.expiries:,} expiries in {report.seconds:g} s")
    for heading in ("what", "before", "after", "allowed", "verdict"):
        table.add_column(heading, justify="left" if heading in ("what", "verdict") else "right")
    for row in report.rows:
        verdict = "ok" if row.ok else "LEAKS"
        table.add_row(row.what, f"{row.before:,}", f"{row.after:,}", f"{row.allowed:,}", verdict)
    console.print(table)
    return report


def _show(verdict: HistoryVerdict, console: Console) -> None:
    table = Table(title=f"ZooKeeper storm, seed {verdict.seed}, {verdict.seconds:g} s")
    table.add_column("check")
    table.add_column("examined", justify="right")
    table.add_column("violations", justify="right")
    for finding in verdict.findings:
        table.add_row(finding.check, f"{finding.examined:,}", f"{finding.violations:,}")
    console.print(table)
    faults = ", ".join(f"{kind} {count}" for kind, count in verdict.faults.items())
    writes = ", ".join(f"{count:,} {fate}" for fate, count in sorted(verdict.writes.items()))
    console.print(f"faults: {faults}")
    console.print(
        f"{verdict.rounds} rounds, writes: {writes}; {verdict.lost_answers} batches with a lost answer; "
        f"{verdict.suspensions} connections lost; {verdict.sessions_expired_by_server} sessions ended by a server"
    )
    for finding in verdict.findings:
        for example in finding.examples:
            console.print(f"{finding.check}: {example}", style="red", markup=False)
