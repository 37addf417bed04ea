"""``aiocontroller explore``: visits every state of the controller's specification, and checks invariants in each."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from aiocontroller.cli.output import JSON, plural, print_json, say
from aiocontroller.core.errors import BadInputError

if TYPE_CHECKING:
    from aiocontroller.lab.exploration.exploration import Progress
    from aiocontroller.lab.exploration.specification import Bounds

PROGRESS_EVERY_S = 2.0


@click.command()
@click.option("--bug", metavar="NAME", help="Plant this bug of the zoo, and print the shortest way to a violation.")
@click.option("--bugs", "list_bugs", is_flag=True, help="List the bugs that can be planted.")
@click.option("--replicas", type=click.IntRange(1, 4), default=3, show_default=True, help="Brokers of the partition.")
@click.option("--records", type=click.IntRange(0, 5), default=3, show_default=True, help="The longest log.")
@click.option("--elections", type=click.IntRange(0, 5), default=2, show_default=True, help="The highest leader epoch.")
@click.option(
    "--faults",
    type=click.IntRange(0, 5),
    default=2,
    show_default=True,
    help="Brokers that die, lose their session or are suspected, in all.",
)
@JSON
def explore(
    bug: str | None,
    list_bugs: bool,
    replicas: int,
    records: int,
    elections: int,
    faults: int,
    as_json: bool,
) -> None:
    """Check a specification of the controller in every state that it can reach.

    One partition, three replicas, two controllers, three records: every order of every step within the bounds.
    docs/exploration.md says what the specification holds, what it leaves out, and how long which bounds take.
    """
    from aiocontroller.lab.exploration.exploration import explore as visit
    from aiocontroller.lab.exploration.planted import PLANTED
    from aiocontroller.lab.exploration.specification import Bounds, Specification

    if list_bugs:
        if as_json:
            print_json(list(PLANTED))
        else:
            say("\n".join(PLANTED))
        return
    if bug is not None and bug not in PLANTED:
        raise BadInputError(f"no bug is named {bug!r}; there are: {'; '.join(PLANTED)}")
    bounds = Bounds(replicas=replicas, records=records, elections=elections, faults=faults)
    printed_s = time.monotonic()

    def each(progress: Progress) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= PROGRESS_EVERY_S:
            printed_s = time.monotonic()
            click.echo(f"{_line(progress)}, {progress.frontier:,} to go on from", err=True)

    kind = Specification if bug is None else PLANTED[bug]
    explored = visit(kind(bounds), each)
    if as_json:
        print_json(
            {
                "bug": bug,
                "bounds": bounds._asdict(),
                **explored.progress._asdict(),
                "exhausted": explored.exhausted,
                "violations": explored.violations,
                "trace": explored.trace,
            }
        )
    else:
        say(_bounds(bounds))
        for number, step in enumerate(explored.trace):
            say(f"{number:3}  {step}")
        for violation in explored.violations:
            say(f"  -> {violation}")
        say(_line(explored.progress) + ("; exhausted" if explored.exhausted else ""))
        say("Verdict: no violation." if not explored.violations else "Verdict: FAILED.")
    if explored.violations:
        sys.exit(1)


def _bounds(bounds: Bounds) -> str:
    return (
        f"Bounds: {plural(bounds.replicas, 'replica')}, {plural(bounds.controllers, 'controller')}, "
        f"{plural(bounds.records, 'record')}, {plural(bounds.elections, 'election')}, {plural(bounds.faults, 'fault')}"
    )


def _line(progress: Progress) -> str:
    return (
        f"{plural(progress.states, 'state')}, {plural(progress.steps, 'step')}, depth {progress.depth}, "
        f"{progress.cpu_s:.1f} s of processor time"
    )
