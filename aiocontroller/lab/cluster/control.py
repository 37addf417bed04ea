"""Lets other processes command the cluster that ``aiocontroller up`` runs in a folder.

Commands are sent by HTTP on loopback, with a token that only the owner of ``cluster.json`` can read.
"""

from __future__ import annotations

import hmac
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from aiocontroller.cluster_file import read_cluster_file
from aiocontroller.core.errors import AioControllerError
from aiocontroller.lab.cluster.migrating import Mode

TOKEN_HEADER = "X-Cluster-Token"
COMMAND_TIMEOUT_S = 300.0
LOOPBACK = "127.0.0.1"

BROKER_COMMANDS = ("kill-broker", "stop-broker", "start-broker", "restart-broker")
KRAFT_COMMANDS = ("start-kraft-controller", "stop-kraft-controller", "finalize-migration")
COMMANDS = (
    *BROKER_COMMANDS,
    *KRAFT_COMMANDS,
    "kill-controller",
    "stop-controller",
    "start-controller",
    "kill-zookeeper-session",
    "status",
)


class CommandError(AioControllerError):
    """The cluster could not do what it was asked to; the message says why."""


class ProcessSnapshot(msgspec.Struct, frozen=True):
    """A process's state: ``pid`` and ``port`` are 0 before the first start; ``exit_code`` is None while it runs."""

    name: str
    running: bool
    pid: int
    port: int
    exit_code: int | None


class ClusterSnapshot(msgspec.Struct, frozen=True):
    """What ``status`` answers."""

    zookeeper: ProcessSnapshot
    controller: ProcessSnapshot
    brokers: dict[int, ProcessSnapshot]
    zookeeper_address: str
    bootstrap: str
    http: str
    """The controller's URL; empty before it has started."""
    events: list[str]
    """The latest events of the processes, oldest first."""


def send_command(data_dir: Path, command: str, *, broker: int | None = None, mode: str | None = None) -> dict[str, Any]:
    """Send one of ``COMMANDS`` to the cluster of ``data_dir``, and return its answer.  Blocks until it is done.

    ``mode`` is that in which a broker starts (``migrating.Mode``); None: as before.

    ClusterNotRunningError when no cluster runs there, CommandError when it refuses.
    """
    cluster = read_cluster_file(data_dir)
    request = urllib.request.Request(
        f"{cluster.control}/command",
        data=json.dumps({"command": command, "broker": broker, "mode": mode}).encode(),
        headers={TOKEN_HEADER: cluster.token, "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=COMMAND_TIMEOUT_S) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        try:
            text = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            pass
        raise CommandError(text) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"the cluster in {data_dir} (process {cluster.pid}) does not answer: {error}") from error


class _Asked(msgspec.Struct, frozen=True):
    command: str
    broker: int | None = None
    mode: Mode | None = None


class ControlServer:
    """Serves ``POST /command`` on loopback; ``execute(command, broker, mode)`` does it, or raises CommandError."""

    def __init__(self, token: str, execute: Callable[[str, int | None, Mode | None], Awaitable[Any]]) -> None:
        self._token = token
        self._execute = execute
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> None:
        application = web.Application(client_max_size=65_536)
        application.router.add_post("/command", self._command)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.25)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, port).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _command(self, request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            return _answer(403, {"error": "wrong token: commands are for the owner of cluster.json"})
        try:
            asked = msgspec.json.decode(await request.read(), type=_Asked)
        except msgspec.MsgspecError as error:
            return _answer(
                400, {"error": f"command: found {error}, expected a command, perhaps with a broker id and a mode"}
            )
        try:
            return _answer(200, await self._execute(asked.command, asked.broker, asked.mode))
        except AioControllerError as error:
            return _answer(409, {"error": str(error)})


def _answer(status: int, value: Any) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
