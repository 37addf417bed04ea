"""``aiocontroller debts``: lists replicas that brokers still have to delete, from ZooKeeper, and gives them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.zookeeper.debts import FoundDebts
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

T = TypeVar("T")
MOST_SHOWN = 10
"""Partitions of a topic, or topics of a broker, in a table."""


@click.group()
def debts() -> None:
    """List replicas that brokers still have to delete; drop them from the list.

    A replica is listed when it was moved away from its broker, or its topic was deleted, while that broker was dead or
    did not answer. The broker deletes it when it answers or returns.
    """


@debts.command(name="list")
@cluster_options
@JSON
def list_(data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """List brokers and the replicas that they still have to delete."""
    found, alive = _with_zookeeper(data, zookeeper, _look)
    if as_json:
        owed = [
            {"broker": o.broker, "alive": o.broker in alive, "topic": o.topic, "partitions": sorted(o.partitions)}
            for o in found.owed
            if o.partitions
        ]
        unreadable = [{"path": b.path, "found": b.found, "expected": b.expected} for b in found.bad]
        print_json({"debts": owed, "unreadable": unreadable})
        return
    rows = [
        (o.broker, "yes" if o.broker in alive else "no", o.topic, len(o.partitions), _shortened(sorted(o.partitions)))
        for o in found.owed
        if o.partitions
    ]
    say(
        table(("broker", "alive", "topic", "replicas", "partitions"), rows)
        if rows
        else "No broker has replicas to delete."
    )
    for znode in found.bad:
        click.echo(f"Unreadable: {znode.path}: found {znode.found}, expected {znode.expected}", err=True)


@debts.command()
@click.argument("broker", type=click.IntRange(0))
@click.argument("topic", required=False)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
@JSON
def drop(broker: int, topic: str | None, yes: bool, data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Drop what BROKER still has to delete, of TOPIC or of all topics.

    Use it for a broker that will never return. If the broker does return, it keeps the directories of these partitions;
    delete them while it is down, or it cannot create replicas of a new topic with the same name.
    """
    found, _ = _with_zookeeper(data, zookeeper, _look)
    owed = [o for o in found.owed if o.broker == broker and topic in (None, o.topic)]
    if not owed:
        of = "" if topic is None else f" of topic {topic}"
        raise BadInputError(f"broker {broker} has nothing{of} to delete: nothing was given up")
    replicas = plural(sum(len(o.partitions) for o in owed), "replica")
    if not yes:
        click.echo(
            f"Broker {broker} still has to delete {replicas}, of {_shortened([o.topic for o in owed])}.", err=True
        )
        _ask("The broker keeps their directories, and will not be asked to delete them. Give them up?")

    async def give_up(zk: KafkaZkClient) -> int:
        return await zk.debts.give_up(broker, topic)

    _with_zookeeper(data, zookeeper, give_up)
    if as_json:
        print_json(
            {"broker": broker, "given_up": [{"topic": o.topic, "partitions": sorted(o.partitions)} for o in owed]}
        )
    else:
        say(f"Given up: {replicas} on broker {broker}.")


def _ask(question: str) -> None:
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        raise BadInputError("nothing was given up: without a terminal to confirm, give --yes") from None
    if not agreed:
        raise BadInputError("nothing was given up")


async def _look(zk: KafkaZkClient) -> tuple[FoundDebts, list[int]]:
    """The brokers' debts, and the registered brokers."""
    found = await zk.debts.load()
    brokers, _ = await zk.get_all_brokers_in_cluster(watch=False)
    return found, [broker.id for broker in brokers]


def _shortened(items: Sequence[object]) -> str:
    text = ",".join(map(str, items[:MOST_SHOWN]))
    return text + ",…" if len(items) > MOST_SHOWN else text


def _with_zookeeper(data: Path | None, zookeeper: str | None, work: Callable[[KafkaZkClient], Awaitable[T]]) -> T:
    address = find_zookeeper(data, zookeeper)

    async def main() -> T:
        async with connected(address) as zk:
            return await work(zk)

    return asyncio.run(main())
