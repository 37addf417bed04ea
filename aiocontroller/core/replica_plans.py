"""Plans moves of replicas: to drain a broker, to use a new one, to spread over racks or brokers, to add replicas.

Rules.
 * The same cluster gives the same plan, and no replica moves without need.  A drained broker's replicas move once each
   and no other does; ``raise_replication_factor`` and ``repair_racks`` change exactly what is missing; without racks
   ``balance_replicas`` moves the fewest replicas that even out the counts.
 * A plan keeps every replication factor, names no broker twice for a partition, and only live brokers as new replicas.
 * A partition's replicas are in no fewer racks than before, unless the available brokers leave no choice.
 * A new replica takes the place of the one that it replaces, so the reverse of a plan is a plan; a preferred leader is
   replaced by the broker that is preferred least.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]
"""Partition -> replicas, preferred leader first; a plan names only the partitions that change."""


class Layout(NamedTuple):
    """The input of a plan."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    """The replicas of the partitions that may change."""
    racks: Mapping[int, str | None]
    """Every live broker -> its rack."""
    sizes: Mapping[TopicPartition, int] = {}
    """Bytes of one replica; a partition without an entry counts as empty."""
    fixed: Mapping[TopicPartition, tuple[int, ...]] = {}
    """The replicas of partitions that may not change, but count as load."""
    other_replicas: Mapping[int, int] = {}
    """Broker -> how many replicas it has of further partitions, which are too many to list."""


class _Draft:
    """A plan in the making: the replicas, and the load of each broker."""

    def __init__(self, layout: Layout, targets: Iterable[int]) -> None:
        self.layout = layout
        self.replicas = {tp: list(layout.replicas[tp]) for tp in sorted(layout.replicas)}
        self.targets = sorted(targets)
        self.count: Counter[int] = Counter(layout.other_replicas)
        self.preferred: Counter[int] = Counter()
        self.size: Counter[int] = Counter()
        self.of_topic: Counter[tuple[int, str]] = Counter()
        for tp, replicas in (*self.replicas.items(), *layout.fixed.items()):
            for place, broker in enumerate(replicas):
                self._add(tp, broker, place, 1)

    def plan(self) -> Assignment:
        """The partitions that have changed."""
        before = self.layout.replicas
        return {tp: tuple(now) for tp, now in self.replicas.items() if tuple(now) != before[tp]}

    def spread(self, brokers: Iterable[int]) -> int:
        """The number of racks of these brokers; dead brokers count for none, all brokers without a rack for one."""
        racks = self.layout.racks
        return len({racks[broker] for broker in brokers if broker in racks})

    def best(self, tp: TopicPartition, others: Sequence[int], *, leads: bool) -> int:
        """The best target for one more replica beside ``others``; BadInputError if each target has one already."""
        taken = set(others)
        racks = self.layout.racks
        used = {racks[broker] for broker in others if broker in racks}
        found = [broker for broker in self.targets if broker not in taken]
        if not found:
            raise BadInputError(
                f"{tp}: found {len(others) + 1} replicas for {len(self.targets)} brokers, expected a broker for each"
            )
        return min(
            found,
            key=lambda broker: (
                racks[broker] in used,
                self.preferred[broker] if leads else 0,
                self.count[broker],
                self.of_topic[broker, tp.topic],
                self.size[broker],
                broker,
            ),
        )

    def replace(self, tp: TopicPartition, place: int, broker: int) -> None:
        replicas = self.replicas[tp]
        was, replicas[place] = replicas[place], broker
        self._add(tp, was, place, -1)
        self._add(tp, broker, place, 1)

    def append(self, tp: TopicPartition, broker: int) -> None:
        replicas = self.replicas[tp]
        replicas.append(broker)
        self._add(tp, broker, len(replicas) - 1, 1)

    def prefer(self, tp: TopicPartition, broker: int) -> None:
        """Swap the broker with the preferred leader."""
        replicas = self.replicas[tp]
        self.preferred[replicas[0]] -= 1
        self.preferred[broker] += 1
        place = replicas.index(broker)
        replicas[0], replicas[place] = replicas[place], replicas[0]

    def movable_place(self, tp: TopicPartition, source: int, target: int) -> int | None:
        """The place of the replica that may move to ``target``; None if the target has one, or a rack would be lost."""
        replicas = self.replicas[tp]
        if target in replicas or source not in replicas:
            return None
        place = replicas.index(source)
        others = replicas[:place] + replicas[place + 1 :]
        return place if self.spread([*others, target]) >= self.spread(replicas) else None

    def ordered_by(self, load: Counter[int], brokers: Iterable[int], *, descending: bool = False) -> list[int]:
        """The brokers sorted by their load, then by id."""
        return sorted(brokers, key=lambda broker: (-load[broker] if descending else load[broker], broker))

    def _add(self, tp: TopicPartition, broker: int, place: int, sign: int) -> None:
        self.count[broker] += sign
        self.size[broker] += sign * self.layout.sizes.get(tp, 0)
        self.of_topic[broker, tp.topic] += sign
        if place == 0:
            self.preferred[broker] += sign


# -- the plans ---------------------------------------------------------------------------------------------------------


def drain(layout: Layout, brokers: Collection[int]) -> Assignment:
    """Move every replica off these brokers, which may be dead.

    Raises BadInputError, naming the first partition that has more replicas than there are other brokers.
    """
    leaving = set(brokers)
    draft = _Draft(layout, (broker for broker in layout.racks if broker not in leaving))
    for tp, replicas in draft.replicas.items():
        for place, broker in enumerate(replicas):
            if broker in leaving:
                others = [other for other in replicas if other not in leaving]
                draft.replace(tp, place, draft.best(tp, others, leads=place == 0))
    return draft.plan()


def raise_replication_factor(layout: Layout, factor: int) -> Assignment:
    """Add replicas to every partition that has fewer than ``factor``; BadInputError if there are fewer brokers."""
    if factor > len(layout.racks):
        raise BadInputError(f"replication factor: found {factor} for {len(layout.racks)} live brokers")
    draft = _Draft(layout, layout.racks)
    for tp, replicas in draft.replicas.items():
        while len(replicas) < factor:
            draft.append(tp, draft.best(tp, replicas, leads=False))
    return draft.plan()


def repair_racks(layout: Layout) -> Assignment:
    """Move replicas that share a rack while another rack has none, one for each rack that a partition misses.

    Raises BadInputError if a live broker has no rack.
    """
    without = sorted(broker for broker, rack in layout.racks.items() if rack is None)
    if without:
        raise BadInputError(f"racks: found none for brokers {without}, expected one for each broker")
    racks, draft = layout.racks, _Draft(layout, layout.racks)
    number = len(set(racks.values()))
    for tp, replicas in draft.replicas.items():
        while draft.spread(replicas) < min(len(replicas), number):
            in_rack = Counter(racks.get(broker) for broker in replicas)
            # A replica of a dead broker is in no rack: moving it is as good.
            place = min(
                (at for at, b in enumerate(replicas) if b not in racks or in_rack[racks[b]] > 1),
                key=lambda at: (at == 0, -draft.count[replicas[at]], at),
            )
            others = replicas[:place] + replicas[place + 1 :]
            draft.replace(tp, place, draft.best(tp, others, leads=place == 0))
    return draft.plan()


def balance_replicas(layout: Layout, onto: Collection[int] | None = None) -> Assignment:
    """Even out the number of replicas of live brokers; ``onto``: move only to these brokers, such as new ones."""
    draft = _Draft(layout, layout.racks)
    targets = draft.targets if onto is None else sorted(onto)
    candidates = _Candidates(draft, lambda tp: layout.sizes.get(tp, 0))

    def move() -> _Move | None:
        for source in draft.ordered_by(draft.count, draft.targets, descending=True):
            for target in draft.ordered_by(draft.count, targets):
                if draft.count[source] - draft.count[target] < 2:
                    break
                leads = draft.preferred[source] > draft.preferred[target] + 1
                found = candidates.next(source, target, (leads, not leads), lambda tp: True)
                if found is not None:
                    return found
        return None

    _repeat(draft, move, candidates)
    return draft.plan()


def balance_bytes(layout: Layout, within_percent: int = 10) -> Assignment:
    """Move replicas from the brokers with most bytes to those with least, until they differ by at most this
    share of the mean.

    Each move brings the two brokers closer; the largest replica that does so goes first.
    """
    draft, sizes = _Draft(layout, layout.racks), layout.sizes
    allowed = sum(draft.size[broker] for broker in draft.targets) / max(1, len(draft.targets)) * within_percent / 100
    candidates = _Candidates(draft, lambda tp: -sizes.get(tp, 0))

    def move() -> _Move | None:
        for source in draft.ordered_by(draft.size, draft.targets, descending=True):
            for target in draft.ordered_by(draft.size, draft.targets):
                excess = draft.size[source] - draft.size[target]
                if excess <= allowed:
                    break
                fits = partial(_fits, sizes, excess)
                found = candidates.next(source, target, (False, True), fits)
                if found is not None:
                    return found
        return None

    _repeat(draft, move, candidates)
    return draft.plan()


def _fits(sizes: Mapping[TopicPartition, int], excess: int, tp: TopicPartition) -> bool:
    return 0 < 2 * sizes.get(tp, 0) <= excess


_Move = tuple[TopicPartition, int, int]
"""A partition, the place of a replica, and the broker that gets it."""


class _Candidates:
    """For each pair of brokers, the partitions that may move from one to the other, in the order of a key.

    The candidates are searched once and then only checked, since a search for each move would take minutes on large
    clusters.  A pair without a candidate is skipped until nothing else moves.
    """

    def __init__(self, draft: _Draft, key: Callable[[TopicPartition], int]) -> None:
        self._draft, self._key = draft, key
        self._on: dict[int, list[tuple[int, TopicPartition]]] = {}
        for tp, replicas in draft.replicas.items():
            for broker in replicas:
                self._on.setdefault(broker, []).append((key(tp), tp))
        for own in self._on.values():
            own.sort()
        self._queues: dict[tuple[int, int], dict[bool, deque[TopicPartition]]] = {}
        """(source, target) -> whether the source is preferred -> candidates."""
        self._without: set[tuple[int, int]] = set()  # membership only

    def next(
        self, source: int, target: int, order: Sequence[bool], wanted: Callable[[TopicPartition], bool]
    ) -> _Move | None:
        """The first candidate that is wanted now; ``order``: whether partitions that prefer the source come first."""
        pair = (source, target)
        if pair in self._without:
            return None
        for fresh in (False, True):
            if fresh or pair not in self._queues:
                self._queues[pair] = self._found(source, target, wanted)
            for leads in order:
                queue = self._queues[pair][leads]
                while queue:
                    tp = queue.popleft()
                    place = self._draft.movable_place(tp, source, target) if wanted(tp) else None
                    if place is not None and (place == 0) is leads:
                        return tp, place, target
        self._without.add(pair)
        return None

    def moved(self, tp: TopicPartition, source: int, target: int) -> None:
        entry = (self._key(tp), tp)
        del self._on[source][bisect_left(self._on[source], entry)]
        insort(self._on.setdefault(target, []), entry)

    def search_again(self) -> bool:
        """Make all pairs searchable again; returns whether any was skipped."""
        skipped = bool(self._without)
        self._without.clear()
        self._queues.clear()
        return skipped

    def _found(
        self, source: int, target: int, wanted: Callable[[TopicPartition], bool]
    ) -> dict[bool, deque[TopicPartition]]:
        queues: dict[bool, deque[TopicPartition]] = {True: deque(), False: deque()}
        for _, tp in self._on.get(source, ()):
            place = self._draft.movable_place(tp, source, target) if wanted(tp) else None
            if place is not None:
                queues[place == 0].append(tp)
        return queues


def _repeat(draft: _Draft, move: Callable[[], _Move | None], candidates: _Candidates) -> None:
    while True:
        moved_any = False
        while (found := move()) is not None:
            tp, place, target = found
            candidates.moved(tp, draft.replicas[tp][place], target)
            draft.replace(tp, place, target)
            moved_any = True
        if not moved_any or not candidates.search_again():
            return


def balance_leaders(layout: Layout) -> Assignment:
    """Reorder replica lists so that preferred leaders are spread as evenly as possible; moves no data.

    A broker's surplus moves to a broker with at least two fewer, along the shortest chain of brokers in which
    neighbours share a partition (the cost-reducing paths of Harvey, Ladner, Lovász and Tamir, *Semi-matchings for
    bipartite graphs*, 2006).
    """
    draft = _Draft(layout, layout.racks)
    swaps: _Swaps = {}
    for tp in draft.replicas:
        _record_swaps(draft, swaps, tp)
    settled: set[int] = set()  # membership only
    while len(settled) < len(draft.targets):
        start = max((b for b in draft.targets if b not in settled), key=lambda b: (draft.preferred[b], -b))
        chain = _improving_chain(draft, swaps, start)
        if not chain:
            settled.add(start)
            continue
        settled.clear()
        for tp, broker in chain:
            _record_swaps(draft, swaps, tp, there=False)
            draft.prefer(tp, broker)
            _record_swaps(draft, swaps, tp)
    return draft.plan()


_Swaps = dict[int, dict[int, dict[TopicPartition, None]]]
"""Broker -> another, live broker -> partitions that prefer the first and could prefer the second."""


def _record_swaps(draft: _Draft, swaps: _Swaps, tp: TopicPartition, *, there: bool = True) -> None:
    preferred, *others = draft.replicas[tp]
    for other in others:
        if other in draft.layout.racks and there:
            swaps.setdefault(preferred, {}).setdefault(other, {})[tp] = None
        elif other in draft.layout.racks:
            del swaps[preferred][other][tp]


def _improving_chain(draft: _Draft, swaps: _Swaps, start: int) -> list[tuple[TopicPartition, int]]:
    """Swaps, (partition, broker to prefer), on the shortest chain from ``start`` to a broker with two fewer."""
    came_from: dict[int, int | None] = {start: None}
    ahead = deque([start])
    while ahead:
        broker = ahead.popleft()
        if draft.preferred[broker] <= draft.preferred[start] - 2:
            chain: list[tuple[TopicPartition, int]] = []
            while (before := came_from[broker]) is not None:
                chain.append((next(iter(swaps[before][broker])), broker))
                broker = before
            return chain
        for other, partitions in swaps.get(broker, {}).items():
            if partitions and other not in came_from:
                came_from[other] = broker
                ahead.append(other)
    return []


# -- what a plan costs -------------------------------------------------------------------------------------------------


class BrokerLoad(NamedTuple):
    """One broker's load (before, after); ``bytes`` as far as sizes are known."""

    broker: int
    rack: str | None
    leaders: tuple[int, int]
    """Partitions that prefer it."""
    replicas: tuple[int, int]
    bytes: tuple[int, int]
    receives: int
    """Bytes to copy to it."""


class Cost(NamedTuple):
    """The cost of carrying out a plan."""

    partitions: int
    replicas: int
    """Replicas that have to be copied."""
    bytes: int
    unsized: int
    """Replicas to copy whose size is not known."""
    preferred: int
    """Partitions whose preferred leader changes."""
    narrower: int
    """Partitions in fewer racks than before."""
    brokers: tuple[BrokerLoad, ...]


def cost(layout: Layout, plan: Mapping[TopicPartition, Sequence[int]]) -> Cost:
    """The cost of a plan; partitions that the layout lacks cost nothing."""
    before: Assignment = {**layout.fixed, **layout.replicas}
    changed = {tp: tuple(plan[tp]) for tp in sorted(plan) if tp in before and tuple(plan[tp]) != before[tp]}
    was, becomes = _loads(layout, before), _loads(layout, {**before, **changed})
    new = [(tp, broker) for tp, after in changed.items() for broker in after if broker not in before[tp]]
    receives: Counter[int] = Counter()
    for tp, broker in new:
        receives[broker] += layout.sizes.get(tp, 0)
    draft = _Draft(layout, ())
    return Cost(
        partitions=len(changed),
        replicas=len(new),
        bytes=sum(receives.values()),
        unsized=sum(tp not in layout.sizes for tp, _ in new),
        preferred=sum(after[:1] != before[tp][:1] for tp, after in changed.items()),
        narrower=sum(draft.spread(after) < draft.spread(before[tp]) for tp, after in changed.items()),
        brokers=tuple(
            BrokerLoad(
                broker,
                layout.racks.get(broker),
                (was[0][broker], becomes[0][broker]),
                (was[1][broker], becomes[1][broker]),
                (was[2][broker], becomes[2][broker]),
                receives[broker],
            )
            for broker in sorted({*layout.racks, *was[1], *becomes[1]})
        ),
    )


def _loads(layout: Layout, assignment: Assignment) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Preferred leaderships, replicas and bytes by broker."""
    preferred, count, size = Counter[int](), Counter[int](), Counter[int]()
    for tp, replicas in assignment.items():
        preferred.update(replicas[:1])
        count.update(replicas)
        for broker in replicas:
            size[broker] += layout.sizes.get(tp, 0)
    return preferred, count, size
