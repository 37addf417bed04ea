"""How far a move has come, from what brokers say of their replicas' bytes."""

from __future__ import annotations

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.moving import MovePhase
from aiocontroller.moves.progress import WINDOW_S, Meter

A, B, C = (TopicPartition("t", number) for number in range(3))
BEFORE = {A: (1, 2), B: (1, 2), C: (1, 2)}
PLAN = {A: (3, 2), B: (3, 4), C: (2, 1)}
PHASES = {A: MovePhase.MOVING, B: MovePhase.WAITING, C: MovePhase.DONE}


def test_bytes_of_new_replicas_count_and_their_speed_tells_how_long() -> None:
    meter = Meter(BEFORE, PLAN)
    assert meter.copying == [A, B]
    assert meter.progress(PHASES, 7, ("x",)) == (1, 1, 1, 0, 0, 0.0, 0.0, 7, ("x",))
    meter.read({1: {A: 100, B: 50, C: 9}, 3: {A: 20}}, 10)
    meter.read({1: {A: 100, B: 50}, 3: {A: 60}}, 14)
    found = meter.progress(PHASES, 0, ())
    assert (found.copied, found.total, found.bytes_per_s, found.eta_s) == (60, 200, 10.0, 14.0)


def test_a_replica_that_is_deleted_elsewhere_keeps_its_size() -> None:
    meter = Meter(BEFORE, PLAN)
    meter.read({1: {A: 100}, 3: {A: 1}}, 0)
    meter.read({3: {A: 90}}, 1)
    assert (meter.copied, meter.total) == (90, 100)


def test_the_speed_is_that_of_the_last_while_and_no_time_is_foretold_without_one() -> None:
    meter = Meter(BEFORE, PLAN)
    for at_s in range(0, 100, 5):
        meter.read({1: {A: 1000}, 3: {A: min(at_s, 50) * 10}}, at_s)
    assert WINDOW_S < 45
    found = meter.progress(PHASES, 0, ())
    assert (found.bytes_per_s, found.eta_s) == (0.0, None)
