"""What an operator's action would do, before it is done: elect preferred leaders of a topic, cancel a reassignment,
release the role.  Pure.

A dry run names the partitions that the action is then asked for, so that what was shown is what is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.election_requests import refusal
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.reassignment import Refused, check_target
from aiocontroller.core.request_content import ElectionType

MOST_PARTITIONS = 5_000
"""Of a topic; for a larger one there is the command."""
LINES_SHOWN = 30


class DryRun(NamedTuple):
    """``lines`` say what would change; ``partitions`` are those that it would change."""

    title: str
    lines: tuple[str, ...]
    partitions: tuple[TopicPartition, ...] = ()


def elect_preferred(context: ControllerContext, topic: str) -> DryRun:
    """BadInputError if there is no such topic, it is too large, or nothing would change."""
    known = context.table.topic_by_name.get(topic)
    if known is None:
        raise BadInputError(f"topic: found {topic[:250]!r}, expected one of the cluster")
    if known.deleting:
        raise BadInputError(f"topic: found {topic}, which is being deleted, expected one that stays")
    rows = list(known.partitions())
    if len(rows) > MOST_PARTITIONS:
        raise BadInputError(
            f"topic: found {topic} with {len(rows):,} partitions, expected {MOST_PARTITIONS:,} at most: "
            "use 'aiocontroller elect'"
        )
    needed = [row for row in rows if refusal(context, row, ElectionType.PREFERRED) is None]
    found, table = elect(context, needed, Strategy.PREFERRED), context.table
    if not found.rows:
        why = "the preferred replica is not live and in sync" if needed else "the preferred replica leads already"
        raise BadInputError(f"no leader of {topic} would change: {why}")
    moves = zip(found.rows, found.outcomes, strict=True)
    lines = [f"{table.topic_partition(row)}: leader {table.leader[row]} → {outcome.leader}" for row, outcome in moves]
    stay = [f"{table.topic_partition(row)}: stays with leader {table.leader[row]}" for row in found.failed]
    return DryRun(
        f"Elect the preferred leaders of {topic}",
        _bounded([*lines, *stay]),
        tuple(table.topic_partition(row) for row in found.rows),
    )


def cancel_reassignment(context: ControllerContext, topic: str, partition: int) -> DryRun:
    """BadInputError if the partition is not being reassigned, or going back would lose data."""
    at = TopicPartition(topic, partition)
    row = context.table.row(topic, partition)
    back = check_target(context, row, None)
    if isinstance(back, Refused):
        raise BadInputError(f"{topic[:250]}-{partition}: {back.message}")
    now = context.table.assignment(row)
    lines = [f"{at}: goes back to replicas {_ids(now.origin)}"]
    if now.adding:
        lines.append(f"what has been copied to {_ids(now.adding)} is deleted")
    return DryRun(f"Cancel the reassignment of {at}", tuple(lines), (at,))


def release_role(context: ControllerContext, controller: int) -> DryRun:
    """What the release of the role by this controller means."""
    own = context.table.replicas_of.get(controller, 0)
    lines = [
        f"controller {controller} gives the role back after epoch {context.epoch}, to whichever broker registers first",
        "standbys of this program leave this vacancy to the brokers",
        "this process goes on, and takes the role again only when 'aiocontroller takeover' asks for it",
    ]
    if own:
        lines.append(f"{own:,} replicas that name controller {controller} are moved to brokers before")
    return DryRun(f"Release the role of controller {controller}", tuple(lines))


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _bounded(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - LINES_SHOWN
    return (*lines[:LINES_SHOWN], *([f"… and {more:,} more"] if more > 0 else []))
