"""Compares journals with the specification: what controllers recorded of a partition must be a path of its states.

The journals of all controllers of a cluster are read together, since a partition's history goes from one to the next.
What ZooKeeper took but no journal recorded (the controller died before, or a leader of an old protocol wrote its ISR
itself) is a gap between versions, and has to be filled by steps of the specification.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from aiocontroller.journal.records import Record
from aiocontroller.lab.exploration.specification import NO_ID, Request, ZNode, alteration, elections, members

MOST_HIDDEN = 1
"""Steps in a gap that no journal recorded; of longer gaps only the epochs are compared."""
ANOTHER = -2
"""A broker that only a step knows that no journal recorded."""


class Stray(NamedTuple):
    """A record that no step of the specification leads to."""

    record: Record
    before: Record | None
    why: str

    def __str__(self) -> str:
        record = self.record
        subject = f"epoch {record.epoch}" if record.topic is None else f"{record.topic}-{record.partition}"
        return f"{subject}: {_shown(record)} after {_shown(self.before)}: {self.why}"


def _shown(record: Record | None) -> str:
    if record is None:
        return "nothing"
    state = f"leader {record.leader}, leader epoch {record.leader_epoch}, ISR {list(record.isr or ())}"
    return f"{state}, version {record.partition_epoch} ({record.kind} by controller {record.node}: {record.detail})"


def first_stray(journals: Iterable[Sequence[Record]], uncertain: Collection[str] = ()) -> Stray | None:
    """Return the first record that is no step of the specification, or None.

    Topics in ``uncertain`` are left out: they changed in ways that no journal tells.
    """
    latest: dict[tuple[str, int], Record] = {}
    winners: dict[int, int] = {}
    records = sorted(chain.from_iterable(journals), key=lambda record: (record.epoch, record.node, record.seq))
    for record in records:
        if record.kind == "elected":
            winner = winners.setdefault(record.epoch, record.node)
            if winner != record.node:
                return Stray(record, None, f"controller {winner} was elected for this epoch, too")
        elif record.topic in uncertain:
            continue
        elif record.kind in ("finding", "topic_deleted") and record.topic is not None:  # what comes now begins anew
            latest = {partition: last for partition, last in latest.items() if partition[0] != record.topic}
        elif record.kind in ("partition", "isr") and record.leader_epoch is not None:
            assert record.topic is not None
            assert record.partition is not None
            partition = record.topic, record.partition
            before = latest.get(partition)
            if before is not None and record.detail != "initialized":
                why = _why_not(before, record)
                if why:
                    return Stray(record, before, why)
            latest[partition] = record
    return None


def _why_not(before: Record, record: Record) -> str:
    names = [*sorted({*_brokers(before), *_brokers(record)}), ANOTHER]
    old, new = _znode(before, names), _znode(record, names)
    versions, epochs = new.version - old.version, new.epoch - old.epoch
    if versions < 0 or not 0 <= epochs <= versions:
        return "versions and leader epochs only grow, and an epoch only with a version"
    if versions > MOST_HIDDEN + 1:
        return ""
    unclean = str(record.detail).endswith(", unclean")
    everybody = (1 << len(names)) - 1
    reached = {old}
    for _ in range(versions):
        reached = {after for state in reached for after in _successors(state, everybody, unclean)}
    return "" if new in reached else "no step of the specification leads from the one to the other"


def _brokers(record: Record) -> Iterator[int]:
    yield from record.isr or ()
    yield from record.replicas or ()
    if record.leader is not None and record.leader >= 0:
        yield record.leader


def _znode(record: Record, names: list[int]) -> ZNode:
    leader = NO_ID if record.leader is None or record.leader < 0 else names.index(record.leader)
    isr = sum(1 << names.index(broker) for broker in record.isr or ())
    return ZNode(leader, record.leader_epoch or 0, isr, record.partition_epoch or 0)


def _successors(seen: ZNode, everybody: int, unclean: bool) -> Iterator[ZNode]:
    """All that a controller may write, whatever it believes of brokers and whatever the leader asks for."""
    for live in range(everybody + 1):
        for suspected in _subsets(live):
            yield from elections(seen, live, suspected)
        altered = alteration(seen, Request(seen.leader, seen.epoch, live, seen.version), everybody)
        if altered is not None and seen.leader >= 0 and live >> seen.leader & 1:
            yield altered
    # Beyond the exploration: the preferred leader is elected, or the epoch is raised for a reassignment.
    for leader in (seen.leader, *members(seen.isr)):
        yield ZNode(leader, seen.epoch + 1, seen.isr, seen.version + 1)
    for leader in members(everybody) if unclean else ():
        yield ZNode(leader, seen.epoch + 1, 1 << leader, seen.version + 1)


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
    yield 0
