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

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from struct import Struct

from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.wire.primitives import NO_TAGS, array_length, int32_array, string

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


class Forms(dict[int, dict[int, Callable[..., bytes]]]):
    """Compiled forms of a partition, by the bytes of its ISR and of its tail.

    Each packs (index, controller epoch, leader, leader epoch, ISR, partition epoch, tail).
    """

    class _OfOneIsrLength(dict[int, Callable[..., bytes]]):
        def __init__(self, isr_bytes: int) -> None:
            super().__init__()
            self._isr_bytes = isr_bytes

        def __missing__(self, tail_bytes: int) -> Callable[..., bytes]:
            pack = self[tail_bytes] = Struct(f">4i{self._isr_bytes}si{tail_bytes}s").pack
            return pack

    def __missing__(self, isr_bytes: int) -> dict[int, Callable[..., bytes]]:
        forms = self[isr_bytes] = Forms._OfOneIsrLength(isr_bytes)
        return forms


FORMS = Forms()
"""Shared: there are as many as there are pairs of replica counts."""

_HEAD = Struct(">4i")
_INT32 = Struct(">i")


class InternedBytes(dict[int, bytes]):
    """Bytes of an interned value by its id, made when first asked for."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, number: int) -> bytes:
        assert number != NO_ISR, "a partition without leadership cannot be sent"
        encoded = self[number] = self._encode(number)
        return encoded


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
    ) -> None:
        self._table = table
        self._flexible = flexible
        self._grouped = grouped
        self._with_topic_ids = with_topic_ids
        self._skip = skip_without_leadership
        self._pids = pids
        self._gathered = 0
        self._by_topic: dict[int, list[int]] = {}
        self._pieces: Iterator[tuple[int, list[int], int]] | None = None
        self._parts: list[bytes] = []
        self._done = False
        isrs = table.isrs.values
        self._isrs = InternedBytes(lambda number: int32_array(isrs[number], flexible=flexible))

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
        pids = list(self._pids[start : start + limit])
        self._gathered = start + len(pids)
        isr_of, topic_of = self._table.isr_of, self._table.topic_of
        if self._skip and NO_ISR in {isr_of[pid] for pid in pids}:
            pids = [pid for pid in pids if isr_of[pid] != NO_ISR]
        by_topic, first = self._by_topic, 0
        for topic, run in groupby([topic_of[pid] for pid in pids]):
            last = first + len(list(run))
            known = by_topic.get(topic)
            if known is None:
                by_topic[topic] = pids[first:last]
            else:
                known += pids[first:last]
            first = last

    def _in_pieces(self, limit: int) -> Iterator[tuple[int, list[int], int]]:
        """(topic, pids, partitions of the whole topic), none longer than the limit; the count is 0 after the first."""
        for topic, pids in self._by_topic.items():
            assert topic >= 0, f"partition {pids[0]} has no topic any more"
            if len(pids) <= limit:
                yield topic, pids, len(pids)
            else:
                for start in range(0, len(pids), limit):
                    yield topic, pids[start : start + limit], 0 if start else len(pids)

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
        fragments = self._fragments(
            pieces[0][1] if len(pieces) == 1 else list(chain.from_iterable(p[1] for p in pieces))
        )
        self._mark_deleting(pieces, fragments)
        if self._grouped:
            self._put_topic_headers(pieces, fragments)
        else:
            fragments = self._with_names(pieces, fragments)
        self._parts.append(b"".join(fragments))

    def _put_topic_headers(self, pieces: list[tuple[int, list[int], int]], fragments: list[bytes]) -> None:
        topics, flexible, at = self._table.topics, self._flexible, 0
        # A topic's tagged fields come after its partitions, that is before the next topic's header.
        end_of_topic = NO_TAGS if flexible else b""
        end = end_of_topic if self._parts else b""
        for number, pids, count in pieces:
            if count:
                topic = topics[number]
                assert topic is not None
                topic_id = topic.id if self._with_topic_ids else b""
                name, length = string(topic.name, flexible=flexible), array_length(count, flexible=flexible)
                fragments[at] = b"".join((end, name, topic_id, length, fragments[at]))
                end = end_of_topic
            at += len(pids)

    def _with_names(self, pieces: list[tuple[int, list[int], int]], fragments: list[bytes]) -> list[bytes]:
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

    def _fragments(self, pids: list[int]) -> list[bytes]:
        """The bytes of each partition, without its topic's name."""
        raise NotImplementedError

    def _mark_deleting(self, pieces: list[tuple[int, list[int], int]], fragments: list[bytes]) -> None:
        """Where a request says something else about topics that are being deleted."""

    def _pack(self, pids: list[int], tails: InternedBytes) -> list[bytes]:
        """THE hot loop: one call of a compiled form for each partition."""
        table, isrs, forms = self._table, self._isrs, FORMS
        index_of, controller_epoch, leader = table.index_of, table.controller_epoch, table.leader
        leader_epoch, isr_of, partition_epoch = table.leader_epoch, table.isr_of, table.partition_epoch
        assignment_of = table.assignment_of
        return [
            forms[len(isr := isrs[isr_of[pid]])][len(tail := tails[assignment_of[pid]])](
                index_of[pid],
                controller_epoch[pid],
                leader[pid],
                leader_epoch[pid],
                isr,
                partition_epoch[pid],
                tail,
            )
            for pid in pids
        ]

    def _pack_one(self, pid: int, leader: int, leader_epoch: int, partition_epoch: int, tail: bytes) -> bytes:
        table = self._table
        isr = self._isrs[table.isr_of[pid]]
        head = _HEAD.pack(table.index_of[pid], table.controller_epoch[pid], leader, leader_epoch)
        return b"".join((head, isr, _INT32.pack(partition_epoch), tail))
