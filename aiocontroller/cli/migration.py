"""``aiocontroller migration``: accompanies Kafka's migration from ZooKeeper to KRaft (KIP-866)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aiocontroller.cli.finding import find_controller
from aiocontroller.cli.output import JSON, plural, print_json, say, table
from aiocontroller.cli.role import controller_data, post_command


@click.group()
def migration() -> None:
    """Accompany Kafka's migration from ZooKeeper to KRaft (KIP-866), and roll it back."""


@migration.command(name="hand-over")
@controller_data
@JSON
def hand_over(data: Path | None, as_json: bool) -> None:
    """Prepare a running controller for a KRaft controller's claim.

    It moves the replicas that name an aiocontroller to brokers, since one of them would block the migration, and keeps
    the role until the KRaft controller claims it. Afterwards it takes the role only when 'takeover' or 'migration
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
@JSON
def rollback(data: Path | None, dry_run: bool, as_json: bool) -> None:
    """Make a running controller take the role from a KRaft controller that has been stopped.

    One transaction deletes /controller and /migration, raises /controller_epoch above everything that the KRaft
    controller has written, and registers this controller. No broker is elected in between, so no partition is left
    with an epoch that is too high for its controller (KAFKA-20488). It refuses if anything has changed meanwhile.

    Before: stop the whole KRaft quorum, and restart brokers that are in KRaft mode in migration mode. After: restart
    the brokers without zookeeper.metadata.migration.enable.
    """
    answer = post_command(find_controller(data), "rollback", {"dry_run": dry_run})
    if as_json:
        print_json(answer)
        return
    say(as_transaction(answer))
    if dry_run:
        say("\nNothing was written.")
    else:
        say(f"\nController {answer['id']} has taken the role, epoch {answer['epoch']}.")


def as_transaction(answer: dict[str, Any]) -> str:
    """The operations of a rollback, one a line."""
    path, version, now = answer["epoch_before"]
    rows = [("set", path, f"version {version}", f"{now} -> {answer['epoch']}: {answer['because']}")]
    rows += [("delete", path, f"version {version}", value) for path, version, value in answer["deleted"]]
    path, value = answer["created"]
    rows.append(("create", path, "ephemeral", value))
    return "One transaction:\n\n" + table(("operation", "znode", "expected", "content"), rows)
