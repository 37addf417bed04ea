"""Compares journals with the specification: a partition's records must form a path of the specification's states.

The journals of all controllers of a cluster are read together, since a partition's history continues from one to the
next.  A step must not need a broker that the controller knew to be dead.  A write that no journal recorded (the
controller died before, or a leader with an old protocol wrote its ISR itself) is a gap between versions; steps of the
specification must be able to fill it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from aiocontroller.core import sick_brokers
from aiocontroller.core.election import Strategy
from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.history import ZNodeHistory
from aiocontroller.lab.exploration.specification import NO_ID, Request, ZNode, alteration, elections, members

MOST_HIDDEN = 1
"""The longest gap that is filled with steps; for longer ones only versions and epochs are compared."""
TAKES_OUT = (Strategy.CONTROLLED_SHUTDOWN.value, sick_brokers.REASON)
"""Reasons of changes that take the brokers concerned out of an ISR and leave all others in it, dead ones too."""
ANOTHER = -2
"""Stands for a broker that appears only in steps that no journal recorded."""


class Believed:
    """The brokers that a controller may believe to be registered, according to its own records of a term."""

    def __init__(self) -> None:
        self._live: set[int] | None = None
        """None: unknown, since records are missing or the cluster is not loaded yet.  Membership only."""
        self._ending: set[int] = set()
        """Brokers that died by the event being handled, whose elections may still choose them.  Membership only."""
        self._last: tuple[int, int, int] | None = None

    def see(self, record: Record) -> None:
        if self._last != (record.epoch, record.node, record.seq - 1):
            self._live, self._ending = None, set()
        self._last = record.epoch, record.node, record.seq
        if record.kind == "loaded":
            self._live, self._ending = set(record.brokers or ()), set()
        elif record.kind == "event":
            self._ending = set()
        elif record.kind == "broker" and self._live is not None and record.broker is not None:
            if record.detail in ("added", "bounced"):
                self._live.add(record.broker)
            elif record.detail == "dead":
                self._live.discard(record.broker)
                self._ending.add(record.broker)

    def may_live(self, broker: int) -> bool:
        return self._live is None or broker in self._live or broker in self._ending


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

    Topics in ``uncertain`` are left out: they changed in ways that no journal records.
    """
    latest: dict[tuple[str, int], Record] = {}
    winners: dict[int, int] = {}
    believed = Believed()
    records = sorted(chain.from_iterable(journals), key=lambda record: (record.epoch, record.node, record.seq))
    for record in records:
        believed.see(record)
        if record.kind == "elected":
            winner = winners.setdefault(record.epoch, record.node)
            if winner != record.node:
                return Stray(record, None, f"controller {winner} was elected for this epoch, too")
        elif record.topic in uncertain:
            continue
        elif record.kind in ("finding", "topic_deleted") and record.topic is not None:  # its records start again
            latest = {partition: last for partition, last in latest.items() if partition[0] != record.topic}
        elif record.kind in ("partition", "isr") and record.leader_epoch is not None:
            assert record.topic is not None
            assert record.partition is not None
            partition = record.topic, record.partition
            before = latest.get(partition)
            if record.detail == "initialized":
                if record.leader is not None and record.leader >= 0 and not believed.may_live(record.leader):
                    return Stray(record, None, "the controller knew that this leader was dead")
            elif before is not None:
                why = _why_not(before, record, believed)
                if why:
                    return Stray(record, before, why)
            latest[partition] = record
    return None


def unrecorded(journals: Iterable[Iterable[Record]], history: ZNodeHistory) -> set[str]:
    """Return the topics that changed in ways that no journal records; membership only.

    A foreign client wrote to them, or a controller died after it deleted them and before it recorded that.
    """
    deleted = Counter(record.topic for record in chain.from_iterable(journals) if record.kind == "topic_deleted")
    missing = {topic for topic, times in history.deleted_in.items() if len(times) > deleted[topic]}
    return missing.union(history.written_by_hand)


def _why_not(before: Record, record: Record, believed: Believed) -> str:
    names = [*sorted({*_brokers(before), *_brokers(record)}), ANOTHER]
    old, new = _znode(before, names), _znode(record, names)
    versions, epochs = new.version - old.version, new.epoch - old.epoch
    if versions < 0 or not 0 <= epochs <= versions:
        return "versions and leader epochs only grow, and an epoch only with a version"
    if versions > MOST_HIDDEN + 1:
        return ""
    was_read = record.controller_epoch != record.epoch  # an earlier controller ended before it recorded its write
    from_outside = was_read or str(record.detail).endswith((", unclean", ", eligible", ", complete"))
    others_stay = str(record.detail).startswith(TAKES_OUT)
    everybody = (1 << len(names)) - 1
    alive = everybody
    # Otherwise it may have been read, or the leader asked for it: version 0 of AlterPartition may add a dead broker.
    # Members are removed one by one, so a dead one may be there when another is removed, and be the last to stay.
    elects = new.leader != NO_ID and (new.leader != old.leader or new.isr & ~old.isr)
    if record.controller_epoch == record.epoch and epochs and elects:
        alive = sum(1 << i for i, broker in enumerate(names) if broker == ANOTHER or believed.may_live(broker))
    reached = {old}
    for left in reversed(range(versions)):  # earlier steps are in no journal: any controller may have taken them
        may_live = everybody if left else alive
        reached = {after for s in reached for after in _successors(s, may_live, from_outside or left > 0, others_stay)}
    if new in reached:
        return ""
    dead = [broker for i, broker in enumerate(names) if not alive >> i & 1]
    knew = f", while the controller knew that {dead} were dead" if dead else ""
    return f"no step of the specification leads from the one to the other{knew}"


def _brokers(record: Record) -> Iterator[int]:
    yield from record.isr or ()
    yield from record.replicas or ()
    if record.leader is not None and record.leader >= 0:
        yield record.leader


def _znode(record: Record, names: list[int]) -> ZNode:
    leader = NO_ID if record.leader is None or record.leader < 0 else names.index(record.leader)
    isr = sum(1 << names.index(broker) for broker in record.isr or ())
    return ZNode(leader, record.leader_epoch or 0, isr, record.partition_epoch or 0)


def _successors(seen: ZNode, alive: int, from_outside: bool, others_stay: bool) -> Iterator[ZNode]:
    """Yield every state that a controller may write, for all sets of brokers that it trusts and all leader requests."""
    for live in _subsets(alive):
        for suspected in _subsets(live):
            yield from elections(seen, live, suspected)
        altered = alteration(seen, Request(seen.leader, seen.epoch, live, seen.version), alive)
        if altered is not None and seen.leader >= 0 and live >> seen.leader & 1:
            yield altered
    # Steps that the exploration lacks: the preferred leader is elected, or a reassignment raises the epoch; or brokers
    # that stop or are sick leave the ISR, but not a dead one that the leader has just added.
    for leader in (seen.leader, *members(seen.isr & alive)):
        yield ZNode(leader, seen.epoch + 1, seen.isr, seen.version + 1)
    for isr in _subsets(seen.isr) if others_stay else ():
        for leader in members(isr & alive):
            yield ZNode(leader, seen.epoch + 1, isr, seen.version + 1)
    for leader in members(alive) if from_outside else ():
        yield ZNode(leader, seen.epoch + 1, 1 << leader, seen.version + 1)


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
    yield 0
