"""Reads a plan's moves from its audit file: where replicas were, and which settings throttles have replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.throttles import Entity, Settings

Assignment = dict[TopicPartition, tuple[int, ...]]
ENDED = ("moved", "reversed")
"""Results after which running the plan again is a new move."""


class History(msgspec.Struct):
    """The past of the plan's last move that has not ended, or of the one that a reversal takes back."""

    before: Assignment | None = None
    """Where the plan's replicas were; None if it has not begun."""
    absent: int = 0
    under_replicated: int = 0
    """How many of each there were when it began."""
    replaced: dict[Entity, Settings] | None = None
    """The settings that throttles have replaced; None without throttles."""
    rates: tuple[int, ...] = ()
    """The throttle rates that have been set since, in bytes a second."""


def history(records: Iterable[Mapping[str, Any]], digest: str, *, reverse: bool) -> History:
    """Return the history that the records tell; BadInputError if they are of another plan, or damaged."""
    found = History()
    for number, record in enumerate(records, 1):
        try:
            found = _after(found, record, digest, reverse=reverse)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInputError(f"audit record {number}: found {error!r}, expected one of this program") from None
    return found


def _after(found: History, record: Mapping[str, Any], digest: str, *, reverse: bool) -> History:
    what = record["what"]
    if what == "begin":
        if record["plan"] != digest:
            raise BadInputError("the audit file is of another plan: name another by --audit")
        before = {TopicPartition(t, p): tuple(replicas) for t, p, replicas in record["before"]}
        return History(before, record["absent"], record["under_replicated"], found.replaced, found.rates)
    if what == "throttle":
        replaced = {(kind, name): dict(settings) for kind, name, settings in record["replaced"]}
        return msgspec.structs.replace(found, replaced=replaced)
    if what == "rate":
        return msgspec.structs.replace(found, rates=(*found.rates, int(record["bytes_per_s"])))
    if what == "unthrottled":
        return msgspec.structs.replace(found, replaced=None, rates=())
    if what == "end" and record["result"] in ENDED and not reverse:
        return History(replaced=found.replaced, rates=found.rates)
    return found


def is_under_way(records: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the last move by the plan was interrupted, so that moves and throttles may be left in the cluster."""
    found = False
    for record in records:
        if record["what"] in ("begin", "move", "reverse"):
            found = True
        elif record["what"] == "end" and record.get("result") != "failed":
            found = False
    return found


def plain(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the assignment in the form of a record."""
    return [(tp.topic, tp.partition, replicas) for tp, replicas in assignment.items()]
