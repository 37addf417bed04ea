"""``aiocontroller recover``: shows how far the logs of offline partitions reach, and elects by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from aiocontroller.cli.finding import find_controller
from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.cli.role import post_command
from aiocontroller.core.text import plural


@click.command()
@click.option("--topic", required=True, metavar="TOPIC", help="Topic whose offline partitions need leaders.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of the topic.")
@click.option(
    "--dry-run", is_flag=True, help="Elect no leader: show the logs, which broker would lead, and what would be lost."
)
@click.option(
    "--from",
    "leader",
    type=click.IntRange(0),
    metavar="BROKER",
    help="Elect this broker instead of the one with the best log.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder of the controller ('run --data DIR') or of 'up' (default: .aiocontroller here or above).",
)
@JSON
def recover(
    topic: str, partition: int | None, dry_run: bool, leader: int | None, data: Path | None, as_json: bool
) -> None:
    """Elect leaders by how far the logs of offline partitions reach.

    The active controller asks every live replica how far its log reaches. The log with the last records leads, and the
    command says how much is lost at most. Everything that only other replicas held is cut off when they return.
    """
    asked = {"topic": topic, "partition": partition, "leader": leader, "dry_run": dry_run}
    answer = post_command(find_controller(data), "recover", asked)
    found: list[dict[str, Any]] = answer["partitions"]
    if as_json:
        print_json(answer)
    else:
        _show(found)
    if any(each["result"] == "failed" for each in found):
        raise click.exceptions.Exit(1)


def _show(found: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            log["broker"],
            log["epoch"],
            log["end_offset"],
            "yes" if log["in_isr"] else "no",
            log["error"] or ("leads" if log["broker"] == each["leader"] else ""),
        )
        for each in found
        for log in each["logs"]
    ]
    if rows:
        say(table(("partition", "broker", "last epoch", "end offset", "in ISR", ""), rows) + "\n")
    for each in found:
        name = f"{each['topic']}-{each['partition']}"
        if each["result"] in ("elected", "would elect"):
            verb = "leads" if each["result"] == "elected" else "would lead"
            say(f"{name}: broker {each['leader']} {verb}. {_sentence(each['detail'])}{_unreadable(each)}")
        elif each["result"] == "failed":
            say(f"{name}: nobody leads. {_sentence(each['detail'])}")
    led = sum(each["result"] == "led" for each in found)
    if led:
        say(f"{plural(led, 'partition')} led already.")


def _unreadable(each: dict[str, Any]) -> str:
    if each.get("readable") is not False:  # an older controller does not say it
        return ""
    return " Nothing can be read until min.insync.replicas are in sync."


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
