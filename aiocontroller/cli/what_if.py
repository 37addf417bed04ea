"""``aiocontroller what-if``: what a cluster would become, decided by the controller's core; nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aiocontroller.cli.output import JSON, print_json, print_text, table
from aiocontroller.cli.properties import key_values
from aiocontroller.cli.trees import read_any, refuse_two_sources, result_of, tree_options
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiocontroller.check.what_if import Leadership, WhatIf, WhatIfOutcome
    from aiocontroller.zookeeper.cluster_tree import ClusterTree

SHOWN = 5
WRITE_S = 25e-6
"""ZooKeeper's time for one state: 13 to 37 µs, measured (docs/performance.md)."""
GROUPS = {
    "offline": ("Without a leader", "clients can neither read nor write them"),
    "unclean": ("Led from outside the ISR", "acknowledged records may be lost"),
    "under_min_isr": ("Below min.insync.replicas", "producers with acks=all are refused"),
    "last_replica": ("One replica in sync left", "one more failure takes them offline"),
    "new_leader": ("With a new leader", "clients find it within a second"),
}
"""Field of the outcome -> what it is, and what that means."""


@click.command(name="what-if")
@click.option("--kill", metavar="ID,…", help="These brokers die at the same time.")
@click.option("--rack", "racks", multiple=True, metavar="RACK", help="All brokers of this rack die; may be repeated.")
@click.option("--shutdown", metavar="ID,…", help="These brokers are shut down, one after the other.")
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A reassignment, first.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A dynamic default of all brokers; may be repeated."
)
@tree_options
@JSON
def what_if(
    kill: str | None,
    racks: tuple[str, ...],
    shutdown: str | None,
    plan: Path | None,
    configs: tuple[str, ...],
    tree: Path | None,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Show what would become of a cluster; write nothing to it.

    The plan comes first, then the shutdowns, then the deaths. Works on any cluster in ZooKeeper mode.
    """
    from aiocontroller.cli.reassign import read_plan

    if kill is None and not racks and shutdown is None and plan is None:
        raise click.UsageError("nothing happens: give --kill, --rack, --shutdown or --plan")
    refuse_two_sources(tree, data, zookeeper)
    dying, stopping = broker_ids(kill, "--kill"), broker_ids(shutdown, "--shutdown")
    if twice := set(dying) & set(stopping):
        raise click.UsageError(f"broker {min(twice)} is named by --kill and by --shutdown: give it once")
    moves = {} if plan is None else read_plan(plan).targets
    settings = _settings(configs)
    read = result_of(read_any(tree, data, zookeeper)).tree
    found = _play(read, settings, moves, stopping, dying, racks)
    if as_json:
        left_out = {"unreadable_znodes": len(read.bad), "topics_being_deleted": len(read.deletions)}
        print_json({**_as_json(found), "left_out": left_out})
    else:
        print_text(as_text(found, len(read.partitions)))
        if read.bad or read.deletions:
            left = f"{plural(len(read.bad), 'unreadable znode')}, {plural(len(read.deletions), 'topic')} being deleted"
            print_text(f"Left out: {left}; aiocontroller check names them.")


def broker_ids(text: str | None, option: str) -> list[int]:
    """Ids that an option names, each once; BadParameter for anything else."""
    try:
        return [] if text is None else list(dict.fromkeys(_id(part.strip()) for part in text.split(",")))
    except ValueError:
        raise click.BadParameter(f"found {text!r}, expected broker ids such as 3,7", param_hint=option) from None


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError
    return int(text)


def _settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse --config; BadParameter for a setting that changes nothing here, or a value that no broker would take."""
    from aiocontroller.check.rules import MIN_ISR, UNCLEAN, is_valid

    found = key_values(texts, "--config")
    for key, value in found.items():
        if key not in (MIN_ISR, UNCLEAN):
            raise click.BadParameter(f"found {key!r}, expected {MIN_ISR} or {UNCLEAN}", param_hint="--config")
        if not is_valid(key, value):
            raise click.BadParameter(f"{key}: a broker would refuse the value {value!r}", param_hint="--config")
    return found


def _play(
    tree: ClusterTree,
    configs: Mapping[str, str],
    moves: Mapping[TopicPartition, Sequence[int]],
    stopping: list[int],
    dying: list[int],
    racks: tuple[str, ...],
) -> WhatIfOutcome:
    from aiocontroller.check.what_if import WhatIf, outcome

    tried = WhatIf(tree, configs)
    before, alive = tried.leaderships(), tried.brokers
    if moves:
        tried.move(moves)
    for broker in stopping:
        tried.shut_down(broker)
    dead = {*dying, *_brokers_of(tried, racks)} - set(stopping)
    if dead:
        tried.kill(dead)
    return outcome(tried, before, alive)


def _brokers_of(tried: WhatIf, racks: tuple[str, ...]) -> list[int]:
    for rack in racks:
        if rack not in tried.racks.values():
            there = ", ".join(sorted({each for each in tried.racks.values() if each is not None})) or "none"
            raise BadInputError(f"found rack {rack!r}, expected one that a broker is in: {there}")
    return [broker for broker, rack in tried.racks.items() if rack in racks]


def as_text(found: WhatIfOutcome, partitions: int) -> str:
    """The outcome as text: the worst first, then the brokers' load."""
    lines = []
    for name, (what, consequence) in GROUPS.items():
        group: dict[TopicPartition, tuple[Leadership, Leadership]] = getattr(found, name)
        if not group:
            continue
        lines.append(f"{what} ({plural(len(group), 'partition')}): {consequence}")
        rows = [(name, was.leader, now.leader, was.isr, now.isr) for name, (was, now) in list(group.items())[:SHOWN]]
        shown = table(
            ("partition", "leader", "then", "ISR", "then"), [[str(row[0]), *row[1:]] for row in rows], indent=2
        )
        lines += ["  " + line for line in shown.splitlines()]
        if len(group) > SHOWN:
            lines.append(f"  … and {len(group) - SHOWN:,} more; --json names all")
        lines.append("")
    if not lines:
        lines = [f"Of {plural(partitions, 'partition')} none changes its leader or loses more than a follower.", ""]
    load = [(broker, *leaders, *found.replicas[broker]) for broker, leaders in found.leaders.items()]
    lines.append(table(("broker", "leaders", "then", "replicas", "then"), load))
    lines += [
        "",
        f"{plural(found.written, 'state')} to write: about {max(0.01, found.written * WRITE_S):.2f} s in ZooKeeper.",
    ]
    return "\n".join([*lines, "Nothing was written."])


def _as_json(found: WhatIfOutcome) -> dict[str, Any]:
    def shown(group: dict[TopicPartition, tuple[Leadership, Leadership]]) -> list[dict[str, Any]]:
        return [
            {"topic": name.topic, "partition": name.partition, "before": was._asdict(), "after": now._asdict()}
            for name, (was, now) in group.items()
        ]

    return {
        **{name: shown(getattr(found, name)) for name in GROUPS},
        "brokers": [
            {"id": broker, "leaders": leaders, "replicas": found.replicas[broker]}
            for broker, leaders in found.leaders.items()
        ],
        "states_to_write": found.written,
    }
