"""The replicas on one simulated broker: their roles, and the ISR changes that they request.

Pure: no sockets and no clock; time is passed in as milliseconds.  After Kafka's ``ReplicaManager`` and ``Partition``;
``generations`` has the differences between releases.  Without a disk there is no log, and fetching is replaced by this:

 * A follower reports to its leader, over a connection between the two brokers, which partitions it follows and at which
   leader epoch.  Such a report counts as "caught up": there is nothing to copy.
 * The connection carries a heartbeat.  A follower without a heartbeat, or without a report of the current leader epoch,
   for ``replica_lag_time_max_ms`` is out of sync, and the leader asks to shrink the ISR.
 * A follower that reports, is assigned, and is alive in the metadata cache is added to the ISR again.
 * A leader requests one ISR change of a partition at a time (from its controller or ZooKeeper) and keeps its committed
   ISR until it is answered; a higher leader epoch cancels the request.
 * As in Kafka, a follower ignores a LeaderAndIsr, without an error, if the leader is not alive in its metadata cache at
   that moment: it keeps its role and its leader epoch until the next one.

With a disk, replicas have logs (``logs``), and reports are fetches (``replication``), which decide who is in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import EPOCH_DURING_DELETE, NO_EPOCH, NO_TOPIC_ID
from aiocontroller.lab.cluster.broker_requests import (
    STEP,
    LeaderAndIsrRequest,
    PartitionState,
    Steps,
    StopReplicaRequest,
    TopicStates,
)
from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, Generation, Protocol, TopicIds
from aiocontroller.lab.cluster.logs import NO_OFFSET, Disk, Log, StoredLog
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import Fetcher, Follower, IsrChange, Partition, ReportVerdict, judge
from aiocontroller.lab.cluster.replication import FetchAnswer, Leading, take_answer

Codes = dict[tuple[str, bytes], list[tuple[int, int]]]


class ReplicaManager:
    """All replicas of broker ``broker_id``."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        *,
        replica_lag_time_max_ms: int,
        generation: Generation = GENERATIONS[NEWEST],
        protocol: Protocol | None = None,
        min_insync_replicas: int = 1,
        disk: Disk | None = None,
    ) -> None:
        self.protocol = protocol or Protocol.of(generation.protocol)
        self.min_isr_of: Callable[[str], int] = lambda topic: min_insync_replicas
        """A topic's ``min.insync.replicas``."""
        self.disk = disk
        self.progressed: Callable[[Partition], None] = lambda _: None
        """Called when a leader's high watermark has risen or a replica has lost its role."""
        self.end_reported: Callable[[str, int, Log], None] = lambda topic, partition, log: None
        """Called when an answer to a client has the end of a log."""
        self._now_ms = 0
        self.broker_id = broker_id
        self.generation = generation
        self.metadata = metadata
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        self.controller_epoch = 0
        """The highest controller epoch seen."""
        self.hosted: dict[str, dict[int, Partition]] = {}
        self.led: dict[Partition, None] = {}
        self.followers: dict[int, Follower] = {}
        self.fetchers: dict[int, Fetcher] = {}
        self.isr_changes: dict[Partition, IsrChange] = {}
        """Changes that are to be requested or have been requested; at most one per partition."""
        self.failed: dict[tuple[str, int], None] = {}
        """Replicas on a failed log directory; they stay until the process ends."""
        self.unassigned: dict[tuple[str, int], None] = {}
        """Replicas not assigned to this broker, treated as if on a failed directory until the process ends."""

    def partition(self, topic: str, partition: int) -> Partition | None:
        return self.hosted.get(topic, {}).get(partition)

    def partitions(self) -> Iterable[Partition]:
        return (partition for hosted in self.hosted.values() for partition in hosted.values())

    # -- the controller's requests ---------------------------------------------------------------------------------

    def accepts(self, controller_epoch: int) -> bool:
        """Whether the epoch is at least the highest seen; records a higher one."""
        if controller_epoch < self.controller_epoch:
            return False
        self.controller_epoch = controller_epoch
        return True

    def become_leader_or_follower(self, request: LeaderAndIsrRequest, now_ms: int) -> Steps[Codes]:
        """Apply the request; returns each partition's error code.

        ``ValueError`` if a topic appears twice, as in Kafka since 2.8 (which does not answer at all; later releases
        answer with an error).
        """
        names = [topic.topic for topic in request.topics]
        if self.generation.topic_ids and len(set(names)) != len(names):
            raise ValueError("LeaderAndIsr: a topic appears twice, expected each once")
        codes: Codes = {}
        since_pause = 0
        for topic in request.topics:
            answers = codes.setdefault((topic.topic, topic.topic_id), [])
            for state in topic.partitions:
                answers.append((state.partition, self._apply_state(topic, state, now_ms)))
                since_pause += 1
                if since_pause >= STEP:
                    since_pause = 0
                    yield
        return codes

    def stop_replicas(self, request: StopReplicaRequest) -> Steps[list[tuple[str, int, int]]]:
        """Apply the request; returns (topic, partition, error code) of each replica."""
        codes = []
        for number, (topic, index, leader_epoch, delete) in enumerate(request.partitions, start=1):
            codes.append((topic, index, int(self._stop(topic, index, leader_epoch, delete))))
            if number % STEP == 0:
                yield
        return codes

    def fail_log_dir(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Fail these partitions' log directory: their replicas lose their roles, and requests for them get errors."""
        for topic, index in partitions:
            self.failed[topic, index] = None
            if self.disk is not None:
                self.disk.delete((topic, index))
            partition = self.partition(topic, index)
            if partition is not None:
                self._leave_role(partition)

    def offline(self, topic: str, index: int) -> bool:
        """Whether the replica is on a failed directory, or treated as such."""
        return (topic, index) in self.failed or (topic, index) in self.unassigned

    def _apply_state(self, topic: TopicStates, state: PartitionState, now_ms: int) -> int:
        self._now_ms = now_ms
        if self.offline(topic.topic, state.partition):
            return KafkaErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partition(topic.topic, state.partition)
        if partition is not None:
            answer = self._compare(partition, topic.topic_id, state)
            if answer is not None:
                return answer
        if self.broker_id not in state.replicas:
            if partition is None and self.generation.non_replicas_go_offline:
                self.unassigned[topic.topic, state.partition] = None
            return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        takes_id = self.generation.topic_ids >= TopicIds.CHECKED
        if partition is None:
            stored = None if self.disk is None else self.disk.find((topic.topic, state.partition))
            if stored is not None and stored.topic_id != NO_TOPIC_ID != topic.topic_id != stored.topic_id:
                return KafkaErrorCode.INCONSISTENT_TOPIC_ID  # the log of an earlier topic of this name
            if self.failed and not state.is_new and stored is None:
                return KafkaErrorCode.KAFKA_STORAGE_ERROR  # its log may be in the failed directory
            partition = self._host(topic.topic, state.partition, stored)
            if takes_id and partition.topic_id == NO_TOPIC_ID:
                self._set_topic_id(partition, topic.topic_id)
        if state.leader != self.broker_id and state.leader not in self.metadata.alive:
            return KafkaErrorCode.NONE
        if self.generation.skips_older_partition_epoch and state.partition_epoch < partition.partition_epoch:
            return KafkaErrorCode.NONE
        self._leave_role(partition)
        if takes_id and partition.topic_id == NO_TOPIC_ID:
            self._set_topic_id(partition, topic.topic_id)
        partition.controller_epoch = state.controller_epoch
        partition.leader, partition.leader_epoch = state.leader, state.leader_epoch
        partition.isr, partition.partition_epoch = state.isr, state.partition_epoch
        partition.replicas = state.replicas
        if state.leader == self.broker_id:
            self._make_leader(partition, now_ms)
        else:
            self._make_follower(partition)
        return KafkaErrorCode.NONE

    def _host(self, topic: str, index: int, stored: StoredLog | None) -> Partition:
        partition = Partition(topic, index)
        self.hosted.setdefault(topic, {})[index] = partition
        if stored is not None:
            partition.topic_id = stored.topic_id
        elif self.disk is not None:
            stored = self.disk.create((topic, index), NO_TOPIC_ID)
        partition.stored = stored
        return partition

    @staticmethod
    def _set_topic_id(partition: Partition, topic_id: bytes) -> None:
        partition.topic_id = topic_id
        if partition.stored is not None:
            partition.stored.topic_id = topic_id

    def _compare(self, partition: Partition, given: bytes, state: PartitionState) -> KafkaErrorCode | None:
        """Return the error code for a state that is not newer, by topic id and leader epoch; None if it is newer."""
        rule, known = self.generation.topic_ids, partition.topic_id
        if given != NO_TOPIC_ID and known not in (NO_TOPIC_ID, given):
            return KafkaErrorCode.INCONSISTENT_TOPIC_ID
        if rule is TopicIds.IN_PASSING and known == NO_TOPIC_ID:
            self._set_topic_id(partition, given)
        if state.leader_epoch > partition.leader_epoch:
            return None
        if state.leader_epoch == partition.leader_epoch and rule >= TopicIds.CHECKED:
            if known == NO_TOPIC_ID != given:
                self._set_topic_id(partition, given)  # only the id is new; it is never removed
                return KafkaErrorCode.NONE
            if rule is TopicIds.MAY_GO and known != NO_TOPIC_ID == given and state.leader != self.broker_id:
                return KafkaErrorCode.NONE
        return KafkaErrorCode.STALE_CONTROLLER_EPOCH

    def _make_leader(self, partition: Partition, now_ms: int) -> None:
        partition.is_leader = True
        partition.leader_since_ms = now_ms
        self.led[partition] = None
        if partition.stored is not None:
            partition.leading = Leading(
                partition.stored.log,
                partition.leader_epoch,
                self.broker_id,
                partition.isr,
                now_ms,
                self.replica_lag_time_max_ms,
            )
            self.raise_hw(partition)

    def _make_follower(self, partition: Partition) -> None:
        fetcher = self.fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = self.fetchers[partition.leader] = Fetcher(partition.leader)
        fetcher.followed[partition] = fetcher.unreported[partition] = None
        fetcher.stopped.pop((partition.topic, partition.partition), None)
        known = partition.stored is not None and partition.stored.log.epoch != NO_EPOCH
        partition.truncating = known and not self.protocol.truncates_on_fetch

    def _leave_role(self, partition: Partition) -> None:
        if partition.is_leader:
            partition.is_leader = False
            partition.leading = None
            self.progressed(partition)
            del self.led[partition]
            for follower in self.followers.values():
                follower.reported.pop(partition, None)
                follower.candidates.pop(partition, None)
        partition.pending_isr = None
        self.isr_changes.pop(partition, None)
        fetcher = self.fetchers.get(partition.leader)
        if fetcher is not None and partition in fetcher.followed:
            del fetcher.followed[partition]
            fetcher.unreported.pop(partition, None)
            fetcher.stopped[partition.topic, partition.partition] = None

    def _stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> KafkaErrorCode:
        if self.offline(topic, index):
            return KafkaErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partition(topic, index)
        if partition is None:
            if delete and self.disk is not None:
                self.disk.delete((topic, index))
            return KafkaErrorCode.NONE
        lowest = partition.leader_epoch + (not self.generation.stops_at_equal_epoch)
        if leader_epoch < lowest and leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH):
            return KafkaErrorCode.FENCED_LEADER_EPOCH
        for follower in self.followers.values() if partition.is_leader else ():
            if partition in follower.reported:
                follower.lost[topic, index] = None
        self._leave_role(partition)
        if delete:
            hosted = self.hosted[topic]
            del hosted[index]
            if not hosted:
                del self.hosted[topic]
            if self.disk is not None:
                self.disk.delete((topic, index))
        return KafkaErrorCode.NONE

    # -- followers' reports ----------------------------------------------------------------------------------------

    def follower_connected(self, broker: int, now_ms: int) -> Follower:
        """Note a follower's new connection: reports over an older one no longer count."""
        follower = self.followers[broker] = Follower(broker)
        follower.last_seen_ms = now_ms
        return follower

    def follower_reports(
        self,
        follower: Follower,
        reports: Sequence[tuple[str, Sequence[tuple[int, ...]]]],
        stopped: Sequence[tuple[str, int]],
        now_ms: int,
    ) -> list[tuple[str, int, int]]:
        """Process a heartbeat with (topic, [(partition, leader epoch)]); returns rejections.

        With a disk, the log's end and its last epoch follow each leader epoch.  A rejection is (topic, partition,
        verdict).
        """
        follower.last_seen_ms = self._now_ms = now_ms
        for topic, index in stopped:
            follower.lost.pop((topic, index), None)
            partition = self.partition(topic, index)
            if partition is not None:
                follower.reported.pop(partition, None)
                follower.candidates.pop(partition, None)
        refused: list[tuple[str, int, int]] = []
        for topic, entries in reports:
            hosted = self.hosted.get(topic, {})
            for index, leader_epoch, *fetch in entries:
                partition = hosted.get(index)
                verdict = judge(partition, leader_epoch)
                if partition is None or verdict is not ReportVerdict.OK:
                    refused.append((topic, index, verdict))
                    continue
                follower.reported[partition] = leader_epoch
                follower.lost.pop((topic, index), None)
                if partition.leading is not None and len(fetch) == 2:
                    partition.leading.reported(follower.id, *fetch)
                if follower.id not in partition.isr:
                    follower.candidates[partition] = None
        if self.disk is None:
            self._expand(follower)
        for topic, index in list(follower.lost):
            partition = self.partition(topic, index)
            if partition is not None and partition.is_leader:
                del follower.lost[topic, index]
                refused.append((topic, index, ReportVerdict.NOT_LEADER))
        return refused

    def fetches(self, follower: Follower) -> list[FetchAnswer]:
        """Return the new records for a follower in the partitions that it has reported; it may then join ISRs."""
        answers = []
        for partition in follower.reported:
            if partition.leading is not None:
                found = partition.leading.fetched(follower.id, self._now_ms, partition.topic, partition.partition)
                if found is not None:
                    answers.append(found)
                self.raise_hw(partition)
        self._expand(follower)
        return answers

    def fetch_of(self, partition: Partition) -> tuple[int, ...]:
        """Return what this broker, as a follower, reports about its log: (end, last epoch); empty without a disk.

        Releases that do not truncate on fetch first ask where their last epoch ends, and then fetch without an epoch.
        """
        if partition.stored is None:
            return ()
        log = partition.stored.log
        if self.protocol.truncates_on_fetch:
            return (log.end, log.epoch)
        return (NO_OFFSET, log.epoch) if partition.truncating else (log.end, NO_EPOCH)

    def take_fetched(self, fetcher: Fetcher, answers: Iterable[FetchAnswer]) -> bool:
        """Apply a leader's answers to the logs; returns whether any log has changed and must be reported again."""
        changed = False
        for answer in answers:
            partition = self.partition(answer.topic, answer.partition)
            if partition is None or partition not in fetcher.followed or partition.stored is None:
                continue
            if partition.leader_epoch == answer.leader_epoch:
                changed |= self._apply_fetched(fetcher, partition, answer)
        return changed

    def _apply_fetched(self, fetcher: Fetcher, partition: Partition, answer: FetchAnswer) -> bool:
        assert partition.stored is not None
        changed, asks_again = take_answer(partition.stored.log, answer)
        if answer.diverging is not None:
            partition.truncating = asks_again
        if changed:
            fetcher.unreported[partition] = None
        return changed

    # -- the high watermark ----------------------------------------------------------------------------------------

    def under_min_isr(self, partition: Partition) -> bool:
        """Whether the ISR is smaller than ``min.insync.replicas``."""
        return len(partition.isr) < min(self.min_isr_of(partition.topic), len(partition.replicas))

    def holds_lock(self, partition: Partition) -> bool:
        """Whether the leader waits for ZooKeeper, as before 2.7, and does not serve the partition meanwhile."""
        return partition.pending_isr is not None and not self.protocol.isr_by_alter_partition

    def raise_hw(self, partition: Partition) -> None:
        """Raise the partition's high watermark as far as the log ends of its ISR allow."""
        leading = partition.leading
        if leading is None or self.holds_lock(partition):
            return
        if self.generation.hw_needs_min_isr and self.under_min_isr(partition):
            return
        maximal = dict.fromkeys((*partition.isr, *(partition.pending_isr or ())))
        if leading.raise_hw(maximal, lambda follower: self._eligible(partition, follower), self._now_ms):
            self.progressed(partition)

    def _eligible(self, partition: Partition, follower: int) -> bool:
        alive = follower in self.metadata.alive or not self.generation.adds_live_followers_only
        return follower in partition.replicas and alive

    # -- the ISR ---------------------------------------------------------------------------------------------------

    def shrink_isrs(self, now_ms: int) -> int:
        """Request the removal of followers that are out of sync; returns the number of partitions concerned."""
        self._now_ms = now_ms
        latest = now_ms - self.replica_lag_time_max_ms
        asked = 0
        for partition in self.led:
            if partition.pending_isr is not None or len(partition.isr) < 2:
                continue
            in_sync = tuple(r for r in partition.isr if r == self.broker_id or self._in_sync(r, partition, latest))
            if len(in_sync) < len(partition.isr):
                self._ask(partition, in_sync)
                asked += 1
        return asked

    def _in_sync(self, replica: int, partition: Partition, latest_ms: int) -> bool:
        if partition.leading is not None:
            return partition.leading.in_sync(replica, self._now_ms)
        follower = self.followers.get(replica)
        if follower is not None and follower.reported.get(partition) == partition.leader_epoch:
            return follower.last_seen_ms > latest_ms
        return partition.leader_since_ms > latest_ms

    def _expand(self, follower: Follower) -> None:
        joined: list[Partition] = []
        for partition in follower.candidates:
            if follower.id in partition.isr:
                joined.append(partition)
            elif (
                partition.pending_isr is None
                and follower.reported.get(partition) == partition.leader_epoch
                and self._eligible(partition, follower.id)
                and (partition.leading is None or partition.leading.may_join(follower.id))
            ):
                self._ask(partition, (*partition.isr, follower.id))
        for partition in joined:
            del follower.candidates[partition]

    def _ask(self, partition: Partition, isr: tuple[int, ...]) -> None:
        partition.pending_isr = isr
        self.isr_changes[partition] = IsrChange(partition, partition.leader_epoch, isr, partition.partition_epoch)

    def isr_change_answered(
        self, change: IsrChange, error_code: int, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> bool:
        """Apply the answer; True when the change has to be requested again (see the module and KIP-497).

        The last three arguments are ignored if there is an error.
        """
        partition = change.partition
        if self.isr_changes.get(partition) is not change:
            return False  # a LeaderAndIsr or StopReplica arrived first
        if error_code and self.generation.takes_refusals_back:
            if error_code in _REVERT:
                self.revert_isr_change(change)
                return False
            if error_code not in _WAIT_FOR_LEADER_AND_ISR:
                return True
        if error_code:
            del self.isr_changes[partition]  # pending_isr stays: our state is outdated
            return False
        del self.isr_changes[partition]
        if leader_epoch != partition.leader_epoch or partition_epoch < partition.partition_epoch:
            return False  # a newer leadership is on its way
        partition.isr, partition.partition_epoch, partition.pending_isr = isr, partition_epoch, None
        self.raise_hw(partition)
        self._note_candidates(partition)
        return False

    def revert_isr_change(self, change: IsrChange) -> None:
        """Return to the old ISR after a change that was not made; it may be requested again."""
        partition = change.partition
        if self.isr_changes.get(partition) is change:
            del self.isr_changes[partition]
            partition.pending_isr = None
            self._note_candidates(partition)

    def _note_candidates(self, partition: Partition) -> None:
        for follower in self.followers.values():
            if partition in follower.reported and follower.id not in partition.isr:
                follower.candidates[partition] = None


_REVERT = (KafkaErrorCode.INELIGIBLE_REPLICA, KafkaErrorCode.OPERATION_NOT_ATTEMPTED)
_WAIT_FOR_LEADER_AND_ISR = (
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaErrorCode.UNKNOWN_TOPIC_ID,
    KafkaErrorCode.FENCED_LEADER_EPOCH,
    KafkaErrorCode.INVALID_UPDATE_VERSION,
    KafkaErrorCode.INVALID_REQUEST,
)
