"""Which replicas are watched for sickness."""

from __future__ import annotations

from collections import Counter

import pytest

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.replica_samples import LOOKED_AT, PER_BROKER, PER_PAIR, Sample, choose_partitions
from aiocontroller.core.staleness import Watched
from tests.builders import ctx, lead, row_of


def watched(sample: Sample) -> dict[TopicPartition, Watched]:
    return {partition: watched for partition, watched in sample.partitions.items() if watched.followers}


def test_a_few_partitions_of_each_pair_are_watched() -> None:
    context = ctx(3, {"t": [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 20})
    sample = choose_partitions(context, (), 0)
    pairs = Counter((w.leader, f) for w in sample.partitions.values() for f in w.followers)
    assert pairs == {(a, b): PER_PAIR for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
    assert sample.partitions[TopicPartition("t", 1)] == Watched(2, 0, (3, 1), (2, 3, 1))
    assert len(sample.partitions) == 60, "the others' leaders tell whether they are written to"


def test_busy_partitions_stay_and_others_take_turns() -> None:
    context = ctx(2, {"t": [[1, 2]] * 200})
    first = choose_partitions(context, (), 0)
    assert list(watched(first)) == [TopicPartition("t", n) for n in range(PER_PAIR)]
    assert list(first.partitions) == [TopicPartition("t", n) for n in range(PER_BROKER)]
    later = choose_partitions(context, [TopicPartition("t", 1), TopicPartition("gone", 0)], first.next_row)
    assert list(watched(later)) == [TopicPartition("t", n) for n in (1, PER_BROKER, PER_BROKER + 1)]
    assert list(later.partitions)[1:] == [TopicPartition("t", n) for n in range(PER_BROKER, 2 * PER_BROKER - 1)]
    assert choose_partitions(context, (), 190).next_row == 50


def test_busy_partitions_of_a_pair_that_has_enough_make_room() -> None:
    context = ctx(2, {"t": [[1, 2]] * 200})
    busy = [TopicPartition("t", n) for n in range(100, 180)]
    sample = choose_partitions(context, busy, 0)
    assert list(watched(sample)) == busy[:PER_PAIR]
    assert sample.next_row == PER_BROKER - PER_PAIR


@pytest.mark.parametrize("partitions", [100, LOOKED_AT, 3 * LOOKED_AT])
def test_every_partition_has_its_turn(partitions: int) -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2], [3, 2]] * (partitions // 3)})
    seen, start = set[TopicPartition](), 0
    for _ in range(3 * len(context.table.rows()) // PER_BROKER + 3):
        sample = choose_partitions(context, (), start)
        seen |= sample.partitions.keys()
        start = sample.next_row
    assert len(seen) == len(context.table.rows())


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
