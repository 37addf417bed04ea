"""``aiocontroller plan``: where replicas should go, as a plan in Kafka's format, and what carrying it out costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, byte_count, print_json, print_text, reading_progress, say, table
from aiocontroller.cli.what_if import broker_ids
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.cli.broker_client import BrokerSizes
    from aiocontroller.core.replica_plans import Assignment, Cost, Layout
    from aiocontroller.moves.layout import LeftOut
    from aiocontroller.zookeeper.cluster_tree import ClusterTree

SHOWN = 5


class Goal(NamedTuple):
    """The goal of the plan; exactly one field is set."""

    drain: list[int]
    add: list[int]
    racks: bool
    leaders: bool
    replicas: bool
    bytes: bool
    factor: int | None


@click.command()
@click.option("--drain", metavar="ID,…", help="Move every replica off these brokers, which may be dead.")
@click.option("--add", metavar="ID,…", help="Give these brokers their share of replicas; move to no other.")
@click.option("--racks", is_flag=True, help="Move replicas that share a rack while another rack has none.")
@click.option("--leaders", is_flag=True, help="Even out preferred leaders; moves no data.")
@click.option("--replicas", is_flag=True, help="Even out the number of replicas.")
@click.option("--bytes", "bytes_", is_flag=True, help="Even out bytes, to within 10 % of the mean.")
@click.option("--replication-factor", "factor", type=click.IntRange(1), help="Add replicas up to this number.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Change this topic only; may be repeated.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan to this file.")
@cluster_options
@JSON
def plan(
    drain: str | None,
    add: str | None,
    racks: bool,
    leaders: bool,
    replicas: bool,
    bytes_: bool,
    factor: int | None,
    topics: tuple[str, ...],
    out: Path | None,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Plan where replicas should go, and what that costs; write nothing to the cluster.

    The plan is what Kafka's own tool takes: 'aiocontroller what-if --plan FILE' shows what it leads to, 'aiocontroller
    move --plan FILE' carries it out. Works on any cluster in ZooKeeper mode.
    """
    goal = Goal(broker_ids(drain, "--drain"), broker_ids(add, "--add"), racks, leaders, replicas, bytes_, factor)
    if sum(bool(each) for each in goal) != 1:
        raise click.UsageError(
            "give one goal: --drain, --add, --racks, --leaders, --replicas, --bytes or --replication-factor"
        )
    if out is not None:
        _check_unused(out)
    tree, sizes = asyncio.run(_read(find_zookeeper(data, zookeeper)))
    layout, left_out, found = _plan(tree, sizes, goal, topics)
    if out is not None and found:
        _write(out, found)
    _show(layout, left_out, found, sizes, out, as_json)


async def _read(zookeeper: str) -> tuple[ClusterTree, BrokerSizes]:
    from aiocontroller.cli.broker_client import ask_sizes
    from aiocontroller.net.real import real_world
    from aiocontroller.zookeeper.cluster_tree import read_cluster_tree

    async with connected(zookeeper) as zk:
        tree = await read_cluster_tree(zk, reading_progress())
    return tree, await ask_sizes(real_world(), list(tree.brokers.values()))


def _plan(
    tree: ClusterTree, sizes: BrokerSizes, goal: Goal, topics: Sequence[str]
) -> tuple[Layout, LeftOut, Assignment]:
    """BadInputError if the goal cannot be reached."""
    from aiocontroller.core import replica_plans
    from aiocontroller.moves.layout import check_brokers, layout_of

    check_brokers(tree, goal.drain, live=False)
    check_brokers(tree, goal.add, live=True)
    layout, left_out = layout_of(tree, sizes.largest(), topics)
    if goal.drain:
        found = replica_plans.drain(layout, goal.drain)
    elif goal.add:
        found = replica_plans.balance_replicas(layout, goal.add)
    elif goal.racks:
        found = replica_plans.repair_racks(layout)
    elif goal.leaders:
        found = replica_plans.balance_leaders(layout)
    elif goal.replicas:
        found = replica_plans.balance_replicas(layout)
    elif goal.bytes:
        if sizes.silent:
            broker, why = min(sizes.silent.items())
            raise BadInputError(f"--bytes needs all replicas' sizes, and broker {broker} did not report them: {why}")
        found = replica_plans.balance_bytes(layout)
    else:
        assert goal.factor is not None
        found = replica_plans.raise_replication_factor(layout, goal.factor)
    return layout, left_out, found


def kafkas_form(found: Assignment) -> dict[str, Any]:
    """The plan as JSON that Kafka's tools take."""
    entries = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
        for tp, replicas in found.items()
    ]
    return {"version": 1, "partitions": entries}


def _check_unused(out: Path) -> None:
    """BadInputError if a move by this file was interrupted: it can be ended only by the plan in it."""
    from aiocontroller.moves.audit import audit_of, read_records
    from aiocontroller.moves.history import is_under_way

    if is_under_way(read_records(audit_of(out))):
        raise BadInputError(
            f"--out {out}: a move by this plan has not ended: end it by 'aiocontroller move --plan {out}' (--stop, "
            "--reverse), or name another file"
        )


def _write(out: Path, found: Assignment) -> None:
    import msgspec

    try:
        out.write_bytes(msgspec.json.encode(kafkas_form(found)) + b"\n")
    except OSError as error:
        raise BadInputError(f"--out {out}: {error.strerror}") from None


def _show(
    layout: Layout, left_out: LeftOut, found: Assignment, sizes: BrokerSizes, out: Path | None, as_json: bool
) -> None:
    from aiocontroller.core.replica_plans import cost

    costs = cost(layout, found)
    if as_json:
        reasons = {
            reason.replace(" ", "_"): [f"{tp.topic}-{tp.partition}" for tp in partitions]
            for reason, partitions in left_out.explained().items()
        }
        brokers = [each._asdict() for each in costs.brokers]
        shown = {**costs._asdict(), "brokers": brokers}
        silent = {str(broker): why for broker, why in sizes.silent.items()}
        print_json({"plan": kafkas_form(found), "cost": shown, "left_out": reasons, "sizes_unknown": silent})
        return
    print_text(as_text(costs, left_out, sizes.silent))
    if not found:
        say("There is nothing to do.")
    elif out is not None:
        say(f"The plan is in {out}. Next: aiocontroller move --plan {out}")
    else:
        say("")
        print_json(kafkas_form(found))


def as_text(costs: Cost, left_out: LeftOut, silent: dict[int, str] | Any) -> str:
    """The cost as text: the sums, then each broker, then what is not in the plan."""
    copied = f"{plural(costs.replicas, 'replica')} to copy ({byte_count(costs.bytes)})"
    lines = [
        f"{plural(costs.partitions, 'partition')} to change: {copied}, {plural(costs.preferred, 'preferred leader')} "
        "to change.",
        "",
        table(
            ("broker", "rack", "leaders", "then", "replicas", "then", "bytes", "then", "receives"),
            [
                (
                    each.broker,
                    each.rack,
                    *each.leaders,
                    *each.replicas,
                    *map(byte_count, each.bytes),
                    byte_count(each.receives),
                )
                for each in costs.brokers
            ],
        ),
        "",
    ]
    if costs.narrower:
        lines.append(
            f"In fewer racks than before, since no broker is left there: {plural(costs.narrower, 'partition')}."
        )
    for reason, partitions in left_out.explained().items():
        some = ", ".join(map(str, partitions[:SHOWN])) + (", …" if len(partitions) > SHOWN else "")
        lines.append(f"Left out, {reason}: {plural(len(partitions), 'partition')} ({some}).")
    for broker, why in silent.items():
        lines.append(f"Broker {broker} did not report its bytes: {why}.")
    if costs.unsized:
        lines.append(f"The bytes of {plural(costs.unsized, 'replica')} to copy are not known.")
    return "\n".join(lines)
