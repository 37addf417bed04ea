"""The request batch: what Kafka's ``ControllerChannelManagerTest`` pins about what brokers hear, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.request_batch import (
    LEADERS_FIRST_UP_TO,
    LeaderAndIsrRequest,
    RequestBatch,
    Requests,
    StopReplicaRequest,
    UpdateMetadataRequest,
    leaders_first,
)
from tests.builders import ctx, lead, row_of


def cluster(*, shutting_down: Sequence[int] = (), dead: Sequence[int] = ()) -> ControllerContext:
    """Brokers 1 to 3; foo-0, foo-1, bar-0, bar-1 with three replicas each, all led."""
    topics = {"foo": [[1, 2, 3], [2, 3, 1]], "bar": [[3, 1, 2], [1, 3, 2]]}
    context = ctx(3, topics, shutting_down=shutting_down, dead=dead)
    lead(context, "foo-0", 1, (1, 2), leader_epoch=10)
    lead(context, "foo-1", 2, (2, 3), leader_epoch=11)
    lead(context, "bar-1", 3, (1, 3), leader_epoch=13)
    return context


def rows_of(context: ControllerContext, *names: str) -> list[int]:
    return [row_of(context, name) for name in names]


# -- LeaderAndIsr ------------------------------------------------------------------------------------------------------


def test_leader_and_isr_request_sent() -> None:
    """One request for the broker, and the same partitions by UpdateMetadata for all of them."""
    context = cluster()
    batch = RequestBatch(context)
    for name in ("bar-1", "foo-0", "foo-1"):
        batch.add_leader_and_isr_request_for_brokers([2], rows_of(context, name), is_new=False)
    rows = sorted(rows_of(context, "foo-0", "foo-1", "bar-1"))
    assert batch.take() == Requests(
        [LeaderAndIsrRequest(2, rows, frozenset())], UpdateMetadataRequest([1, 2, 3], rows), []
    )


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_leader_and_isr_request_is_new(flags: tuple[bool, ...]) -> None:
    context = cluster()
    batch = RequestBatch(context)
    for flag in flags:
        batch.add_leader_and_isr_request_for_brokers([2], [0], is_new=flag)
    batch.add_leader_and_isr_request_for_brokers([2], [1], is_new=False)
    assert batch.take().leader_and_isr == [LeaderAndIsrRequest(2, [0, 1], frozenset({0}))]


def test_is_new_sticks_to_one_broker_only() -> None:
    context = cluster()
    batch = RequestBatch(context)
    batch.add_leader_and_isr_request_for_brokers([2], [0], is_new=True)
    batch.add_leader_and_isr_request_for_brokers([1, 2], [0], is_new=False)
    assert batch.take().leader_and_isr == [
        LeaderAndIsrRequest(1, [0], frozenset()),
        LeaderAndIsrRequest(2, [0], frozenset({0})),
    ]


def test_leader_and_isr_request_sent_to_live_or_shutting_down_brokers() -> None:
    context = cluster(shutting_down=[2], dead=[3])
    batch = RequestBatch(context)
    batch.add_leader_and_isr_request_for_brokers([1, 2, 3, -1], [0], is_new=False)
    assert batch.take() == Requests(
        [LeaderAndIsrRequest(1, [0], frozenset()), LeaderAndIsrRequest(2, [0], frozenset())],
        UpdateMetadataRequest([1, 2], [0]),
        [],
    )


def test_all_hear_of_a_leadership_even_when_none_of_its_recipients_is_there() -> None:
    context = cluster(dead=[3])
    batch = RequestBatch(context)
    batch.add_leader_and_isr_request_for_brokers([3], [0], is_new=False)
    assert batch.take() == Requests([], UpdateMetadataRequest([1, 2], [0]), [])


def test_a_partition_without_leadership_is_left_out() -> None:
    context = cluster()
    context.table.isr_of[0] = -1
    context.table.leadership_count -= 1
    batch = RequestBatch(context)
    batch.add_leader_and_isr_request_for_brokers([1], [0], is_new=True)
    assert not batch
    batch.add_leader_and_isr_request_for_brokers([1], [0, 1], is_new=True)
    assert batch.take() == Requests(
        [LeaderAndIsrRequest(1, [1], frozenset({1}))], UpdateMetadataRequest([1, 2, 3], [1]), []
    )


def test_what_has_been_taken_from_a_broker_since_is_left_out() -> None:
    """A batch collects through several steps; one may remove a replica, or a topic."""
    context = cluster()
    batch = RequestBatch(context)
    rows = rows_of(context, "foo-0", "foo-1", "bar-1")
    batch.add_leader_and_isr_request_for_brokers([2, 3], rows, is_new=True)
    context.table.set_assignment(rows[0], ReplicaAssignment((1, 3)))
    context.table.remove_topic(context.table.topic_by_name["bar"])
    two, three = batch.take().leader_and_isr
    assert (two.rows, three.rows) == ([rows[1]], rows[:2])


def test_each_partition_to_its_own_recipients() -> None:
    context = cluster()
    batch = RequestBatch(context)
    batch.add_leader_and_isr_requests([0, 1, 2], [(1, 2), (3,), (1, 2)], is_new=True)
    batch.add_leader_and_isr_requests([3], [()], is_new=True)
    assert batch.take() == Requests(
        [
            LeaderAndIsrRequest(1, [0, 2], frozenset({0, 2})),
            LeaderAndIsrRequest(2, [0, 2], frozenset({0, 2})),
            LeaderAndIsrRequest(3, [1], frozenset({1})),
        ],
        UpdateMetadataRequest([1, 2, 3], [0, 1, 2, 3]),
        [],
    )


# -- UpdateMetadata ----------------------------------------------------------------------------------------------------


def test_update_metadata_request_sent() -> None:
    context = cluster()
    batch = RequestBatch(context)
    batch.add_update_metadata_request_for_brokers([2], rows_of(context, "bar-1", "foo-1", "foo-0"))
    assert batch.take() == Requests([], UpdateMetadataRequest([2], rows_of(context, "foo-0", "foo-1", "bar-1")), [])


def test_update_metadata_without_partitions_still_goes_out() -> None:
    batch = RequestBatch(cluster())
    batch.add_update_metadata_request_for_brokers([3, 1], [])
    assert batch
    assert batch.take() == Requests([], UpdateMetadataRequest([1, 3], []), [])


def test_update_metadata_only_to_live_or_shutting_down_brokers() -> None:
    batch = RequestBatch(cluster(shutting_down=[2], dead=[3]))
    batch.add_update_metadata_request_for_brokers([1, 2, 3], [])
    assert batch.take().update_metadata == UpdateMetadataRequest([1, 2], [])


def test_one_union_of_partitions_for_all_brokers() -> None:
    batch = RequestBatch(cluster())
    batch.add_update_metadata_request_for_brokers([3], [2, 1])
    batch.add_update_metadata_request_for_brokers([1, 3], [0, 1])
    assert batch.take().update_metadata == UpdateMetadataRequest([1, 3], [0, 1, 2])


def test_update_metadata_to_no_broker_is_not_sent() -> None:
    batch = RequestBatch(cluster(dead=[3]))
    batch.add_update_metadata_request_for_brokers([3], [])
    assert not batch
    assert batch.take() == Requests([], None, [])


# -- StopReplica -------------------------------------------------------------------------------------------------------


def test_stop_replica_request_sent() -> None:
    """With the partition's leader epoch; no other broker hears of it."""
    context = cluster()
    batch = RequestBatch(context)
    batch.add_stop_replica_request_for_brokers([2], rows_of(context, "bar-1", "foo-0"), delete=False)
    assert batch.take() == Requests([], None, [StopReplicaRequest(2, [(0, 10, False), (3, 13, False)])])


@pytest.mark.parametrize("flags", [(True, False), (False, True)])
def test_stop_replica_request_with_already_defined_deleted_partition(flags: tuple[bool, ...]) -> None:
    batch = RequestBatch(cluster())
    for delete in flags:
        batch.add_stop_replica_request_for_brokers([2], [0], delete=delete)
    assert batch.take().stop_replica == [StopReplicaRequest(2, [(0, 10, True)])]


def test_stop_replica_requests_while_topic_queued_for_deletion() -> None:
    """Only the topic that is being deleted gets the epoch that passes every check."""
    context = cluster()
    context.table.set_topic_deleting(context.table.topic_by_name["foo"], True)
    batch = RequestBatch(context)
    batch.add_stop_replica_request_for_brokers([2], rows_of(context, "foo-0", "foo-1", "bar-1"), delete=True)
    assert batch.take().stop_replica == [StopReplicaRequest(2, [(0, -2, True), (1, -2, True), (3, 13, True)])]


def test_stop_replica_without_leadership_says_no_epoch() -> None:
    context = cluster()
    context.table.isr_of[0] = -1
    context.table.leadership_count -= 1
    batch = RequestBatch(context)
    batch.add_stop_replica_request_for_brokers([2], [0], delete=False)
    assert batch.take().stop_replica == [StopReplicaRequest(2, [(0, -1, False)])]


def test_mixed_delete_and_not_delete_stop_replica_requests() -> None:
    """One request for the broker; to split it for old versions is the encoder's part."""
    context = cluster()
    batch = RequestBatch(context)
    batch.add_stop_replica_request_for_brokers([2], rows_of(context, "foo-0"), delete=True)
    batch.add_stop_replica_request_for_brokers([2], rows_of(context, "bar-1"), delete=False)
    assert batch.take().stop_replica == [StopReplicaRequest(2, [(0, 10, True), (3, 13, False)])]


def test_stop_replica_groups_by_broker() -> None:
    batch = RequestBatch(cluster())
    for row in (1, 0):
        batch.add_stop_replica_request_for_brokers([3, 2], [row], delete=False)
    partitions = [(0, 10, False), (1, 11, False)]
    assert batch.take().stop_replica == [StopReplicaRequest(2, partitions), StopReplicaRequest(3, partitions)]


def test_stop_replica_sent_only_to_live_and_shutting_down_brokers() -> None:
    batch = RequestBatch(cluster(shutting_down=[2], dead=[3]))
    batch.add_stop_replica_request_for_brokers([2, 3], [0], delete=False)
    assert batch.take().stop_replica == [StopReplicaRequest(2, [(0, 10, False)])]


# -- the batch as a whole ----------------------------------------------------------------------------------------------


def test_a_batch_is_empty_until_filled_and_after_it_was_taken() -> None:
    batch = RequestBatch(cluster())
    assert not batch
    batch.add_stop_replica_request_for_brokers([2], [0], delete=False)
    batch.add_leader_and_isr_request_for_brokers([1], [0], is_new=False)
    assert batch
    assert batch.take() != Requests([], None, [])
    assert not batch
    assert batch.take() == Requests([], None, [])


# -- leaders first -----------------------------------------------------------------------------------------------------


def parted(*leader_and_isr: LeaderAndIsrRequest, leader: list[int]) -> tuple[Requests, Requests] | None:
    metadata = UpdateMetadataRequest([1, 2, 3], [0, 1])
    return leaders_first(Requests(list(leader_and_isr), metadata, [StopReplicaRequest(3, [(0, 5, False)])]), leader)


def test_leaders_hear_of_their_partitions_before_any_follower() -> None:
    new = frozenset({0, 1})
    parts = parted(
        LeaderAndIsrRequest(1, [0, 1], new),
        LeaderAndIsrRequest(2, [0, 1], frozenset({1})),
        LeaderAndIsrRequest(3, [0], frozenset()),
        leader=[1, 2],
    )
    assert parts is not None
    first, rest = parts
    assert first.leader_and_isr == [
        LeaderAndIsrRequest(1, [0], frozenset({0})),
        LeaderAndIsrRequest(2, [1], frozenset({1})),
    ]
    assert first.update_metadata == UpdateMetadataRequest([], [0, 1])
    assert first.stop_replica == []
    assert rest.leader_and_isr == [
        LeaderAndIsrRequest(1, [1], frozenset({1})),
        LeaderAndIsrRequest(2, [0], frozenset()),
        LeaderAndIsrRequest(3, [0], frozenset()),
    ]
    assert rest.update_metadata == UpdateMetadataRequest([1, 2, 3], [0, 1])
    assert rest.stop_replica == [StopReplicaRequest(3, [(0, 5, False)])]


def test_metadata_at_once_goes_with_the_leaders_requests() -> None:
    metadata = UpdateMetadataRequest([1, 2, 3], [0, 1])
    stop = [StopReplicaRequest(3, [(0, 5, False)])]
    to_leader, to_follower = LeaderAndIsrRequest(1, [0], frozenset()), LeaderAndIsrRequest(2, [0], frozenset())
    requests = Requests([to_leader, to_follower], metadata, stop)
    assert leaders_first(requests, [1], metadata_at_once=True) == (
        Requests([to_leader], metadata, []),
        Requests([to_follower], UpdateMetadataRequest([], [0]), stop),
    )


def test_there_is_no_order_without_a_leader_among_the_receivers() -> None:
    assert parted(LeaderAndIsrRequest(3, [0, 1], frozenset()), leader=[1, -1]) is None
    assert parted(leader=[]) is None


def test_large_batches_go_in_kafkas_order() -> None:
    most = list(range(LEADERS_FIRST_UP_TO))
    leader = [1] * (LEADERS_FIRST_UP_TO + 1)
    assert parted(LeaderAndIsrRequest(1, most, frozenset()), leader=leader) is not None
    more = [LeaderAndIsrRequest(1, most, frozenset()), LeaderAndIsrRequest(2, [len(most)], frozenset())]
    assert parted(*more, leader=leader) is None


def test_what_a_piece_has_sent_is_sent_again_only_when_it_changed() -> None:
    context = ctx(3, {"t": [[1, 2, 3]] * 3})
    rows = [row_of(context, f"t-{n}") for n in range(3)]
    batch = RequestBatch(context)
    batch.add_leader_and_isr_requests(rows[:2], [(1, 2), (1, 2)])
    assert len(batch) == 2
    first = batch.take()
    assert len(batch) == 0
    assert [(r.broker, r.rows) for r in first.leader_and_isr] == [(1, rows[:2]), (2, rows[:2])]
    batch.add_leader_and_isr_requests(rows, [(1, 2, 3)] * 3, unless_sent=True)
    batch.add_leader_and_isr_requests(rows[:1], [(2,)])
    second = batch.take()
    assert [(r.broker, r.rows) for r in second.leader_and_isr] == [(1, rows[2:]), (2, [rows[0], rows[2]]), (3, rows)]


def test_acknowledgements_count_all_pieces_of_a_batch() -> None:
    batch = RequestBatch(ctx(1, {}))
    heard: list[str] = []
    first = batch.sent.control.one()
    first()
    second, third = batch.sent.control.one(), batch.sent.control.one()
    batch.sent.control.when_all(lambda: heard.append("all"))
    second()
    assert heard == []
    third()
    assert heard == ["all"]


def test_acknowledgements_can_do_without_a_broker() -> None:
    batch = RequestBatch(ctx(1, {}))
    heard: list[str] = []
    of_1, of_2, later_of_2 = (batch.sent.control.one(broker) for broker in (1, 2, 2))
    batch.sent.control.when_all(lambda: heard.append("all"))
    of_2()
    batch.sent.control.forgo({2, 3})
    later_of_2()
    assert heard == []
    of_1()
    assert heard == ["all"]
