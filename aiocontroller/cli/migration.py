"""``aiocontroller migration``: accompanies Kafka's migration from ZooKeeper to KRaft (KIP-866)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiocontroller.cli.check import EXIT_CODES, findings_as_text
from aiocontroller.cli.finding import cluster_options, connected, find_controller, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, print_text, reading_progress, say, table
from aiocontroller.cli.parameters import Finite
from aiocontroller.cli.role import controller_data, post_command
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.core.ids import TopicPartition
    from aiocontroller.migration.report import Bootstrap, MigrationReport

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def migration() -> None:
    """Accompany Kafka's migration to KRaft, and roll it back.

    Kafka's own migration (KIP-866) does the work: these commands say where it stands and what must hold before each
    step. All but move-replicas, hand-over and rollback only read.
    """


def cluster_and_quorum(function: F) -> F:
    """The options of all commands that read the migration's state."""
    function = click.option(
        "--bootstrap-controller",
        metavar="HOST:PORT,…",
        help="KRaft controllers; without it, those that brokers are configured with (controller.quorum.voters).",
    )(function)
    function = click.option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Brokers in KRaft mode, which ZooKeeper does not know; needed when all are.",
    )(function)
    return cluster_options(function)


@migration.command()
@cluster_and_quorum
@JSON
def status(
    data: Path | None,
    zookeeper: str | None,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    as_json: bool,
) -> None:
    """Show where the migration stands: ZooKeeper, the KRaft quorum, each broker, the next step and the way back."""
    where = find_zookeeper(data, zookeeper)
    report = asyncio.run(_status(where, _bootstrap(bootstrap_server, bootstrap_controller)))
    if as_json:
        print_json(report)
    else:
        print_text(as_text(report))


STEPS = ("provisioning", "migration-mode", "kraft-mode", "finalizing", "rollback")


@migration.command()
@click.option("--before", type=click.Choice(STEPS), help="The step to check for; by default the next one.")
@cluster_and_quorum
@JSON
def check(
    before: str | None,
    data: Path | None,
    zookeeper: str | None,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    as_json: bool,
) -> None:
    """Report what must be put right before a step of the migration; write nothing.

    \b
    provisioning    before the KRaft controllers are started
    migration-mode  before the brokers are restarted in migration mode; the claim follows
    kraft-mode      before the brokers are restarted in KRaft mode
    finalizing      before the KRaft controllers are restarted without ZooKeeper: there is no way back after that
    rollback        before 'aiocontroller migration rollback'

    Exit code 0: nothing worse than notices, 3: warnings, 4: critical findings.
    """
    from aiocontroller.check.findings import worst

    where = find_zookeeper(data, zookeeper)
    report = asyncio.run(_check(where, _bootstrap(bootstrap_server, bootstrap_controller), before))
    if as_json:
        print_json(report)
    else:
        print_text(as_checked(report))
    severity = worst(report.findings)
    raise click.exceptions.Exit(EXIT_CODES[None if severity is None else severity.name])


UNTIL = {
    "dual-write": ("DUAL_WRITE", "MOVING_BROKERS", "READY_TO_FINALIZE"),
    "ready": ("READY_TO_FINALIZE",),
    "finalized": ("FINALIZED",),
}


@migration.command()
@click.option(
    "--every",
    "every_s",
    type=Finite(0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Interval between two looks.",
)
@click.option(
    "--until",
    type=click.Choice(tuple(UNTIL)),
    help="End when the migration has got that far; without it, run until Ctrl-C.",
)
@cluster_and_quorum
@JSON
def watch(
    every_s: float,
    until: str | None,
    data: Path | None,
    zookeeper: str | None,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    as_json: bool,
) -> None:
    """Watch the migration: a line for each change of its phase, of brokers' modes, and of its findings.

    It compares ZooKeeper, the brokers' metadata and the quorum at each look, and names brokers that are left behind. A
    finding is shown once two looks in a row have it.
    """
    where = find_zookeeper(data, zookeeper)
    asyncio.run(_watch(where, _bootstrap(bootstrap_server, bootstrap_controller), every_s, until, as_json))


@migration.command(name="move-replicas")
@click.option("--dry-run", is_flag=True, help="Print the plan in Kafka's format, and move nothing.")
@cluster_options
@JSON
def move_replicas(dry_run: bool, data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Move replicas assigned to an aiocontroller to brokers, whatever the controller: they would block the claim."""
    from aiocontroller.cli.reassign import alter, show_results

    where = find_zookeeper(data, zookeeper)
    targets = asyncio.run(_replicas_to_move(where))
    if dry_run:
        partitions = [{"topic": t.topic, "partition": t.partition, "replicas": r} for t, r in sorted(targets.items())]
        print_json({"version": 1, "partitions": partitions})
        return
    if not targets:
        if as_json:
            print_json({"reassigned": []})
        else:
            say("No replica is assigned to an aiocontroller.")
        return
    show_results(*asyncio.run(alter(where, targets, cancel=False)), as_json, cancel=False)


@migration.command(name="hand-over")
@controller_data
@JSON
def hand_over(data: Path | None, as_json: bool) -> None:
    """Prepare a running controller for a KRaft controller's claim.

    It moves replicas that are assigned to an aiocontroller to brokers, since one of them would block the migration, and
    keeps the role until the KRaft controller claims it. Afterwards it takes the role only when 'takeover' or 'migration
    rollback' asks for it. Exit code 1 if such replicas are left.
    """
    answer = post_command(find_controller(data), "release", {"to_kraft": True})
    if as_json:
        print_json(answer)
    elif answer["active"]:
        say(f"Controller {answer['id']} keeps the role, epoch {answer['epoch']}, until a KRaft controller claims it.")
    else:
        say(f"Controller {answer['id']} is not active; it takes the role only when asked to.")
    if answer["left"]:
        if not as_json:
            left = ", ".join(answer["left"])
            say(
                f"{plural(len(answer['left']), 'partition')} still with a replica on it, which blocks the claim: {left}"
            )
        raise click.exceptions.Exit(1)


@migration.command()
@controller_data
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@click.option(
    "--force", is_flag=True, help="Roll back even if brokers that have replicas are not registered: they count as dead."
)
@JSON
def rollback(data: Path | None, dry_run: bool, force: bool, as_json: bool) -> None:
    """Make a running controller take the role from a KRaft controller that has been stopped.

    One transaction deletes /controller and /migration, raises /controller_epoch above everything that the KRaft
    controller has written, and registers this controller. No broker is elected in between, so no partition is left
    with an epoch that is too high for its controller (KAFKA-20488). It refuses if the KRaft controller still writes, or
    if a broker that has replicas is not registered.

    Before: stop the whole KRaft quorum, and restart brokers that are in KRaft mode in migration mode. After: restart
    the brokers without zookeeper.metadata.migration.enable.
    """
    answer = post_command(find_controller(data), "rollback", {"dry_run": dry_run, "force": force})
    if as_json:
        print_json(answer)
        return
    say(as_transaction(answer))
    if dry_run:
        say("\nNothing was written.")
    else:
        say(f"\nController {answer['id']} has taken the role, epoch {answer['epoch']}.")


def as_transaction(answer: dict[str, Any]) -> str:
    """The operations of a rollback as a table."""
    path, version, now = answer["epoch_before"]
    rows = [("set", path, f"version {version}", f"{now} -> {answer['epoch']}: {answer['because']}")]
    rows += [("delete", path, f"version {version}", value) for path, version, value in answer["deleted"]]
    path, value = answer["created"]
    rows.append(("create", path, "ephemeral", value))
    return "One transaction:\n\n" + table(("operation", "znode", "expected", "content"), rows)


# -- looking -----------------------------------------------------------------------------------------------------------


def _bootstrap(servers: str | None, controllers: str | None) -> Bootstrap:
    from aiocontroller.migration.asking import parse_servers
    from aiocontroller.migration.report import Bootstrap

    return Bootstrap(parse_servers("--bootstrap-server", servers), parse_servers("--bootstrap-controller", controllers))


async def _status(zookeeper: str, bootstrap: Bootstrap) -> MigrationReport:
    from aiocontroller.migration.asking import Asker
    from aiocontroller.migration.report import look, summary
    from aiocontroller.net.real import real_world

    world = real_world()
    async with connected(zookeeper) as zk:
        return summary(await look(zk, Asker(world), bootstrap, reading_progress()), world.clock)


async def _check(zookeeper: str, bootstrap: Bootstrap, before: str | None) -> MigrationReport:
    from aiocontroller.migration.asking import Asker
    from aiocontroller.migration.report import examine
    from aiocontroller.migration.rules import MigrationStep
    from aiocontroller.net.real import real_world

    world = real_world()
    step = None if before is None else MigrationStep(before)
    async with connected(zookeeper) as zk:
        return await examine(zk, Asker(world), world.clock, bootstrap, before=step, progress=reading_progress())


async def _watch(zookeeper: str, bootstrap: Bootstrap, every_s: float, until: str | None, as_json: bool) -> None:
    from aiocontroller.migration.asking import Asker
    from aiocontroller.migration.watching import looks
    from aiocontroller.net.real import real_world

    world = real_world()
    async with connected(zookeeper) as zk:
        async for seen in looks(zk, Asker(world), world.clock, bootstrap, every_s):
            if as_json:
                print_json(seen)
            else:
                for line in seen.news:
                    print_text(f"{seen.at}  {line}")
            if until is not None and seen.phase.name in UNTIL[until]:
                return


async def _replicas_to_move(zookeeper: str) -> dict[TopicPartition, tuple[int, ...]]:
    from aiocontroller.core.reassignment import without_controllers
    from aiocontroller.zookeeper.cluster_tree import read_cluster_tree

    async with connected(zookeeper) as zk:
        tree = await read_cluster_tree(zk)
    live, ours = sorted(tree.live), tree.known_controllers - tree.live
    return {
        each.name: without_controllers(each.assignment, ours, live, spread=each.name.partition).replicas
        for each in tree.partitions
        if ours.intersection(each.assignment.replicas) and each.name.topic not in tree.deletions
    }


# -- showing -----------------------------------------------------------------------------------------------------------


def as_text(report: MigrationReport) -> str:
    """The state of the migration as text."""
    lines = [f"Phase: {report.phase}.", f"Controller: {_controller(report)}."]
    if report.migration is not None:
        m = report.migration
        named = (
            f"KRaft controller {m.controller_id}, epoch {m.kraft_controller_epoch}" if m.claimed else "no controller"
        )
        lines.append(f"/migration: {named}; ZooKeeper has the metadata log up to {m.kraft_metadata_offset}.")
    lines.append(f"Quorum: {_quorum(report)}.")
    lines.append(f"{plural(report.topics, 'topic')}, {plural(report.partitions, 'partition')} in ZooKeeper.")
    rows = [(b.id, "yes" if b.registered else "no", b.mode, b.protocol, b.log_end_offset) for b in report.brokers]
    lines += ["", table(("broker", "in ZooKeeper", "mode", "protocol", "metadata log"), rows)]
    lines += _numbered("Next:", report.next)
    lines += _numbered("The way back:", report.way_back)
    return "\n".join(lines)


def _controller(report: MigrationReport) -> str:
    epochs = f"/controller_epoch {report.controller_epoch}, highest in a state {max(report.highest_state_epoch, 0)}"
    if report.controller is None:
        return f"none; {epochs}"
    of = f" of KRaft, epoch {report.kraft_controller_epoch}" if report.kraft_controller_epoch > 0 else ""
    return f"{report.controller}{of}; {epochs}"


def _quorum(report: MigrationReport) -> str:
    quorum = report.quorum
    if quorum is None:
        return "none that answers"
    parts = [
        f"leader {quorum.leader}, epoch {quorum.leader_epoch}, metadata log up to {quorum.high_watermark - 1}",
        plural(len(quorum.voters), "voter"),
    ]
    if report.behind_records is not None:
        parts.append(f"ZooKeeper is {plural(report.behind_records, 'record')} behind")
    if report.metadata_version is not None:
        parts.append(f"metadata.version {report.metadata_version}")
    return "; ".join(parts)


def _numbered(title: str, steps: tuple[str, ...]) -> list[str]:
    return ["", title, *(f"  {number}. {step}" for number, step in enumerate(steps, 1))] if steps else []


def as_checked(report: MigrationReport) -> str:
    """The findings against a step as text."""
    before = f", before {report.before}" if report.before is not None else ""
    head = f"{report.phase[0].upper()}{report.phase[1:]}{before}: {plural(len(report.brokers), 'broker')}, " + (
        f"{plural(report.topics, 'topic')}, {plural(report.partitions, 'partition')}."
    )
    lines = [head, *findings_as_text(report.findings)]
    return "\n".join([*lines, *_numbered("The way back:", report.way_back)])
