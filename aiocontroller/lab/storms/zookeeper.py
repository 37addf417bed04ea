"""``scripts/storm zookeeper``: the ZooKeeper client under faults drawn from a seed, or its leaks over many reconnects.

    scripts/storm zookeeper --seed 7 --seconds 60 [--ensemble] [--json FILE] [--connect HOST:PORT]
    scripts/storm zookeeper --schedule --seed 7        print the faults that the seed draws, without playing them
    scripts/storm zookeeper --leaks [--reconnects 10000] [--expiries 1000]

The exit code is 0 if there was no violation (and no leak), otherwise 1.  ``lab/zookeeper/zookeeper_storm.py`` lists the
checks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.lab.zookeeper.zookeeper_faults import draw_schedule
from aiocontroller.lab.zookeeper.zookeeper_leaks import LeakReport, measure_leaks
from aiocontroller.lab.zookeeper.zookeeper_storm import Storm, Verdict

SESSION_TIMEOUT_S = 4.0
ENSEMBLE_SESSION_TIMEOUT_S = 8.0
"""Long enough that an election followed by a silent connection does not cost the session."""


@contextlib.contextmanager
def servers(options: argparse.Namespace) -> Iterator[tuple[list[int], ZooKeeperEnsemble | None]]:
    """Yield the ports of the servers, and the ensemble if there is one."""
    if options.connect:
        yield [int(address.rpartition(":")[2]) for address in options.connect.split(",")], None
        return
    with tempfile.TemporaryDirectory(prefix="storm-zookeeper-") as folder:
        if options.ensemble:
            ensemble = ZooKeeperEnsemble(Path(folder))
            try:
                ensemble.start()
                yield [server.port for server in ensemble.servers], ensemble
            finally:
                ensemble.stop()
            return
        server = EmbeddedZooKeeper(Path(folder))
        server.start()
        try:
            yield [server.port], None
        finally:
            server.stop()


def storm(options: argparse.Namespace, console: Console) -> int:
    schedule = draw_schedule(options.seed, options.seconds, ensemble=options.ensemble)
    if options.schedule:
        console.print_json(msgspec.json.encode(schedule).decode())
        return 0
    count = sum(map(len, schedule.segments))
    console.print(f"seed {options.seed} draws {count} faults in {len(schedule.segments)} segments: {schedule.digest}")
    with servers(options) as (ports, ensemble):
        run = Storm(
            schedule,
            ports,
            chroot=f"/storm-{options.seed}",
            session_timeout_s=ENSEMBLE_SESSION_TIMEOUT_S if ensemble else SESSION_TIMEOUT_S,
            ensemble=ensemble,
            progress=console.print,
        )
        verdict = asyncio.run(run.run())
    show_verdict(verdict, console)
    if options.json:
        Path(options.json).write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n")
    if not verdict.ok:
        console.print(f"Violated. The same schedule again: scripts/storm zookeeper {_again(options)}", style="bold red")
    return 0 if verdict.ok else 1


def _again(options: argparse.Namespace) -> str:
    return f"--seed {options.seed} --seconds {options.seconds:g}" + (" --ensemble" if options.ensemble else "")


def show_verdict(verdict: Verdict, console: Console) -> None:
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


def leaks(options: argparse.Namespace, console: Console) -> int:
    with servers(options) as (ports, _):
        report = asyncio.run(
            measure_leaks(ports[0], options.reconnects, options.expiries, seed=options.seed, progress=console.print)
        )
    show_leaks(report, console)
    if options.json:
        Path(options.json).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 0 if report.ok else 1


def show_leaks(report: LeakReport, console: Console) -> None:
    table = Table(title=f"{report.reconnects:,} reconnects, {report.expiries:,} expiries in {report.seconds:g} s")
    for heading in ("what", "before", "after", "allowed", "verdict"):
        table.add_column(heading, justify="left" if heading in ("what", "verdict") else "right")
    for row in report.rows:
        verdict = "ok" if row.ok else "LEAKS"
        table.add_row(row.what, f"{row.before:,}", f"{row.after:,}", f"{row.allowed:,}", verdict)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/storm zookeeper", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ensemble", action="store_true", help="three servers, whose leader is killed and restarted")
    parser.add_argument("--schedule", action="store_true", help="print the faults that the seed draws, and stop")
    parser.add_argument("--leaks", action="store_true", help="measure leaks over reconnects and expiries instead")
    parser.add_argument("--reconnects", type=int, default=10_000)
    parser.add_argument("--expiries", type=int, default=1_000)
    parser.add_argument("--connect", help="HOST:PORT of a ZooKeeper on this machine; otherwise one is started")
    parser.add_argument("--json", metavar="FILE", help="write the verdict to this file")
    options = parser.parse_args()
    if options.ensemble and (options.connect or options.leaks):
        parser.error("--ensemble starts servers of its own, for the storm only")
    # expiries and lost connections are expected here: log only unexpected messages
    logging.getLogger("aiocontroller.zookeeper").setLevel(logging.ERROR)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, soft_wrap=True)
    return leaks(options, console) if options.leaks else storm(options, console)


if __name__ == "__main__":
    sys.exit(main())
