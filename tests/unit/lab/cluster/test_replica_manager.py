"""Leading, following and ISR changes of one simulated broker, without sockets or time."""

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
from aiocontroller.lab.cluster.generations import GENERATIONS
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import IsrChange, Partition, ReportVerdict
from aiocontroller.lab.cluster.replica_manager import ReplicaManager

LAG_MS = 1000
ID = b"T" * 16


def manager(broker: int = 1, alive: tuple[int, ...] = (1, 2, 3)) -> ReplicaManager:
    metadata = MetadataCache()
    update_alive(metadata, alive)
    return ReplicaManager(broker, metadata, replica_lag_time_max_ms=LAG_MS)


def update_alive(metadata: MetadataCache, alive: tuple[int, ...]) -> None:
    live = [LiveBroker(broker, (), None) for broker in alive]
    run_to_end(metadata.update(UpdateMetadataRequest(9, 1, -1, [], live)))


def become(
    replicas: ReplicaManager,
    leader: int,
    isr: tuple[int, ...],
    *,
    epoch: int = 0,
    topic_id: bytes = ID,
    assigned: tuple[int, ...] = (1, 2, 3),
    now_ms: int = 0,
) -> int:
    """The code that one partition of a LeaderAndIsr gets."""
    state = PartitionState(0, 1, leader, epoch, isr, 10 * epoch, assigned)
    request = LeaderAndIsrRequest(9, 1, -1, [TopicStates("t", topic_id, [state])], [])
    codes = run_to_end(replicas.become_leader_or_follower(request, now_ms))
    ((_, code),) = codes["t", topic_id]
    return code


def the_partition(replicas: ReplicaManager) -> Partition:
    partition = replicas.partition("t", 0)
    assert partition is not None
    return partition


def the_change(replicas: ReplicaManager) -> IsrChange:
    (change,) = replicas.isr_changes.values()
    return change


def reports(replicas: ReplicaManager, follower: int, epoch: int, *, now_ms: int = 0) -> list[tuple[str, int, int]]:
    known = replicas.followers.get(follower) or replicas.follower_connected(follower, now_ms)
    return replicas.follower_reports(known, [("t", [(0, epoch)])], [], now_ms)


def nothing_new(
    replicas: ReplicaManager, follower: int, *, stopped: list[tuple[str, int]] | None = None
) -> list[tuple[str, int, int]]:
    """A heartbeat of the follower."""
    return replicas.follower_reports(replicas.followers[follower], [], stopped or [], 0)


def granted(replicas: ReplicaManager, change: IsrChange) -> bool:
    return replicas.isr_change_answered(change, 0, change.leader_epoch, change.isr, change.partition_epoch + 1)


def test_leader_epochs_decide_what_is_applied() -> None:
    replicas = manager()
    assert become(replicas, 1, (1, 2, 3), epoch=5) == 0
    assert become(replicas, 2, (2, 3), epoch=4) == 11
    assert become(replicas, 2, (2, 3), epoch=5) == 11
    assert the_partition(replicas).is_leader
    assert become(replicas, 2, (2, 3), epoch=6) == 0
    assert not the_partition(replicas).is_leader
    assert not replicas.led


def test_the_same_leader_epoch_may_bring_the_topic_id_which_then_stays() -> None:
    replicas = manager()
    assert become(replicas, 1, (1,), epoch=5, topic_id=bytes(16)) == 0
    assert become(replicas, 1, (1,), epoch=5) == 0
    assert become(replicas, 1, (1,), epoch=5) == 11
    assert become(replicas, 1, (1,), epoch=5, topic_id=bytes(16)) == 11
    assert become(replicas, 1, (1,), epoch=6, topic_id=bytes(16)) == 0
    assert the_partition(replicas).topic_id == ID
    assert become(replicas, 1, (1,), epoch=7, topic_id=b"O" * 16) == 103
    assert become(replicas, 1, (1,), epoch=4, topic_id=b"O" * 16) == 103


def test_a_partition_of_others_is_unknown() -> None:
    assert become(manager(), 2, (2,), assigned=(2, 3)) == 3


def test_a_topic_that_is_there_twice_spoils_the_request() -> None:
    twice = [TopicStates("t", ID, []), TopicStates("t", ID, [])]
    with pytest.raises(ValueError, match="twice"):
        run_to_end(manager().become_leader_or_follower(LeaderAndIsrRequest(9, 1, -1, twice, []), 0))


def test_a_follower_fetches_only_from_a_leader_that_it_knows_to_be_alive() -> None:
    replicas = manager(2, alive=(2, 3))
    become(replicas, 1, (1, 2), epoch=0)
    assert not replicas.fetchers
    become(replicas, 3, (3, 2), epoch=1)
    assert list(replicas.fetchers[3].unreported) == [the_partition(replicas)]
    become(replicas, 2, (2,), epoch=2)
    assert not replicas.fetchers[3].followed
    assert list(replicas.fetchers[3].stopped) == [("t", 0)]


def test_a_follower_that_reports_joins_the_isr() -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    assert reports(replicas, 2, 5) == []
    change = the_change(replicas)
    assert (change.isr, change.leader_epoch, change.partition_epoch) == ((1, 2), 5, 50)
    assert the_partition(replicas).isr == (1,)  # committed only when the controller says so
    assert reports(replicas, 3, 5) == []
    assert the_change(replicas) is change  # one question at a time
    assert granted(replicas, change) is False
    assert the_partition(replicas).isr == (1, 2)
    reports(replicas, 3, 5)
    assert the_change(replicas).isr == (1, 2, 3)


@pytest.mark.parametrize(
    "epoch,verdict", [(4, ReportVerdict.FENCED_LEADER_EPOCH), (6, ReportVerdict.UNKNOWN_LEADER_EPOCH)]
)
def test_reports_of_another_leader_epoch_are_refused(epoch: int, verdict: ReportVerdict) -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    assert reports(replicas, 2, epoch) == [("t", 0, verdict)]
    assert not replicas.isr_changes
    assert verdict.retriable is (epoch > 5)


def test_only_the_leader_takes_reports() -> None:
    replicas = manager()
    assert reports(replicas, 2, 5) == [("t", 0, ReportVerdict.NOT_LEADER)]
    become(replicas, 2, (2,), epoch=5)
    assert reports(replicas, 3, 5) == [("t", 0, ReportVerdict.NOT_LEADER)]


def test_a_follower_that_is_dead_in_the_metadata_cache_does_not_join() -> None:
    replicas = manager(alive=(1, 3))
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    assert not replicas.isr_changes
    update_alive(replicas.metadata, (1, 2, 3))
    replicas.follower_reports(replicas.followers[2], [], [], 100)  # the next heartbeat
    assert the_change(replicas).isr == (1, 2)


def test_silent_followers_leave_the_isr() -> None:
    replicas = manager()
    become(replicas, 1, (1, 2, 3), epoch=5, now_ms=0)
    reports(replicas, 2, 5, now_ms=100)
    assert replicas.shrink_isrs(LAG_MS - 1) == 0
    assert replicas.shrink_isrs(LAG_MS + 50) == 1  # 3 never reported
    assert the_change(replicas).isr == (1, 2)
    assert replicas.shrink_isrs(LAG_MS + 5000) == 0  # asked already
    granted(replicas, the_change(replicas))
    assert replicas.shrink_isrs(LAG_MS + 100) == 1  # 2 went silent
    assert the_change(replicas).isr == (1,)


def test_a_connection_anew_forgets_what_the_old_one_reported() -> None:
    replicas = manager()
    become(replicas, 1, (1, 2), epoch=5)
    reports(replicas, 2, 5)
    replicas.follower_connected(2, 2 * LAG_MS)
    assert replicas.shrink_isrs(2 * LAG_MS) == 1


def test_a_follower_that_stops_is_not_added_again() -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    follower = replicas.follower_connected(2, 0)
    replicas.follower_reports(follower, [("t", [(0, 4)])], [("t", 0)], 0)
    assert not replicas.isr_changes


def test_a_follower_of_a_replica_that_was_deleted_and_is_back_is_asked_to_report_again() -> None:
    """A topic's deletion may be withdrawn after a leader has carried it out: it leads again in the same epoch."""
    replicas = manager()
    become(replicas, 1, (1, 2, 3), epoch=5)
    for follower in (2, 3):
        reports(replicas, follower, 5)
    replicas.follower_connected(4, 0)
    run_to_end(replicas.stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, 5, True)])))
    assert nothing_new(replicas, 2) == []
    assert nothing_new(replicas, 3, stopped=[("t", 0)]) == []
    become(replicas, 2, (2, 3), epoch=5)
    assert nothing_new(replicas, 2) == [], "it is told when this broker leads"
    run_to_end(replicas.stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, 5, True)])))
    become(replicas, 1, (1, 2, 3), epoch=5)
    assert nothing_new(replicas, 2) == [("t", 0, ReportVerdict.NOT_LEADER)]
    assert ReportVerdict.NOT_LEADER.retriable
    assert [nothing_new(replicas, follower) for follower in (2, 3, 4)] == [[], [], []]


def test_a_follower_that_reports_by_itself_is_not_asked_to() -> None:
    replicas = manager()
    become(replicas, 1, (1, 2), epoch=5)
    reports(replicas, 2, 5)
    run_to_end(replicas.stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, 5, True)])))
    become(replicas, 1, (1, 2), epoch=6)
    assert reports(replicas, 2, 6) == nothing_new(replicas, 2) == []


@pytest.mark.parametrize("code", [55, 107])
def test_an_ineligible_replica_reverts_the_change_and_it_is_tried_at_the_next_heartbeat(code: int) -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    assert replicas.isr_change_answered(the_change(replicas), code, 0, (), 0) is False
    assert not replicas.isr_changes
    assert the_partition(replicas).pending_isr is None
    replicas.follower_reports(replicas.followers[2], [], [], 100)
    assert the_change(replicas).isr == (1, 2)


@pytest.mark.parametrize("code", [3, 42, 74, 95, 100])
def test_other_refusals_wait_for_the_next_leader_and_isr(code: int) -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    assert replicas.isr_change_answered(the_change(replicas), code, 0, (), 0) is False
    assert not replicas.isr_changes
    assert the_partition(replicas).pending_isr == (1, 2)
    reports(replicas, 2, 5)
    assert not replicas.isr_changes
    become(replicas, 1, (1,), epoch=6)
    assert the_partition(replicas).pending_isr is None


def test_unexpected_errors_are_asked_again() -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    change = the_change(replicas)
    assert replicas.isr_change_answered(change, 56, 0, (), 0) is True
    assert the_change(replicas) is change


def test_answers_to_an_older_leadership_change_nothing() -> None:
    replicas = manager()
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    old = the_change(replicas)
    become(replicas, 1, (1, 3), epoch=6)
    assert not replicas.isr_changes
    assert granted(replicas, old) is False
    assert the_partition(replicas).isr == (1, 3)

    reports(replicas, 2, 6)
    change = the_change(replicas)
    assert replicas.isr_change_answered(change, 0, 6, (1, 3, 2), change.partition_epoch - 1) is False
    assert the_partition(replicas).isr == (1, 3)  # an older partition epoch than ours


def test_stop_replica_is_fenced_by_the_leader_epoch_unless_it_deletes() -> None:
    replicas = manager()
    become(replicas, 1, (1, 2), epoch=5)

    def stop(epoch: int, delete: bool) -> int:
        request = StopReplicaRequest(9, 1, -1, [("t", 0, epoch, delete)])
        ((_, _, code),) = run_to_end(replicas.stop_replicas(request))
        return code

    assert stop(4, True) == 74
    assert replicas.led
    assert stop(5, False) == 0
    assert not replicas.led
    assert replicas.partition("t", 0) is not None
    assert stop(-1, False) == 0
    assert stop(-2, True) == 0
    assert replicas.partition("t", 0) is None
    assert stop(0, True) == 0  # unknown: nothing to do
    assert become(replicas, 1, (1,), epoch=0, topic_id=b"N" * 16) == 0  # a new topic of that name


def test_controller_epochs_only_rise() -> None:
    replicas = manager()
    assert replicas.accepts(5)
    assert not replicas.accepts(4)
    assert replicas.accepts(5)
    assert replicas.controller_epoch == 5


def test_metadata_merges_partitions_and_replaces_brokers() -> None:
    cache = MetadataCache()

    def update(leader: int, topic_id: bytes, *partitions: int, alive: tuple[int, ...] = (1,)) -> None:
        states = [PartitionState(p, 1, leader, 0, (1,), 0, (1,)) for p in partitions]
        live = [LiveBroker(broker, (), None) for broker in alive]
        run_to_end(cache.update(UpdateMetadataRequest(9, 1, -1, [TopicStates("t", topic_id, states)], live)))

    update(1, ID, 0, 1)
    update(2, ID, 1, alive=(2,))
    assert {p: s.leader for p, s in cache.topics["t"].partitions.items()} == {0: 1, 1: 2}
    assert list(cache.alive) == [2]
    assert cache.topic_by_id[ID] is cache.topics["t"]
    update(-2, ID, 0)
    assert (cache.partition_count, list(cache.topics["t"].partitions)) == (1, [1])
    update(-2, ID, 1)
    assert (cache.partition_count, cache.topics, cache.topic_by_id) == (0, {}, {})


# -- what differs among releases; real ones are asked the same in tests/integration/kafka/test_generations.py ----------


def of(release: str, broker: int = 1, alive: tuple[int, ...] = (1, 2, 3)) -> ReplicaManager:
    metadata = MetadataCache()
    update_alive(metadata, alive)
    return ReplicaManager(broker, metadata, replica_lag_time_max_ms=LAG_MS, generation=GENERATIONS[release])


def stopped(replicas: ReplicaManager, epoch: int, *, delete: bool = True) -> int:
    """The code that one partition of a StopReplica gets."""
    ((_, _, code),) = run_to_end(replicas.stop_replicas(StopReplicaRequest(9, 1, -1, [("t", 0, epoch, delete)])))
    return code


@pytest.mark.parametrize(
    "release, code", [("2.2", 74), ("2.4", 74), ("2.8", 74), ("3.0", 74), ("3.3", 74), ("3.7", 0), ("3.9", 0)]
)
def test_stop_replica_with_the_leader_epoch_that_the_replica_has(release: str, code: int) -> None:
    """KAFKA-13972; brokers of 2.2 and 2.4 have no request with an epoch, and receive none."""
    replicas = of(release)
    become(replicas, 1, (1, 2), epoch=5)
    assert stopped(replicas, 4) == 74
    assert stopped(replicas, 5) == code
    assert (replicas.partition("t", 0) is None) is (code == 0)
    for epoch in (6, -1, -2):
        become(replicas, 1, (1, 2), epoch=5)
        assert stopped(replicas, epoch) == 0
        assert replicas.partition("t", 0) is None


def test_topic_id_of_a_request_counts_in_2_8_whatever_comes_of_it() -> None:
    replicas = of("2.8")
    assert become(replicas, 1, (1, 2), epoch=5) == 0
    assert the_partition(replicas).topic_id == bytes(16), "a replica that is made takes none"
    assert become(replicas, 1, (1, 2), epoch=4) == 11
    assert the_partition(replicas).topic_id == ID
    assert become(replicas, 1, (1, 2), epoch=6, topic_id=b"U" * 16) == 103


@pytest.mark.parametrize("release, code", [("2.8", 11), ("3.0", 11), ("3.3", 0), ("3.9", 0)])
def test_follower_that_is_sent_no_topic_id_any_more(release: str, code: int) -> None:
    replicas = of(release)
    become(replicas, 2, (1, 2), epoch=5)
    become(replicas, 2, (1, 2), epoch=5)
    assert the_partition(replicas).topic_id == ID
    assert become(replicas, 2, (1, 2), epoch=5, topic_id=bytes(16)) == code
    assert the_partition(replicas).topic_id == ID


@pytest.mark.parametrize("release, code", [("2.2", 56), ("3.0", 56), ("3.3", 0), ("3.9", 0)])
def test_broker_that_is_no_replica_takes_its_disk_for_failed(release: str, code: int) -> None:
    replicas = of(release)
    no_id = bytes(16)
    assert become(replicas, 2, (2, 3), epoch=5, assigned=(2, 3), topic_id=no_id) == 3
    assert become(replicas, 1, (1, 2), epoch=6, topic_id=no_id) == code
    another = PartitionState(0, 1, 1, 1, (1, 2), 0, (1, 2))
    request = LeaderAndIsrRequest(9, 1, -1, [TopicStates("u", no_id, [another])], [])
    assert run_to_end(replicas.become_leader_or_follower(request, 0)) == {("u", no_id): [(0, 0)]}, "others are as ever"


@pytest.mark.parametrize("release", list(GENERATIONS))
def test_follower_of_a_dead_leader_keeps_what_it_has(release: str) -> None:
    replicas = of(release, alive=(1, 3))
    no_id = bytes(16)
    become(replicas, 1, (1, 2), epoch=5, topic_id=no_id)
    assert become(replicas, 2, (2,), epoch=6, topic_id=no_id) == 0
    assert (the_partition(replicas).leader_epoch, the_partition(replicas).is_leader) == (5, True)
    update_alive(replicas.metadata, (1, 2, 3))
    assert become(replicas, 2, (2,), epoch=6, topic_id=no_id) == 0
    assert (the_partition(replicas).leader_epoch, the_partition(replicas).is_leader) == (6, False)


@pytest.mark.parametrize("release, joins", [("2.2", True), ("3.0", True), ("3.3", False), ("3.9", False)])
def test_follower_that_is_not_alive_in_the_metadata(release: str, joins: bool) -> None:
    replicas = of(release, alive=(1,))
    become(replicas, 1, (1,), epoch=5, topic_id=bytes(16))
    reports(replicas, 2, 5)
    assert bool(replicas.isr_changes) is joins


@pytest.mark.parametrize(
    "release, code, again",
    [("2.8", 107, False), ("3.0", 55, False), ("3.0", 87, False), ("3.3", 107, True), ("3.9", 55, True)],
)
def test_leader_whose_isr_is_refused(release: str, code: int, again: bool) -> None:
    """Up to 3.0 it asks no more, until a later leader epoch."""
    replicas = of(release)
    become(replicas, 1, (1,), epoch=5)
    reports(replicas, 2, 5)
    replicas.isr_change_answered(the_change(replicas), code, -1, (), -1)
    reports(replicas, 2, 5)
    assert bool(replicas.isr_changes) is again
    become(replicas, 1, (1,), epoch=6)
    reports(replicas, 2, 6)
    assert replicas.isr_changes


@pytest.mark.parametrize("release, code", [("2.8", 0), ("3.0", 0), ("3.3", 0), ("3.9", 0)])
def test_leader_and_isr_with_a_lower_partition_epoch(release: str, code: int) -> None:
    replicas = of(release)
    become(replicas, 1, (1, 2), epoch=5)
    the_partition(replicas).partition_epoch = 70
    assert become(replicas, 1, (1,), epoch=6) == code
    assert the_partition(replicas).leader_epoch == (5 if release >= "3.3" else 6)
