"""Lets other processes find the cluster that ``aiocontroller up`` runs in a folder.

``DIR/cluster.json`` has all addresses; the folder is locked as long as the cluster runs (``data_folder``).  The lock,
not the file, shows whether the cluster runs, so a killed cluster is noticed.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.data_folder import holder_of

CLUSTER_FILE = "cluster.json"


class ClusterNotRunningError(AioControllerError):
    """No cluster runs in the folder."""


class ClusterFile(msgspec.Struct, frozen=True):
    """Contents of ``cluster.json``.  ``bootstrap`` is ``host:port,…``; ``http`` and ``control`` are URLs."""

    pid: int
    zookeeper: str
    bootstrap: str
    http: str
    control: str
    token: str
    processes: dict[str, int]
    """Process id of each running child, by name: ``zookeeper``, ``controller``, ``broker-1``, …"""


def write_cluster_file(data_dir: Path, contents: ClusterFile) -> None:
    """Write the file atomically, readable by its owner only."""
    unfinished = data_dir / f"{CLUSTER_FILE}.tmp"
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(contents)) + b"\n")
    unfinished.replace(data_dir / CLUSTER_FILE)


def read_cluster_file(data_dir: Path) -> ClusterFile:
    """Read the file; ClusterNotRunningError if it is missing or a killed cluster left it, BadInputError if damaged."""
    path = data_dir / CLUSTER_FILE
    try:
        contents = msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except FileNotFoundError:
        raise ClusterNotRunningError(f"no cluster runs in {data_dir}: start one with scripts/up") from None
    except UNREADABLE_JSON as error:
        raise BadInputError(f"{path}: found {error}, expected the description of a running cluster") from None
    if holder_of(data_dir) != contents.pid:
        raise ClusterNotRunningError(
            f"no cluster runs in {data_dir}: {CLUSTER_FILE} is left over from process {contents.pid}, which is gone; "
            "start one with scripts/up"
        )
    return contents
