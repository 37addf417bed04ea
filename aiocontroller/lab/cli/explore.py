"""``aiocontroller explore``: visits every state of the controller's specification, and checks invariants in each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from aiocontroller.cli.output import JSON, print_json, say
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.lab.exploration.exploration import Progress

PROGRESS_EVERY_S = 2.0


@click.command()
@click.option("--standby", is_flag=True, help="Explore a warm standby's copy instead of a partition.")
@click.option("--bug", metavar="NAME", help="Plant this bug, and print a shortest trace to a violation.")
@click.option("--bugs", "list_bugs", is_flag=True, help="List the bugs that can be planted.")
@click.option("--replicas", type=click.IntRange(1, 4), default=3, show_default=True, help="Brokers of the partition.")
@click.option("--records", type=click.IntRange(0, 5), default=3, show_default=True, help="Longest log, in records.")
@click.option("--elections", type=click.IntRange(0, 5), default=2, show_default=True, help="The highest leader epoch.")
@click.option(
    "--faults",
    type=click.IntRange(0, 5),
    default=2,
    show_default=True,
    help="Number of faults in total: brokers die, lose their session or are suspected.",
)
@click.option(
    "--writes",
    type=click.IntRange(0, 5),
    default=3,
    show_default=True,
    help="With --standby: writes to the topic and its state.",
)
@click.option(
    "--losses", type=click.IntRange(0, 3), default=1, show_default=True, help="With --standby: lost connections."
)
@JSON
def explore(
    standby: bool,
    bug: str | None,
    list_bugs: bool,
    replicas: int,
    records: int,
    elections: int,
    faults: int,
    writes: int,
    losses: int,
    as_json: bool,
) -> None:
    """Check a specification of the controller in every state that it can reach.

    One partition, three replicas, two controllers, three records: every order of every step within the bounds. With
    --standby: one topic, its partition's state, a warm standby that copies them, and its connection to ZooKeeper.
    docs/exploration.md says what the specifications contain, what they leave out, and how long a run takes with which
    bounds.
    """
    from aiocontroller.lab.exploration.exploration import explore as visit
    from aiocontroller.lab.exploration.planted import PLANTED
    from aiocontroller.lab.exploration.specification import Bounds, Specification
    from aiocontroller.lab.exploration.standby import STANDBY_BUGS, Standby, explore_standby
    from aiocontroller.lab.exploration.standby import Bounds as StandbyBounds

    names = list(STANDBY_BUGS if standby else PLANTED)
    if list_bugs:
        if as_json:
            print_json(names)
        else:
            say("\n".join(names))
        return
    if bug is not None and bug not in names:
        raise BadInputError(f"no bug is named {bug!r}; there are: {'; '.join(names)}")
    each = _every_few_seconds()
    if standby:
        of_standby = StandbyBounds(writes=writes, losses=losses)
        within = of_standby._asdict()
        words = [plural(writes, "write"), plural(losses, "lost connection")]
        explored = explore_standby((Standby if bug is None else STANDBY_BUGS[bug])(of_standby), each)
    else:
        bounds = Bounds(replicas=replicas, records=records, elections=elections, faults=faults)
        within = bounds._asdict()
        words = [plural(replicas, "replica"), plural(bounds.controllers, "controller"), plural(records, "record")]
        words += [plural(elections, "election"), plural(faults, "fault")]
        explored = visit((Specification if bug is None else PLANTED[bug])(bounds), each)
    if as_json:
        print_json(
            {
                "bug": bug,
                "bounds": within,
                **explored.progress._asdict(),
                "exhausted": explored.exhausted,
                "violations": explored.violations,
                "trace": explored.trace,
            }
        )
    else:
        say(f"Bounds: {', '.join(words)}")
        for number, step in enumerate(explored.trace):
            say(f"{number:3}  {step}")
        for violation in explored.violations:
            say(f"  -> {violation}")
        say(_line(explored.progress) + ("; exhausted" if explored.exhausted else ""))
        say("Verdict: no violation." if not explored.violations else "Verdict: FAILED.")
    if explored.violations:
        sys.exit(1)


def _every_few_seconds() -> Callable[[Progress], None]:
    """Return a function that prints progress on standard error, but not too often."""
    printed_s = time.monotonic()

    def each(progress: Progress) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= PROGRESS_EVERY_S:
            printed_s = time.monotonic()
            click.echo(f"{_line(progress)}, {progress.frontier:,} to go on from", err=True)

    return each


def _line(progress: Progress) -> str:
    return (
        f"{plural(progress.states, 'state')}, {plural(progress.steps, 'step')}, depth {progress.depth}, "
        f"{progress.cpu_s:.1f} s of processor time"
    )
