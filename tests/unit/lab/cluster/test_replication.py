"""Leaders and followers with logs: fetching, truncation, the ISR and the high watermark, without sockets or time."""

from __future__ import annotations

import pytest

from aiocontroller.lab.cluster.broker_requests import (
    LeaderAndIsrRequest,
    LiveBroker,
    PartitionState,
    StopReplicaRequest,
    TopicStates,
    UpdateMetadataRequest,
    run_to_end,
)
from aiocontroller.lab.cluster.generations import GENERATIONS, Protocol
from aiocontroller.lab.cluster.logs import Disk, Log, Run, deleted
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import Partition
from aiocontroller.lab.cluster.replica_manager import ReplicaManager

LAG_MS = 1000
OLD = Protocol(2, 4, 1)
IDS = {"now": b"N" * 16, "before": b"B" * 16}


class Brokers:
    """Brokers 1 to 3 with the partition t-0, which receive at once what is sent."""

    def __init__(self, release: str = "3.9", protocol: Protocol | None = None, min_insync_replicas: int = 1) -> None:
        self.now_ms = 0
        self.managers: dict[int, ReplicaManager] = {}
        for broker in (1, 2, 3):
            metadata = MetadataCache()
            live = [LiveBroker(each, (), None) for each in (1, 2, 3)]
            run_to_end(metadata.update(UpdateMetadataRequest(9, 1, -1, [], live)))
            self.managers[broker] = ReplicaManager(
                broker,
                metadata,
                replica_lag_time_max_ms=LAG_MS,
                generation=GENERATIONS[release],
                protocol=protocol,
                min_insync_replicas=min_insync_replicas,
                disk=Disk(),
            )

    def lead(
        self, leader: int, isr: tuple[int, ...], *, epoch: int, to: tuple[int, ...] = (1, 2, 3), topic: str = "now"
    ) -> list[int]:
        """A LeaderAndIsr to these brokers; returns their codes."""
        state = PartitionState(0, 1, leader, epoch, isr, 10 * epoch, (1, 2, 3))
        request = LeaderAndIsrRequest(9, 1, -1, [TopicStates("t", IDS[topic], [state])], [])
        answers = [run_to_end(self.managers[b].become_leader_or_follower(request, self.now_ms)) for b in to]
        return [code for codes in answers for ((_, code),) in codes.values()]

    def partition(self, broker: int) -> Partition:
        found = self.managers[broker].partition("t", 0)
        assert found is not None
        return found

    def log(self, broker: int) -> Log:
        stored = self.partition(broker).stored
        assert stored is not None
        return stored.log

    def append(self, broker: int, count: int = 1) -> None:
        leading = self.partition(broker).leading
        assert leading is not None
        leading.log.append(leading.epoch, broker, count)
        self.managers[broker].raise_hw(self.partition(broker))

    def beat(self, follower: int, times: int = 1) -> None:
        """The follower reports its log to its leader, and takes what comes back."""
        for _ in range(times):
            partition, mine = self.partition(follower), self.managers[follower]
            leader = self.managers[partition.leader]
            known = leader.followers.get(follower) or leader.follower_connected(follower, self.now_ms)
            report = (0, partition.leader_epoch, *mine.fetch_of(partition))
            leader.follower_reports(known, [("t", [report])], [], self.now_ms)
            mine.take_fetched(mine.fetchers[partition.leader], leader.fetches(known))

    def asked(self, leader: int) -> tuple[int, ...] | None:
        return self.partition(leader).pending_isr

    def grant(self, leader: int, error: int = 0) -> None:
        (change,) = self.managers[leader].isr_changes.values()
        self.managers[leader].isr_change_answered(
            change, error, change.leader_epoch, change.isr, change.partition_epoch + 1
        )


def test_records_are_committed_when_all_in_sync_have_them() -> None:
    brokers = Brokers()
    assert brokers.lead(1, (1, 2), epoch=0) == [0, 0, 0]
    brokers.append(1, 3)
    brokers.beat(2)
    assert (brokers.log(2).end, brokers.log(1).hw) == (3, 0)
    brokers.beat(2)
    assert (brokers.log(2).hw, brokers.log(1).hw) == (0, 3)  # the answer was made before
    brokers.beat(2)
    assert brokers.log(2).hw == 3


def test_a_leader_alone_commits_at_once() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1)
    assert brokers.log(1).hw == 1


@pytest.mark.parametrize("protocol", [None, OLD])
def test_a_follower_removes_what_the_leader_does_not_have(protocol: Protocol | None) -> None:
    brokers = Brokers("2.4" if protocol else "3.9", protocol)
    brokers.lead(1, (1, 2, 3), epoch=0)
    brokers.append(1, 2)
    brokers.beat(2, 2)
    brokers.append(1, 5)  # no follower fetches these
    brokers.lead(2, (2, 3), epoch=1, to=(2, 3))
    brokers.append(2, 4)
    brokers.append(1, 1)  # it has not heard of its end
    brokers.lead(2, (2, 3), epoch=1, to=(1,))
    brokers.beat(1, 4)
    assert brokers.log(1).runs == brokers.log(2).runs
    assert brokers.log(1).runs == [Run(0, 1, 2), Run(1, 2, 6)]


@pytest.mark.parametrize("protocol", [None, OLD])
def test_a_follower_removes_what_its_leader_lost_with_its_power(protocol: Protocol | None) -> None:
    brokers = Brokers("2.4" if protocol else "3.9", protocol)
    brokers.lead(1, (1, 2), epoch=0)
    brokers.append(1, 2)
    brokers.beat(2, 2)
    assert brokers.log(2).end == 2
    brokers.log(1).truncate(0)
    brokers.beat(2, 2)
    assert brokers.log(2).end == 0


def test_a_follower_that_has_led_twice_asks_again() -> None:
    brokers = Brokers("2.4", OLD)
    brokers.lead(1, (1, 2, 3), epoch=0)
    for broker, runs in {1: [(0, 1, 2), (3, 1, 5), (5, 1, 6)], 2: [(0, 1, 2), (4, 2, 9)]}.items():
        brokers.log(broker).runs[:] = [Run(*run) for run in runs]
    brokers.lead(2, (2,), epoch=6)
    brokers.beat(1)
    assert brokers.log(1).end == 5  # the leader's largest epoch up to 5 is 4, which the follower does not know
    assert brokers.partition(1).truncating
    brokers.beat(1, 3)
    assert brokers.log(1).runs == brokers.log(2).runs[:2]


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1, 3)
    brokers.beat(2)
    assert brokers.asked(1) is None
    brokers.beat(2)
    assert brokers.asked(1) == (1, 2)
    late = Brokers()
    late.lead(1, (1,), epoch=0)
    late.append(1, 3)
    late.log(1).hw = 0  # as after a crash
    late.lead(1, (1, 3), epoch=1)
    late.beat(2)
    assert late.asked(1) is None  # it is at the high watermark, and not at the epoch's start
    late.beat(2)
    assert late.asked(1) == (1, 3, 2)


def test_a_follower_whose_log_diverges_does_not_join() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1, 3)
    brokers.lead(2, (2,), epoch=1)
    brokers.append(2, 3)
    brokers.beat(1)  # it ends where its leader does, with other records
    assert brokers.asked(2) is None
    brokers.beat(1)
    assert brokers.asked(2) is None
    brokers.beat(1)
    assert brokers.asked(2) == (2, 1)


def test_a_follower_without_an_epoch_that_ends_after_its_leader_does_not_join() -> None:
    brokers = Brokers("2.4", OLD)
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1, 2)
    brokers.partition(1).pending_isr = (1,)  # so that nothing is requested yet
    brokers.beat(2, 2)
    brokers.partition(1).pending_isr = None
    brokers.log(1).truncate(0)  # its leader has lost its power
    brokers.beat(2)
    assert brokers.asked(1) is None
    brokers.beat(2)
    assert (brokers.log(2).end, brokers.asked(1)) == (0, (1, 2))


def test_a_log_that_diverges_commits_nothing() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1, 3)
    brokers.lead(2, (2, 1), epoch=1)
    brokers.append(2, 3)
    brokers.beat(1)
    assert brokers.log(2).hw == 0
    brokers.beat(1)
    assert brokers.log(2).hw == 0
    brokers.beat(1)
    assert brokers.log(2).hw == 3


def test_one_who_may_be_in_the_isr_already_holds_the_high_watermark() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.beat(2)
    assert brokers.asked(1) == (1, 2)
    brokers.now_ms += 10 * LAG_MS
    brokers.append(1)
    assert brokers.log(1).hw == 0
    brokers.grant(1, error=107)
    brokers.managers[1].shrink_isrs(brokers.now_ms)
    brokers.append(1)
    assert brokers.log(1).hw == 2


def test_a_leader_that_writes_its_isr_moves_nothing_meanwhile() -> None:
    brokers = Brokers("2.4", OLD)
    brokers.lead(1, (1,), epoch=0)
    brokers.beat(2, 2)
    assert brokers.managers[1].holds_lock(brokers.partition(1))
    brokers.log(1).append(0, 1, 1)
    brokers.managers[1].raise_hw(brokers.partition(1))
    assert brokers.log(1).hw == 0
    brokers.grant(1)
    brokers.beat(2, 2)
    assert brokers.log(1).hw == 1


def test_a_follower_that_has_just_caught_up_holds_the_high_watermark_too() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.partition(1).pending_isr = (1,)  # so that nothing else is requested
    brokers.beat(2)
    brokers.append(1)
    assert brokers.log(1).hw == 0
    brokers.now_ms += LAG_MS + 1
    brokers.managers[1].shrink_isrs(brokers.now_ms)
    brokers.append(1)
    assert brokers.log(1).hw == 2


@pytest.mark.parametrize("release, hw", [("3.3", 1), ("3.7", 0)])
def test_too_small_an_isr_commits_nothing_from_3_7_on(release: str, hw: int) -> None:
    brokers = Brokers(release, min_insync_replicas=2)
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1)
    assert brokers.log(1).hw == hw


def test_a_follower_at_the_end_of_the_log_is_never_out_of_sync() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    brokers.beat(2)
    brokers.now_ms += 10 * LAG_MS
    assert brokers.managers[1].shrink_isrs(brokers.now_ms) == 0
    brokers.append(1)
    assert brokers.managers[1].shrink_isrs(brokers.now_ms) == 1
    assert brokers.asked(1) == (1,)


def test_one_that_was_at_the_end_a_moment_ago_is_in_sync() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    for _ in range(5):
        brokers.append(1)
        brokers.now_ms += LAG_MS // 2
        brokers.beat(2)
        assert brokers.managers[1].shrink_isrs(brokers.now_ms) == 0
    brokers.append(1)
    brokers.now_ms += 2 * LAG_MS
    assert brokers.managers[1].shrink_isrs(brokers.now_ms) == 1


# -- what is on disk ---------------------------------------------------------------------------------------------------


def test_the_log_of_an_earlier_topic_is_refused() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0, topic="before")
    brokers.append(1)
    disk = brokers.managers[1].disk
    assert disk is not None
    again = Brokers()
    again.managers[1].disk = disk.reopen()
    assert again.lead(1, (1, 2), epoch=0) == [103, 0, 0]
    run_to_end(again.managers[1].stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, -2, True)])))
    assert again.lead(1, (1, 2), epoch=0, to=(1,)) == [0]
    assert again.log(1).end == 0


def test_a_new_process_has_its_log_and_a_failed_directory_has_none() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    brokers.append(1, 2)
    disk = brokers.managers[1].disk
    assert disk is not None
    again = Brokers()
    again.managers[1].disk = disk.reopen()
    again.lead(1, (1, 2), epoch=1)
    assert again.log(1).runs == [Run(0, 1, 2), Run(1, 1, 2)]
    again.managers[1].fail_log_dir([("t", 0)])
    assert again.managers[1].disk.logs == {}
    assert again.lead(1, (1, 2), epoch=2) == [56, 0, 0]


def test_stop_replica_deletes_the_log() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    for delete in (False, True):
        run_to_end(brokers.managers[2].stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, 1, delete)])))
        disk = brokers.managers[2].disk
        assert disk is not None
        assert bool(disk.logs) is not delete


# -- retention ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [None, OLD])
def test_a_follower_that_ends_before_its_leader_begins_starts_anew(protocol: Protocol | None) -> None:
    brokers = Brokers("2.4" if protocol else "3.9", protocol)
    brokers.lead(1, (1, 2), epoch=0)
    brokers.append(1, 5)
    brokers.beat(2, 3)
    brokers.lead(1, (1,), epoch=1)
    brokers.append(1, 5)
    brokers.log(1).delete_before(8)
    assert brokers.log(1).runs == [deleted(8), Run(1, 1, 10)]
    brokers.beat(2)
    assert (brokers.log(2).runs, brokers.log(2).hw) == ([deleted(8)], 8)
    brokers.beat(2)
    assert brokers.log(2).runs == brokers.log(1).runs
    assert brokers.asked(1) is None
    brokers.beat(2)
    assert brokers.asked(1) == (1, 2)


def test_a_follower_deletes_what_its_leader_has_deleted() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    brokers.append(1, 5)
    brokers.beat(2, 2)
    brokers.log(1).delete_before(4)
    assert brokers.log(2).start == 0
    brokers.append(1)
    brokers.beat(2)
    assert (brokers.log(2).start, brokers.log(2).hw) == (4, 5)


def test_a_follower_keeps_what_it_does_not_know_to_be_committed() -> None:
    brokers = Brokers()
    brokers.lead(1, (1, 2), epoch=0)
    brokers.append(1, 5)
    brokers.beat(2, 2)
    brokers.log(1).delete_before(4)
    brokers.lead(2, (1, 2), epoch=1)
    assert (brokers.log(2).start, brokers.log(2).hw) == (0, 0)
    brokers.beat(1, 2)
    assert brokers.log(2).hw == 5
    assert (brokers.log(1).start, brokers.log(1).end) == (4, 5)


def test_a_follower_removes_the_whole_log_if_its_leader_ends_before_it_begins() -> None:
    brokers = Brokers()
    brokers.lead(1, (1,), epoch=0)
    brokers.append(1, 10)
    brokers.log(1).delete_before(8)
    brokers.lead(2, (2,), epoch=1)
    brokers.append(2, 3)
    brokers.beat(1, 4)
    assert brokers.log(1).runs == brokers.log(2).runs == [Run(1, 2, 3)]
