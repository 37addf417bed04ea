"""Finds a command's cluster: ``--zookeeper``, ``--data``, or the one that runs in this directory or above."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.data_folder import DEFAULT_DATA

if TYPE_CHECKING:
    from aiocontroller.cli.run import ControllerReady
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
    from aiocontroller.zookeeper.session_events import SessionEvent

CONNECT_TIMEOUT_S = 5.0
RECONNECT_TIMEOUT_S = 10.0
"""How long a lost connection is waited for: the client repeats reads without end, but a command must end."""

F = TypeVar("F", bound=Callable[..., Any])


class ClusterNotFoundError(AioControllerError):
    """No cluster was named and none was found; the message lists the places searched."""


class ControllerNotFoundError(AioControllerError):
    """No running controller was found; the message lists the places searched."""


def cluster_options(function: F) -> F:
    """``--data DIR`` and ``--zookeeper HOST:PORT``."""
    function = click.option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="ZooKeeper of any cluster.")(function)
    return data_option(function)


def data_option(function: F) -> F:
    """Decorate a command with ``--data``, which it gets as a Path or None."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data folder of a running 'up' or 'run' (default: .aiocontroller here or above).",
    )(function)


def find_data(data: Path | None) -> Path:
    """The given folder, or the first one here or above in which a cluster runs; ClusterNotFoundError."""
    from aiocontroller.cluster_file import CLUSTER_FILE

    if data is not None:
        return data
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / DEFAULT_DATA / CLUSTER_FILE).is_file():
            return folder / DEFAULT_DATA
    raise ClusterNotFoundError(
        f"no running cluster: no {DEFAULT_DATA}/{CLUSTER_FILE} in {here} or above it; start one with "
        "'aiocontroller up', or name one by --data DIR or --zookeeper HOST:PORT"
    )


def find_zookeeper(data: Path | None, zookeeper: str | None) -> str:
    """The connect string, from whichever option was given; UsageError for both."""
    if zookeeper is not None:
        if data is not None:
            raise click.UsageError("--data and --zookeeper both name a cluster: give one of them")
        return zookeeper
    from aiocontroller.cli.run import READY_FILE
    from aiocontroller.cluster_file import CLUSTER_FILE, read_cluster_file

    if data is not None and not (data / CLUSTER_FILE).is_file() and (data / READY_FILE).is_file():
        return find_controller(data).zookeeper  # the folder of 'aiocontroller run'
    return read_cluster_file(find_data(data)).zookeeper


def find_controller(data: Path | None) -> ControllerReady:
    """The ready file of a folder's running controller; ControllerNotFoundError, or BadInputError for a damaged one."""
    import msgspec

    from aiocontroller.cli.run import READY_FILE, ControllerReady
    from aiocontroller.data_folder import holder_of

    here = Path.cwd()
    folders = [data] if data is not None else [each / DEFAULT_DATA for each in (here, *here.parents)]
    for path in (folder / part / READY_FILE for folder in folders for part in ("", "controller")):
        try:
            ready = msgspec.json.decode(path.read_bytes(), type=ControllerReady)
        except FileNotFoundError:
            continue
        except UNREADABLE_JSON as error:
            raise BadInputError(f"{path}: found {error}, expected the description of a running controller") from None
        if holder_of(path.parent) != ready.pid:
            raise ControllerNotFoundError(
                f"no controller runs in {path.parent}: {path.name} is left over from process {ready.pid}, which is gone"
            )
        return ready
    looked = data if data is not None else f"{DEFAULT_DATA} in {here} or above it"
    raise ControllerNotFoundError(
        f"no controller runs in {looked}: name its folder, 'aiocontroller run --data DIR', by --data DIR"
    )


@asynccontextmanager
async def connected(zookeeper: str, reconnect_s: float = RECONNECT_TIMEOUT_S) -> AsyncIterator[KafkaZkClient]:
    """A client for one command; AioControllerError when ZooKeeper does not answer in time, or stops answering.

    A lost connection is waited for ``reconnect_s``.

    Does not create the chroot: a missing one must be a mistake, and is a BadInputError.

    Credentials and TLS come from the environment, as for a controller (``AIOCONTROLLER_ZOOKEEPER_…``).
    """
    from aiocontroller.config import load_config
    from aiocontroller.net.real import real_world
    from aiocontroller.zookeeper.errors import Code
    from aiocontroller.zookeeper.from_aiozk import exc
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
    from aiocontroller.zookeeper.securing import zookeeper_client

    config, _ = load_config(None, os.environ, {"zookeeper.connect": zookeeper})
    client = zookeeper_client(config, real_world())
    limit: asyncio.Timeout | None = None
    try:
        await client.start(CONNECT_TIMEOUT_S, create_chroot=False)
        async with asyncio.timeout(None) as limit:
            client.on_session = partial(_set_limit, limit, reconnect_s)
            if (await client.exists_many(["/"])).code[0] == Code.NO_NODE:
                raise BadInputError(f"{zookeeper}: ZooKeeper has no such chroot")
            yield KafkaZkClient(client)
    except TimeoutError:
        if limit is None or not limit.expired():
            raise
        raise AioControllerError(f"ZooKeeper at {zookeeper} does not answer any more") from None
    except exc.ResponseError as error:
        if isinstance(error, AioControllerError):
            raise
        reason = "; ".join(getattr(error, "__notes__", ())) or f"ZooKeeper answered {type(error).__name__}"
        raise AioControllerError(f"{reason}; AIOCONTROLLER_ZOOKEEPER_… may name credentials") from None
    finally:
        await client.close()


def _set_limit(limit: asyncio.Timeout, reconnect_s: float, event: SessionEvent) -> None:
    lost = event.value == "suspended"
    limit.reschedule(asyncio.get_running_loop().time() + reconnect_s if lost else None)
