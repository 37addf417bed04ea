"""Made-up logs whose beginnings retention has deleted."""

from __future__ import annotations

from tests.unit.lab.checkers.made_up_records import ended
from tests.unit.lab.checkers.records_story import A, B, Story, T, case

GONE = -1


def gone(end: int) -> tuple[int, int, int]:
    """The part before this offset, which retention has deleted."""
    return GONE, GONE, end


@case()
def old_records_are_deleted(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.led(2, 1, gone(6), (0, 1, 10))


@case()
def all_records_are_deleted(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.led(2, 1, gone(6))


@case("I13 I14")
def what_is_left_of_them_is_lost(s: Story) -> None:
    s.check.deleted_old(T, 5, A)
    s.led(2, 1, gone(5), (1, 2, 9))


@case("I14")
def more_is_missing_than_was_deleted(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.check.deleted_old(T, 5, A)
    s.led(2, 1, gone(7), (0, 1, 10))
    assert "begins at 7, and retention has deleted what is before 6" in s.complaints[0]


@case("I14")
def more_is_missing_below_a_high_watermark(s: Story) -> None:
    s.check.deleted_old(T, 5, A)
    s.raised(2, 0, 6, gone(6), (0, 1, 10))


@case("I14")
def nothing_was_deleted(s: Story) -> None:
    s.led(2, 1, gone(1), (0, 1, 10))


@case("I14")
def an_earlier_topics_records_were_deleted(s: Story) -> None:
    s.check.deleted_old(T, 6, B)
    s.led(2, 1, gone(6), (0, 1, 10))


@case()
def a_topic_without_a_ledger(s: Story) -> None:
    del s.topic_ids["t"]
    s.check.deleted_old(T, 6, A)


@case()
def old_records_are_deleted_of_a_topic_that_is_to_go_and_stays(s: Story) -> None:
    s.to_go.add("t")
    s.check.deleted_old(T, 6, A)
    s.to_go.clear()
    s.led(2, 1, gone(6), (0, 1, 10))


@case()
def old_records_were_deleted_of_a_topic_that_has_lost_a_replica_and_stays(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.check.replica_gone("t")
    s.led(2, 1, gone(6), (0, 1, 10))


@case("I14")
def more_is_missing_than_was_deleted_of_a_topic_that_has_lost_a_replica(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.check.replica_gone("t")
    s.led(2, 1, gone(7), (0, 1, 10))


@case("I14")
def old_records_were_deleted_of_a_topic_that_is_gone(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    s.check.topic_gone("t")
    s.led(2, 1, gone(6), (0, 1, 10))


@case("I14")
def what_others_have_deleted_stays_committed(s: Story) -> None:
    s.raised(1, 0, 8, (0, 1, 10))
    s.check.deleted_old(T, 7, A)
    s.raised(2, 0, 9, gone(7), (0, 1, 10))
    s.led(3, 1, (0, 1, 6), (9, 3, 7), (0, 1, 10))
    assert "has lost what was committed: offsets 6 to " in s.complaints[0]


@case()
def at_the_end_one_has_deleted_more(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    ended(s, 2, 1, b1=[gone(6), (0, 1, 9)], b2=[(0, 1, 9)])


@case("I14")
def at_the_end_the_rest_differs(s: Story) -> None:
    s.check.deleted_old(T, 6, A)
    ended(s, 2, 1, b1=[gone(6), (0, 1, 9)], b2=[(0, 1, 8), (1, 2, 9)])
