"""``aiocontroller simulate``: runs clusters in memory by seeds, reports violations, and tests the checkers."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.cli.parameters import Finite
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.campaign import Stop, Summary
    from aiocontroller.lab.simulation.coverage import Coverage
    from aiocontroller.lab.simulation.report import SimulationReport
    from aiocontroller.lab.simulation.results import Results
    from aiocontroller.lab.simulation.zoo import Hunt

PROGRESS_EVERY_S = 2.0
MOST_UNREACHED = 200


@click.command()
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds to run.  [default: 100]")
@click.option("--from", "first", type=click.IntRange(0), help="The first seed.  [default: 1]")
@click.option("--fresh", is_flag=True, help="Use new seeds, taken from the clock.")
@click.option(
    "--restarts",
    is_flag=True,
    help="Run only seeds of the family restarts (every twelfth); with --zoo: only the bugs that are hunted with such "
    "seeds; docs/chaos.md.",
)
@click.option("--seed", type=click.IntRange(0), help="Replay one seed several times, also in other processes.")
@click.option(
    "--fork",
    "forks",
    multiple=True,
    metavar="AWAIT:BRANCH",
    help="With --seed: take another future from this await point on, as named in a report of --branch.",
)
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play the steps of this file and print what happens; docs/scenarios.md.",
)
@click.option("--shrink", is_flag=True, help="With --seed: remove steps while the run still fails.")
@click.option(
    "--crash-points", is_flag=True, help="With --seed: kill the controller at each write and each await, one run each."
)
@click.option("--crash-point", metavar="TEXT", help='With --seed: repeat one crash point, such as "at await 17".')
@click.option("--zoo", is_flag=True, help="Inject known bugs into the program and count the seeds that find them.")
@click.option("--bug", "bugs", multiple=True, metavar="TEXT", help="With --zoo: only bugs whose name contains this.")
@click.option("--tries", type=click.IntRange(1), default=5, show_default=True, help="With --zoo: tries for each bug.")
@click.option(
    "--most",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="With --zoo: maximum number of runs for each try.",
)
@click.option("--markdown", is_flag=True, help="With --zoo: print the table for a page, with the runs of each try.")
@click.option(
    "--branch",
    type=click.IntRange(1, 999),
    metavar="N",
    help="Fork each seed into N more futures where it reaches a mark that few seeds have reached; also with --zoo.",
)
@click.option(
    "--steer",
    type=click.IntRange(1, 90),
    metavar="PERCENT",
    help="Spend this share of the runs on neighbours of runs that reached marks that few have reached; also with "
    "--zoo.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each seed's result to this file as it arrives; if the file exists, continue where it ends.",
)
@click.option(
    "--merge",
    "merged",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Run nothing: report the combined results in these files of --results.",
)
@click.option("--spark", metavar="MASTER", help="Run on a Spark cluster, such as local[2] or spark://host:7077.")
@click.option("--minutes", type=Finite(0, min_open=True), help="Start no more seeds after this time.")
@click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: one for each core]")
@JSON
def simulate(
    seeds: int | None,
    first: int | None,
    fresh: bool,
    restarts: bool,
    seed: int | None,
    forks: tuple[str, ...],
    scenario: Path | None,
    shrink: bool,
    crash_points: bool,
    crash_point: str | None,
    zoo: bool,
    bugs: tuple[str, ...],
    tries: int,
    most: int,
    markdown: bool,
    branch: int | None,
    steer: int | None,
    results: Path | None,
    merged: tuple[Path, ...],
    spark: str | None,
    minutes: float | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Simulate clusters with faults in memory, each from a seed.

    Controllers, brokers, ZooKeeper and the network run on virtual time: the whole program, one seed each.

    Each seed draws a cluster and a sequence of work and faults, then heals everything and demands that the cluster
    becomes whole. A failure prints the command that replays it. docs/chaos.md says what is checked.

    Ctrl-C, SIGTERM and --minutes end a campaign early, with the summary of all that was done.
    """
    jobs = jobs or os.cpu_count() or 1
    if (shrink or crash_points or crash_point) and seed is None:
        raise BadInputError("--shrink, --crash-points and --crash-point need --seed N")
    if forks and (seed is None or crash_points or crash_point):
        raise BadInputError("--fork needs --seed N, and neither --crash-points nor --crash-point")
    if markdown and (not zoo or as_json):
        raise BadInputError("--markdown is for the table of --zoo, and not together with --json")
    if (branch or steer or restarts) and (seed is not None or scenario or merged):
        raise BadInputError("--branch, --steer and --restarts are for campaigns: found another kind of run with them")
    if merged:
        ok = _merge(merged, as_json)
    elif zoo:
        ok = _zoo(
            jobs, bugs, tries, most, branch or 0, steer or 0, restarts=restarts, markdown=markdown, as_json=as_json
        )
    elif scenario is not None:
        ok = _scenario(scenario, as_json)
    elif seed is not None:
        ok = _one_seed(seed, ",".join(forks), jobs, crash_point, shrink=shrink, points=crash_points, as_json=as_json)
    else:
        ok = _campaign(
            first,
            seeds,
            results,
            minutes,
            jobs,
            spark,
            fresh=fresh,
            restarts=restarts,
            branch=branch or 0,
            steer=steer or 0,
            as_json=as_json,
        )
    if not ok:
        sys.exit(1)


# -- many seeds --------------------------------------------------------------------------------------------------------


def _campaign(
    first: int | None,
    seeds: int | None,
    file: Path | None,
    minutes: float | None,
    jobs: int,
    spark: str | None,
    *,
    fresh: bool,
    restarts: bool,
    branch: int,
    steer: int,
    as_json: bool,
) -> bool:
    from aiocontroller.lab.simulation.campaign import Stop
    from aiocontroller.lab.simulation.results import Results

    new = time.time_ns() // 1_000_000_000 * 1_000 if fresh else 1
    stop = Stop(minutes)
    start = new if first is None else first
    asked = first is not None
    kept = Results(file, start, seeds, asked=asked, branch=branch, steer=steer, restarts=restarts)
    with kept as results, stop.listening():
        summary, coverage = _run(results, stop, jobs, spark, as_json)
        _show(summary, coverage, results.campaign.seeds, as_json)
    if stop.signal:
        os.kill(os.getpid(), stop.signal)
    return not summary.failures


def _merge(files: tuple[Path, ...], as_json: bool) -> bool:
    from aiocontroller.lab.simulation.campaign import run_seeds
    from aiocontroller.lab.simulation.results import merge

    merged = merge(files)
    summary, coverage = run_seeds((), 1, earlier=merged.reports)
    if not as_json:
        for report in merged.reports:
            if not report.ok:
                _show_failure(report)
    _show(summary, coverage, merged.seeds, as_json)
    return not summary.failures


def _show(summary: Summary, coverage: Coverage, seeds: int, as_json: bool) -> None:
    if not as_json:
        _show_summary(summary, coverage, seeds)
        return
    print_json(
        {
            **msgspec.structs.asdict(summary),
            "seeds_per_s": round(summary.seeds_per_s, 2),
            "seeds_left": seeds - summary.seeds,
            "tuples": coverage.tuples(),
            "never_reached": coverage.never_reached(),
            "refused_state_changes": coverage.refused(),
        }
    )


def _run(results: Results, stop: Stop, jobs: int, spark: str | None, as_json: bool) -> tuple[Summary, Coverage]:
    from aiocontroller.lab.simulation.campaign import run_course, run_seeds
    from aiocontroller.lab.simulation.course import Course

    campaign, printed_s = results.campaign, 0.0
    numbers = campaign.numbers()

    def each(summary: Summary, report: SimulationReport) -> None:
        nonlocal printed_s
        results.add(report)
        if not report.ok and not as_json:
            _show_failure(report)
        if summary.wall_s - printed_s >= PROGRESS_EVERY_S:
            printed_s = summary.wall_s
            click.echo(f"{summary.seeds:,} of {campaign.seeds:,} seeds, {summary.seeds_per_s:.1f}/s", err=True)

    if not as_json:
        where = f"Spark, {spark}" if spark else plural(jobs, "process").replace("processs", "processes")
        branched = f", with {plural(campaign.branch, 'more future')} at rare marks" if campaign.branch else ""
        steered = f", {campaign.steer} % of the runs near rare marks" if campaign.steer else ""
        family = "of the family restarts " if campaign.restarts else ""
        say(f"Seeds {family}{numbers[0]} to {numbers[-1]} on {where}{branched}{steered}")
        if results.reports:
            say(f"{plural(len(results.reports), 'seed')} done before")
    if campaign.branch or campaign.steer:
        course = Course(numbers, futures=campaign.branch, steer=campaign.steer)
        return run_course(course, jobs, each, earlier=results.reports, stop=stop, spark=spark)
    return run_seeds(results.missing(), jobs, each, earlier=results.reports, stop=stop, spark=spark)


def _show_failure(report: SimulationReport) -> None:
    say(f"Seed {report.recipe} FAILED:")
    for violation in report.violations[:5]:
        say(f"  {violation}")
    say(f"  again: aiocontroller simulate --seed {report.recipe}")
    say(f"  smaller: aiocontroller simulate --seed {report.recipe} --shrink")


def _show_summary(summary: Summary, coverage: Coverage, seeds: int) -> None:
    never = coverage.never_reached()
    hours, minutes = summary.virtual_s / 3600, summary.wall_s / 60
    forked = f" and {plural(summary.forked, 'fork')}" if summary.forked else ""
    now = f", {summary.seeds_now:,} of them in {minutes:.1f} minutes ({summary.seeds_per_s:.1f}/s)"
    say(
        f"{plural(summary.seeds, 'seed')}{forked}{now if summary.wall_s else ''}: {hours:.1f} hours of cluster time, "
        f"{summary.events:,} controller events, {summary.znode_writes:,} writes of partition states"
    )
    refused = coverage.refused()
    say(
        f"Coverage: {coverage.tuples():,} combinations of event, outcome and fault; "
        f"{len(coverage.reached()):,} marks; {len(never)} never reached:"
    )
    for mark in never[:MOST_UNREACHED]:
        say(f"  {mark}")
    if refused:
        say(f"State changes that were asked for and refused: {', '.join(refused)}")
    failed = len(summary.failures)
    if summary.seeds < seeds:
        say(f"Ended early: {plural(seeds - summary.seeds, 'seed')} left")
    say(
        "Verdict: no violation."
        if not failed
        else f"Verdict: {plural(failed, 'run')} FAILED: --seed {', '.join(summary.failures)}"
    )


# -- one seed ----------------------------------------------------------------------------------------------------------


def _one_seed(
    seed: int, forks: str, jobs: int, crash_point: str | None, *, shrink: bool, points: bool, as_json: bool
) -> bool:
    if shrink:
        return _shrink(seed, forks, as_json)
    if points:
        return _crash_points(seed, jobs, as_json)
    return _crash_point(seed, crash_point, as_json) if crash_point else _replay(seed, forks, as_json)


def _replay(seed: int, forks: str, as_json: bool) -> bool:
    from aiocontroller.lab.scenarios.plan import draw
    from aiocontroller.lab.simulation.campaign import HASH_SEEDS, replay

    result = replay(seed, forks)
    report = result.report
    if as_json:
        print_json({**msgspec.structs.asdict(report), "digests": result.digests, "same": result.same})
        return report.ok and result.same
    plan = draw(seed)
    say(f"Seed {report.recipe}: {plan.brokers} brokers, {plan.controllers} controllers, {len(plan.steps)} steps")
    say(f"  steps: {', '.join(f'{kind} {count}' for kind, count in report.steps.items())}")
    say(f"  {report.virtual_s:.0f} s of cluster time, {report.events} controller events, {report.znode_writes} writes")
    where = ["here, again", *(f"another process, PYTHONHASHSEED={value}" for value in HASH_SEEDS)]
    say(table(["digest", "where"], [(report.digest, "here"), *zip(result.digests, where, strict=True)]))
    say("Every run was the same." if result.same else "The runs DIFFER: the simulation is not deterministic.")
    for violation in report.violations:
        say(f"  {violation}")
    say("Verdict: no violation." if report.ok else "Verdict: FAILED.")
    return report.ok and result.same


def _scenario(file: Path, as_json: bool) -> bool:
    from aiocontroller.lab.scenarios.scenario import read_scenario
    from aiocontroller.lab.simulation.campaign import quiet
    from aiocontroller.lab.simulation.playing import play

    quiet()
    report, narration = play(read_scenario(file))
    if as_json:
        print_json({**msgspec.structs.asdict(report), "narration": narration})
        return report.ok
    for line in narration:
        say(line)
    for violation in report.violations:
        say(f"  {violation}")
    say(f"Verdict: {'no violation' if report.ok else 'FAILED'}; digest {report.digest}.")
    return report.ok


def _shrink(seed: int, forks: str, as_json: bool) -> bool:
    from aiocontroller.lab.scenarios.forks import recipe
    from aiocontroller.lab.scenarios.scenario import format_scenario
    from aiocontroller.lab.simulation.campaign import shrink_seed
    from aiocontroller.lab.simulation.simulation import simulate_plan

    shrunk, name = shrink_seed(seed, forks), recipe(seed, forks)
    if shrunk is None:
        say(f"Seed {name} violates nothing: there is nothing to shrink.")
        return True
    plan, runs = shrunk
    violations = simulate_plan(plan).violations
    folder = Path("tests/scenarios")
    file = (folder if folder.is_dir() else Path()) / f"seed-{name.replace(' --fork ', '-').replace(':', '.')}.txt"
    remarks = [f"Seed {name}, shrunk to {plural(len(plan.steps), 'step')}.  It violated:", *violations[:5]]
    file.write_text(format_scenario(plan, remarks), encoding="utf-8")
    if as_json:
        print_json(
            {"plan": msgspec.structs.asdict(plan), "violations": violations, "runs": runs, "scenario": str(file)}
        )
        return False
    say(
        f"Seed {name}: {plan.brokers} brokers, {plan.controllers} controllers, "
        f"{len(plan.steps)} steps are left after {plural(runs, 'run')}:"
    )
    for step in plan.steps:
        say(f"  {step}")
    for violation in violations[:5]:
        say(f"  -> {violation}")
    say(f"Written as {file} (in tests/scenarios it is a regression test).")
    say(f"Again: aiocontroller simulate --scenario {file}")
    return False


def _crash_points(seed: int, jobs: int, as_json: bool) -> bool:
    from aiocontroller.lab.simulation.campaign import crash_points, run_crash_points

    points = crash_points(seed)
    failed: dict[str, list[str]] = {}
    started_s = printed_s = time.monotonic()
    for done, (point, report) in enumerate(run_crash_points(points, jobs), 1):
        if not report.ok:
            failed[str(point)] = report.violations
            if not as_json:
                say(f"{point}: {report.violations[0]}")
                say(f'  again: aiocontroller simulate --seed {seed} --crash-point "{point}"')
        now_s = time.monotonic()
        if now_s - printed_s >= PROGRESS_EVERY_S:
            printed_s = now_s
            click.echo(f"{done:,} of {len(points):,} points, {done / (now_s - started_s):.1f}/s", err=True)
    if as_json:
        print_json({"seed": seed, "points": len(points), "failed": failed})
        return not failed
    say(f"Seed {seed}: the controller was killed at each of {plural(len(points), 'point')}")
    say("Verdict: no violation." if not failed else f"Verdict: {plural(len(failed), 'point')} FAILED.")
    return not failed


def _crash_point(seed: int, text: str, as_json: bool) -> bool:
    from aiocontroller.lab.simulation.campaign import crash, parse_crash_point, quiet

    quiet()
    report = crash(parse_crash_point(seed, text))
    if as_json:
        print_json({"seed": seed, "point": text, "violations": report.violations, "digest": report.digest})
        return report.ok
    say(f"Seed {seed}, {text}: {plural(report.events, 'controller event')}, digest {report.digest}")
    for violation in report.violations:
        say(f"  {violation}")
    say("Verdict: no violation." if report.ok else "Verdict: FAILED.")
    return report.ok


# -- the zoo -----------------------------------------------------------------------------------------------------------


def _zoo(
    jobs: int,
    only: tuple[str, ...],
    tries: int,
    most: int,
    branch: int,
    steer: int,
    *,
    restarts: bool,
    markdown: bool,
    as_json: bool,
) -> bool:
    from aiocontroller.lab.cli.zoo_tables import zoo_markdown, zoo_table
    from aiocontroller.lab.simulation.campaign import run_zoo
    from aiocontroller.lab.simulation.zoo_data import ALL_BUGS

    bugs = {bug.name: bug for bug in ALL_BUGS}

    def each(hunt: Hunt) -> None:
        click.echo(f"{hunt.bug}: {hunt.found} of {len(hunt.seeds)}", err=True)

    hunts = run_zoo(jobs, only=only, restarts=restarts, tries=tries, most=most, branch=branch, steer=steer, each=each)
    expected = [hunt for hunt in hunts if not bugs[hunt.bug].harmless]
    missed = [hunt for hunt in expected if not hunt.found]
    if as_json:
        print_json(
            [
                {
                    **msgspec.structs.asdict(h),
                    "found": h.found,
                    "median": h.median,
                    "cpu_s_per_find": h.cpu_s_per_find,
                    "origin": bugs[h.bug].origin,
                }
                for h in hunts
            ]
        )
        return not missed
    if markdown:
        say(zoo_markdown(hunts, bugs))
        return not missed
    say(zoo_table(hunts, bugs))
    say(f"{len(expected) - len(missed)} of {len(expected)} bugs were found within {most} runs in at least one try.")
    return not missed
