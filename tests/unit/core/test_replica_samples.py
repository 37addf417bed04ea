"""Which replicas are watched for sickness."""

from __future__ import annotations

from collections import Counter

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.replica_samples import LOOKED_AT, PER_BROKER, PER_PAIR, choose_partitions
from aiocontroller.core.staleness import Watched
from tests.builders import ctx, lead, row_of


def test_a_few_partitions_of_each_pair_are_watched() -> None:
    context = ctx(3, {"t": [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 20})
    sample = choose_partitions(context, (), 0)
    pairs = Counter((w.leader, f) for w in sample.partitions.values() for f in w.followers)
    assert pairs == {(a, b): PER_PAIR for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
    assert sample.partitions[TopicPartition("t", 1)] == Watched(2, 0, (3, 1), (2, 3, 1))


def test_busy_partitions_stay_and_others_take_turns() -> None:
    context = ctx(2, {"t": [[1, 2]] * (3 * LOOKED_AT)})
    first = choose_partitions(context, (), 0)
    later = choose_partitions(context, [TopicPartition("t", 1), TopicPartition("gone", 0)], first.next_row)
    assert list(first.partitions) == [TopicPartition("t", n) for n in range(PER_PAIR)]
    assert list(later.partitions) == [TopicPartition("t", n) for n in (1, LOOKED_AT, LOOKED_AT + 1)]
    assert choose_partitions(context, (), 3 * LOOKED_AT - 1).next_row == LOOKED_AT - 1


def test_no_broker_is_asked_for_many() -> None:
    brokers = 150
    context = ctx(brokers, {"t": [[1, other] for other in range(2, brokers + 1)]})
    assert len(choose_partitions(context, (), 0).partitions) == PER_BROKER


def test_what_tells_nothing_is_not_watched() -> None:
    context = ctx(
        3, {"moves": [[1, 2]], "goes": [[1, 2]], "fails": [[1, 2]], "alone": [[1]], "offline": [[3, 1]], "t": [[1, 2]]}
    )
    context.begin_reassignments([row_of(context, "moves-0")])
    context.queue_topic_deletion(["goes"])
    context.set_offline_dir_replicas(2, [row_of(context, "fails-0")], ())
    lead(context, "offline-0", -1, (3,))
    assert list(choose_partitions(context, (), 0).partitions) == [TopicPartition("t", 0)]
    assert choose_partitions(ctx(3), (), 7) == ({}, 0)
