"""Judges what a controller answers to clients by what was in ZooKeeper while they waited.

A controller answers from its memory, which may be ``STALE_S`` old: it learns of changes late, and keeps answering until
its session ends if it was deposed without knowing.  What it claims to have done must have happened after the request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import ElectionType, TopicResult
from aiocontroller.lab.checkers.operations import Operations
from aiocontroller.lab.checkers.timeline import Timeline
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock, decode_producer_id_block

STALE_S = 15.0
_DELETION = paths.delete_topics_topic("")

Partition = tuple[str, int]
Assignment = Mapping[int, ReplicaAssignment]
Results = Mapping[str, TopicResult]


class Answers:
    """``complain`` takes an invariant, its subject and what is wrong."""

    def __init__(self, now_s: Callable[[], float], complain: Callable[[str, Any, str], None]) -> None:
        self._now_s = now_s
        self._complain = complain
        self._states: defaultdict[Partition, Timeline[LeaderAndIsr | None]] = defaultdict(lambda: Timeline(None))
        self._topics: defaultdict[str, Timeline[Assignment | None]] = defaultdict(lambda: Timeline(None))
        self._deletions: defaultdict[str, Timeline[bool]] = defaultdict(lambda: Timeline(False))
        """Topic -> whether its deletion is requested."""
        self._blocks: dict[int, ProducerIdBlock] = {}
        """The blocks of producer ids by their first id."""
        self._given: set[int] = set()  # membership only
        self._last_id = -1
        self.avoided = 0
        """A broker that other replicas are preferred to; 0: none."""
        self._terms: Timeline[int] = Timeline(0)
        self._sick: defaultdict[int, Timeline[int]] = defaultdict(lambda: Timeline(0))
        """Controller epoch -> the broker that its controller treats as sick; 0: none."""
        self.operations = Operations(now_s, complain)

    # -- what happens ----------------------------------------------------------------------------------------------

    def state(self, partition: Partition, state: LeaderAndIsr | None) -> None:
        self._states[partition].put(self._now_s(), state)

    def topic(self, topic: str, data: bytes | None) -> None:
        """Take in a topic's znode; None: it was deleted."""
        decoded = None if data is None else znodes.decode_topic(topic, data)
        partitions = getattr(decoded, "partitions", None)
        self._topics[topic].put(self._now_s(), partitions)
        self.operations.topic(topic, partitions or {})

    def term(self, controller_epoch: int) -> None:
        self._terms.put(self._now_s(), controller_epoch)

    def sick(self, controller_epoch: int, broker: int) -> None:
        """From now on the controller of this epoch must treat the broker as sick, and elect it last; 0: no broker."""
        self._sick[controller_epoch].put(self._now_s(), broker)

    def changed(self, path: str, data: bytes | None) -> None:
        if path.startswith(_DELETION):
            self._deletions[path.removeprefix(_DELETION)].put(self._now_s(), True)
        elif path == paths.LATEST_PRODUCER_ID_BLOCK:
            block = decode_producer_id_block(data)
            if isinstance(block, ProducerIdBlock):
                if block.block_start <= self._last_id:
                    self._complain("answers", "producer ids", f"{block} after {self._last_id} was given away")
                self._last_id = max(self._last_id, block.block_end)
                self._blocks[block.block_start] = block

    def deleted(self, path: str) -> None:
        if path.startswith(_DELETION):
            self._deletions[path.removeprefix(_DELETION)].put(self._now_s(), False)

    # -- what clients are answered ---------------------------------------------------------------------------------

    def allocated(self, broker: int, first: int, count: int) -> None:
        """A broker was given a block of producer ids."""
        block = self._blocks.get(first)
        if block is None or (block.broker, block.block_end) != (broker, first + count - 1):
            self._complain("answers", "producer ids", f"broker {broker} was given {first} of {count}, written: {block}")
        if first in self._given:
            self._complain("answers", "producer ids", f"{first} was given away twice")
        self._given.add(first)

    def listed(
        self,
        asked_s: float,
        asked: Collection[TopicPartition] | None,
        listed: Mapping[TopicPartition, ReplicaAssignment],
        unknown: Collection[str],
    ) -> None:
        """A client got a list of reassignments; what is known of the topics in ``unknown`` is uncertain."""
        for tp, assignment in listed.items():
            if tp.topic in unknown:
                continue
            if asked is not None and tp not in asked:
                self._complain("answers", tp, "was listed, and was not requested")
            if assignment not in self._assignments(tp, asked_s - STALE_S):
                self._complain("answers", tp, f"was listed as {assignment}, which ZooKeeper did not hold")
        for topic in sorted(set(self._topics) - set(unknown)):
            latest = self._topics[topic].since(self._now_s())[-1]
            for number in latest or ():
                tp = TopicPartition(topic, number)
                if (asked is None or tp in asked) and tp not in listed and self._has_long_moved(tp, asked_s):
                    self._complain("answers", tp, "is being reassigned, and was not listed")

    def _has_long_moved(self, tp: TopicPartition, asked_s: float) -> bool:
        assignments = self._assignments(tp, asked_s - STALE_S)
        deleted = any(self._deletions[tp.topic].since(asked_s - STALE_S))
        return not deleted and all(each is not None and each.being_reassigned for each in assignments)

    def _assignments(self, tp: TopicPartition, since_s: float) -> list[ReplicaAssignment | None]:
        return [None if each is None else each.get(tp.partition) for each in self._topics[tp.topic].since(since_s)]

    def elected(
        self,
        kind: ElectionType,
        asked_s: float,
        answers: Mapping[TopicPartition, tuple[int, str]],
        unknown: Collection[str],
    ) -> None:
        """A client got the results of its elections."""
        right = {KafkaErrorCode.NONE, KafkaErrorCode.ELECTION_NOT_NEEDED}
        since_s = asked_s - STALE_S
        # always with 0: a broker that registers again is no longer treated as sick, although its verdict ends later
        ill = {0}.union(*(self._sick[term].since(since_s) for term in self._terms.since(since_s)))
        for tp, (code, _) in answers.items():
            if tp.topic in unknown:
                continue
            assignments = self._assignments(tp, since_s)
            leaders = {state.leader for state in self._states[tp].since(since_s) if state is not None}
            replicas = [each.replicas for each in assignments if each is not None]
            preferred = {self._preferred(each, sick) for each in replicas for sick in ill}
            possible = leaders - {-1} if kind is ElectionType.UNCLEAN else leaders & preferred
            if code in right and not possible:
                self._complain("answers", tp, f"{kind.name} election answered with {code}, it had leaders {leaders}")
            if code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and all(assignments):
                self._complain("answers", tp, "is said not to exist")

    def _preferred(self, replicas: Sequence[int], sick: int) -> int:
        return min(replicas, key=lambda replica: (replica == sick, replica == self.avoided), default=self.avoided)

    def created(self, asked_s: float, results: Results) -> None:
        """A client got the results of creating its topics."""
        for name, result in results.items():
            found = [each for each in self._topics[name].since(asked_s) if each is not None]
            counts = {len(each) for each in found}
            right = result.partitions in counts if result.partitions >= 0 else found
            if result.error_code == KafkaErrorCode.NONE and not right:
                self._complain("answers", name, f"is said to be created with {result.partitions} partitions")
            elif result.error_code == KafkaErrorCode.NONE:
                self.operations.created(asked_s, name)
            if result.error_code == KafkaErrorCode.REQUEST_TIMED_OUT and not found:
                self._complain("answers", name, "is said to be created, although not in time")
            existed = any(self._topics[name].since(asked_s - STALE_S))
            if result.error_code == KafkaErrorCode.TOPIC_ALREADY_EXISTS and not existed:
                self._complain("answers", name, "is said to exist")

    def grown(self, asked_s: float, counts: Mapping[str, int], results: Results) -> None:
        """A client got the results of adding partitions to its topics; ``counts`` are the numbers that it requested."""
        for name, result in results.items():
            found = max((len(each) for each in self._topics[name].since(asked_s) if each is not None), default=0)
            if result.error_code in (KafkaErrorCode.NONE, KafkaErrorCode.REQUEST_TIMED_OUT) and found < counts[name]:
                self._complain("answers", name, f"is said to have {counts[name]} partitions, found {found}")
            elif result.error_code == KafkaErrorCode.NONE:
                self.operations.grown(asked_s, name, counts[name])

    def removed(self, asked_s: float, results: Results) -> None:
        """A client got the results of deleting its topics: at least, that their deletion has begun."""
        for name, result in results.items():
            marked = None in self._topics[name].since(asked_s) or any(self._deletions[name].since(asked_s))
            absent = None in self._topics[name].since(asked_s - STALE_S)
            known = not (absent or any(self._deletions[name].since(asked_s - STALE_S)))
            if result.error_code in (KafkaErrorCode.NONE, KafkaErrorCode.REQUEST_TIMED_OUT) and not marked:
                self._complain("answers", name, "is said to be marked for deletion")
            if result.error_code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and known:
                self._complain("answers", name, "is said not to exist")
