"""The encoding shared by LeaderAndIsr and UpdateMetadata: many partitions by topic, in one pass and one join.

Theory.  A partition on the wire is a *core* of six parts, the same in both requests: four numbers (index, controller
epoch, leader, leader epoch), the ISR, one number (partition epoch) and the replicas; and an *end*, which differs
between the two requests and is the same for nearly all partitions of one.  The table interns ISRs and assignments, so
both arrays are encoded once per distinct value, and a core costs one call of a compiled ``struct`` form chosen by the
two lengths.  From ``MANY`` partitions on, ``state_matrix`` does all of that, once for all brokers that receive the same
partitions; the bytes are the same.

A topic must appear only once, or brokers reject the request as malformed.  As rows are reused, a topic's rows need not
be contiguous, so they are first grouped by topic: topics in order of first appearance, partitions in the order given.

Encoding is one pass: callers split very many partitions into several requests first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, compress, count, islice
from operator import ne
from struct import Struct

from aiocontroller.core.columns import ascend, take
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.wire.primitives import COMPACT_INT32_ARRAY, LEGACY_INT32_ARRAY, NO_TAGS, array_length, string
from aiocontroller.wire.state_matrix import Places, StateMatrix, Used


class ControlRequestBody:
    """An encoded request that differs between brokers only in the eight bytes of broker epoch.

    ``head`` ends where the broker epoch begins.  Versions without broker epochs have no ``tail`` and the same bytes for
    every broker.
    """

    __slots__ = ("_head", "_tail")

    def __init__(self, head: bytes, tail: bytes | None) -> None:
        self._head = head
        self._tail = tail

    def __len__(self) -> int:
        return len(self._head) + (0 if self._tail is None else 8 + len(self._tail))

    def pieces_for_broker(self, broker_epoch: int) -> tuple[bytes, ...]:
        """Pieces for ``writelines``: all brokers share the long one, which is not copied."""
        if self._tail is None:
            return (self._head,)
        return self._head + broker_epoch.to_bytes(8, "big", signed=True), self._tail

    def for_broker(self, broker_epoch: int) -> bytes:
        """The body in one piece (copied)."""
        return b"".join(self.pieces_for_broker(broker_epoch))


class EncodedValues:
    """Bytes of a table's interned ISRs and assignments, kept from request to request.

    Useful when a change goes to many brokers: each LeaderAndIsr is different, but their partitions share few distinct
    values.  Interned values never change, so the cache is valid as long as its table; it grows with the interners.
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
    """Encodings shared by many requests about the same partitions, while the table does not change.

    ``wanted``: all rows of these requests, ascending, if known; then the first request packs for all.
    """

    def __init__(self, wanted: Sequence[int] = ()) -> None:
        self.wanted = wanted
        self.matrices: dict[bool, StateMatrix | None] = {}
        """The matrix of all wanted rows, by whether arrays are flexible."""
        self._headers: dict[tuple[bool, bool], dict[int, bytes]] = {}

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
"""Shared: there is one form for each pair of replica counts."""

MANY = 1_000
"""Number of partitions in a request from which a matrix is faster."""
WIDEST = 128
"""Limit on the bytes of a replica list, thirty replicas: a longer one would make all other rows as wide."""

Run = tuple[int, int, int]
"""(topic number, where its partitions begin, where they end)."""


class TopicStatesEncoder:
    """Base of the two encoders.

    Subclasses define the ends of partitions (``_ends``) and put their own head and end around the states.  ``kept``
    saves work when many requests are encoded from one table, ``cores`` when partitions go to many brokers.
    """

    def __init__(
        self,
        table: PartitionTable,
        rows: Sequence[int],
        *,
        flexible: bool,
        grouped: bool,
        with_topic_ids: bool,
        for_update_metadata: bool,
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
        self._for_update_metadata = for_update_metadata
        self._rows = rows
        self._kept = kept
        # Plain dicts, filled in advance: a __missing__ costs a fifth.
        self._isrs = kept.isrs(flexible=flexible)
        self._replicas = kept.replicas(flexible=flexible)
        self._cores = Cores() if cores is None else cores
        self._headers = self._cores.headers(flexible=flexible, with_topic_ids=with_topic_ids)

    def _states(self) -> tuple[list[bytes], Used]:
        """The array of topics (or of partitions, in the oldest versions), in pieces."""
        rows = self._table.for_update_metadata(self._rows) if self._for_update_metadata else self._rows
        if not rows:
            return [array_length(0, flexible=self._flexible)], Used(frozenset(), frozenset(), frozenset())
        many = self._many_states(rows) if self._grouped and len(rows) >= MANY else None
        return self._few_states(rows) if many is None else many

    def _few_states(self, rows: Sequence[int]) -> tuple[list[bytes], Used]:
        rows, runs = self._by_topic(rows)
        cores = self._pack(rows)
        for at, core in self._instead(rows, runs).items():
            cores[at] = core
        table = self._table
        used = Used(*map(frozenset, take(rows, table.leader, table.assignment_of, table.recovery_state)))
        ends = self._ends(rows, used)
        if self._grouped:
            self._put_topic_headers(runs, cores)
        else:
            self._put_names(runs, cores)
        if isinstance(ends, bytes):
            cores.append(b"")
            states = ends.join(cores)
        else:
            states = b"".join(chain.from_iterable(zip(cores, ends, strict=True)))
        count = len(runs) if self._grouped else len(rows)
        end = NO_TAGS if self._grouped and self._flexible else b""
        return [array_length(count, flexible=self._flexible), states, end], used

    def _many_states(self, rows: Sequence[int]) -> tuple[list[bytes], Used] | None:
        """The same by a matrix; None if a topic's partitions are not contiguous or some cores differ from the table."""
        found = self._matrix(rows)
        if found is None:
            return None
        matrix, places = found
        numbers, starts = matrix.topics(places)
        runs = list(zip(numbers, starts, [*starts[1:], len(rows)], strict=True))
        if len(set(numbers)) < len(numbers) or self._instead(rows, runs):
            return None
        end = NO_TAGS if self._flexible else b""
        pieces: list[bytes | memoryview] = [array_length(len(runs), flexible=self._flexible)]
        used = matrix.used(places)
        states = matrix.states(places, self._ends(rows, used), starts)
        for (number, start, stop), those in zip(runs, states, strict=True):
            pieces += (self._header(number), array_length(stop - start, flexible=self._flexible), those, end)
        return [b"".join(pieces)], used

    def _matrix(self, rows: Sequence[int]) -> tuple[StateMatrix, Places] | None:
        """A matrix with these rows, and their places in it; the matrix shared by all requests, if they are in it."""
        shared = self._cores.matrices
        if self._flexible not in shared:
            shared[self._flexible] = self._matrix_of(self._cores.wanted)
        matrix = shared[self._flexible]
        places = None if matrix is None else matrix.find(rows)
        if places is None:
            matrix = self._matrix_of(rows)
            places = None if matrix is None else matrix.find(rows)
        return None if matrix is None or places is None else (matrix, places)

    def _matrix_of(self, rows: Sequence[int]) -> StateMatrix | None:
        """The matrix of these rows; None if they are few, lack leadership or do not ascend, or one would widen all."""
        if len(rows) < MANY:
            return None
        isrs, assigned = map(set, take(rows, self._table.isr_of, self._table.assignment_of))
        if NO_ISR in isrs or max(len(self._replicas_bytes(a)) for a in assigned) > WIDEST or not ascend(rows):
            return None
        return StateMatrix(self._table, rows, self._isr_bytes, self._replicas_bytes)

    def _by_topic(self, rows: Sequence[int]) -> tuple[Sequence[int], list[Run]]:
        """The rows grouped by topic, and the runs."""
        [topics] = take(rows, self._table.topic_of)
        ends = [*compress(count(1), map(ne, topics, islice(topics, 1, None))), len(rows)]
        numbers = [topics[end - 1] for end in ends]
        starts = [0, *ends[:-1]]
        if len(set(numbers)) < len(numbers):  # rows were reused
            gathered: dict[int, list[int]] = {}
            for number, start, end in zip(numbers, starts, ends, strict=True):
                gathered.setdefault(number, []).extend(rows[start:end])
            rows = list(chain.from_iterable(gathered.values()))
            numbers, ends = list(gathered), list(accumulate(map(len, gathered.values())))
            starts = [0, *ends[:-1]]
        return rows, list(zip(numbers, starts, ends, strict=True))

    def _put_topic_headers(self, runs: list[Run], cores: list[bytes]) -> None:
        flexible = self._flexible
        end = b""
        lengths: dict[int, bytes] = {}
        for number, start, stop in runs:
            n = stop - start
            length = lengths.get(n)
            if length is None:
                length = lengths[n] = array_length(n, flexible=flexible)
            cores[start] = b"".join((end, self._header(number), length, cores[start]))
            if flexible:  # a topic's tagged fields follow its partitions, before the next topic's header
                end = NO_TAGS

    def _header(self, number: int) -> bytes:
        header = self._headers.get(number)
        if header is None:
            topic = self._topic(number)
            name = string(topic.name, flexible=self._flexible)
            header = self._headers[number] = name + topic.id if self._with_topic_ids else name
        return header

    def _put_names(self, runs: list[Run], cores: list[bytes]) -> None:
        """The oldest versions have no topics: each partition carries its topic's name."""
        for number, start, stop in runs:
            name = self._header(number)
            cores[start:stop] = [name + core for core in cores[start:stop]]

    def _topic(self, number: int) -> Topic:
        topic = self._table.topics[number] if number >= 0 else None
        assert topic is not None, "a partition has no topic any more"
        return topic

    # -- partitions ------------------------------------------------------------------------------------------------

    def _ends(self, rows: Sequence[int], used: Used) -> bytes | list[bytes]:
        """The end of each core, or one end for all of them."""
        raise NotImplementedError

    def _instead(self, rows: Sequence[int], runs: list[Run]) -> dict[int, bytes]:
        """Cores that differ from the table, by index into the rows."""
        return {}

    def _isr_bytes(self, number: int) -> bytes:
        found = self._isrs.get(number)
        if found is None:  # no ISR: the topic is being deleted
            isr = () if number == NO_ISR else self._table.isrs.values[number]
            found = self._isrs[number] = self._array(isr)
        return found

    def _replicas_bytes(self, assignment: int) -> bytes:
        found = self._replicas.get(assignment)
        if found is None:
            found = self._replicas[assignment] = self._array(self._table.assignments.values[assignment].replicas)
        return found

    def _pack(self, rows: Sequence[int]) -> list[bytes]:
        """One call of a compiled form for each partition."""
        table, isrs, replicas, forms = self._table, self._isrs, self._replicas, FORMS
        index, controller_epoch, leader, leader_epoch, isr_of, partition_epoch, assignment_of = take(
            rows,
            table.index_of,
            table.controller_epoch,
            table.leader,
            table.leader_epoch,
            table.isr_of,
            table.partition_epoch,
            table.assignment_of,
        )
        used_isrs, used_assignments = set(isr_of), set(assignment_of)
        assert self._for_update_metadata or NO_ISR not in used_isrs, "a partition without leadership cannot be led"
        isr_lengths = {len(self._isr_bytes(number)) for number in used_isrs}
        lengths = {(isr, len(self._replicas_bytes(number))) for number in used_assignments for isr in isr_lengths}
        cores = zip(index, controller_epoch, leader, leader_epoch, isr_of, partition_epoch, assignment_of, strict=True)
        if len(lengths) == 1:  # as in a healthy cluster with one replication factor
            pack = forms[lengths.pop()]
            return [pack(i, c, ld, le, isrs[isr], p, replicas[a]) for i, c, ld, le, isr, p, a in cores]
        return [
            forms[len(isr_bytes := isrs[isr]), len(others := replicas[a])](i, c, ld, le, isr_bytes, p, others)
            for i, c, ld, le, isr, p, a in cores
        ]
