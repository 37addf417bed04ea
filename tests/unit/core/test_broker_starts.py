"""Clean and unclean starts, also those that nobody has seen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aiocontroller.core.broker_starts import (
    BrokerStarts,
    Incarnation,
    disk_failed,
    observed,
    removed,
    stopping,
    taken_over,
    with_min_isr,
)
from aiocontroller.core.ids import Broker
from tests.builders import broker


def at(id: int, epoch: int) -> Broker:
    return broker(id, epoch=epoch)


def known(**changes: object) -> BrokerStarts:
    """Broker 1 at epoch 10, broker 2 at epoch 20, kept by the controller of epoch 5 since epoch 3."""
    starts = BrokerStarts(5, 3, 2, 2, {1: Incarnation(10, 0), 2: Incarnation(20, 0)})
    return replace(starts, **changes)


def test_a_start_after_a_controlled_shutdown_is_clean() -> None:
    look = observed(stopping(known(), 1, 10), [at(1, 30), at(2, 20)], 3, closed=[1])
    assert look.unclean == []
    assert look.starts.brokers == {1: Incarnation(30, 0), 2: Incarnation(20, 0)}


def test_a_broker_whose_session_has_expired_after_its_controlled_shutdown_may_have_lost_power() -> None:
    """Seen by a look at which it was gone, or only when it was back."""
    gone = observed(stopping(known(), 1, 10), [at(2, 20)], 2)
    assert gone.starts.brokers[1] == Incarnation(10, 0, gone=True)
    assert observed(gone.starts, [at(1, 30), at(2, 20)], 3, closed=[1]).unclean == [1]
    assert observed(stopping(known(), 1, 10), [at(1, 30), at(2, 20)], 3).unclean == [1]


def test_a_broker_that_was_seen_to_close_its_session_may_stay_away_for_any_time() -> None:
    gone = observed(stopping(known(), 1, 10), [at(2, 20)], 2, closed=[1])
    assert gone.starts.brokers[1] == Incarnation(10, 0, stopping=True, gone=True)
    assert observed(gone.starts, [at(1, 30), at(2, 20)], 3).unclean == []


def test_a_broker_that_stops_and_is_registered_still_stops() -> None:
    look = observed(stopping(known(), 1, 10), [at(1, 10), at(2, 20)], 2)
    assert look.starts == stopping(known(), 1, 10)


def test_only_the_incarnation_that_asked_for_its_shutdown_stops() -> None:
    assert stopping(known(), 1, 11) == stopping(known(), 1, 9) == known()
    stops = stopping(known(), 1, 10)
    assert removed(stops, 1, 11) == removed(stops, 9, 10) == stops
    assert removed(stops, 1, 10) == removed(known(), 1, 10) == known()


def test_a_start_without_one_is_unclean() -> None:
    look = observed(known(), [at(1, 30), at(2, 20)], 3)
    assert look.unclean == [1]
    assert look.starts.brokers[1] == Incarnation(30, 30)


def test_a_controlled_shutdown_counts_for_one_start() -> None:
    once = observed(stopping(known(), 1, 10), [at(1, 30), at(2, 20)], 3, closed=[1]).starts
    assert observed(once, [at(1, 40), at(2, 20)], 4).unclean == [1]


def test_a_broker_that_is_not_known_starts_uncleanly() -> None:
    assert observed(known(), [at(1, 10), at(2, 20), at(3, 30)], 3).unclean == [3]


def test_a_start_that_nobody_has_seen_makes_the_next_one_unclean() -> None:
    """Broker 1 stopped cleanly, started, crashed and started again between two looks."""
    assert observed(stopping(known(), 1, 10), [at(1, 40), at(2, 20)], 4, closed=[1]).unclean == [1]


def test_a_start_and_an_end_that_nobody_has_seen() -> None:
    """Broker 1 stopped cleanly, started and crashed between two looks; its next start comes later."""
    between = observed(stopping(known(), 1, 10), [at(2, 20)], 3, closed=[1])
    assert between.unclean == []
    assert observed(between.starts, [at(1, 40), at(2, 20)], 4).unclean == [1]


def test_a_broker_that_is_about_to_stop_keeps_that_when_others_start_unseen() -> None:
    look = observed(stopping(known(), 1, 10), [at(1, 10), at(2, 40)], 4, closed=[1])
    assert look.unclean == [2]
    assert observed(look.starts, [at(1, 50), at(2, 40)], 5, closed=[1]).unclean == []


def test_a_registration_after_the_count_is_taken_for_unclean() -> None:
    look = observed(stopping(known(), 1, 10), [at(1, 30), at(2, 20)], 2, closed=[1])
    assert look.unclean == [1]


def test_a_lower_epoch_is_of_another_history_of_the_ensemble() -> None:
    assert observed(stopping(known(), 1, 10), [at(1, 7), at(2, 20)], 3, closed=[1]).unclean == [1]


def test_a_failed_disk_costs_what_the_broker_has_but_not_what_it_gets_after_its_next_start() -> None:
    failed = disk_failed(known(), 1)
    assert failed.brokers[1] == Incarnation(10, 11)
    look = observed(stopping(failed, 1, 10), [at(1, 30), at(2, 20)], 3, closed=[1])
    assert (look.starts.brokers[1], look.unclean) == (Incarnation(30, 30), [1])
    look = observed(stopping(look.starts, 1, 30), [at(1, 40), at(2, 20)], 4, closed=[1])
    assert (look.starts.brokers[1], look.unclean) == (Incarnation(40, 30), [])
    assert disk_failed(known(), 9) == stopping(known(), 9, 10) == known()


@pytest.mark.parametrize("epoch", [5, 6])
def test_the_next_controller_goes_on_with_the_record_and_so_does_the_same(epoch: int) -> None:
    look = taken_over(known(), epoch, [at(1, 30), at(2, 20)], 3, 2)
    assert look.unclean == [1]
    assert (look.starts.controller_epoch, look.starts.valid_from) == (epoch, 3)


@pytest.mark.parametrize("found", [None, known(), known(controller_epoch=8)])
def test_after_another_kind_of_controller_the_record_begins_anew(found: BrokerStarts | None) -> None:
    look = taken_over(found, 7, [at(1, 30)], 9, 2)
    assert look.unclean == []
    assert look.starts == BrokerStarts(7, 7, 9, 2, {1: Incarnation(30, 0)})


def test_a_broker_whose_end_was_dealt_with_is_not_left_out_when_it_starts() -> None:
    gone = observed(known(), [at(2, 20)], 2).starts
    assert gone.brokers == {1: Incarnation(10, 0, gone=True), 2: Incarnation(20, 0)}
    look = observed(gone, [at(1, 30), at(2, 20), at(3, 40)], 4)
    assert (look.unclean, look.unheard(gone)) == ([1, 3], [])
    assert observed(known(), [at(1, 30), at(2, 20)], 3).unheard(known()) == [1]


def test_a_registration_that_cannot_be_read_is_not_gone() -> None:
    assert observed(known(), [at(2, 20)], 2, {1}).starts == known()
    gone = observed(known(), [at(2, 20)], 2).starts
    assert observed(gone, [at(1, 10), at(2, 20)], 2).starts == known()


def test_brokers_that_are_left_out_are_found_again_and_the_others_are_not() -> None:
    before = replace(known(), brokers={**known().brokers, 3: Incarnation(25, 0, gone=True)})
    look = observed(before, [at(1, 30), at(2, 20), at(3, 40)], 4)
    kept = look.but_for(look.unheard(before), before)
    assert kept.brokers == {1: Incarnation(10, 0), 2: Incarnation(20, 0), 3: Incarnation(40, 40)}
    again = observed(kept, [at(1, 30), at(2, 20), at(3, 40)], 4)
    assert again.unclean == [1]
    assert again.starts == look.starts
    assert look.but_for([], before) == look.starts


def test_a_lower_min_isr_ends_all_eligibility() -> None:
    assert with_min_isr(known(), 3).valid_from == 3
    assert with_min_isr(known(), 1).valid_from == 6
    later = taken_over(known(), 6, [at(1, 10), at(2, 20)], 2, 1).starts
    assert (later.controller_epoch, later.valid_from, later.min_isr) == (6, 6, 1)
    again = taken_over(known(), 5, [at(1, 10), at(2, 20)], 2, 1).starts
    assert (again.controller_epoch, again.valid_from) == (5, 6)


def test_min_isr_is_kept_while_no_broker_tells_its_own() -> None:
    assert taken_over(known(), 6, [], 2, None).starts.min_isr == 2
    assert taken_over(None, 6, [], 2, None).starts.min_isr == 1
