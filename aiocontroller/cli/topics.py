"""``aiocontroller topics``: writes the same znodes as Kafka's tools; the controller does the rest."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiocontroller.cli.broken import broken_options, kind_asked_for, list_broken
from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, print_text, say, table
from aiocontroller.cli.properties import key_values
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.text import on_one_line, plural
from aiocontroller.net.ports import Random

if TYPE_CHECKING:
    from aiocontroller.zookeeper.admin_zk_client import AdminZkClient, TopicDescription

T = TypeVar("T")


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--replication-factor", type=click.IntRange(1), default=1, show_default=True, help="Replicas of each partition."
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3,…",
    help="Broker ids of each partition's replicas, preferred leader first; instead of the two options above.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Topic configuration; may be repeated.")
@cluster_options
@JSON
def create(
    name: str,
    partitions: int,
    replication_factor: int,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Create a topic."""
    given = None if replica_assignment is None else _parse_assignment(replica_assignment)

    async def work(admin: AdminZkClient) -> dict[int, tuple[int, ...]]:
        assignment = given
        if assignment is None:
            brokers = await admin.get_broker_metadatas()
            check_count(name, brokers, partitions, replication_factor)
            assignment = place_topic(brokers, partitions, replication_factor, _chance())
        await admin.create_topic(name, assignment, new_topic_id(), key_values(configs, "--config"))
        return assignment

    assignment = _with_admin(data, zookeeper, work)
    if as_json:
        replicas = [{"partition": p, "replicas": r} for p, r in assignment.items()]
        print_json({"topic": name, "created": True, "partitions": replicas})
    else:
        say(f"Created topic {name} with {plural(len(assignment), 'partition')}.")


@topics.command(name="list")
@broken_options
@cluster_options
@JSON
def list_(
    offline: bool,
    under_replicated: bool,
    under_min_isr: bool,
    limit: int | None,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """List the names of all topics, or the partitions that are broken, why, and since when.

    A running controller that is in charge is asked; otherwise ZooKeeper is read, which does not know since when.
    """
    kind = kind_asked_for(offline, under_replicated, under_min_isr)
    if kind is not None:
        list_broken(kind, limit, data, zookeeper, as_json)
        return
    if limit is not None:
        raise click.UsageError("--limit is for --offline, --under-replicated and --under-min-isr: give one of them")
    names = _with_admin(data, zookeeper, lambda admin: admin.list_topics())
    if as_json:
        print_json({"topics": names})
    elif names:
        say("\n".join(map(on_one_line, names)))


@topics.command()
@click.argument("names", nargs=-1, metavar="[NAME]…")
@cluster_options
@JSON
def describe(names: tuple[str, ...], data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Show partitions, leaders and configuration of the named topics, or of all."""
    found, bad = _with_admin(data, zookeeper, lambda admin: admin.describe_topics(names or None))
    missing = sorted(set(names) - {t.topic for t in found} - {b.path.rpartition("/")[2] for b in bad})
    if as_json:
        unreadable = [{"path": b.path, "found": b.found, "expected": b.expected} for b in bad]
        print_json({"topics": [_described(t) for t in found], "unreadable": unreadable})
    else:
        for topic in found:
            print_text(_as_text(_described(topic)) + "\n")
        for znode in bad:
            line = f"Unreadable: {znode.path}: found {znode.found}, expected {znode.expected}"
            click.echo(on_one_line(line), err=True)
    if missing:
        raise BadInputError(f"no such topic: {', '.join(missing)}")


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="New number of partitions; it can only grow.")
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a topic configuration; may be repeated."
)
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Reset a topic configuration to its default; may be repeated.",
)
@cluster_options
@JSON
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Add partitions to a topic, or change its configuration."""
    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    changes: dict[str, str | None] = {**key_values(configs, "--config"), **dict.fromkeys(deleted)}

    async def work(admin: AdminZkClient) -> dict[str, Any]:
        done: dict[str, Any] = {"topic": name}
        if partitions is not None:
            await _expand(admin, name, partitions)
            done["partitions"] = partitions
        if changes:
            done["configs"] = await admin.alter_topic_configs(name, changes)
        return done

    done = _with_admin(data, zookeeper, work)
    if as_json:
        print_json(done)
    else:
        facts = [plural(done["partitions"], "partition")] if "partitions" in done else []
        if "configs" in done:
            facts.append("configuration " + (_listed(done["configs"]) or "all default"))
        say(on_one_line(f"Topic {name} now has {' and '.join(facts)}."))


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@cluster_options
@JSON
def delete(names: tuple[str, ...], data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Mark topics for deletion."""

    async def work(admin: AdminZkClient) -> None:
        for name in names:
            await admin.delete_topic(name)

    _with_admin(data, zookeeper, work)
    if as_json:
        print_json({"marked_for_deletion": list(names)})
    else:
        say(f"Marked for deletion: {', '.join(names)}.")


# ---- shared with ``up``


def place_topic(
    brokers: Sequence[tuple[int, str | None]], partitions: int, replication_factor: int, chance: Random
) -> dict[int, tuple[int, ...]]:
    """Assign a new topic's replicas by Kafka's placement, from a random start as in Kafka."""
    from aiocontroller.core.replica_placement import assign_replicas_to_brokers

    at_most = max(len(brokers), 1)
    return assign_replicas_to_brokers(
        brokers,
        partitions,
        replication_factor,
        start_index=chance.randrange(at_most),
        start_shift=chance.randrange(at_most),
    )


def check_count(topic: str, brokers: Sequence[tuple[int, str | None]], partitions: int, factor: int) -> None:
    """TopicError before placement if so many partitions do not fit into a topic's znode."""
    from aiocontroller.zookeeper.topic_rules import check_partition_count

    check_partition_count(topic, partitions, min(factor, len(brokers)), [broker for broker, _ in brokers])


def new_topic_id() -> bytes:
    """A random topic id, but as in Kafka none that looks like a command-line option."""
    while base64.urlsafe_b64encode(topic_id := uuid.uuid4().bytes).startswith(b"-"):
        pass
    return topic_id


# ---- helpers


def _with_admin(data: Path | None, zookeeper: str | None, work: Callable[[AdminZkClient], Awaitable[T]]) -> T:
    address = find_zookeeper(data, zookeeper)

    async def main() -> T:
        from aiocontroller.zookeeper.admin_zk_client import AdminZkClient

        async with connected(address) as zk:
            return await work(AdminZkClient(zk))

    return asyncio.run(main())


async def _expand(admin: AdminZkClient, name: str, partitions: int) -> None:
    from aiocontroller.core.replica_placement import assign_replicas_to_brokers, start_index_of_new_partitions

    found, bad = await admin.describe_topics([name])
    if bad:
        raise BadInputError(f"{bad[0].path}: found {bad[0].found}, expected {bad[0].expected}")
    if not found:
        raise BadInputError(f"no such topic: {name}")
    present = {p.partition: p.assignment.replicas for p in found[0].partitions}
    if partitions <= len(present) or 0 not in present:
        raise BadInputError(f"topic {name} has {len(present)} partitions; found {partitions}, expected more than that")
    brokers = await admin.get_broker_metadatas()
    check_count(name, brokers, partitions, len(present[0]))
    start = start_index_of_new_partitions(brokers, present[0][0])
    added = assign_replicas_to_brokers(
        brokers,
        partitions - len(present),
        len(present[0]),
        start_index=start,
        first_partition=len(present),
        start_shift=start,
    )
    await admin.add_partitions(name, added)


def _chance() -> Random:
    from aiocontroller.net.real import real_world

    return real_world().random


def _parse_assignment(text: str) -> dict[int, tuple[int, ...]]:
    try:
        return {p: tuple(int(b) for b in part.split(":")) for p, part in enumerate(text.split(","))}
    except ValueError:
        raise click.BadParameter(
            f"found {text!r}, expected broker ids such as 1:2,2:3", param_hint="--replica-assignment"
        ) from None


def _described(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "id": None if topic.topic_id == NO_TOPIC_ID else base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        "deleting": topic.marked_for_deletion,
        "configs": topic.configs,
        "partitions": [
            {
                "partition": p.partition,
                "leader": None if p.state is None else p.state.leader,
                "leader_epoch": None if p.state is None else p.state.leader_epoch,
                "replicas": p.assignment.replicas,
                "isr": None if p.state is None else p.state.isr,
                "adding": p.assignment.adding,
                "removing": p.assignment.removing,
            }
            for p in topic.partitions
        ],
    }


def _as_text(topic: dict[str, Any]) -> str:
    head = f"Topic {topic['topic']}, id {topic['id'] or '-'}, {plural(len(topic['partitions']), 'partition')}"
    if topic["configs"]:
        head += f", {_listed(topic['configs'])}"
    if topic["deleting"]:
        head += ", marked for deletion"
    columns = ("partition", "leader", "leader_epoch", "replicas", "isr")
    rows = [[p[c] for c in columns] for p in topic["partitions"]]
    return head + "\n" + table([c.replace("_", " ") for c in columns], rows)


def _listed(configs: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(configs.items()))
