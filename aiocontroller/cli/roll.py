"""``aiocontroller roll``: restarts brokers one after the other by an operator's command, each after checks."""

from __future__ import annotations

import asyncio
import re
import shlex
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import JSON, print_json, print_text, say, table, while_read
from aiocontroller.cli.what_if import broker_ids
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.ending import stop_on_signals

if TYPE_CHECKING:
    from aiocontroller.core.rolling import Restarted, RestartGate
    from aiocontroller.moves.roller import RollResult, Seen
    from aiocontroller.net.commands import CommandResult
    from aiocontroller.net.ports import World
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

DEFAULT_AUDIT = "aiocontroller-roll.jsonl"
INCOMPLETE = 3
PLACEHOLDERS = ("id", "host", "port")
DESPITE = ("offline", "under-min-isr")
Addresses = dict[int, tuple[str, int]]


class Options(NamedTuple):
    """The options of the command line."""

    command: str
    brokers: str | None
    wait: int
    timeout_s: int
    despite: tuple[str, ...]
    min_isr: int | None
    elect: bool
    dry_run: bool
    audit: Path
    as_json: bool


@click.command()
@click.option(
    "--command",
    required=True,
    metavar="TEMPLATE",
    help="Restarts one broker: {id}, {host} and {port} are its own. Runs without a shell.",
)
@click.option("--brokers", metavar="ID,…", help="Only these (default: all that are registered).")
@click.option("--wait", type=click.IntRange(0), default=600, show_default=True, help="Seconds to wait at each gate.")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), default=300, show_default=True, help="Seconds for one command."
)
@click.option(
    "--despite",
    multiple=True,
    type=click.Choice(DESPITE),
    help="Restart a broker even if partitions would be offline, or below min.insync.replicas, while it is gone.",
)
@click.option(
    "--min-isr", type=click.IntRange(1), help="min.insync.replicas of the brokers' files, which are not in ZooKeeper."
)
@click.option("--elect", is_flag=True, help="Elect preferred leaders after each restart.")
@click.option("--dry-run", is_flag=True, help="Print the order, the commands and the gates as they are now.")
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_AUDIT,
    show_default=True,
    help="Record of the restarts.",
)
@cluster_options
@JSON
def roll(data: Path | None, zookeeper: str | None, **given: Any) -> None:
    """Restart brokers one after the other by a command, each after checks.

    A broker is restarted only while all others are registered, every partition has a leader and every replica is in
    sync, and if no partition would lose its leader or fall below min.insync.replicas meanwhile. If it was killed, run
    it again: it continues. The controller comes last. Exit code 3: not all brokers were restarted.
    """
    options = Options(**given)
    words(options.command, 0, "host", 0)
    found = asyncio.run(_rolled(find_zookeeper(data, zookeeper), options))
    if found is None:
        return
    with while_read():  # the exit code still tells how it ended
        _show(found, options)
    if found.result != "rolled":
        raise click.exceptions.Exit(INCOMPLETE)


def _show(found: RollResult, options: Options) -> None:
    if options.as_json:
        print_json(found)
        return
    for reason in found.reasons:
        print_text(f"{found.result.capitalize()}: {reason}.")
    left = f", not restarted: {', '.join(map(str, found.left))}" if found.left else ""
    say(f"Restarted: {', '.join(map(str, found.restarted)) or 'none'}{left}. The record is in {options.audit}.")


def words(template: str, broker: int, host: str, port: int) -> list[str]:
    """The command for one broker; BadParameter for an invalid template.

    BadInputError for an invalid host: writers to ZooKeeper must not be able to choose our command or its options.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.:\[\]][A-Za-z0-9_.:\[\]-]*", host):
        raise BadInputError(f"broker {broker}: found the host {host!r}, expected a name or an address")
    try:
        parts = shlex.split(template)
        parsed = [field for part in parts for field in string.Formatter().parse(part)]
    except ValueError as error:
        raise _bad_template(str(error)) from None
    fields = [
        f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
        for _, name, form, conversion in parsed
        if name is not None
    ]
    strange = [field for field in fields if field not in PLACEHOLDERS]
    if strange or not parts:
        raise _bad_template(f"found {{{strange[0]}}}" if strange else "found no words")
    return [part.format(id=broker, host=host, port=port) for part in parts]


def _bad_template(found: str) -> click.BadParameter:
    return click.BadParameter(f"{found}, expected a command with {{id}}, {{host}} or {{port}}", param_hint="--command")


async def _rolled(zookeeper: str, options: Options) -> RollResult | None:
    from aiocontroller.cli.moved_cluster import cluster_id
    from aiocontroller.moves.audit import AuditFile, check_cluster, read_records
    from aiocontroller.moves.roller import Roller
    from aiocontroller.net.real import real_world

    world, wanted = real_world(), broker_ids(options.brokers, "--brokers") if options.brokers else None
    async with connected(zookeeper, float(options.wait)) as zk:
        cluster = RolledCluster(world, zk, options)
        if options.dry_run:
            records = read_records(options.audit)
            check_cluster(options.audit, records, await cluster_id(zk))
            await _say_order(cluster, options, wanted, _past(records, options))
            return None
        audit = AuditFile(options.audit, world.clock)
        try:
            audit.belongs_to(await cluster_id(zk))
            past = _past(audit.records, options)
            await _check(cluster, wanted, past)
            commands = Commands(options, cluster, audit.records)
            show: Callable[[str], object] = (lambda line: None) if options.as_json else _say_line
            roller = Roller(
                cluster, audit, world.clock, commands.run, wait_s=options.wait, elect=options.elect, show=show
            )
            stop_on_signals(roller.stopping)
            return await roller.roll(wanted, past)
        finally:
            audit.close()


def _past(records: Sequence[Mapping[str, Any]], options: Options) -> Restarted | None:
    from aiocontroller.core.rolling import resumed

    try:
        return resumed(records)
    except (KeyError, TypeError, AssertionError) as error:
        raise BadInputError(f"{options.audit}: found {error!r}, expected the record of a roll") from None


async def _check(cluster: RolledCluster, wanted: list[int] | None, past: Restarted | None) -> None:
    known = (await cluster.look()).epochs
    for broker in wanted or ():
        if broker not in known and (past is None or broker not in (past.under_way, *past.done)):
            there = ", ".join(map(str, sorted(known))) or "none"
            raise BadInputError(f"--brokers: found broker {broker}, expected one that is registered: {there}")


async def _say_order(
    cluster: RolledCluster, options: Options, wanted: list[int] | None, past: Restarted | None
) -> None:
    from aiocontroller.core.rolling import gate, order

    await _check(cluster, wanted, past)
    seen = await cluster.look()
    done = past.done if past else ()
    rows = []
    for broker in order(seen.epochs if wanted is None else wanted, seen.controller):
        if broker not in done and broker in seen.addresses:
            found = gate(seen.view, seen.epochs)
            reasons = found.reasons() or (await cluster.without(broker)).reasons()
            rows.append((broker, shlex.join(words(options.command, broker, *seen.addresses[broker])), reasons))
    if options.as_json:
        print_json({"roll": [{"broker": b, "command": c, "gate": g} for b, c, g in rows], "done": done})
        return
    print_text(table(("broker", "command", "gate now"), [(b, c, "; ".join(g) or "open") for b, c, g in rows]))
    say("Nothing was run.")


def _say_line(line: str) -> None:
    with while_read():
        print_text(line)


class Commands:
    """Runs the operator's command; a broker's address comes from its registration, or else from the audit file."""

    def __init__(self, options: Options, cluster: RolledCluster, records: Sequence[Mapping[str, Any]]) -> None:
        self._options, self._cluster, self._records = options, cluster, records

    async def run(self, broker: int) -> CommandResult:
        """Run the command for a broker; AioControllerError if the program cannot be started."""
        from aiocontroller.net.commands import run_command

        addresses: Addresses = {}
        for record in self._records:
            addresses |= {int(each): (host, int(port)) for each, host, port in record.get("addresses", ())}
        addresses |= (await self._cluster.look()).addresses
        if broker not in addresses:
            raise AioControllerError(f"broker {broker} is not registered, and no record has its address")
        command = words(self._options.command, broker, *addresses[broker])
        environment = {"AIOCONTROLLER_BROKER_ID": str(broker)}
        try:
            return await run_command(command, environment, timeout_s=float(self._options.timeout_s), leave=True)
        except (OSError, ValueError) as error:
            raise AioControllerError(f"--command: {shlex.join(command)}: {error}") from None


class RolledCluster:
    """See ``moves.roller.Cluster``."""

    def __init__(self, world: World, zk: KafkaZkClient, options: Options) -> None:
        self._world, self._zk, self._options = world, zk, options

    async def look(self) -> Seen:
        """Read the cluster from ZooKeeper."""
        from aiocontroller.cli.moved_cluster import view_of
        from aiocontroller.moves.roller import Seen
        from aiocontroller.zookeeper.cluster_tree import read_cluster_tree

        tree = await read_cluster_tree(self._zk)
        brokers = tree.brokers.values()
        return Seen(
            view_of(tree, 0.0),
            {broker.id: broker.epoch for broker in brokers},
            {broker.id: (broker.endpoints[0].host, broker.endpoints[0].port) for broker in brokers if broker.endpoints},
            None if tree.holder is None else tree.holder.controller_id,
        )

    async def without(self, broker: int) -> RestartGate:
        """The gate if this broker were shut down, as the controller's own core decides on a copy."""
        from aiocontroller.check.rules import MIN_ISR
        from aiocontroller.check.what_if import WhatIf, outcome
        from aiocontroller.core.rolling import RestartGate
        from aiocontroller.zookeeper.cluster_tree import read_cluster_tree

        tree = await read_cluster_tree(self._zk)
        configs = {} if self._options.min_isr is None else {MIN_ISR: str(self._options.min_isr)}
        tried = WhatIf(tree, configs)
        before, alive = tried.leaderships(), tried.brokers
        if broker not in alive:
            return RestartGate((broker,), (), ())
        tried.shut_down(broker)
        found = outcome(tried, before, alive)
        return RestartGate(
            (),
            (),
            (),
            () if "offline" in self._options.despite else tuple(found.offline),
            () if "under-min-isr" in self._options.despite else tuple(found.under_min_isr),
        )

    async def elect_preferred(self) -> None:
        """Elect preferred leaders; an election that is not needed is no error."""
        from aiocontroller.cli.controller_client import ask_controller
        from aiocontroller.core.errors import KafkaErrorCode
        from aiocontroller.wire import elect_leaders
        from aiocontroller.wire.apis import ApiKey

        await ask_controller(
            self._world,
            self._zk,
            ApiKey.ELECT_LEADERS,
            lambda version: elect_leaders.encode_elect_leaders_request(version, None, 0),
            elect_leaders.decode_elect_leaders_response,
            lambda answer: (
                KafkaErrorCode.NOT_CONTROLLER in (answer.error_code, *(code for code, _ in answer.results.values()))
            ),
        )
