"""``aiocontroller reassign``: starts reassignments from a plan in Kafka's format, cancels and lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import msgspec

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.core.errors import AioControllerError, BadInputError, KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.text import plural
from aiocontroller.core.unreadable_json import UNREADABLE_JSON

if TYPE_CHECKING:
    from aiocontroller.wire.long_requests import CodeAndMessage
    from aiocontroller.wire.reassignments import Targets
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient


@click.command()
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Kafka's JSON plan.")
@click.option("--cancel", is_flag=True, help="Cancel all reassignments, or those that --plan names.")
@click.option("--list", "list_", is_flag=True, help="List all reassignments, or those that --plan names.")
@cluster_options
@JSON
def reassign(
    plan: Path | None, cancel: bool, list_: bool, data: Path | None, zookeeper: str | None, as_json: bool
) -> None:
    """Reassign replicas to other brokers; cancel and list reassignments.

    A plan is what Kafka's own tool takes: {"version": 1, "partitions": [{"topic": "t", "partition": 0,
    "replicas": [1, 2]}]}, preferred leader first.
    """
    if cancel and list_:
        raise click.UsageError("--cancel and --list exclude each other")
    if plan is None and not cancel and not list_:
        raise click.UsageError("nothing to do: give --plan FILE, --cancel or --list")
    wanted = None if plan is None else read_plan(plan)
    if wanted is not None and wanted.with_log_dirs and not list_ and not cancel:
        click.echo(f"Note: the log_dirs of {plural(wanted.with_log_dirs, 'partition')} are ignored.", err=True)
    address = find_zookeeper(data, zookeeper)
    if list_:
        ongoing = asyncio.run(_listed(address, None if wanted is None else list(wanted.targets)))
        _show_ongoing(ongoing, as_json)
        return
    targets, results = asyncio.run(alter(address, None if wanted is None else wanted.targets, cancel))
    show_results(targets, results, as_json, cancel=cancel)


MAX_PLAN_BYTES = 100 * 1024 * 1024
"""The largest request that a broker accepts."""
REQUEST_BYTES = 256 * 1024
"""Approximate size of one request; a large plan is split, so that the controller can handle events in between."""

# -- plans -------------------------------------------------------------------------------------------------------------


_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Entry(msgspec.Struct):
    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    """Kafka's limit for names."""
    partition: _Id
    replicas: list[_Id]
    log_dirs: list[str] | None = None


class _Plan(msgspec.Struct):
    version: int
    partitions: list[_Entry]


class Plan(NamedTuple):
    """The content of a plan's file."""

    targets: dict[TopicPartition, tuple[int, ...]]
    with_log_dirs: int
    """Number of entries that name log directories, which this controller ignores."""


def read_plan(path: Path) -> Plan:
    """Read a plan; BadInputError names the file, what was found and what was expected.  The controller validates the
    replica lists."""
    size = path.stat().st_size
    if size > MAX_PLAN_BYTES:
        raise BadInputError(f"{path}: found {size:,} bytes, expected a plan of {MAX_PLAN_BYTES:,} at most")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Plan)
    except UNREADABLE_JSON as error:
        raise BadInputError(f"{path}: {error}; expected Kafka's reassignment plan, version 1") from None
    if found.version != 1:
        raise BadInputError(f"{path}: found version {found.version}, expected 1")
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in found.partitions:
        tp = TopicPartition(entry.topic, entry.partition)
        if tp in targets:
            raise BadInputError(f"{path}: found {tp} twice, expected it once")
        targets[tp] = tuple(entry.replicas)
    if not targets:
        raise BadInputError(f"{path}: found no partitions, expected at least one")
    named = sum(any(folder != "any" for folder in entry.log_dirs or ()) for entry in found.partitions)
    return Plan(targets, named)


# -- asking ------------------------------------------------------------------------------------------------------------


async def _listed(address: str, partitions: list[TopicPartition] | None) -> dict[TopicPartition, ReplicaAssignment]:
    async with connected(address) as zk:
        return await _ongoing(zk, partitions)


async def _ongoing(
    zk: KafkaZkClient, partitions: list[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    from aiocontroller.cli.controller_client import ask_controller
    from aiocontroller.net.real import real_world
    from aiocontroller.wire import reassignments as wire
    from aiocontroller.wire.apis import ApiKey

    answer = await ask_controller(
        real_world(),
        zk,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda version: wire.encode_list_partition_reassignments_request(version, partitions),
        wire.decode_list_partition_reassignments_response,
        lambda answer: answer.error_code == KafkaErrorCode.NOT_CONTROLLER,
    )
    _raise_for(answer.error_code, answer.error_message)
    return answer.ongoing


async def alter(
    address: str, wanted: Targets | None, cancel: bool
) -> tuple[Targets, dict[TopicPartition, CodeAndMessage]]:
    """Have the controller start or cancel reassignments; returns what was requested, and each outcome."""
    from aiocontroller.cli.controller_client import ask_controller
    from aiocontroller.net.real import real_world
    from aiocontroller.wire import reassignments as wire
    from aiocontroller.wire.apis import ApiKey

    async with connected(address) as zk:
        targets: Targets = {} if wanted is None else wanted
        if cancel:
            targets = dict.fromkeys(await _ongoing(zk, None) if wanted is None else wanted)
        if not targets:
            return {}, {}
        results: dict[TopicPartition, CodeAndMessage] = {}
        for part in in_parts(targets):
            answer = await ask_controller(
                real_world(),
                zk,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                lambda version, part=part: wire.encode_alter_partition_reassignments_request(version, part),  # type: ignore[misc]
                wire.decode_alter_partition_reassignments_response,
                lambda answer: answer.error_code == KafkaErrorCode.NOT_CONTROLLER,
            )
            _raise_for(answer.error_code, answer.error_message)
            results |= answer.results
    return targets, results


def in_parts(targets: Targets) -> Iterator[Targets]:
    """Split the plan into requests of about ``REQUEST_BYTES``, in order."""
    part: dict[TopicPartition, Sequence[int] | None] = {}
    size = 0
    for tp, replicas in targets.items():
        bytes_more = len(tp.topic) + 12 + 4 * len(replicas or ())
        if part and size + bytes_more > REQUEST_BYTES:
            yield part
            part, size = {}, 0
        part[tp] = replicas
        size += bytes_more
    if part:
        yield part


def _raise_for(code: int, message: str) -> None:
    from aiocontroller.cli.controller_client import code_name

    if code:
        raise AioControllerError(f"the controller refused the request: {code_name(code)} {message}".rstrip())


# -- showing -----------------------------------------------------------------------------------------------------------


def _show_ongoing(ongoing: dict[TopicPartition, ReplicaAssignment], as_json: bool) -> None:
    rows = [(tp.topic, tp.partition, a.replicas, a.adding, a.removing) for tp, a in sorted(ongoing.items())]
    columns = ("topic", "partition", "replicas", "adding", "removing")
    if as_json:
        print_json({"reassignments": [dict(zip(columns, row, strict=True)) for row in rows]})
    elif rows:
        say(table(columns, [[*row[:3], row[3] or None, row[4] or None] for row in rows]))
    else:
        say("No reassignment is in progress.")


def show_results(
    targets: Targets, results: dict[TopicPartition, CodeAndMessage], as_json: bool, *, cancel: bool
) -> None:
    """Print the outcomes.  Exit code 1 if one was refused."""
    shown = [outcome_row(tp, *results.get(tp, (int(KafkaErrorCode.NONE), ""))) for tp in sorted(targets)]
    failed = sum(row["error"] is not None for row in shown)
    if as_json:
        print_json({"cancelled" if cancel else "reassigned": shown})
    elif not shown:
        say("No reassignment is in progress.")
    else:
        if failed:
            say(table(("topic", "partition", "result"), [(r["topic"], r["partition"], result_text(r)) for r in shown]))
        done = len(shown) - failed
        say(f"{'Cancelled' if cancel else 'Started'}: {plural(done, 'reassignment')}; refused: {failed:,}.")
    if failed:
        raise click.exceptions.Exit(1)


def outcome_row(tp: TopicPartition, code: int, message: str) -> dict[str, Any]:
    """One partition of an answer, as JSON values."""
    from aiocontroller.cli.controller_client import code_name

    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "error": code_name(code) if code else None,
        "message": message or None,
    }


def result_text(row: dict[str, Any]) -> str:
    """One partition's result for the table: ``ok``, or Kafka's error with its message."""
    if row["error"] is None:
        return "ok"
    return f"{row['error']}: {row['message']}" if row["message"] else str(row["error"])
