"""``GET /partitions``: what is broken, by name; and one topic's partitions.

    /partitions?state=offline                  or under-replicated, or under-min-isr, in the order in which they broke
    /partitions?state=offline&topic=orders     of one topic
    /partitions?topic=orders                   all partitions of a topic, with what is broken about each
    …&start=200&limit=100                      the next ones

An answer has at most ``MOST`` rows, and a topic's partitions are looked at in slices, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import broken_view
from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.broken_view import BrokenPartition
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.partitions import Topic
from aiocontroller.server.cluster_view import in_charge

MOST = 250
LEAST_SHOWN = 100
FARTHEST = 200_000
"""The last row at which an answer may start: finding it is not free."""
SLICE = 10_000
"""Partitions that are looked at before other tasks may run: about a millisecond."""


class NotInChargeError(AioControllerError):
    """This process is not the active controller, or has not read the cluster yet, so it cannot say."""


class UnknownTopicError(AioControllerError):
    """There is no topic of this name."""


class Asked(NamedTuple):
    """The query."""

    kind: BrokenKind | None
    topic: str | None
    start: int
    limit: int


class PartitionOfTopic(msgspec.Struct, frozen=True):
    """A partition, and what is broken about it."""

    topic: str
    partition: int
    broken: Mapping[str, BrokenPartition]
    """By the name of the kind."""
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def parse(query: Mapping[str, str]) -> Asked:
    """Parse a query of the forms in the module's docstring; BadInputError for any other."""
    if unknown := [name for name in query if name not in ("state", "topic", "start", "limit")]:
        raise BadInputError(f"found {unknown[0]!r}, expected state, topic, start or limit")
    text = query.get("state")
    if text is not None and text not in list(BrokenKind):
        raise BadInputError(f"state: found {text!r}, expected {', '.join(BrokenKind)}")
    if text is None and "topic" not in query:
        raise BadInputError(f"found neither state nor topic, expected state={BrokenKind.OFFLINE}, or topic=NAME")
    return Asked(
        None if text is None else BrokenKind(text),
        query.get("topic"),
        _number(query, "start", 0, 0, FARTHEST),
        _number(query, "limit", LEAST_SHOWN, 1, MOST),
    )


def _number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise BadInputError(f"{name}: found {text!r}, expected a number from {least} to {most}")
    return int(text)


async def partitions(shell: ControllerShell, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer, as JSON values.  BadInputError, NotInChargeError, UnknownTopicError."""
    asked = parse(query)
    if not in_charge(shell):
        raise NotInChargeError(f"controller {shell.id} is not in charge of the cluster now: ask the one that is")
    shown = {"state": asked.kind, "topic": asked.topic, "start": asked.start}
    if asked.topic is not None:
        return {**shown, **await _of_topic(shell, asked, asked.topic)}
    assert asked.kind is not None
    context = shell.context
    found = broken_view.broken_partitions(context, asked.kind, asked.start, asked.limit)
    return {
        **shown,
        "count": len(context.table.broken.of_kind(asked.kind)),
        "complete": not context.table.broken.unread,
        "partitions": found,
    }


async def _of_topic(shell: ControllerShell, asked: Asked, name: str) -> dict[str, Any]:
    found: list[BrokenPartition | PartitionOfTopic] = []
    count = 0
    async for rows in _slices(shell, name):
        context = shell.context
        mine = list(rows if asked.kind is None else broken_view.among(context, asked.kind, rows))
        first = max(asked.start - count, 0)
        count += len(mine)
        for row in mine[first : first + asked.limit - len(found)]:
            if asked.kind is None:
                found.append(_described(shell, row))
            else:
                found.append(broken_view.broken_partition(context, asked.kind, row))
    return {"count": count, "complete": not shell.context.table.broken.unread, "partitions": found}


async def _slices(shell: ControllerShell, name: str) -> AsyncIterator[Sequence[int]]:
    """The topic's rows; the cluster may change between two slices, and what is gone by then is left out."""
    topic = _topic(shell, name)
    if topic is None:
        raise UnknownTopicError(f"found no topic {name!r}, expected one of the cluster")
    for start in range(0, len(topic.rows), SLICE):
        if start:
            await asyncio.sleep(0)
            if _topic(shell, name) is not topic:
                return
        yield [row for row in topic.rows[start : start + SLICE] if row >= 0]


def _topic(shell: ControllerShell, name: str) -> Topic | None:
    return shell.context.table.topic_by_name.get(name) if in_charge(shell) else None


def _described(shell: ControllerShell, row: int) -> PartitionOfTopic:
    context, table = shell.context, shell.context.table
    assignment = table.assignment(row)
    kinds = broken_view.kinds_of(context, row)
    return PartitionOfTopic(
        table.topic(row).name,
        table.index_of[row],
        {kind.value: broken_view.broken_partition(context, kind, row) for kind in kinds},
        table.leader[row],
        table.leader_epoch[row],
        assignment.replicas,
        table.isr(row),
        assignment.adding,
        assignment.removing,
    )
