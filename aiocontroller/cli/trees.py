"""The tree that a command judges: a snapshot's file (``--tree``), or what a cluster's ZooKeeper holds now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aiocontroller.cli.finding import cluster_options, connected, find_zookeeper
from aiocontroller.cli.output import reading_progress
from aiocontroller.core.errors import BadInputError

if TYPE_CHECKING:
    from aiocontroller.check.snapshot import Recorded

MAX_TREE_BYTES = 2_000_000_000

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def tree_options(function: F) -> F:
    """``--tree FILE``, and the options that name a cluster."""
    function = cluster_options(function)
    return click.option(
        "--tree",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file of 'aiocontroller check --save-tree' instead of a cluster.",
    )(function)


def refuse_two_sources(tree: Path | None, data: Path | None, zookeeper: str | None) -> None:
    """UsageError if a cluster is named beside a file."""
    if tree is not None and (data is not None or zookeeper is not None):
        raise click.UsageError("--tree is read instead of a cluster: leave --data and --zookeeper out")


def read_tree(path: Path) -> Recorded:
    """The snapshot in a file; BadInputError naming the file."""
    from aiocontroller.check.snapshot import parse_snapshot

    size = path.stat().st_size
    if size > MAX_TREE_BYTES:
        raise BadInputError(f"{path}: found {size:,} bytes, expected a tree of {MAX_TREE_BYTES:,} at most")
    return parse_snapshot(path.read_bytes(), str(path))


def result_of(work: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, which formats its result into an internal error: for a large tree that takes seconds."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work)

    asyncio.run(keep())
    return found[0]


async def read_any(tree: Path | None, data: Path | None, zookeeper: str | None) -> Recorded:
    """The file's tree, or that of the cluster, which is read without a write."""
    from aiocontroller.check.snapshot import Recorded, time_text
    from aiocontroller.zookeeper.cluster_tree import read_cluster_tree

    if tree is not None:
        return read_tree(tree)
    async with connected(find_zookeeper(data, zookeeper)) as zk:
        return Recorded(
            await read_cluster_tree(zk, reading_progress()), time_text(time.time_ns() // 1000), hashed=False
        )
