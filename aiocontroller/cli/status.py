"""``aiocontroller status``: the cluster in a few lines, read from ZooKeeper itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aiocontroller.cli import overview
from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, iso_time, print_json, print_text, table
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

UNREADABLE_SHOWN = 20


@click.command()
@click.option("--watch", is_flag=True, help="Show a running controller's overview every second until it is stopped.")
@cluster_options
@JSON
def status(watch: bool, data: Path | None, zookeeper: str | None, as_json: bool) -> None:
    """Show the controller, the brokers, and what is offline.

    With --watch, a running controller is asked, which also knows which partitions are broken and why, and what has
    happened.
    """
    if watch:
        if zookeeper is not None:
            raise click.UsageError("--watch asks a running controller: give --data instead of --zookeeper")
        overview.watch(data, as_json)
        return
    shown = asyncio.run(_read(find_zookeeper(data, zookeeper)))
    if as_json:
        print_json(shown)
    else:
        print_text(_as_text(shown))


async def _read(zookeeper: str) -> dict[str, Any]:
    from aiocontroller.cli.cluster_state import read_cluster_state

    async with connected(zookeeper) as zk:
        state = await read_cluster_state(zk)
        instances = await _instances(zk)
    since_ms = state.controller.since_ms
    return {
        "controller": {
            "id": state.controller.id,
            "epoch": state.controller.epoch,
            "since": None if since_ms is None else iso_time(since_ms),
        },
        "brokers": [{"id": b.id, "live": b.live, "leaders": b.leaders, "replicas": b.replicas} for b in state.brokers],
        "partitions": state.counts(),
        "unreadable": [{"path": p, "found": f, "expected": e} for p, f, e in state.unreadable],
        **instances,
    }


async def _instances(zk: KafkaZkClient) -> dict[str, Any]:
    """What each instance reports of itself; ``problem``: why that is not known."""
    import msgspec

    from aiocontroller.zookeeper.from_aiozk import exc
    from aiocontroller.zookeeper.instances import read_instances
    from aiocontroller.zookeeper.znodes import ControllerZNode

    try:
        found, holder = await read_instances(zk.client), await zk.get_controller(watch=False)
    except (exc.ZKError, OSError) as error:
        return {"instances": [], "problem": str(error) or type(error).__name__}
    owner = holder.owner_session if isinstance(holder, ControllerZNode) else None
    instances = [{**msgspec.structs.asdict(each), "active": session == owner} for session, each in found.items()]
    return {"instances": sorted(instances, key=lambda each: (not each["active"], each["started_ms"])), "problem": ""}


def _as_text(shown: dict[str, Any]) -> str:
    controller, partitions = shown["controller"], shown["partitions"]
    if controller["id"] is None:
        head = f"No controller; the last epoch was {controller['epoch'] or 0}."
    else:
        head = f"Controller {controller['id']}, epoch {controller['epoch']}, since {controller['since']}."
    rows = [(b["id"], "live" if b["live"] else "gone", b["leaders"], b["replicas"]) for b in shown["brokers"]]
    lines = [head, *overview.standbys(shown), "", table(("broker", "state", "leaders", "replicas"), rows), ""]
    lines.append(
        f"{plural(partitions['total'], 'partition')}: {partitions['offline']:,} offline, "
        f"{partitions['under_replicated']:,} under-replicated, "
        f"{partitions['not_preferred']:,} not led by their preferred replica."
    )
    bad = shown["unreadable"]
    lines += [f"Unreadable: {b['path']}: found {b['found']}, expected {b['expected']}" for b in bad[:UNREADABLE_SHOWN]]
    if len(bad) > UNREADABLE_SHOWN:
        lines.append(f"… and {len(bad) - UNREADABLE_SHOWN:,} more unreadable znodes")
    return "\n".join(lines)
