"""``aiocontroller move``: carries out a plan in small steps under throttles, or stops or reverses it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, byte_count, print_json, print_text, say, while_read
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.text import plural
from aiocontroller.ending import stop_on_signals

if TYPE_CHECKING:
    from aiocontroller.core.moving import MoveBounds
    from aiocontroller.moves.audit import AuditFile, InUseError
    from aiocontroller.moves.history import Assignment, History
    from aiocontroller.moves.mover import MoveResult
    from aiocontroller.moves.progress import MoveProgress
    from aiocontroller.net.ports import World

SHOWN = 5
SHOW_EVERY_S = 2.0
TAKE_OVER_S = 90.0
"""How long a run that is asked to stop may take to cancel its moves."""
RECONNECT_S = 600.0
INCOMPLETE = 3


class _Rate(click.ParamType[int]):
    name = "bytes/s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """``50M`` -> 50,000,000."""
        found = re.fullmatch(r"([0-9]{1,12})([kMG]?)", str(value))
        rate = int(found[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[found[2]] if found else 0
        if not 0 < rate < 2**63:
            self.fail(f"found {value!r}, expected bytes a second such as 50M", param, ctx)
        return rate


class Options(NamedTuple):
    """The options of the command line."""

    plan: Path
    audit: Path
    at_once: int
    rate: int
    least_rate: int
    absent: int | None
    under_replicated: int | None
    answer_ms: int
    patience: int
    hold: int
    keep_leaders: bool
    stop: bool
    reverse: bool
    dry_run: bool
    as_json: bool

    def bounds(self, past: History) -> MoveBounds:
        """The bounds; one that is not given allows no more than there were when the plan began."""
        from aiocontroller.core.moving import MoveBounds

        return MoveBounds(
            self.at_once,
            self.rate,
            min(self.least_rate, self.rate),
            past.absent if self.absent is None else self.absent,
            past.under_replicated if self.under_replicated is None else self.under_replicated,
            float(self.answer_ms),
            float(self.patience),
            float(self.hold),
        )


@click.command()
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="The plan.")
@click.option("--at-once", type=click.IntRange(1), default=5, show_default=True, help="Partitions that move together.")
@click.option("--rate", type=_Rate(), default="50M", show_default=True, help="Highest throttle of each broker.")
@click.option("--least-rate", type=_Rate(), default="1M", show_default=True, help="Lowest throttle, when held up.")
@click.option(
    "--absent",
    metavar="N",
    type=click.IntRange(0),
    help="Pause while more than N brokers are away (default: as many as at the start).",
)
@click.option(
    "--under-replicated",
    type=click.IntRange(0),
    help="Pause while more partitions, besides those that move, are under-replicated (default: as at the start).",
)
@click.option(
    "--answer-ms", type=click.IntRange(1), default=1000, show_default=True, help="Pause while a broker answers slower."
)
@click.option(
    "--patience", type=click.IntRange(0), default=60, show_default=True, help="Seconds to wait for a dead destination."
)
@click.option("--hold", type=click.IntRange(0), default=600, show_default=True, help="Seconds to hold before it stops.")
@click.option("--keep-leaders", is_flag=True, help="Elect no preferred leaders of moved partitions.")
@click.option("--stop", is_flag=True, help="Cancel what is under way, remove throttles, and end.")
@click.option("--reverse", is_flag=True, help="Move everything back to where it was before the plan.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent and written; change nothing.")
@click.option(
    "--audit", type=click.Path(dir_okay=False, path_type=Path), help="Record of the move (default: PLAN.moves.jsonl)."
)
@cluster_options
@JSON
def move(data: Path | None, zookeeper: str | None, audit: Path | None, plan: Path, **given: Any) -> None:
    """Move replicas by a plan in small steps, throttled; stop or reverse it.

    If it was killed, run it again: it continues. Ctrl-C or --stop cancels what is under way. Throttles are removed
    however it ends. Works on any cluster in ZooKeeper mode. Exit code 3: not everything has moved.
    """
    from aiocontroller.cli.reassign import read_plan
    from aiocontroller.moves.audit import audit_of

    options = Options(plan, audit or audit_of(plan), **given)
    if options.stop and options.reverse:
        raise click.UsageError("--stop and --reverse exclude each other: --reverse stops what is under way, too")
    targets = dict(sorted(read_plan(plan).targets.items()))
    found = asyncio.run(_moved(find_zookeeper(data, zookeeper), options, targets))
    with while_read():  # the exit code still tells how it ended
        _show(found, options)
    if found.result == "incomplete" or (found.result == "stopped" and not options.stop):
        raise click.exceptions.Exit(INCOMPLETE)


async def _moved(zookeeper: str, options: Options, targets: Assignment) -> MoveResult:
    from aiocontroller.cli.moved_cluster import MovedCluster, cluster_id
    from aiocontroller.moves.mover import Mover
    from aiocontroller.net.real import real_world

    world = real_world()
    digest = _digest(targets)
    if options.dry_run:
        return await _rehearsed(zookeeper, world, options, targets, digest)
    audit = await _locked(options, world)
    try:
        past = _past(audit.records, options, digest)
        async with connected(zookeeper, RECONNECT_S) as zk:
            audit.belongs_to(await cluster_id(zk))
            mover = Mover(
                MovedCluster(world, zk),
                audit,
                world.clock,
                targets,
                digest,
                past,
                options.bounds,
                reverse=options.reverse,
                leaders=not options.keep_leaders,
                on_progress=_Shown(options.as_json, world.clock.monotonic),
            )
            stop_on_signals(mover.stopping)
            return await mover.run(stop=options.stop)
    finally:
        audit.close()


def _past(records: list[dict[str, Any]], options: Options, digest: str) -> History:
    """The history of the plan's moves; AioControllerError if there is nothing to stop or reverse."""
    from aiocontroller.moves.history import history

    past = history(records, digest, reverse=options.reverse)
    if (options.reverse or options.stop) and not any(record["what"] == "begin" for record in records):
        raise AioControllerError(f"{options.audit}: no move by {options.plan} has begun")
    return past


async def _rehearsed(zookeeper: str, world: World, options: Options, targets: Assignment, digest: str) -> MoveResult:
    """The result of a run on a copy of the cluster, where every move ends at once."""
    from aiocontroller.cli.moved_cluster import MovedCluster, cluster_id
    from aiocontroller.moves.audit import NoRecords, check_cluster, read_records
    from aiocontroller.moves.mover import Mover
    from aiocontroller.moves.rehearsed import RehearsedCluster

    records = read_records(options.audit)
    past = _past(records, options, digest)
    async with connected(zookeeper) as zk:
        check_cluster(options.audit, records, await cluster_id(zk))
        mover = Mover(
            RehearsedCluster(MovedCluster(world, zk), print_json if options.as_json else _say_request),
            NoRecords(),
            world.clock,
            targets,
            digest,
            past,
            lambda past: options.bounds(past)._replace(hold_s=0, answer_ms=float("inf")),
            reverse=options.reverse,
            leaders=not options.keep_leaders,
            look_every_s=0,
        )
        return await mover.run(stop=options.stop)


async def _locked(options: Options, world: World) -> AuditFile:
    """Open the audit file; with --stop or --reverse, first ask the run that holds it to stop."""
    from aiocontroller.moves.audit import AuditFile, InUseError

    asked: int | None = None
    deadline = world.clock.monotonic() + TAKE_OVER_S
    while True:
        try:
            audit = AuditFile(options.audit, world.clock)
            audit.write("open", stop=options.stop, reverse=options.reverse)  # first of all: names the process to ask
            return audit
        except InUseError as error:
            if not (options.stop or options.reverse) or error.pid is None or world.clock.monotonic() > deadline:
                raise
            if asked != error.pid:
                asked = error.pid
                _ask_to_stop(error, error.pid)
        await world.clock.sleep(0.2)


def _ask_to_stop(in_use: InUseError, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has already ended
    except PermissionError:
        raise AioControllerError(f"{in_use}, and this user may not stop it") from None


def _digest(targets: Assignment) -> str:
    """A digest of the plan that does not depend on how its file is formatted."""
    text = "\n".join(f"{tp}:{','.join(map(str, replicas))}" for tp, replicas in targets.items())
    return hashlib.sha256(text.encode()).hexdigest()


# -- showing -----------------------------------------------------------------------------------------------------------


class _Shown:
    """Shows progress now and then, and at once when something holds the move up."""

    def __init__(self, as_json: bool, now_s: Callable[[], float]) -> None:
        self._as_json, self._now_s = as_json, now_s
        self._shown_s = float("-inf")
        self._held: tuple[str, ...] = ()

    def __call__(self, progress: MoveProgress) -> None:
        now_s = self._now_s()
        if now_s - self._shown_s < SHOW_EVERY_S and progress.held == self._held:
            return
        self._shown_s, self._held = now_s, progress.held
        with while_read():
            if self._as_json:
                print_json(progress._asdict())
            else:
                print_text(progress_line(progress))


def progress_line(progress: MoveProgress) -> str:
    """The progress as one line of text."""
    parts = f"{progress.done:,} moved, {progress.moving:,} moving, {progress.waiting:,} waiting"
    if progress.total:
        left = "" if progress.eta_s is None else f", {duration(progress.eta_s)} left"
        parts += f"; {byte_count(progress.copied)} of {byte_count(progress.total)}"
        parts += f", {byte_count(progress.bytes_per_s)}/s{left}"
    if progress.rate:
        parts += f"; throttle {byte_count(progress.rate)}/s"
    return parts + (f"; held: {'; '.join(progress.held)}" if progress.held else "")


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _say_request(request: dict[str, Any]) -> None:
    if "send" in request:
        partitions = request["partitions"]
        say(f"would send {request['send']} for {plural(len(partitions), 'partition')}:")
        for topic, number, *target in partitions:
            to = "" if not target else " back" if target[0] is None else f" to {','.join(map(str, target[0]))}"
            print_text(f"  {topic}-{number}{to}")
    else:
        print_text(f"would write {request['write']}:")
        for name, value in request["settings"].items():
            print_text(f"  {name} {'removed' if value is None else f'= {value}'}")


def _show(found: MoveResult, options: Options) -> None:
    from collections import Counter

    from aiocontroller.core.moving import MovePhase

    left = {str(tp): each.value for tp, each in found.phases.items() if each is not MovePhase.DONE}
    if options.as_json:
        refused = {str(tp): why for tp, why in found.refused.items()}
        print_json({"result": found.result, "reasons": found.reasons, "not_moved": left, "refused": refused})
        return
    counts = Counter(left.values())
    rest = "".join(f"; {why}: {count:,}" for why, count in counts.items())
    head = f"Result: {found.result}. In place: {plural(len(found.phases) - len(left), 'partition')}{rest}."
    say(
        head
        if not options.dry_run
        else "Nothing was sent or written. A run would do all this if nothing failed or held it up."
    )
    for reason in found.reasons:
        print_text(f"Stopped by itself: {reason}.")
    for tp, why in list(found.refused.items())[:SHOWN]:
        print_text(f"{tp}: {why}")
    if not options.dry_run:
        say(f"No throttle is left. The record is in {options.audit}.")
