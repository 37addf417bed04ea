"""What LeaderAndIsr and UpdateMetadata share: many partitions of the table, each topic once, in one pass and one join.

Theory.  A partition on the wire is a *core* of six parts, the same in both requests: four numbers (index, controller
epoch, leader, leader epoch), the ISR, one number (partition epoch) and the replicas; and an *end* in which they differ
and which nearly all partitions of a request have in common.  The table interns ISRs and assignments, so both arrays are
encoded once per distinct value, and a core costs one call of a compiled ``struct`` form chosen by the two lengths.
Where an event tells many brokers of the same partitions, the cores are packed once and looked up for the others.

A broker takes a request as damaged in which a topic appears twice, and rows are reused, so the pids of a topic need
not stand together: they are first gathered by topic, then encoded, topics in order of first appearance and a topic's
partitions in the order given.

All is one pass: whoever sends very many partitions cuts them into requests first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, compress, count, islice
from operator import ne
from struct import Struct

from aiocontroller.core.columns import look_up, take
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.wire.primitives import COMPACT_INT32_ARRAY, LEGACY_INT32_ARRAY, NO_TAGS, array_length, string


class ControlRequestBody:
    """An encoded request that is the same for every broker but for eight bytes of broker epoch.

    ``head`` ends where the broker epoch begins.  Versions that carry none have an empty ``tail`` and give every broker
    the same bytes.
    """

    __slots__ = ("_head", "_tail")

    def __init__(self, head: bytes, tail: bytes | None) -> None:
        self._head = head
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + (0 if self._tail is None else 8 + len(self._tail))

    def pieces_for_broker(self, broker_epoch: int) -> tuple[bytes, ...]:
        """For ``writelines``: the long piece is shared by all brokers and not copied."""
        if self._tail is None:
            return (self._head,)
        return self._head + broker_epoch.to_bytes(8, "big", signed=True), self._tail

    def for_broker(self, broker_epoch: int) -> bytes:
        """The body in one piece (copied)."""
        return b"".join(self.pieces_for_broker(broker_epoch))


class EncodedValues:
    """Bytes of a table's interned ISRs and assignments, kept from request to request.

    Worth it where a change goes to many brokers: each LeaderAndIsr is another, but their partitions share few distinct
    values.  Interned values never change, so it is valid for as long as its table; it grows with the interners.
    """

    def __init__(self, table: PartitionTable) -> None:
        self.table = table
        self._isrs: dict[bool, dict[int, bytes]] = {}
        self._replicas: dict[bool, dict[int, bytes]] = {}
        self._moving: set[int] = set()
        self._looked_at = 0

    def isrs(self, *, flexible: bool) -> dict[int, bytes]:
        """The bytes by interned id."""
        return self._isrs.setdefault(flexible, {})

    def replicas(self, *, flexible: bool) -> dict[int, bytes]:
        """The bytes by the interned assignment's id."""
        return self._replicas.setdefault(flexible, {})

    def moving(self) -> set[int]:
        """The assignments (by id) that name adding or removing replicas."""
        values = self.table.assignments.values
        self._moving.update(at for at in range(self._looked_at, len(values)) if values[at].being_reassigned)
        self._looked_at = len(values)
        return self._moving


class Cores:
    """What many requests about the same partitions share, while the table stays as it is.

    ``wanted``: all pids that they are about, if that is known; then the first of them packs for all.
    """

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        self.wanted = wanted
        self._by_pid: dict[bool, dict[int, bytes]] = {}
        self._headers: dict[tuple[bool, bool], dict[int, bytes]] = {}
        self.recovering: dict[int, int] = {}
        """Recovery states of those that are not simply RECOVERED, by pid."""

    def of(self, *, flexible: bool) -> dict[int, bytes]:
        """The cores that were packed already, by pid."""
        return self._by_pid.setdefault(flexible, {})

    def headers(self, *, flexible: bool, with_topic_ids: bool) -> dict[int, bytes]:
        """Names and ids by topic number."""
        return self._headers.setdefault((flexible, with_topic_ids), {})


Pack = Callable[..., bytes]


class Forms(dict[tuple[int, int], Pack]):
    """Compiled forms of a core, by the bytes of its ISR and of its replicas.

    Each packs (index, controller epoch, leader, leader epoch, ISR, partition epoch, replicas).
    """

    def __missing__(self, lengths: tuple[int, int]) -> Pack:
        isr_bytes, replicas_bytes = lengths
        pack = self[lengths] = Struct(f">4i{isr_bytes}si{replicas_bytes}s").pack
        return pack


FORMS = Forms()
"""Shared: there are as many as there are pairs of replica counts."""

Run = tuple[int, int, int]
"""(topic number, where its partitions begin, where they end)."""


class TopicStatesEncoder:
    """Base of the two encoders.

    Subclasses say how partitions end (``_ends``) and put their own head and end around the states.  ``kept`` saves work
    when many requests are encoded from one table, ``cores`` where partitions go to many brokers.
    """

    def __init__(
        self,
        table: PartitionTable,
        pids: Sequence[int],
        *,
        flexible: bool,
        grouped: bool,
        with_topic_ids: bool,
        worth_telling: bool,
        kept: EncodedValues | None = None,
        cores: Cores | None = None,
    ) -> None:
        kept = EncodedValues(table) if kept is None else kept
        assert kept.table is table
        self._table = table
        self._flexible = flexible
        self._array = COMPACT_INT32_ARRAY if flexible else LEGACY_INT32_ARRAY
        self._grouped = grouped
        self._with_topic_ids = with_topic_ids
        self._worth_telling = worth_telling
        self._pids = pids
        self._kept = kept
        # Plain dicts, filled beforehand: a __missing__ costs a fifth.
        self._isrs = kept.isrs(flexible=flexible)
        self._replicas = kept.replicas(flexible=flexible)
        cores = Cores() if cores is None else cores
        self._cores = cores.of(flexible=flexible)
        self._wanted = cores.wanted
        self._recovering = cores.recovering
        self._headers = cores.headers(flexible=flexible, with_topic_ids=with_topic_ids)

    def _states(self) -> list[bytes]:
        """The array of topics (or of partitions, in the oldest versions), in pieces."""
        pids = self._table.worth_telling(self._pids) if self._worth_telling else self._pids
        if not pids:
            return [array_length(0, flexible=self._flexible)]
        pids, runs = self._by_topic(pids)
        cores = self._known_cores(pids)
        ends = self._ends(pids, runs, cores)
        if self._grouped:
            self._put_topic_headers(runs, cores)
        else:
            self._put_names(runs, cores)
        if isinstance(ends, bytes):
            cores.append(b"")
            states = ends.join(cores)
        else:
            states = b"".join(chain.from_iterable(zip(cores, ends, strict=True)))
        count = len(runs) if self._grouped else len(pids)
        end = NO_TAGS if self._grouped and self._flexible else b""
        return [array_length(count, flexible=self._flexible), states, end]

    def _by_topic(self, pids: Sequence[int]) -> tuple[Sequence[int], list[Run]]:
        """The pids so that each topic's stand together, and where."""
        [topics] = take(pids, self._table.topic_of)
        ends = [*compress(count(1), map(ne, topics, islice(topics, 1, None))), len(pids)]
        numbers = [topics[end - 1] for end in ends]
        starts = [0, *ends[:-1]]
        if len(set(numbers)) < len(numbers):  # rows were used again
            gathered: dict[int, list[int]] = {}
            for number, start, end in zip(numbers, starts, ends, strict=True):
                gathered.setdefault(number, []).extend(pids[start:end])
            pids = list(chain.from_iterable(gathered.values()))
            numbers, ends = list(gathered), list(accumulate(map(len, gathered.values())))
            starts = [0, *ends[:-1]]
        return pids, list(zip(numbers, starts, ends, strict=True))

    def _put_topic_headers(self, runs: list[Run], cores: list[bytes]) -> None:
        flexible, headers = self._flexible, self._headers
        end = b""
        lengths: dict[int, bytes] = {}
        for number, start, stop in runs:
            n = stop - start
            length = lengths.get(n)
            if length is None:
                length = lengths[n] = array_length(n, flexible=flexible)
            header = headers.get(number)
            if header is None:
                header = headers[number] = self._header(number)
            cores[start] = b"".join((end, header, length, cores[start]))
            if flexible:  # a topic's tagged fields come after its partitions, that is before the next topic's header
                end = NO_TAGS

    def _header(self, number: int) -> bytes:
        topic = self._topic(number)
        name = string(topic.name, flexible=self._flexible)
        return name + topic.id if self._with_topic_ids else name

    def _put_names(self, runs: list[Run], cores: list[bytes]) -> None:
        """The oldest versions have no topics, only partitions that carry their topic's name."""
        for number, start, stop in runs:
            name = self._header(number)
            cores[start:stop] = [name + core for core in cores[start:stop]]

    def _topic(self, number: int) -> Topic:
        topic = self._table.topics[number] if number >= 0 else None
        assert topic is not None, "a partition has no topic any more"
        return topic

    # -- partitions ------------------------------------------------------------------------------------------------

    def _known_cores(self, pids: Sequence[int]) -> list[bytes]:
        known = self._cores
        try:
            return look_up(pids, known)
        except KeyError:
            missing = self._wanted or pids
            if known:
                missing = [pid for pid in dict.fromkeys((*missing, *pids)) if pid not in known]
            packed = self._pack(missing)
            known.update(zip(missing, packed, strict=True))
            [states] = take(missing, self._table.recovery_state)
            if any(states):
                self._recovering.update((pid, state) for pid, state in zip(missing, states, strict=True) if state)
            return packed if missing == pids else self._known_cores(pids)

    def _ends(self, pids: Sequence[int], runs: list[Run], cores: list[bytes]) -> bytes | list[bytes]:
        """What follows each core, or all of them; ``runs`` say whose they are.  May replace cores."""
        raise NotImplementedError

    def _pack(self, pids: Sequence[int]) -> list[bytes]:
        """THE hot loop: one call of a compiled form for each partition."""
        table, isrs, replicas, forms = self._table, self._isrs, self._replicas, FORMS
        index, controller_epoch, leader, leader_epoch, isr_of, partition_epoch, assignment_of = take(
            pids,
            table.index_of,
            table.controller_epoch,
            table.leader,
            table.leader_epoch,
            table.isr_of,
            table.partition_epoch,
            table.assignment_of,
        )
        used_isrs, used_assignments = set(isr_of), set(assignment_of)
        if NO_ISR in used_isrs:
            assert self._worth_telling, "a partition without leadership cannot be led"
            isrs[NO_ISR] = self._array(())  # of a topic that is being deleted
        for number in used_isrs.difference(isrs):
            isrs[number] = self._array(table.isrs.values[number])
        for number in used_assignments.difference(replicas):
            replicas[number] = self._array(table.assignments.values[number].replicas)
        isr_lengths = {len(isrs[number]) for number in used_isrs}
        lengths = {(isr, len(replicas[number])) for number in used_assignments for isr in isr_lengths}
        rows = zip(index, controller_epoch, leader, leader_epoch, isr_of, partition_epoch, assignment_of, strict=True)
        if len(lengths) == 1:  # as in a healthy cluster with one replication factor
            pack = forms[lengths.pop()]
            return [pack(i, c, ld, le, isrs[isr], p, replicas[a]) for i, c, ld, le, isr, p, a in rows]
        return [
            forms[len(isr_bytes := isrs[isr]), len(others := replicas[a])](i, c, ld, le, isr_bytes, p, others)
            for i, c, ld, le, isr, p, a in rows
        ]
