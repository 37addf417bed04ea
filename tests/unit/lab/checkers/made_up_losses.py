"""Made-up histories of records that were lost: what excuses a loss, and what does not."""

from __future__ import annotations

from tests.unit.lab.checkers.records_story import A, Story, T, case

# -- excuses -----------------------------------------------------------------------------------------------------------


@case("", "I13 excused: an unclean,I14 excused: an unclean")
def an_unclean_election_gives_records_up(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 2))
    s.led(3, 2, (0, 1, 2))


@case("", "I13 excused: an unclean,I14 excused: an unclean")
def the_leader_of_an_unclean_election_never_began(s: Story) -> None:
    s.unclean(1)
    s.led(3, 2, (0, 1, 2))


@case("I13")
def an_unclean_election_excuses_nothing_later(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(1, 2, 6, 8)
    s.led(3, 2, (0, 1, 6))


@case("I13 I14")
def an_unclean_election_excuses_nothing_earlier(s: Story) -> None:
    s.unclean(2)
    s.led(2, 1, (0, 1, 5))


@case("", "I13 excused: an unclean")
def an_acknowledgement_comes_late_after_an_unclean_election(s: Story) -> None:
    s.unclean(1)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(0, 1, 6, 8)


@case("", "I13 excused: lost power,I14 excused: lost power")
def a_leader_in_sync_has_lost_its_page_cache(s: Story) -> None:
    s.check.damaged(2, T, 3, 6)
    s.led(2, 1, (0, 1, 3))


@case("I13 I14", "a damaged log was chosen")
def a_leader_has_lost_its_page_cache_and_a_better_one_lives(s: Story) -> None:
    s.in_sync(2, 3)
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def a_leader_has_lost_its_page_cache_and_no_better_one_lives(s: Story) -> None:
    s.in_sync(2)
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def it_had_started_before_a_term_that_recorded_nothing(s: Story) -> None:
    s.in_sync(2, 3)
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.check.eligible.term(3)
    s.check.eligible.recorded()
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def the_better_one_is_dead(s: Story) -> None:
    s.in_sync(2, 3)
    s.check.live = lambda: {1, 2}
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def the_other_one_has_lost_records_too(s: Story) -> None:
    s.check.damaged(3, T, 3, 6)
    s.in_sync(2, 3)
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def a_leader_was_dead_when_it_was_elected(s: Story) -> None:
    s.in_sync(2, 3)
    s.check.live = lambda: {1, 3}
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 3))


@case("", "a damaged log was chosen,I13 excused: lost power,I14 excused: lost power")
def a_better_one_lived_at_an_election_before(s: Story) -> None:
    s.in_sync(2, 3)
    s.check.damaged(2, T, 3, 6)
    s.check.eligible.registered(2)
    s.elected(2, 1)
    s.led(2, 2, (0, 1, 3))


@case()
def a_log_without_damage_is_as_good_as_another(s: Story) -> None:
    s.in_sync(2, 3)
    s.elected(2, 1)
    s.led(2, 1, (0, 1, 6))


@case("I13 I14", "a damaged log leads on")
def a_leader_that_was_seen_to_restart_leads_on(s: Story) -> None:
    s.in_sync(1, 2)
    s.check.damaged(1, T, 3, 6)
    s.check.eligible.registered(1)
    s.led(1, 0, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def it_leads_on_and_is_alone(s: Story) -> None:
    s.in_sync(1)
    s.check.damaged(1, T, 3, 6)
    s.check.eligible.registered(1)
    s.led(1, 0, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def it_leads_on_and_nobody_has_seen_it_restart(s: Story) -> None:
    s.in_sync(1, 2)
    s.check.damaged(1, T, 3, 6)
    s.led(1, 0, (0, 1, 3))


@case("", "I13 excused: lost power,I14 excused: lost power")
def it_was_seen_to_restart_and_was_elected(s: Story) -> None:
    s.in_sync(1, 2)
    s.check.damaged(1, T, 3, 6)
    s.check.eligible.registered(1)
    s.led(1, 1, (0, 1, 3))


@case()
def it_leads_on_with_all_records(s: Story) -> None:
    s.in_sync(1, 2)
    s.check.eligible.registered(1)
    s.led(1, 0, (0, 1, 6))


@case("I13 I14")
def a_leader_that_should_not_have_been_elected_has_no_excuse(s: Story) -> None:
    s.check.damaged(2, T, 3, 6)
    s.check.not_excused(T, 1)
    s.led(2, 1, (0, 1, 3))


@case("I13 I14")
def another_broker_has_lost_its_page_cache(s: Story) -> None:
    s.check.damaged(3, T, 3, 6)
    s.led(2, 1, (0, 1, 3))


@case("I13 I14")
def another_partition_was_damaged(s: Story) -> None:
    s.check.damaged(2, ("t", 1), 3, 6)
    s.led(2, 1, (0, 1, 3))


@case("I13 I14")
def it_had_fetched_again_what_it_had_lost(s: Story) -> None:
    s.check.damaged(2, T, 3, 6)
    s.check.copied(2, T, 6)
    s.led(2, 1, (0, 1, 3))


@case("I13 I14", "I14 excused: lost power")
def it_lacks_more_than_it_lost(s: Story) -> None:
    s.led(1, 1, (0, 1, 6))
    s.raised(1, 1, 8, (0, 1, 6), (1, 1, 8))
    s.check.damaged(2, T, 6, 8)
    s.led(2, 2, (0, 1, 5))


@case("I13 I14", "I13 excused: lost power")
def it_has_fetched_half_of_what_it_had_lost(s: Story) -> None:
    s.led(1, 1, (0, 1, 6))
    s.acknowledged(1, 1, 6, 8)
    s.check.damaged(2, T, 3, 8)
    s.check.copied(2, T, 6)
    s.check.copied(2, T, 5)
    s.led(2, 2, (0, 1, 4))
    assert "offsets 0 to 5" in s.complaints[0]


@case("", "I13 excused: lost power,I14 excused: lost power")
def it_has_lost_twice(s: Story) -> None:
    s.check.damaged(2, T, 2, 8)
    s.check.damaged(2, T, 4, 5)
    s.check.copied(2, T, 7)
    s.check.damaged(2, T, 2, 7)
    s.led(2, 1, (0, 1, 2))


@case("", "I13 excused: lost power")
def an_acknowledgement_comes_late_after_a_loss(s: Story) -> None:
    s.check.damaged(2, T, 6, 8)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(0, 1, 6, 8)


@case("I13")
def an_acknowledgement_comes_late_and_is_below_the_loss(s: Story) -> None:
    s.check.damaged(2, T, 8, 9)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(0, 1, 6, 8)


@case("I13")
def a_loss_is_over_when_its_broker_leads(s: Story) -> None:
    s.check.damaged(2, T, 6, 8)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(1, 2, 6, 9)
    s.led(2, 2, (0, 1, 6))


@case("I13")
def a_loss_is_over_when_another_leads_without_what_was_lost(s: Story) -> None:
    s.check.damaged(3, T, 6, 8)
    s.led(2, 1, (0, 1, 6))
    s.acknowledged(1, 2, 6, 9)
    s.led(3, 2, (0, 1, 6))


@case("", "I13 excused: lost power")
def a_loss_is_not_over_when_another_leads_with_what_was_lost(s: Story) -> None:
    s.acknowledged(0, 1, 6, 8)
    s.check.damaged(3, T, 6, 8)
    s.led(2, 1, (0, 1, 8))
    s.led(3, 2, (0, 1, 6))


@case("", "I13 excused: a write by hand,I14 excused: a write by hand")
def a_foreign_write_gives_records_up(s: Story) -> None:
    s.by_hand["t"] = 1
    s.led(2, 1)


@case("I13 I14")
def a_foreign_write_to_another_topic(s: Story) -> None:
    s.by_hand["u"] = 1
    s.led(2, 1)


@case("I13")
def a_loss_is_over_when_all_was_fetched_again(s: Story) -> None:
    s.check.damaged(2, T, 3, 6)
    s.check.copied(2, T, 6)
    s.acknowledged(0, 1, 6, 8)
    s.led(2, 1, (0, 1, 6))


@case("I13")
def a_loss_is_over_when_all_was_fetched_that_the_leader_has(s: Story) -> None:
    s.check.damaged(3, T, 5, 9)
    s.led(2, 1, (0, 1, 7))
    s.check.copied(3, T, 7)
    s.acknowledged(1, 2, 7, 9)
    s.led(3, 2, (0, 1, 7))


@case("I13 I14", "no other was asked about")
def a_leader_is_known_to_have_started_uncleanly_and_no_other_was_asked_about(s: Story) -> None:
    s.check.damaged(2, T, 3, 6)
    s.elected(2, 1, unasked=True)
    s.led(2, 1, (0, 1, 3))


@case()
def no_other_was_asked_about_and_it_has_lost_nothing(s: Story) -> None:
    s.elected(2, 1, unasked=True)
    s.led(2, 1, (0, 1, 6))


# -- a better log leads in place of the ISR's --------------------------------------------------------------------------


@case("", "I13 excused: a better log,I14 excused: a better log")
def what_the_isr_has_lost_may_be_missing(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 4))


@case("I13 I14")
def what_it_still_has_may_not(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 2))


@case("I13 I14")
def what_one_of_them_still_has_may_not(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.damaged(2, T, 5, 6)
    s.check.elected_in_place_of(T, 1, {1, 2})
    s.led(3, 1, (0, 1, 4))


@case("I13 I14")
def one_of_them_has_lost_nothing(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1, 2})
    s.led(3, 1, (0, 1, 4))


@case("I13 I14")
def what_the_better_log_has_lost_itself_may_not_be_missing(s: Story) -> None:
    s.check.damaged(3, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 3))


@case("I13")
def a_better_log_excuses_nothing_later(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 6))
    s.acknowledged(1, 3, 6, 8)
    s.led(2, 2, (0, 1, 6))


@case("", "I13 excused: lost power,I14 excused: lost power")
def the_better_log_led_before_it_lost_its_end(s: Story) -> None:
    s.check.damaged(1, T, 5, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 6))
    s.check.damaged(3, T, 4, 6)
    s.led(3, 1, (0, 1, 4))


@case("I13 I14")
def it_had_lost_more_before(s: Story) -> None:
    s.check.damaged(1, T, 5, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.check.damaged(3, T, 4, 6)
    s.led(3, 1, (0, 1, 4))


@case("", "I13 excused: a better log,I14 excused: a better log")
def the_better_log_never_began_to_lead(s: Story) -> None:
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(2, 2, (0, 1, 4))


@case("", "I13 excused: a better log,I14 excused: a better log")
def retention_has_deleted_all_that_the_isr_still_had(s: Story) -> None:
    s.check.deleted_old(T, 3, A)
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1)


@case("I13 I14")
def retention_has_left_one_record_of_it(s: Story) -> None:
    s.check.deleted_old(T, 2, A)
    s.check.damaged(1, T, 3, 6)
    s.check.elected_in_place_of(T, 1, {1})
    s.led(3, 1, (0, 1, 2))
