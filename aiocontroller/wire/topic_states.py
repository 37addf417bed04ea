"""What LeaderAndIsr and UpdateMetadata share: many partitions of the table, each topic once, in one pass and one join.

Theory.  A partition on the wire is seven parts: four numbers (index, controller epoch, leader, leader epoch), the ISR
as an array, one number (partition epoch), and a tail that depends on the assignment alone (replicas and what follows).
The table interns ISRs and assignments, so both arrays are encoded once per distinct value, and a partition costs one
call of a compiled ``struct`` form chosen by the two lengths.

A broker takes a request as damaged in which a topic appears twice, and rows are reused, so the pids of a topic need
not stand together: they are first gathered by topic, then encoded, topics in order of first appearance and a topic's
partitions in the order given.

Both passes are cut into steps, so that two million partitions do not hold the event loop.  Between the steps nobody may
change the table; who owns it (the controller's consumer) waits for the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    assignments.  Interned values never change, so it is valid for as long as its table; it grows with the interners.
    """

    def __init__(self, table: PartitionTable) -> None:
        self.table = table
        self._kinds: dict[tuple[str, int], dict[int, bytes]] = {}

    def of(self, kind: str, version: int) -> dict[int, bytes]:
        """The bytes by interned id, of values that are written the same way."""
        return self._kinds.setdefault((kind, version), {})


Pack = Callable[..., bytes]


class Forms(dict[tuple[int, int], Pack]):
    """Compiled forms of a partition, by the bytes of its ISR and of its tail.

    Each packs (index, controller epoch, leader, leader epoch, ISR, partition epoch, tail).
    """

    def __missing__(self, lengths: tuple[int, int]) -> Pack:
        isr_bytes, tail_bytes = lengths
        pack = self[lengths] = Struct(f">4i{isr_bytes}si{tail_bytes}s").pack
        return pack


FORMS = Forms()
"""Shared: there are as many as there are pairs of replica counts."""

_HEAD = Struct(">4i")
_INT32 = Struct(">i")

Piece = tuple[int, list[int], int]
"""(topic number, pids of it, partitions of the whole topic; 0 where an earlier piece said so)."""


class TopicStatesEncoder:
    """Base of the two encoders: feed by ``step``, then take ``_states``.

    Subclasses give the bytes of a list of pids (``_fragments``) and put their own head and end around the states.
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
    ) -> None:
        assert kept is None or kept.table is table
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
        # Bytes of interned values by their ids.  Plain dicts, filled beforehand: a __missing__ costs a fifth.
        self._isrs: dict[int, bytes] = {} if kept is None else kept.of("ISR", flexible)
        self._tails: dict[int, bytes] = {}
        self._known: dict[int, bytes] | None = None
        """Fragments that another request has made already, by pid."""

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
        fragments = self._fragments(list(chain.from_iterable([pids for _, pids, _ in pieces])), pieces)
        if self._grouped:
            self._put_topic_headers(pieces, fragments)
        else:
            fragments = self._with_names(pieces, fragments)
        self._parts.append(b"".join(fragments))

    def _put_topic_headers(self, pieces: list[Piece], fragments: list[bytes]) -> None:
        topics, flexible, with_topic_ids, at = self._table.topics, self._flexible, self._with_topic_ids, 0
        # A topic's tagged fields come after its partitions, that is before the next topic's header.
        end_of_topic = NO_TAGS if flexible else b""
        end = end_of_topic if self._parts else b""
        lengths: dict[int, bytes] = {}
        topic_id = b""
        for number, pids, n in pieces:
            if n:
                topic = topics[number]
                assert topic is not None
                length = lengths.get(n)
                if length is None:
                    length = lengths[n] = array_length(n, flexible=flexible)
                if with_topic_ids:
                    topic_id = topic.id
                name = string(topic.name, flexible=flexible)
                fragments[at] = b"".join((end, name, topic_id, length, fragments[at]))
                end = end_of_topic
            at += len(pids)

    def _with_names(self, pieces: list[Piece], fragments: list[bytes]) -> list[bytes]:
        """The oldest versions have no topics, only partitions that carry their topic's name."""
        names: list[bytes] = []
        for number, pids, _ in pieces:
            names += [string(self._topic(number).name, flexible=False)] * len(pids)
        return [name + fragment for name, fragment in zip(names, fragments, strict=True)]

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

    def _fragments(self, pids: list[int], pieces: list[Piece]) -> list[bytes]:
        """The bytes of each partition, without its topic's name; ``pieces`` say whose they are."""
        known = self._known
        if known is None:
            return self._pack(pids)
        try:
            return look_up(pids, known)
        except KeyError:
            missing = [pid for pid in pids if pid not in known]
            known.update(zip(missing, self._pack(missing), strict=True))
            return look_up(pids, known)

    def _tail(self, assignment: int) -> bytes:
        """What follows the partition epoch, as far as it depends on the assignment (by its id)."""
        raise NotImplementedError

    def _encode_interned(self, isr_numbers: Iterable[int], assignment_numbers: Iterable[int]) -> set[tuple[int, int]]:
        """Fill the two dicts; the pairs of lengths that can occur."""
        isrs, tails, values = self._isrs, self._tails, self._table.isrs.values
        isr_lengths, tail_lengths = set(), set()
        for number in isr_numbers:
            if number not in isrs:
                assert number != NO_ISR, "a partition without leadership cannot be sent"
                isrs[number] = self._array(values[number])
            isr_lengths.add(len(isrs[number]))
        for number in assignment_numbers:
            if number not in tails:
                tails[number] = self._tail(number)
            tail_lengths.add(len(tails[number]))
        return {(isr, tail) for isr in isr_lengths for tail in tail_lengths}

    def _pack(self, pids: list[int]) -> list[bytes]:
        """THE hot loop: one call of a compiled form for each partition."""
        table, isrs, tails, forms = self._table, self._isrs, self._tails, FORMS
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
        lengths = self._encode_interned(set(isr_of), set(assignment_of))
        rows = zip(index, controller_epoch, leader, leader_epoch, isr_of, partition_epoch, assignment_of, strict=True)
        if len(lengths) == 1:  # as in a healthy cluster with one replication factor
            pack = forms[lengths.pop()]
            return [pack(i, c, ld, le, isrs[isr], p, tails[a]) for i, c, ld, le, isr, p, a in rows]
        return [
            forms[len(isr_bytes := isrs[isr]), len(tail := tails[a])](i, c, ld, le, isr_bytes, p, tail)
            for i, c, ld, le, isr, p, a in rows
        ]

    def _pack_one(self, pid: int, leader: int, leader_epoch: int, partition_epoch: int, tail: bytes) -> bytes:
        """The same for one partition of which something else is to be said; its ISR is encoded already."""
        table = self._table
        head = _HEAD.pack(table.index_of[pid], table.controller_epoch[pid], leader, leader_epoch)
        return b"".join((head, self._isrs[table.isr_of[pid]], _INT32.pack(partition_epoch), tail))
