"""What LeaderAndIsr and UpdateMetadata share: many partitions of the table, each topic once, in one pass and one join.

Theory.  A partition on the wire is a *core* of six parts, the same in both requests: four numbers (index, controller
epoch, leader, leader epoch), the ISR, one number (partition epoch) and the replicas; and an *end* in which they differ
and which nearly all partitions of a request have in common.  The table interns ISRs and assignments, so both arrays are
encoded once per distinct value, and a core costs one call of a compiled ``struct`` form chosen by the two lengths.
Where an event tells many brokers of the same partitions, the cores are packed once and looked up for the others.

A broker takes a request as damaged in which a topic appears twice, and rows are reused, so the pids of a topic need
not stand together: they are first gathered by topic, then encoded, topics in order of first appearance and a topic's
partitions in the order given.

Both passes are cut into steps, so that two million partitions do not hold the event loop.  Between the steps nobody may
change the table; who owns it (the controller's consumer) waits for the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress, count
from operator import ne
from struct import Struct

from aiocontroller.core.columns import look_up, take
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.wire.primitives import COMPACT_INT32_ARRAY, LEGACY_INT32_ARRAY, NO_TAGS, array_length, string

STEP_PARTITIONS = 20_000
"""About 10 ms of work."""


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
    """What many requests about the same partitions share, while the table stays as it is."""

    def __init__(self) -> None:
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

Piece = tuple[int, list[int], int]
"""(topic number, pids of it, partitions of the whole topic; 0 where an earlier piece said so)."""


class TopicStatesEncoder:
    """Base of the two encoders: feed by ``step``, then take ``_states``.

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
        skip_without_leadership: bool,
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
        self._skip = skip_without_leadership
        self._pids = pids
        self._gathered = 0
        self._by_topic: dict[int, list[int]] = {}
        self._pieces: Iterator[Piece] | None = None
        self._parts: list[bytes] = []
        self._done = False
        self._kept = kept
        # Plain dicts, filled beforehand: a __missing__ costs a fifth.
        self._isrs = kept.isrs(flexible=flexible)
        self._replicas = kept.replicas(flexible=flexible)
        cores = Cores() if cores is None else cores
        self._cores = cores.of(flexible=flexible)
        self._recovering = cores.recovering
        self._headers = cores.headers(flexible=flexible, with_topic_ids=with_topic_ids)

    # -- the passes ------------------------------------------------------------------------------------------------

    def step(self, partitions: int = STEP_PARTITIONS) -> bool:
        """Work on about this many partitions; whether there is more to do."""
        if self._gathered < len(self._pids):
            self._gather(partitions)
        elif not self._done:
            if self._pieces is None:
                self._pieces = self._in_pieces(partitions)
            self._encode(partitions)
        return not self._done

    def _finish(self) -> None:
        while self.step():
            pass

    def _gather(self, limit: int) -> None:
        start = self._gathered
        pids = self._pids[start : start + limit]
        self._gathered = start + len(pids)
        if self._skip:
            pids = self._table.with_leadership(pids)
            if not pids:
                return
        [topics] = take(pids, self._table.topic_of)
        by_topic, first = self._by_topic, 0
        ends = list(compress(count(1), map(ne, topics, topics[1:])))
        ends.append(len(pids))
        for end in ends:
            known = by_topic.get(topics[first])
            if known is None:
                by_topic[topics[first]] = list(pids[first:end])
            else:
                known += pids[first:end]
            first = end

    def _in_pieces(self, limit: int) -> Iterator[Piece]:
        """None longer than the limit."""
        for topic, pids in self._by_topic.items():
            assert topic >= 0, f"partition {pids[0]} has no topic any more"
            n = len(pids)
            if n <= limit:
                yield topic, pids, n
            else:
                for start in range(0, n, limit):
                    yield topic, pids[start : start + limit], 0 if start else n

    def _encode(self, limit: int) -> None:
        assert self._pieces is not None
        pieces, taken = [], 0
        for piece in self._pieces:
            pieces.append(piece)
            taken += len(piece[1])
            if taken >= limit:
                break
        else:
            self._done = True
        if not pieces:
            return
        pids = list(chain.from_iterable([pids for _, pids, _ in pieces]))
        cores = self._known_cores(pids)
        ends = self._ends(pids, pieces, cores)
        if self._grouped:
            self._put_topic_headers(pieces, cores)
        else:
            self._put_names(pieces, cores)
        if isinstance(ends, bytes):
            cores.append(b"")
            self._parts.append(ends.join(cores))
        else:
            self._parts.append(b"".join(chain.from_iterable(zip(cores, ends, strict=True))))

    def _put_topic_headers(self, pieces: list[Piece], cores: list[bytes]) -> None:
        flexible, headers, at = self._flexible, self._headers, 0
        # A topic's tagged fields come after its partitions, that is before the next topic's header.
        end_of_topic = NO_TAGS if flexible else b""
        end = end_of_topic if self._parts else b""
        lengths: dict[int, bytes] = {}
        for number, pids, n in pieces:
            if n:
                length = lengths.get(n)
                if length is None:
                    length = lengths[n] = array_length(n, flexible=flexible)
                header = headers.get(number)
                if header is None:
                    topic = self._topic(number)
                    name = string(topic.name, flexible=flexible)
                    header = headers[number] = name + topic.id if self._with_topic_ids else name
                cores[at] = b"".join((end, header, length, cores[at]))
                end = end_of_topic
            at += len(pids)

    def _put_names(self, pieces: list[Piece], cores: list[bytes]) -> None:
        """The oldest versions have no topics, only partitions that carry their topic's name."""
        at = 0
        for number, pids, _ in pieces:
            name = string(self._topic(number).name, flexible=False)
            cores[at : at + len(pids)] = [name + core for core in cores[at : at + len(pids)]]
            at += len(pids)

    def _topic(self, number: int) -> Topic:
        topic = self._table.topics[number]
        assert topic is not None
        return topic

    # -- results ---------------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """Partitions in the request; known once everything is gathered."""
        return sum(map(len, self._by_topic.values()))

    def _states(self) -> list[bytes]:
        """The array of topics (or of partitions, in the oldest versions), in pieces."""
        self._finish()
        count = len(self._by_topic) if self._grouped else self.partition_count
        end = NO_TAGS if self._grouped and self._flexible and count else b""
        return [array_length(count, flexible=self._flexible), *self._parts, end]

    # -- partitions ------------------------------------------------------------------------------------------------

    def _known_cores(self, pids: list[int]) -> list[bytes]:
        known = self._cores
        try:
            return look_up(pids, known)
        except KeyError:
            missing = [pid for pid in pids if pid not in known] if known else pids
            known.update(zip(missing, self._pack(missing), strict=True))
            [states] = take(missing, self._table.recovery_state)
            if any(states):
                self._recovering.update((pid, state) for pid, state in zip(missing, states, strict=True) if state)
            return look_up(pids, known)

    def _ends(self, pids: list[int], pieces: list[Piece], cores: list[bytes]) -> bytes | list[bytes]:
        """What follows each core, or all of them; ``pieces`` say whose they are.  May replace cores."""
        raise NotImplementedError

    def _pack(self, pids: list[int]) -> list[bytes]:
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
        assert NO_ISR not in used_isrs, "a partition without leadership cannot be sent"
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
