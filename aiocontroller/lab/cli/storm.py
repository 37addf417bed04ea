"""``aiocontroller storm NAME``: faults drawn from a seed for some time, and a verdict.

Exit code 0: no violation; 1: a violation, with the command that plays the same faults again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from aiocontroller.cli.output import say, table
from aiocontroller.cli.parameters import Finite, WritableFile
from aiocontroller.cli.properties import PROPERTIES
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rich.console import Console

    from aiocontroller.lab.kafka.alarm_cases import Case
    from aiocontroller.lab.storms.processes import StormVerdict

_T = TypeVar("_T")
_FILE = WritableFile()
_FOLDER = click.Path(file_okay=False, path_type=Path)
_SEED = click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the faults.")
_SECONDS = click.option("--seconds", type=Finite(0, min_open=True), default=60, show_default=True, help="Duration.")
_JSON = click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the verdict as JSON.")
_ENSEMBLE = click.option("--ensemble", is_flag=True, help="Run three ZooKeeper servers; faults hit the leader.")


@click.group()
def storm() -> None:
    """Inject faults drawn from a seed for some time, and check the results."""


@storm.command()
@click.option("--minutes", type=Finite(0, min_open=True), default=10, show_default=True, help="Duration.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the faults.  [default: from the clock]")
@click.option(
    "--scenario", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Play the steps of this file."
)
@click.option("--brokers", type=click.IntRange(1, 20), help="Number of brokers.  [default: 3, or the scenario's]")
@click.option(
    "--controllers", type=click.IntRange(1, 5), help="Number of controllers.  [default: 2, or the scenario's]"
)
@_ENSEMBLE
@PROPERTIES
@_JSON
@click.option("--report", type=_FILE, metavar="FILE.html", help="Write the verdict as a page with a timeline.")
@click.option("--data", type=_FOLDER, help="Folder for logs and journals; without it they are deleted.")
def processes(
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
    from aiocontroller.lab.scenarios.scenario import read_scenario
    from aiocontroller.lab.storms.processes import Storm

    if data is not None and data.exists() and any(data.iterdir()):
        raise BadInputError(f"--data: found {data}, which is not empty, expected a new folder")
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
    verdict = _run(run.run(), folder if data is None else None)
    _show(verdict)
    if report is not None:
        from aiocontroller.lab.processes.page import page

        report.write_text(page(verdict), encoding="utf-8")
        say(f"The report: {report}")
    if not verdict.ok:
        say(f"Logs, journals and ZooKeeper's data: {folder}")
    elif data is None:
        shutil.rmtree(folder, ignore_errors=True)
    again = f"--minutes {minutes:g}" if scenario is None else f"--scenario {scenario}"
    again += " --ensemble" * ensemble + "".join(f" --property {key}={value}" for key, value in properties.items())
    _end(verdict, json_file, f"processes --seed {seed} {again}")


@storm.command()
@_SEED
@click.option("--minutes", type=Finite(0, min_open=True), default=60, show_default=True, help="Duration.")
@click.option("--brokers", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of brokers.")
@_ENSEMBLE
@PROPERTIES
@_JSON
def soak(
    seed: int, minutes: float, brokers: int, ensemble: bool, properties: dict[str, str], json_file: Path | None
) -> None:
    """Run two controllers through faults and work, and show whether their resource usage grows.

    The steps are those of `storm processes` that end no controller. After each round each controller's memory,
    descriptors, tasks, queue and journal are measured; it is a violation if one of them is larger in the last quarter
    than in the second. There are at least twelve rounds, about six minutes. docs/chaos.md has the limits.
    """
    from aiocontroller.lab.processes.cluster import Shape
    from aiocontroller.lab.storms import soak as soaks

    folder = Path(tempfile.mkdtemp(prefix="soak-")).resolve()
    shape = Shape(data_dir=folder, brokers=brokers, ensemble=ensemble, controller_properties=properties)
    run = soaks.Soak(shape, seed, 60 * minutes, progress=lambda text: click.echo(text, err=True))
    say(f"Seed {seed}: {plural(brokers, 'broker')}, 2 controllers, {minutes:g} minutes")
    verdict = _run(run.soak(), folder)
    say("")
    steps = sorted(verdict.steps.items(), key=lambda item: (-item[1], item[0]))
    say(table(["step", "times"], [(kind.replace("_", "-"), count) for kind, count in steps]))
    say("")
    say(table(["controller", "holds", "start", "2nd quarter", "last quarter", "largest", ""], soaks.rows(verdict)))
    say("")
    say(
        f"{plural(verdict.rounds, 'round')} in {verdict.seconds / 60:.1f} minutes, "
        f"{verdict.elections} partition states written, {plural(verdict.failovers, 'failover')}."
    )
    for violation in verdict.violations[:20]:
        say(f"  {violation}")
    say(f"Verdict: {'no violation' if verdict.ok else plural(len(verdict.violations), 'violation')}.")
    if verdict.ok:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        say(f"Logs, journals and ZooKeeper's data: {folder}")
    again = f" --brokers {brokers}" * (brokers != 3) + " --ensemble" * ensemble
    again += "".join(f" --property {key}={value}" for key, value in properties.items())
    _end(verdict, json_file, f"soak --seed {seed} --minutes {minutes:g}{again}")


@storm.command()
@_SEED
@_SECONDS
@_ENSEMBLE
@click.option("--schedule", is_flag=True, help="Print the faults that the seed draws, and stop.")
@click.option("--leaks", is_flag=True, help="Measure leaks over reconnects and expiries instead.")
@click.option("--reconnects", type=click.IntRange(1), default=10_000, show_default=True, help="With --leaks.")
@click.option("--expiries", type=click.IntRange(1), default=1_000, show_default=True, help="With --leaks.")
@click.option("--connect", metavar="HOST:PORT", help="A ZooKeeper on this machine; otherwise one is started.")
@_JSON
def zookeeper(
    seed: int,
    seconds: float,
    ensemble: bool,
    schedule: bool,
    leaks: bool,
    reconnects: int,
    expiries: int,
    connect: str | None,
    json_file: Path | None,
) -> None:
    """Check the ZooKeeper client against a real server through a faulty network.

    docs/zookeeper.md says which faults are played and what is checked.
    """
    from aiocontroller.lab.storms import zookeeper as storms
    from aiocontroller.lab.zookeeper.zookeeper_faults import draw_schedule

    if ensemble and (connect or leaks):
        raise click.UsageError("--ensemble starts servers of its own, for the storm only")
    drawn = draw_schedule(seed, seconds, ensemble=ensemble)
    if schedule:
        say(msgspec.json.format(msgspec.json.encode(drawn), indent=2).decode())
        return
    # expiries and lost connections are expected here: log only unexpected messages
    logging.getLogger("aiocontroller.zookeeper").setLevel(logging.ERROR)
    with storms.servers(connect, ensemble=ensemble) as targets:
        if leaks:
            measured = asyncio.run(storms.leaks(seed, targets, reconnects, expiries, _console(120)))
            again = f"zookeeper --leaks --seed {seed} --reconnects {reconnects} --expiries {expiries}"
            _end(measured, json_file, again)
        else:
            verdict = asyncio.run(storms.storm(drawn, seed, targets, _console(120)))
            _end(verdict, json_file, f"zookeeper --seed {seed} --seconds {seconds:g}" + " --ensemble" * ensemble)


@storm.command()
@_SEED
@_SECONDS
@click.option(
    "--within",
    type=Finite(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time within which probes must be answered.",
)
@click.option("--only", multiple=True, metavar="ATTACK", help="Only this attack; may be repeated.")
@_JSON
@click.option("--keep", type=_FOLDER, metavar="DIR", help="Copy the cluster's folder there after a violation.")
def hostile(
    seed: int, seconds: float, within: float, only: tuple[str, ...], json_file: Path | None, keep: Path | None
) -> None:
    """Let hostile and careless clients loose on a controller's ports, while its brokers die.

    The controller must keep its role, answer /healthz and a broker's AlterPartition in time, bound its memory, and
    elect new leaders for the dead broker's partitions.
    """
    from aiocontroller.lab.hostile.attacks import ATTACKS
    from aiocontroller.lab.storms import hostile as storms

    for name in only:
        if name not in ATTACKS:
            raise click.BadParameter(f"found {name!r}, expected one of {', '.join(ATTACKS)}", param_hint="--only")
    verdict = asyncio.run(storms.storm(storms.Options(seed, seconds, within, only, keep), _console(180)))
    again = f"hostile --seed {seed} --seconds {seconds:g}" + "".join(f' --only "{name}"' for name in only)
    _end(verdict, json_file, again)


@storm.command()
@_SEED
@click.option("--minutes", type=Finite(0), default=5, show_default=True, help="Duration; at least one round.")
@click.option("--session-ms", type=click.IntRange(1), default=6000, show_default=True, help="ZooKeeper sessions.")
@click.option("--partitions", type=click.IntRange(1), default=6, show_default=True, help="Partitions of each topic.")
@click.option("--version", metavar="VERSION", help="Kafka's version.  [default: 3.9.1]")
@PROPERTIES
@_JSON
@click.option("--keep", type=_FOLDER, metavar="DIR", help="Leave logs, journals and records in this new folder.")
def kafka(
    seed: int,
    minutes: float,
    session_ms: int,
    partitions: int,
    version: str | None,
    properties: dict[str, str],
    json_file: Path | None,
    keep: Path | None,
) -> None:
    """Play events on real brokers and clients, under aiocontroller and under Kafka's own controller.

    It is a violation if an acknowledged record is lost, doubled or out of order, or if a client reports an error to its
    user during a takeover or a release. docs/clients.md describes the events and the clients.
    """
    from aiocontroller.lab.storms import kafka as storms

    if keep is not None and keep.exists():
        raise BadInputError(f"--keep: found {keep}, expected a new folder")
    version = _release(version)
    console = _console(120)
    options = storms.Options(seed, minutes, session_ms, partitions, version, properties)
    with storms.folder_for(keep) as folder:
        verdict = asyncio.run(storms.storm(options, folder, console))
    storms.show(verdict, console)
    _end(verdict, json_file, f"kafka --seed {seed} --minutes {minutes:g}")


@storm.command()
@_SEED
@click.option("--trials", type=click.IntRange(1), default=50, show_default=True, help="Partitions for each controller.")
@click.option("--version", metavar="VERSION", help="Kafka's version.  [default: 3.9.1]")
@PROPERTIES
@_JSON
@click.option("--keep", type=_FOLDER, metavar="DIR", help="Leave logs and journals in this new folder.")
def unclean(
    seed: int, trials: int, version: str | None, properties: dict[str, str], json_file: Path | None, keep: Path | None
) -> None:
    """Let all in-sync replicas die, on real brokers, and count what an unclean election loses.

    It is played under aiocontroller and under Kafka's own controller. It is a violation if aiocontroller loses more
    than the remaining logs make unavoidable.
    """
    from aiocontroller.lab.storms import unclean as storms

    report = _play_on_logs(storms.storm, seed, trials, version, properties, keep)
    storms.show(report, _console(120))
    _end(report, json_file, f"unclean --seed {seed} --trials {trials}")


@storm.command(name="power-loss")
@_SEED
@click.option("--trials", type=click.IntRange(1), default=40, show_default=True, help="Partitions for each controller.")
@click.option("--only", multiple=True, metavar="NAME", help="aiocontroller, kafka or kraft alone; may be repeated.")
@click.option("--version", metavar="VERSION", help="Kafka's version.  [default: 3.9.1]")
@PROPERTIES
@_JSON
@click.option("--keep", type=_FOLDER, metavar="DIR", help="Leave logs and journals in this new folder.")
def power_loss(
    seed: int,
    trials: int,
    only: tuple[str, ...],
    version: str | None,
    properties: dict[str, str],
    json_file: Path | None,
    keep: Path | None,
) -> None:
    """Cut off the end of the last in-sync replica's logs, on real brokers, and count the acknowledged records lost.

    It is played under aiocontroller, under Kafka's own controller, and under KRaft (from Kafka 3.3 on). It is a
    violation if aiocontroller loses any, since a complete replica returns first.
    """
    from aiocontroller.lab.storms import power_loss as storms

    version = _release(version)
    try:
        names = storms.played(version, only)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--only") from error
    named_storm = functools.partial(storms.storm, names=names)
    report = _play_on_logs(named_storm, seed, trials, version, properties, keep)
    storms.show(report, _console(120))
    _end(report, json_file, f"power-loss --seed {seed} --trials {trials}" + "".join(f" --only {name}" for name in only))


def _release(version: str | None) -> str:
    """Return Kafka's full version, by default the newest; BadInputError if it is unknown or its jars are missing."""
    from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, KafkaMissingError, kafka_jars, release

    try:
        version = release(version or DEFAULT_VERSION)
        kafka_jars(version)
    except KafkaMissingError as error:
        raise BadInputError(str(error)) from error
    return version


def _play_on_logs(
    storm: Callable[[Any, Path, Console], Coroutine[Any, Any, Any]],
    seed: int,
    trials: int,
    version: str | None,
    properties: dict[str, str],
    keep: Path | None,
) -> Any:
    """Play a storm of trials; BadInputError for a folder that exists or a release that is missing."""
    from aiocontroller.lab.storms.kafka import folder_for
    from aiocontroller.lab.storms.unclean import Options

    if keep is not None and keep.exists():
        raise BadInputError(f"--keep: found {keep}, expected a new folder")
    version = _release(version)
    with folder_for(keep) as folder:
        return asyncio.run(storm(Options(seed, trials, version, properties), folder, _console(120)))


@storm.command()
@click.option(
    "--uptime",
    "uptimes_s",
    multiple=True,
    type=Finite(0),
    metavar="SECONDS",
    help="Seconds that the controllers have run when a case begins; may be repeated.  [default: 10 and 120]",
)
@click.option("--cases", metavar="N-M", help="Only these cases, from 1 to 24; 0 is the kill alone.  [default: 0-24]")
@click.option("--clients", default="java", show_default=True, metavar="KINDS", help="java, librdkafka, or both.")
@click.option("--partitions", type=click.IntRange(6), default=12, show_default=True, help="Partitions of each topic.")
@click.option("--version", metavar="VERSION", help="Kafka's version.  [default: 3.9.1]")
@PROPERTIES
@_JSON
@click.option("--keep", type=_FOLDER, metavar="DIR", help="Leave logs, journals and records in this new folder.")
def alarms(
    uptimes_s: tuple[float, ...],
    cases: str | None,
    clients: str,
    partitions: int,
    version: str | None,
    properties: dict[str, str],
    json_file: Path | None,
    keep: Path | None,
) -> None:
    """Pause and cut off live processes, on real brokers under early detection, and show what false alarms cost.

    There are 24 pauses and cuts, of a broker, of its links and of the controller; in the middle of each another broker
    is killed. docs/early-detection.md says what each may cost.
    """
    from aiocontroller.lab.cluster.load.clients import KINDS
    from aiocontroller.lab.storms import alarms as storms
    from aiocontroller.lab.storms.kafka import folder_for

    if keep is not None and keep.exists():
        raise BadInputError(f"--keep: found {keep}, expected a new folder")
    chosen, kinds = _cases(cases), clients.split(",")
    if unknown := set(kinds) - set(KINDS):
        raise click.BadParameter(f"found {', '.join(sorted(unknown))}, expected {' or '.join(KINDS)}")
    version = _release(version)
    console = _console(150)
    options = storms.Options(chosen, uptimes_s or (10.0, 120.0), kinds, partitions, version, properties)
    with folder_for(keep) as folder:
        report = asyncio.run(storms.storm(options, folder, console))
    storms.show(report, console)
    again = "".join(f" --uptime {uptime_s:g}" for uptime_s in uptimes_s) + (f" --cases {cases}" if cases else "")
    _end(report, json_file, f"alarms{again}")


def _cases(text: str | None) -> list[Case]:
    """Return the cases of ``--cases``.  Raises click.BadParameter."""
    from aiocontroller.lab.kafka.alarm_cases import CASES, PEACE

    known = [PEACE, *CASES]
    if text is None:
        return known
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal() and int(first) <= int(last or first) < len(known)):
        raise click.BadParameter(f"found {text!r}, expected N or N-M of 0 to {len(known) - 1}", param_hint="--cases")
    return known[int(first) : int(last or first) + 1]


def _console(columns: int) -> Console:
    """Return a console; ``columns`` is its width if the output is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else columns, highlight=False, soft_wrap=True)


def _run(work: Coroutine[Any, Any, _T], folder: Path | None) -> _T:
    """Run the coroutine and return its result.  An interrupt removes the folder, which has some megabytes."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _end(verdict: Any, json_file: Path | None, again: str) -> None:
    """Write the verdict (a Struct that is ``ok`` or not) and exit; ``again`` has the arguments to repeat the storm."""
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=1) + b"\n")
    if not verdict.ok:
        say(f"The same faults again: aiocontroller storm {again}")
        sys.exit(1)


def _show(verdict: StormVerdict) -> None:
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
