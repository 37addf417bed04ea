"""``aiocontroller storm``: runs real processes under faults drawn from a seed, and reports the checkers' verdict."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aiocontroller.cli.output import plural, say, table
from aiocontroller.cli.properties import PROPERTIES
from aiocontroller.core.errors import BadInputError

if TYPE_CHECKING:
    from aiocontroller.lab.processes.storm import Verdict

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), default=10, show_default=True, help="Duration.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the faults.  [default: from the clock]")
@click.option(
    "--scenario", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Play the steps of this file."
)
@click.option("--brokers", type=click.IntRange(1, 20), help="Number of brokers.  [default: 3, or the scenario's]")
@click.option(
    "--controllers", type=click.IntRange(1, 5), help="Number of controllers.  [default: 2, or the scenario's]"
)
@click.option("--ensemble", is_flag=True, help="Run three ZooKeeper servers; faults hit the one that leads.")
@PROPERTIES
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the verdict as JSON.")
@click.option("--report", type=_FILE, metavar="FILE.html", help="Write the verdict as a page with a timeline.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for logs and journals; without it they are deleted.",
)
def storm(
    minutes: float,
    seed: int | None,
    scenario: Path | None,
    brokers: int | None,
    controllers: int | None,
    ensemble: bool,
    properties: dict[str, str],
    json_file: Path | None,
    report: Path | None,
    data: Path | None,
) -> None:
    """Inject faults into real processes and check the results.

    ZooKeeper, brokers and controllers run as processes of their own. Signals, TCP faults, full disks and restarts are
    drawn from the seed; after each round everything is healed and the cluster must become whole. docs/chaos.md says
    what is checked.
    """
    from aiocontroller.lab.processes.cluster import Shape
    from aiocontroller.lab.processes.storm import Storm
    from aiocontroller.lab.scenarios.scenario import read_scenario

    if data is not None and data.exists() and any(data.iterdir()):
        raise BadInputError(f"--data: found {data} with something in it, expected a new folder")
    plan = read_scenario(scenario) if scenario is not None else None
    seed = time.time_ns() // 1_000_000_000 if seed is None else seed
    folder = data or Path(tempfile.mkdtemp(prefix="storm-"))
    shape = Shape(
        data_dir=folder.resolve(),
        brokers=brokers or (plan.brokers if plan is not None else 3),
        controllers=controllers or (plan.controllers if plan is not None else 2),
        ensemble=ensemble,
        controller_properties=properties,
    )
    steps = plan.steps if plan is not None else ()
    run = Storm(shape, seed, 60 * minutes, steps=steps, progress=lambda text: click.echo(text, err=True))
    how_long = f"{minutes:g} minutes" if plan is None else f"{plural(len(steps), 'step')} of {scenario}"
    say(f"Seed {seed}: {shape.brokers} brokers, {shape.controllers} controllers, {how_long}")
    verdict = asyncio.run(run.run())
    tell(verdict)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n")
    if report is not None:
        from aiocontroller.lab.processes.page import page

        report.write_text(page(verdict), encoding="utf-8")
        say(f"The report: {report}")
    if not verdict.ok:
        say(f"Logs, journals and ZooKeeper's data: {folder}")
        again = f"--minutes {minutes:g}" if scenario is None else f"--scenario {scenario}"
        again += " --ensemble" * ensemble + "".join(f" --property {key}={value}" for key, value in properties.items())
        say(f"The same faults again: aiocontroller storm --seed {seed} {again}")
        sys.exit(1)
    if data is None:
        shutil.rmtree(folder, ignore_errors=True)


def tell(verdict: Verdict) -> None:
    say("")
    faults = sorted(verdict.faults.items(), key=lambda item: (-item[1], item[0]))
    say(table(["step", "times"], [(kind.replace("_", "-"), count) for kind, count in faults]))
    say("")
    rows = [(t.what, t.count, f"{t.p50:.3f}", f"{t.p90:.3f}", f"{t.max:.3f}") for t in verdict.times]
    say(table(["how long, in seconds", "count", "p50", "p90", "max"], rows))
    say("")
    say(table(["examined", "count"], list(verdict.examined.items())))
    if verdict.suspicions:
        say("")
        say(table(["early detection", "count"], list(verdict.suspicions.items())))
    say("")
    say(
        f"{plural(verdict.rounds, 'round')} in {verdict.seconds / 60:.1f} minutes, "
        f"{plural(verdict.failovers, 'election')} of a controller."
    )
    for violation in verdict.violations[:20]:
        say(f"  {violation}")
    say(f"Verdict: {'no violation' if verdict.ok else plural(len(verdict.violations), 'violation')}.")
