"""Made-up histories of records: leaders, acknowledgements, topics of one name, high watermarks and the end."""

from __future__ import annotations

from aiocontroller.lab.cluster.logs import Run
from tests.unit.lab.checkers.records_story import A, B, Runs, Story, T, case

# -- acknowledged records ----------------------------------------------------------------------------------------------


@case()
def the_next_leader_has_what_was_acknowledged(s: Story) -> None:
    s.led(2, 1, (0, 1, 6))
    s.led(3, 2, (0, 1, 6), (1, 2, 9))
    assert s.check.acknowledgements == 2


@case("I13 I14")
def the_next_leader_has_one_record_less(s: Story) -> None:
    s.led(2, 1, (0, 1, 5))
    assert "epoch 1 has lost what was acknowledged: offsets 0 to 5 of epoch 0 by broker 1" in s.complaints[0]
    assert "committed: offsets 5 to 5 of epoch 0 by broker 1" in s.complaints[1]


@case("I13 I14")
def the_next_leader_has_nothing(s: Story) -> None:
    s.led(2, 1)


@case("I13 I14")
def the_next_leader_has_other_records(s: Story) -> None:
    s.led(2, 1, (0, 1, 4), (0, 2, 9))


@case("I13 I14")
def the_next_leader_has_records_of_another_epoch(s: Story) -> None:
    s.led(2, 2, (0, 1, 5), (1, 1, 9))


@case("I13 I14")
def the_same_leader_in_the_same_epoch_has_lost_them(s: Story) -> None:
    s.led(1, 0, (0, 1, 3))


@case("I13 I14")
def what_is_lost_once_is_reported_once(s: Story) -> None:
    s.led(2, 1, (0, 1, 5))
    s.led(2, 2, (0, 1, 5))
    s.led(3, 3, (0, 1, 5))


@case("I13")
def one_of_two_leaders_records_is_lost(s: Story) -> None:
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(1, 2, 6, 8)
    s.led(3, 2, (0, 1, 6))


@case()
def a_leader_of_an_earlier_epoch_begins_late(s: Story) -> None:
    s.led(2, 2, (0, 1, 6))
    s.acknowledged(2, 2, 6, 8)
    s.led(3, 1, (0, 1, 6))
    s.led(3, 1, (0, 1, 5))


@case()
def an_acknowledgement_comes_after_the_next_leader_has_begun(s: Story) -> None:
    s.led(2, 1, (0, 1, 8))
    s.acknowledged(0, 1, 6, 8)
    s.led(3, 2, (0, 1, 8))


@case("I13")
def an_acknowledgement_comes_late_and_the_next_leader_has_it_not(s: Story) -> None:
    s.led(2, 1, (0, 1, 7))
    s.acknowledged(0, 1, 6, 8)
    s.led(3, 2, (0, 1, 7))


@case("I13")
def an_acknowledgement_that_came_late_is_kept_in_mind(s: Story) -> None:
    s.led(2, 1, (0, 1, 8))
    s.acknowledged(0, 1, 6, 8)
    s.led(3, 2, (0, 1, 7))


@case("I13 I13")
def two_batches_with_a_gap_are_two(s: Story) -> None:
    s.acknowledged(0, 1, 7, 8)
    s.acknowledged(0, 1, 9, 10)
    s.led(2, 1, (0, 1, 6))


@case("I13")
def batches_by_two_leaders_are_not_one(s: Story) -> None:
    s.led(2, 0, (0, 1, 6))
    s.acknowledged(0, 2, 6, 8)
    s.led(3, 1, (0, 1, 6))


@case("I13")
def batches_of_two_epochs_are_not_one(s: Story) -> None:
    s.led(1, 1, (0, 1, 6))
    s.acknowledged(1, 1, 6, 8)
    s.led(3, 2, (0, 1, 6))


# -- topics of the same name -------------------------------------------------------------------------------------------


@case()
def a_topic_is_deleted(s: Story) -> None:
    s.check.topic_gone("t")
    del s.topic_ids["t"]
    s.led(2, 1)
    s.acknowledged(1, 2, 0, 3)
    s.topic_ids["t"] = B
    s.led(2, 0, topic_id=B)
    s.raised(2, 0, 3, (0, 2, 3), topic_id=B)
    s.led(3, 1, (0, 2, 3), topic_id=B)


@case()
def a_topic_is_to_be_deleted(s: Story) -> None:
    s.to_go.add("t")
    s.led(2, 1)
    s.acknowledged(1, 2, 0, 3)
    s.raised(2, 1, 3, (1, 2, 3))


@case("I13 I14")
def its_deletion_was_refused(s: Story) -> None:
    s.to_go.add("t")
    s.led(1, 0, (0, 1, 9))
    s.to_go.clear()
    s.led(2, 1)


@case(excused="unclean,unclean")
def its_deletion_was_refused_after_an_unclean_election(s: Story) -> None:
    """Seed 70848."""
    s.to_go.add("t")
    s.unclean(2)
    s.led(2, 2)
    s.to_go.clear()
    s.raised(2, 2, 3, (2, 2, 3))
    s.acknowledged(2, 2, 0, 3)
    s.led(2, 3, (2, 2, 3))


@case("I13 I14", excused="unclean,unclean")
def its_deletion_was_refused_and_an_unclean_election_was_earlier(s: Story) -> None:
    s.unclean(1)
    s.led(1, 1, (0, 1, 9))
    s.acknowledged(1, 1, 9, 12)
    s.raised(1, 1, 12, (0, 1, 9), (1, 1, 12))
    s.to_go.add("t")
    s.led(1, 2, (0, 1, 9), (1, 1, 12))
    s.to_go.clear()
    s.led(2, 3)


@case("I13 I14")
def another_topic_is_to_be_deleted(s: Story) -> None:
    s.to_go.add("u")
    s.led(2, 1)


@case()
def what_led_after_the_end_of_a_topic_is_no_leader_of_the_next(s: Story) -> None:
    s.check.topic_gone("t")
    del s.topic_ids["t"]
    s.led(2, 5, topic_id="")
    s.topic_ids["t"] = B
    s.led(2, 0, topic_id=B)
    s.acknowledged(0, 2, 0, 3, topic_id=B)
    s.led(3, 1, (0, 2, 3), topic_id=B)


@case("I13 I14")
def another_topic_is_deleted(s: Story) -> None:
    s.check.topic_gone("u")
    s.led(2, 1)


@case()
def a_deletion_that_has_taken_a_replica_is_refused(s: Story) -> None:
    s.check.replica_gone("t")
    s.led(2, 1)


@case("I13 I14")
def another_topic_has_lost_a_replica(s: Story) -> None:
    s.check.replica_gone("u")
    s.led(2, 1)


@case()
def a_replica_of_an_earlier_topic_says_nothing(s: Story) -> None:
    s.led(2, 1, topic_id=B)
    s.raised(2, 1, 6, (0, 2, 6), topic_id=B)
    s.acknowledged(0, 1, 6, 9, topic_id=B)
    s.led(2, 1, (0, 1, 6))


@case("I13 I14 I13")
def releases_without_ids_are_believed(s: Story) -> None:
    s.led(2, 1, topic_id="")
    s.topic_ids["t"] = ""
    s.acknowledged(1, 2, 0, 1, topic_id=B)
    s.led(2, 2, topic_id=B)


# -- high watermarks ---------------------------------------------------------------------------------------------------


@case()
def all_agree_below_their_high_watermarks(s: Story) -> None:
    s.raised(2, 0, 4, (0, 1, 4))
    s.raised(2, 0, 5, (0, 1, 7))
    s.raised(1, 0, 9, (0, 1, 10))
    s.raised(2, 0, 7, (0, 1, 8))
    s.led(2, 1, (0, 1, 9))


@case("I14")
def a_follower_differs_below_its_high_watermark(s: Story) -> None:
    s.raised(2, 0, 5, (0, 1, 3), (0, 2, 7))
    assert s.complaints[0].startswith(
        "at offset 3, below the high watermark 5: broker 2 has 0-2 of epoch 0 by broker 1, 3-4"
    )


@case("I14")
def a_follower_differs_in_the_first_record(s: Story) -> None:
    s.raised(2, 0, 5, (0, 2, 1), (0, 1, 5))


@case("", "I13 excused: an unclean,I14 excused: an unclean")
def the_first_record_is_committed_once(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 1))
    s.raised(2, 1, 5, (0, 1, 1), (1, 2, 5))
    s.led(3, 2, (0, 1, 1), (1, 2, 5))
    s.raised(3, 2, 5, (0, 1, 1), (1, 2, 5))


@case()
def a_follower_differs_above_its_high_watermark(s: Story) -> None:
    s.raised(2, 0, 3, (0, 1, 3), (0, 2, 7))


@case("I14")
def what_only_a_high_watermark_covers_is_lost(s: Story) -> None:
    s.raised(1, 0, 9, (0, 1, 10))
    s.led(2, 1, (0, 1, 6))
    assert "epoch 1 has lost what was committed: offsets 6 to 8" in s.complaints[0]


@case("I14")
def a_lower_high_watermark_takes_nothing_back(s: Story) -> None:
    s.raised(1, 0, 9, (0, 1, 10))
    s.raised(2, 0, 6, (0, 1, 6))
    s.led(2, 1, (0, 1, 6))


@case("I14")
def what_is_lost_is_judged_by_its_own_epoch(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 6))
    s.raised(2, 1, 8, (0, 1, 6), (1, 2, 8))
    s.led(3, 2, (0, 1, 6))


@case("", "I13 excused: an unclean,I14 excused: an unclean")
def a_leader_that_was_given_up_goes_on_committing(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1)
    s.raised(2, 1, 3, (1, 2, 3))
    s.raised(1, 0, 8, (0, 1, 10))


@case("I14")
def after_an_unclean_election_all_must_agree_again(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 6))
    s.raised(2, 1, 8, (0, 1, 6), (1, 2, 8))
    s.raised(3, 1, 8, (0, 1, 8))


@case()
def after_a_foreign_write_they_need_not(s: Story) -> None:
    s.by_hand["t"] = 1
    s.raised(2, 0, 5, (0, 2, 7))


# -- the end -----------------------------------------------------------------------------------------------------------


def ended(s: Story, leader: int, epoch: int, topic_id: str = A, **logs: Runs) -> None:
    found = {int(name[1:]): [Run(*run) for run in runs] for name, runs in logs.items()}
    s.check.ended(T, leader, epoch, found, topic_id)


@case()
def at_the_end_all_have_the_same(s: Story) -> None:
    ended(s, 2, 1, b1=[(0, 1, 6), (1, 2, 7)], b2=[(0, 1, 6), (1, 2, 7)])


@case()
def at_the_end_one_has_noted_an_epoch_without_records(s: Story) -> None:
    ended(s, 2, 1, b1=[(0, 1, 6)], b2=[(0, 1, 6), (1, 2, 6)])


@case("I14")
def at_the_end_one_has_less(s: Story) -> None:
    ended(s, 2, 1, b1=[(0, 1, 6)], b2=[(0, 1, 6), (1, 2, 7)])
    assert s.complaints[0].startswith(
        "broker 1 has 0-5 of epoch 0 by broker 1, its leader 0-5 of epoch 0 by broker 1, 6-6"
    )


@case("I14")
def at_the_end_one_has_other_records(s: Story) -> None:
    ended(s, 2, 1, b1=[(0, 1, 7)], b2=[(0, 1, 6), (1, 2, 7)])


@case("I13 I14")
def at_the_end_all_have_lost_them(s: Story) -> None:
    ended(s, 1, 0, b1=[(0, 1, 5)], b2=[(0, 1, 5)])


@case()
def acknowledgements_are_a_part_of_the_digest(s: Story) -> None:
    before = s.check.digest.hexdigest()
    s.acknowledged(0, 1, 6, 7)
    assert s.check.digest.hexdigest() != before
    other = s.module.DataChecker(s.complain, s.excused.append, s.topic_ids, s.by_hand, s.to_go.__contains__)
    assert other.acknowledgements == 0
