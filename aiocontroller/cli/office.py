"""``aiocontroller takeover`` and ``release``: the role changes hands, on an operator's word to a running controller."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click
import msgspec

from aiocontroller.cli.finding import DEFAULT_DATA
from aiocontroller.cli.output import JSON, plural, print_json, say
from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.data_folder import holder_of

TIMEOUT_S = 60.0

_DATA = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder of the controller ('run --data DIR') or of 'up' (default: .aiocontroller here or above).",
)


class OfficeError(AioControllerError):
    """No controller runs there, or it refuses; the message says why."""


@click.command()
@_DATA
@JSON
def takeover(data: Path | None, as_json: bool) -> None:
    """Have a running controller take the role from the brokers.

    It refuses, with the reason, in a cluster that is being migrated to KRaft, where another aiocontroller is in
    charge, where a broker has its id, and where brokers are too old.
    """
    ready = find_controller(data)
    answer = _post(ready, "takeover", {})
    if as_json:
        print_json(answer)
    elif answer["was_active"]:
        say(f"Controller {answer['id']} was in office already, epoch {answer['epoch']}.")
    else:
        before = "nobody had it" if answer["before"] is None else f"before: {answer['before']}"
        say(f"Controller {answer['id']} has taken the role ({before}), epoch {answer['epoch']}.")


@click.command()
@_DATA
@click.option("--exit", "exit_", is_flag=True, help="End the process afterwards; else it stands by and looks on.")
@click.option(
    "--linger",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="With --exit: go on answering so long first (aiocontroller.release.linger.ms).",
)
@JSON
def release(data: Path | None, exit_: bool, linger: float | None, as_json: bool) -> None:
    """Have a running controller give the role back to the brokers.

    No assignment names it when it goes, unless that is said. It answers NOT_CONTROLLER, and tells clients where the
    brokers are, for as long as it runs, and takes the role again only when 'aiocontroller takeover' asks for it.
    """
    ready = find_controller(data)
    asked = {"exit": exit_, "linger_ms": None if linger is None else round(1000 * linger)}
    answer = _post(ready, "release", asked)
    if as_json:
        print_json(answer)
        return
    if answer["epoch"]:
        say(f"Controller {answer['id']} has given the role back after epoch {answer['epoch']}.")
    else:
        say(f"Controller {answer['id']} was not in office; it takes the role only when asked to.")
    if answer["left"]:
        say(f"{plural(len(answer['left']), 'partition')} still with a replica on it: {', '.join(answer['left'])}")
    if answer["ends_in_ms"] is not None:
        say(f"It goes on answering for {answer['ends_in_ms'] / 1000:g} s and then ends.")


def find_controller(data: Path | None) -> ControllerReady:
    """What the running controller of a folder wrote; OfficeError when there is none."""
    here = Path.cwd()
    folders = [data] if data is not None else [each / DEFAULT_DATA for each in (here, *here.parents)]
    for path in (folder / part / READY_FILE for folder in folders for part in ("", "controller")):
        try:
            ready = msgspec.json.decode(path.read_bytes(), type=ControllerReady)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise BadInputError(f"{path}: found {error}, expected the description of a running controller") from None
        if holder_of(path.parent) != ready.pid:
            raise OfficeError(
                f"no controller runs in {path.parent}: {path.name} is left over from process {ready.pid}, which is gone"
            )
        return ready
    looked = data if data is not None else f"{DEFAULT_DATA} in {here} or above it"
    raise OfficeError(f"no controller runs in {looked}: name its folder, 'aiocontroller run --data DIR', by --data DIR")


def _post(ready: ControllerReady, command: str, body: dict[str, Any]) -> dict[str, Any]:
    from aiocontroller.server.http import TOKEN_HEADER

    request = urllib.request.Request(
        f"{ready.http}/{command}",
        data=json.dumps(body).encode(),
        headers={TOKEN_HEADER: ready.token, "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        try:
            text = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            pass
        raise OfficeError(f"controller {ready.id} does not: {text}") from None
    except (OSError, ValueError) as error:
        raise OfficeError(f"controller {ready.id} (process {ready.pid}) does not answer: {error}") from error
