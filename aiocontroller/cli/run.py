"""``aiocontroller run``: one controller process, active or standing by."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from aiocontroller.cli.background import BackgroundLog
from aiocontroller.cli.extras import ExtraMissingError, missing, refusal
from aiocontroller.cli.log_lines import formatter
from aiocontroller.cli.long_running import LongRunning
from aiocontroller.cli.output import JSON, print_json, say
from aiocontroller.cli.properties import KEEP_OURS, PROPERTIES
from aiocontroller.data_folder import FolderLock, make_private_folder
from aiocontroller.ending import has_terminal

if TYPE_CHECKING:
    from aiocontroller.config import Config
    from aiocontroller.service import DebugHandlers, Service


READY_FILE = "controller.json"
"""Exists in the data folder while the controller runs, from when its ports are open and ZooKeeper is connected."""


class ControllerReady(msgspec.Struct, frozen=True):
    """Contents of ``READY_FILE``, and of the first line with ``--json``."""

    id: int
    pid: int
    http: str
    """URL for commands and other programs on this machine; without TLS even if the page has it."""
    listeners: list[str]
    token: str
    """Token for HTTP commands; not printed."""
    zookeeper: str = ""
    """The ZooKeeper connect string."""
    page: str = ""
    """URL of the page."""


def _laboratorys_handlers(context: click.Context, parameter: click.Parameter, wanted: bool) -> DebugHandlers:
    """What ``--debug`` adds to the pages of the controller."""
    if not wanted:
        return lambda service: {}
    if missing("lab"):
        raise ExtraMissingError(refusal("lab", "--debug"))
    found: DebugHandlers = import_module("aiocontroller.lab.debugging").handlers
    return found


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with Kafka's names, such as a broker's server.properties.",
)
@click.option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The property zookeeper.connect.")
@click.option(
    "--id", "controller_id", metavar="N", help="The property aiocontroller.id; no broker may have the same id."
)
@click.option("--listen", metavar="HOST:PORT", help="Where brokers reach this controller (the property listeners).")
@click.option("--http-port", metavar="PORT", help="The property aiocontroller.http.port; 0 takes a free port.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the journal (DIR/journal) and controller.json.",
)
@PROPERTIES
@KEEP_OURS
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least severe level that is logged.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object per line.",
)
@click.option(
    "--debug",
    "debug_handlers",
    is_flag=True,
    callback=_laboratorys_handlers,
    help="Accept POST /debug/expire-session, for tests of failover (needs the laboratory).",
)
@JSON
def run(
    file: Path | None,
    zookeeper: str | None,
    controller_id: str | None,
    listen: str | None,
    http_port: str | None,
    data: Path | None,
    properties: dict[str, str],
    keep_ours: tuple[str, ...],
    log_level: str,
    log_format: str,
    debug_handlers: DebugHandlers,
    as_json: bool,
) -> None:
    """Run a controller for an existing cluster.

    It takes the role if the role is vacant, and stands by otherwise. 'aiocontroller takeover' makes it take the role
    from a broker; 'aiocontroller release', Ctrl-C and SIGTERM make it give the role back. A signal ends the process
    within 5 s (15 s if a release had begun), with exit code 0, or 1 if something was left undone, which the log names.
    Exit code 2: an option or a property is wrong.
    A second signal ends it at once, with exit code 128 + the signal's number. SIGHUP ends it if a terminal controls it;
    otherwise it reads certificates and keys again, for new connections.
    """
    process = LongRunning(as_json, rereads=not has_terminal())
    from aiocontroller.config import load_config

    named = _named(zookeeper, controller_id, listen, http_port, keep_ours)
    config, warnings = load_config(file, os.environ, properties | named)
    _log_to(BackgroundLog(process.errors), formatter(log_format, config.aiocontroller_id), log_level)
    for warning in warnings:
        logging.getLogger("aiocontroller.config").warning(warning)
    if data is not None:
        lock = FolderLock(data)
        lock.acquire()
        process.ending.at_exit(lock.release)
        (data / READY_FILE).unlink(missing_ok=True)  # a killed process may have left it, under the id of this one

    def on_ready(service: Service) -> None:
        ready = _ready(config, service)
        if data is not None:
            process.ending.at_exit(lambda: (data / READY_FILE).unlink(missing_ok=True))
            write_ready(data / READY_FILE, ready)
        if as_json:
            print_json({"event": "ready", **{k: v for k, v in msgspec.structs.asdict(ready).items() if k != "token"}})
        else:
            say(
                f"Controller {ready.id} is connected to ZooKeeper at {config.zookeeper_connect}, "
                f"listens on {', '.join(ready.listeners)} and serves {ready.page}/status"
            )

    def work() -> int:
        from aiocontroller.service import run_service
        from aiocontroller.service_manager import ServiceManager

        return run_service(
            config,
            process.ending,
            data=data,
            debug_handlers=debug_handlers,
            manager=ServiceManager.from_environ(os.environ),
            on_ready=on_ready,
        )

    process.finish(work)


def _ready(config: Config, service: Service) -> ControllerReady:
    return ControllerReady(
        id=config.aiocontroller_id,
        pid=os.getpid(),
        http=service.local_url,
        listeners=[f"{e.listener}://{e.host}:{e.port}" for e in service.endpoints],
        token=service.token,
        zookeeper=config.zookeeper_connect,
        page=service.http_url,
    )


def _log_to(handler: logging.Handler, lines: logging.Formatter, level: str) -> None:
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=level.upper())


def _named(
    zookeeper: str | None,
    controller_id: str | None,
    listen: str | None,
    http_port: str | None,
    keep_ours: tuple[str, ...],
) -> dict[str, str]:
    """The properties that have an option of their own, where it was given."""
    named = {
        "zookeeper.connect": zookeeper,
        "aiocontroller.id": controller_id,
        "listeners": f"PLAINTEXT://{listen}" if listen is not None else None,
        "aiocontroller.http.port": http_port,
        "aiocontroller.keep.ours": ",".join(keep_ours) or None,
    }
    return {key: value for key, value in named.items() if value is not None}


def write_ready(path: Path, ready: ControllerReady) -> None:
    """Write the file atomically, since other processes wait for it; readable by its owner only."""
    make_private_folder(path.parent)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(ready))
    unfinished.rename(path)
