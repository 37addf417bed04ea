"""``aiocontroller elect``: elects preferred leaders, or leaders from outside the ISR where no in-sync one is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.cli.reassign import outcome_row, result_text
from aiocontroller.core.errors import AioControllerError, BadInputError, KafkaErrorCode
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import ElectionType
from aiocontroller.core.text import plural

if TYPE_CHECKING:
    from aiocontroller.wire.elect_leaders import ElectLeadersResponse
    from aiocontroller.wire.long_requests import CodeAndMessage
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient


@click.command()
@click.option("--preferred", is_flag=True, help="Elect the first replica of each assignment, if it is in the ISR.")
@click.option(
    "--unclean", is_flag=True, help="Where no in-sync replica is left, elect any live replica; records may be lost."
)
@click.option(
    "--topic", metavar="TOPIC", help="Elect for partition --partition of this topic, or for all of its partitions."
)
@click.option("--partition", type=click.IntRange(0), help="Partition of --topic.")
@click.option("--all", "all_", is_flag=True, help="Elect for all partitions of all topics.")
@cluster_options
@JSON
def elect(
    preferred: bool,
    unclean: bool,
    topic: str | None,
    partition: int | None,
    all_: bool,
    data: Path | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Elect preferred leaders, or leaders from outside the ISR."""
    if preferred == unclean:
        raise click.UsageError("give one of --preferred and --unclean")
    if (topic is None) != all_ or (partition is not None and topic is None):
        raise click.UsageError("give --topic TOPIC [--partition N], or --all")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    results = asyncio.run(_elected(find_zookeeper(data, zookeeper), topic, partition, kind))
    _show(results, as_json)


async def _elected(
    address: str, topic: str | None, partition: int | None, kind: ElectionType
) -> dict[TopicPartition, CodeAndMessage]:
    from aiocontroller.cli.controller_client import ask_controller, code_name
    from aiocontroller.net.real import real_world
    from aiocontroller.wire import elect_leaders as wire
    from aiocontroller.wire.apis import ApiKey

    async with connected(address) as zk:
        partitions = None if topic is None else await _named(zk, topic, partition)
        answer = await ask_controller(
            real_world(),
            zk,
            ApiKey.ELECT_LEADERS,
            lambda version: wire.encode_elect_leaders_request(version, partitions, kind),
            wire.decode_elect_leaders_response,
            _refused,
        )
    if answer.error_code:
        raise AioControllerError(f"the controller refused the request: {code_name(answer.error_code)}")
    return answer.results


def _refused(answer: ElectLeadersResponse) -> bool:
    codes = [answer.error_code, *(code for code, _ in answer.results.values())]
    return KafkaErrorCode.NOT_CONTROLLER in codes


async def _named(zk: KafkaZkClient, topic: str, partition: int | None) -> list[TopicPartition]:
    if partition is not None:
        return [TopicPartition(topic, partition)]
    read = await zk.get_topic_assignments([topic], watch=False)
    if read.bad:
        raise BadInputError(f"{read.bad[0].path}: found {read.bad[0].found}, expected {read.bad[0].expected}")
    if not read.found:
        raise BadInputError(f"no such topic: {topic}")
    return [TopicPartition(topic, number) for number in sorted(read.found[0].partitions)]


def _show(results: dict[TopicPartition, CodeAndMessage], as_json: bool) -> None:
    needless = sum(code == KafkaErrorCode.ELECTION_NOT_NEEDED for code, _ in results.values())
    elected = sum(code == KafkaErrorCode.NONE for code, _ in results.values())
    failed = len(results) - needless - elected
    rows = [outcome_row(tp, *results[tp]) for tp in sorted(results)]
    if as_json:
        print_json({"elections": rows})
    else:
        if failed:
            bad = [r for r in rows if r["error"] not in (None, KafkaErrorCode.ELECTION_NOT_NEEDED.name)]
            say(table(("topic", "partition", "result"), [(r["topic"], r["partition"], result_text(r)) for r in bad]))
        say(f"Elected {plural(elected, 'leader')}; {needless:,} not needed, {failed:,} failed.")
    if failed:
        raise click.exceptions.Exit(1)
