"""``aiocontroller takeover``, ``release`` and ``settings``: commands to a running controller."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click

from aiocontroller.cli.finding import find_controller
from aiocontroller.cli.output import JSON, print_json, say, table
from aiocontroller.cli.parameters import Finite
from aiocontroller.cli.properties import KEEP_OURS
from aiocontroller.cli.run import ControllerReady
from aiocontroller.core.errors import AioControllerError
from aiocontroller.core.text import plural

TIMEOUT_S = 60.0

controller_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder of the controller ('run --data DIR') or of 'up' (default: .aiocontroller here or above).",
)


class CommandError(AioControllerError):
    """The controller does not answer, or does not do what the command says; the message gives the reason."""


class RefusedError(CommandError):
    """The controller refuses; ``answer`` is its complete answer, ``status`` the HTTP status."""

    def __init__(self, message: str, answer: dict[str, Any], status: int) -> None:
        super().__init__(message)
        self.answer = answer
        self.status = status


@click.command()
@controller_data
@KEEP_OURS
@JSON
def takeover(data: Path | None, keep_ours: tuple[str, ...], as_json: bool) -> None:
    """Make a running controller take the role from the brokers.

    It refuses, and says why, if the cluster is being migrated to KRaft, if another aiocontroller is active, if a broker
    has the same id, if brokers are too old, or if its settings contradict the brokers'. --keep-ours makes it obey its
    own setting until the process ends.
    """
    ready = find_controller(data)
    try:
        answer = post_command(ready, "takeover", {"keep_ours": keep_ours})
    except RefusedError as error:
        if as_json:
            print_json(error.answer)
        elif error.answer.get("settings"):
            say(_contradictions(error.answer["settings"]) + "\n")
        raise
    if as_json:
        print_json(answer)
        return
    if answer["was_active"]:
        say(f"Controller {answer['id']} was already active, epoch {answer['epoch']}.")
    else:
        before = "there was no controller" if answer["before"] is None else f"before: {answer['before']}"
        say(f"Controller {answer['id']} has taken the role ({before}), epoch {answer['epoch']}.")
    if answer["settings"]:
        rows = [(each["setting"], each["value"] or NOTHING, each["from"]) for each in answer["settings"]]
        say("\nIt obeys, besides Kafka's defaults:\n\n" + table(("setting", "value", "from"), rows))
    for what in answer["not_enforced"]:
        say(f"\nNot enforced: {what}")
    for why in answer.get("unfit", ()):  # not in the answer of a process from before an upgrade
        say(f"\nNote: {why}.")


@click.command()
@controller_data
@click.option("--all", "everything", is_flag=True, help="Include unchanged topic defaults.")
@JSON
def settings(data: Path | None, everything: bool, as_json: bool) -> None:
    """Show the settings of a running controller and their sources.

    The table shows each setting's value, the brokers' values, and ours. A value comes from:

    \b
    insisted         our configuration, kept against the brokers' (--keep-ours)
    ours             our configuration, since no broker reports the setting
    dynamic          dynamic settings of single brokers
    dynamic default  dynamic settings of all brokers
    brokers          the brokers' server.properties
    default          Kafka's default
    """
    answer = get_page(find_controller(data), "settings")
    if as_json:
        print_json(answer)
        return
    shown = [each for each in answer["settings"] if everything or not _is_dull(each)]
    rows = [
        (each["setting"], each["value"] or NOTHING, each["from"], _of_brokers(each), each["ours"] or "")
        for each in shown
    ]
    say(table(("setting", "value", "from", "brokers", "ours"), rows))
    if answer["contradicting"]:
        say(f"\nAgainst the brokers: {', '.join(answer['contradicting'])}")
    for what in answer["not_enforced"]:
        say(f"\nNot enforced: {what}")


NOTHING = "(none)"
_OF_TOPICS = ("log.", "compression.", "message.", "background.", "num.", "remote.", "min.insync.replicas")


def _is_dull(setting: dict[str, Any]) -> bool:
    """Whether the setting has Kafka's default and the controller only passes it on to others."""
    return (
        setting["from"] == "default"
        and len(setting["brokers"]) < 2
        and setting["setting"].startswith(_OF_TOPICS)
        and setting["setting"] != "num.partitions"
    )


def _of_brokers(setting: dict[str, Any]) -> str:
    """The single value, or each value with its brokers."""
    found: dict[str, list[int]] = setting["brokers"]
    if len(found) < 2:
        return next((value or NOTHING for value in found), "")
    return "; ".join(f"{value or NOTHING} ({', '.join(map(str, who))})" for value, who in found.items())


def _contradictions(settings: list[dict[str, Any]]) -> str:
    rows = [(each["setting"], _of_brokers(each), each["ours"] or NOTHING) for each in settings]
    return table(("setting", "brokers", "ours"), rows)


@click.command()
@controller_data
@click.option("--exit", "exit_", is_flag=True, help="End the process afterwards; without it, the process stands by.")
@click.option(
    "--linger",
    "linger_s",
    type=Finite(0),
    metavar="SECONDS",
    help="With --exit: keep answering clients for this long first (aiocontroller.release.linger.ms).",
)
@JSON
def release(data: Path | None, exit_: bool, linger_s: float | None, as_json: bool) -> None:
    """Make a running controller give the role back to the brokers.

    Before it does, it removes itself from all assignments; the output names those that still contain it. Afterwards it
    answers NOT_CONTROLLER and refers clients to the brokers for as long as it runs, and takes the role again only when
    'aiocontroller takeover' asks for it.
    """
    ready = find_controller(data)
    asked = {"exit": exit_, "linger_ms": None if linger_s is None else round(1000 * linger_s)}
    answer = post_command(ready, "release", asked)
    if as_json:
        print_json(answer)
        return
    if answer["epoch"]:
        say(f"Controller {answer['id']} has given the role back after epoch {answer['epoch']}.")
    else:
        say(f"Controller {answer['id']} was not active. It stands by again only when 'aiocontroller takeover' asks.")
    if answer["left"]:
        say(f"{plural(len(answer['left']), 'partition')} still with a replica on it: {', '.join(answer['left'])}")
    for owed in answer["owed"]:
        topics = ", ".join(owed["topics"][:5]) + (", …" if len(owed["topics"]) > 5 else "")
        replicas = plural(owed["replicas"], "replica")
        say(f"Broker {owed['broker']} still has {replicas} that it should have deleted, of {topics}.")
    for why in answer.get("unfit", ()):
        say(f"Note: {why}.")
    if answer["ends_in_ms"] is not None:
        say(f"It goes on answering for {answer['ends_in_ms'] / 1000:g} s and then ends.")


def post_command(ready: ControllerReady, command: str, body: dict[str, Any]) -> dict[str, Any]:
    """The controller's answer to a command; RefusedError if it refuses, CommandError if it does not answer."""
    from aiocontroller.server.reader_check import TOKEN_HEADER

    headers = {TOKEN_HEADER: ready.token, "Content-Type": "application/json"}
    return _ask(ready, urllib.request.Request(f"{ready.http}/{command}", json.dumps(body).encode(), headers))


def get_page(ready: ControllerReady, page: str) -> dict[str, Any]:
    """The controller's answer to ``GET /page``; RefusedError if it refuses, CommandError if it does not answer."""
    from aiocontroller.server.reader_check import TOKEN_HEADER

    return _ask(ready, urllib.request.Request(f"{ready.http}/{page}", headers={TOKEN_HEADER: ready.token}))


def _ask(ready: ControllerReady, request: urllib.request.Request) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        try:
            found = json.loads(text)
            message = f"controller {ready.id} does not: {found['error']}"
        except (ValueError, KeyError, TypeError):
            raise CommandError(f"controller {ready.id} does not: {text}") from None
        raise RefusedError(message, found, error.code) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"controller {ready.id} (process {ready.pid}) does not answer: {error}") from error
