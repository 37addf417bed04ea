"""What is measured of partition states during an event."""

from __future__ import annotations

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.kafka.leadership_watch import LeadershipWatch

A, B = ("t", 0), ("t", 1)


def state(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 1, isr, 1, 1)


def test_moves_are_counted_for_each_partition_and_a_partition_without_a_leader_has_not_moved() -> None:
    watch = LeadershipWatch([A, B])
    for leader in (1, 1, 2, -1, 2, 1):
        watch.look({A: state(leader, 1, 2), B: state(2, 1, 2)}, 0.0)
    assert watch.moves == {A: 3}
    assert watch.led_by(2) == [B]


def test_time_outside_an_isr_is_that_of_the_worst_partition() -> None:
    watch = LeadershipWatch([A, B])
    watch.look({A: state(1, 1, 2), B: state(1, 1, 2)}, 0.0)
    watch.look({A: state(1, 1), B: state(1, 1, 2)}, 1.0)
    watch.look({A: state(1, 1, 2), B: state(1, 1)}, 2.0)
    watch.look({A: state(1, 1), B: state(1, 1)}, 4.0)
    assert watch.outside_s(2, 4.5) == 2.5
    assert watch.outside_s(2, 4.5, since_s=3.5) == 1.0
    assert watch.outside_s(1, 4.5) == 0.0


def test_whole_is_every_replica_in_sync_but_those_of_the_dead() -> None:
    replicas = {A: (1, 2, 4), B: (1, 2)}
    watch = LeadershipWatch([A, B])
    watch.look({A: state(1, 1, 2, 4)}, 0.0)
    assert not watch.whole_without((4,), replicas), "one is not known"
    watch.look({A: state(1, 1, 2), B: state(1, 1)}, 1.0)
    assert not watch.whole_without((4,), replicas)
    watch.look({B: state(1, 1, 2)}, 2.0)
    assert watch.whole_without((4,), replicas)
    watch.look({A: state(4, 1, 2)}, 3.0)
    assert not watch.whole_without((4,), replicas)
