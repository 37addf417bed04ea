"""Made-up histories of partitions' states: which may be written, elections, epochs, versions, ids."""

from __future__ import annotations

from aiocontroller.lab.checkers.records import Records
from aiocontroller.zookeeper import paths
from tests.unit.lab.checkers.history_story import STATE, UNCLEAN, Story, case

# -- states that may and may not be written ----------------------------------------------------------------------------


@case()
def nothing_more_happens(s: Story) -> None:
    assert s.history.writes == 1
    assert s.history.controller_epoch == 1


@case()
def another_replica_in_sync_leads(s: Story) -> None:
    s.state(2, 1, (2,))
    assert s.history.states["t", 0].leader == 2
    assert s.history.writes == 2


@case()
def there_is_no_leader(s: Story) -> None:
    s.state(-1, 1, (1, 2))
    s.state(1, 2, (1,), version=2)


@case("I1")
def a_state_without_the_fence(s: Story) -> None:
    s.state(2, 1, (2,), writer=s.won._replace(fenced=False))


@case("I1")
def a_state_by_another_client(s: Story) -> None:
    s.state(2, 1, (2,), writer=s.won._replace(session=8))


@case("I2")
def a_state_of_another_controller_epoch(s: Story) -> None:
    s.state(2, 1, (2,), controller_epoch=2)


@case("I3")
def an_unreadable_state(s: Story) -> None:
    s.change(STATE, b"{", 1)


@case("I3")
def an_empty_isr(s: Story) -> None:
    s.state(-1, 1, ())


@case("I3")
def an_isr_with_a_broker_twice(s: Story) -> None:
    s.state(1, 1, (1, 1))


@case("I3")
def a_leader_that_is_not_in_its_isr(s: Story) -> None:
    s.state(1, 1, (2,))


@case("I3 I4")
def a_leader_that_is_no_replica(s: Story) -> None:
    s.state(4, 1, (4,))


@case()
def an_isr_with_a_replica_of_before(s: Story) -> None:
    s.topic({0: [1, 3]}, topic_id="A" * 22)
    s.state(1, 1, (1, 2))


@case("I3")
def an_isr_with_a_replica_of_the_topic_before(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.delete(STATE)
    s.delete(paths.topic("t"))
    s.topic({0: [1, 3]}, topic_id="B" * 22)
    s.state(1, 0, (1, 2), version=0)


@case()
def an_isr_that_its_leader_asked_for(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,))
    s.asked(("t", 0), 0, (1, 3), 1)
    s.state(1, 0, (1, 3), version=2)
    assert s.history.probes == {"ISR shrinks": 1, "ISR grows": 1}


@case("I3")
def an_isr_that_was_asked_for_of_another_partition_epoch(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 5)
    s.state(1, 0, (1,))


@case("I3")
def an_isr_that_was_asked_for_in_another_leader_epoch(s: Story) -> None:
    s.asked(("t", 0), 1, (1,), 0)
    s.state(1, 0, (1,))


@case("I3")
def an_isr_that_grows_with_an_election(s: Story) -> None:
    s.state(2, 1, (2, 3))


@case("one-leader one-leader")
def two_leaders_of_one_epoch(s: Story) -> None:
    s.state(2, 0, (1, 2))


@case("one-leader")
def a_leader_of_an_epoch_that_had_another(s: Story) -> None:
    s.state(-1, 0, (1, 2))


@case("one-leader one-leader")
def a_leader_of_an_epoch_that_had_another_before(s: Story) -> None:
    s.state(-1, 0, (1, 2))
    s.history.violations.clear()
    s.state(2, 0, (1, 2), version=2)


@case()
def the_same_epoch_in_another_partition(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [2, 1]}, topic_id="A" * 22)
    s.state(2, 0, (2, 1), version=0, of="t-1")
    s.topic({0: [3]}, name="u")
    s.state(3, 0, (3,), version=0, of="u-0")


# -- leaders of before, elections --------------------------------------------------------------------------------------


@case("I4")
def a_leader_from_outside(s: Story) -> None:
    s.state(3, 1, (3,))


@case("I4")
def a_leader_from_outside_after_an_irrelevant_setting(s: Story) -> None:
    s.settings('"preallocate":"true"')
    s.state(3, 1, (3,))


def two_in_sync_are_needed(s: Story) -> None:
    """Broker 1 leads alone, and broker 2 is complete."""
    s.history.data.eligible.min_isr = lambda topic: 2
    s.change("/aiocontroller_broker_starts", b"{}")
    s.history.running = lambda: [1, 2, 3]
    s.state(1, 0, (1, 2), version=0, of="t-1")
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,))
    assert s.history.data.eligible.complete(("t", 0)) == {2}


@case()
def an_eligible_replica_leads(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.state(2, 1, (2,), version=2)
    assert s.history.probes["an eligible replica leads"] == 1
    assert s.history.probes["unclean election"] == 0


@case("I3")
def an_eligible_replica_leads_with_others_in_its_isr(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.state(2, 1, (2, 1), version=2)


@case("I4")
def a_replica_that_is_not_eligible_leads(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.state(3, 1, (3,), version=2)


@case("I4")
def an_eligible_replica_has_lost_records(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.history.data.damaged(2, ("t", 0), 3, 6)
    s.state(2, 1, (2,), version=2)


@case("I4 I13")
def what_a_leader_lost_that_should_not_lead_is_no_excuse(s: Story) -> None:
    two_in_sync_are_needed(s)
    data = s.history.data
    data.acknowledged(("t", 0), Records(0, 1, 0, 6), "A" * 22)
    data.damaged(3, ("t", 0), 0, 6)
    s.delete("/brokers/ids/2", writer=s.writer(60))
    s.state(3, 1, (3,), version=2)
    data.led(3, ("t", 0), 1, [], "A" * 22)


@case("I4")
def an_eligible_replica_was_deleted(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.history.replica_deleted(2, ("t", 0), 0)
    s.state(2, 1, (2,), version=2)


def chosen_before_a_complete_one(s: Story) -> int:
    """Broker 1 has lost records, and leads again; returns how often that was found wrong."""
    s.history.data.damaged(1, ("t", 0), 3, 6)
    s.state(-1, 1, (1,), version=2)
    s.state(1, 2, (1,), version=3)
    found: int = s.history.probes["a damaged log was chosen before a complete one"]
    return found


@case()
def a_damaged_log_is_chosen_before_a_complete_one(s: Story) -> None:
    two_in_sync_are_needed(s)
    assert chosen_before_a_complete_one(s) == 1


@case()
def a_damaged_log_has_led_before_it_was_damaged(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.history.data.damaged(1, ("t", 0), 3, 6)
    s.asked(("t", 0), 0, (1, 2), 1)
    s.state(1, 0, (1, 2), version=2)
    assert s.history.probes["a damaged log was chosen before a complete one"] == 0


@case()
def the_complete_one_has_restarted(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.change("/brokers/ids/2", b"{}", writer=s.writer(60))
    assert chosen_before_a_complete_one(s) == 0


@case()
def the_complete_one_had_restarted_before_it_left(s: Story) -> None:
    """For all that a controller knows, it has lost records."""
    s.change("/brokers/ids/2", b"{}", writer=s.writer(60))
    two_in_sync_are_needed(s)
    assert not s.history.data.eligible.steady(("t", 0)).intersection({2})
    assert chosen_before_a_complete_one(s) == 0


@case()
def the_complete_one_is_gone(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.delete("/brokers/ids/2", writer=s.writer(60))
    assert chosen_before_a_complete_one(s) == 0


@case()
def the_complete_one_cannot_be_reached(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.history.running = lambda: [1, 3]
    assert chosen_before_a_complete_one(s) == 0


@case()
def the_controller_that_knew_of_the_complete_one_is_gone(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.won = s.writer(session=8, fenced=True, controller=True)
    s.change("/controller_epoch", b"2", 2)
    s.state(-1, 1, (1,), version=2, controller_epoch=2)
    assert not s.history.data.eligible.steady(("t", 0))
    s.change("/aiocontroller_broker_starts", b"{}")
    assert s.history.data.eligible.steady(("t", 0)) == {1, 2}


@case("I4")
def the_settings_of_its_topic_have_changed(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.settings("")
    s.state(2, 1, (2,), version=2)


@case("I4")
def the_settings_of_its_topic_are_removed(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.delete("/config/topics/t")
    s.state(2, 1, (2,), version=2)


@case()
def the_settings_of_another_topic_are_removed(s: Story) -> None:
    two_in_sync_are_needed(s)
    s.delete("/config/topics/u")
    s.state(2, 1, (2,), version=2)


@case()
def nobody_is_known_to_run(s: Story) -> None:
    running = s.history.running
    two_in_sync_are_needed(s)
    s.history.running = running
    assert chosen_before_a_complete_one(s) == 0


@case()
def an_unclean_leader_where_the_topic_allows_it(s: Story) -> None:
    s.settings(UNCLEAN.format("true"))
    s.later(100)
    s.state(3, 1, (3,))
    assert s.history.probes == {"unclean election": 1}


@case()
def an_unclean_leader_a_moment_after_the_topic_allowed_it(s: Story) -> None:
    s.settings(UNCLEAN.format("true"))
    s.later(100)
    s.settings(UNCLEAN.format("false"))
    s.later(15)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_long_after_the_topic_allowed_it(s: Story) -> None:
    s.settings(UNCLEAN.format("true"))
    s.settings(UNCLEAN.format("false"))
    s.later(16)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_long_after_the_settings_were_deleted(s: Story) -> None:
    s.settings(UNCLEAN.format("true"))
    s.delete("/config/topics/t")
    s.later(16)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_where_another_topic_allows_it(s: Story) -> None:
    s.change("/config/topics/u", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
    s.state(3, 1, (3,))


@case()
def an_unclean_leader_by_default(s: Story) -> None:
    s.history.unclean.by_default = True
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_by_default_where_the_topic_forbids_it(s: Story) -> None:
    s.history.unclean.by_default = True
    s.settings(UNCLEAN.format("false"))
    s.later(16)
    s.state(3, 1, (3,))


@case()
def an_unclean_leader_on_request(s: Story) -> None:
    s.history.unclean.requested([("t", 0)])
    s.later(15)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_long_after_the_request(s: Story) -> None:
    s.history.unclean.requested([("t", 0)])
    s.later(16)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_of_another_partition_than_was_requested(s: Story) -> None:
    s.history.unclean.requested([("t", 1)])
    s.state(3, 1, (3,))


@case()
def an_unclean_leader_on_a_request_for_all(s: Story) -> None:
    s.history.unclean.requested(None)
    s.later(14)
    s.state(3, 1, (3,))


@case("I4")
def an_unclean_leader_long_after_a_request_for_all(s: Story) -> None:
    s.history.unclean.requested(None)
    s.later(16)
    s.state(3, 1, (3,))


@case("alive")
def a_leader_that_has_been_dead_for_long(s: Story) -> None:
    s.delete("/brokers/ids/2")
    s.later(11)
    s.state(2, 1, (2,))


@case()
def a_leader_that_has_just_died(s: Story) -> None:
    s.delete("/brokers/ids/2")
    s.later(10)
    s.state(2, 1, (2,))


@case()
def a_leader_that_has_come_back(s: Story) -> None:
    s.delete("/brokers/ids/2")
    s.later(11)
    s.change("/brokers/ids/2", b"{}", writer=s.writer(62))
    s.state(2, 1, (2,))


@case("alive")
def a_first_leader_that_was_never_there(s: Story) -> None:
    s.topic({0: [5]}, name="u")
    s.state(5, 0, (5,), version=0, of="u-0")


@case()
def no_leader_where_all_are_dead(s: Story) -> None:
    for broker in (1, 2):
        s.delete(f"/brokers/ids/{broker}")
    s.later(11)
    s.state(1, 1, (1,))  # its leader stays
    s.state(-1, 2, (1,), version=2)


# -- epochs, versions, ids ---------------------------------------------------------------------------------------------


@case("I2")
def a_leader_epoch_that_goes_back(s: Story) -> None:
    s.state(1, 1, (1,))
    s.state(1, 0, (1,), version=2)


@case("I2")
def a_leader_epoch_that_jumps(s: Story) -> None:
    s.state(2, 2, (2,))


@case()
def a_leader_epoch_that_jumps_above_what_was_written_by_hand(s: Story) -> None:
    s.state(1, 0, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 7, (1, 2), version=2)


@case("I2")
def a_leader_epoch_that_goes_back_after_a_write_by_hand(s: Story) -> None:
    s.state(1, 3, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 2, (1, 2), version=2)


@case("I2")
def a_version_that_jumps(s: Story) -> None:
    s.state(2, 1, (2,), version=2)


@case("I2")
def a_version_that_stands_still(s: Story) -> None:
    s.state(2, 1, (2,), version=0)


@case("I2")
def a_first_version_that_is_not_the_first(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.state(1, 0, (1,), version=1, of="u-0")


@case()
def a_version_that_one_transaction_raised_three_times(s: Story) -> None:
    s.state(2, 1, (2,), version=3, times=3)


@case("I2")
def a_controller_epoch_that_goes_back(s: Story) -> None:
    s.change("/controller_epoch", b"0", 2)


@case("I2")
def a_controller_epoch_that_stands_still(s: Story) -> None:
    s.there.add(paths.CONTROLLER)
    s.change("/controller_epoch", b"1", 2)
    assert s.history.controller_epoch == 1


@case()
def a_controller_epoch_that_is_created(s: Story) -> None:
    s.history.controller_epoch = 0
    s.there.add(paths.CONTROLLER)
    s.change("/controller_epoch", b"0", 0)
    s.change("/controller_epoch", b"5", 1)
    assert s.history.controller_epoch == 5


@case("I1")
def an_epoch_that_no_controller_won_voids_all_fences(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(99))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)


@case("I2")
def a_topic_id_that_changes(s: Story) -> None:
    s.topic({0: [1, 2, 3]}, topic_id="B" * 22)


@case("I2")
def a_topic_id_that_is_lost(s: Story) -> None:
    s.topic({0: [1, 2, 3]})


@case()
def a_topic_id_that_is_added(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.topic({0: [1]}, name="u", topic_id="B" * 22)


@case()
def a_topic_id_of_a_topic_that_is_made_anew(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.delete(STATE)
    s.delete(paths.topic("t"))
    s.there.clear()
    s.topic({0: [1, 2, 3]}, topic_id="B" * 22)
    assert s.history.topic_ids == {"t": "B" * 22}


@case()
def a_topic_id_that_is_changed_by_hand(s: Story) -> None:
    s.topic({0: [1, 2, 3]}, topic_id="B" * 22, writer=s.writer(0, by_hand=True))


@case("I8")
def a_partition_that_vanishes(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [1]}, topic_id="A" * 22)
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)


@case()
def a_new_partition_of_a_topic_that_is_being_deleted(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [1]}, topic_id="A" * 22)
    s.there |= {paths.delete_topics_topic("t")}
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)


@case()
def a_partition_that_is_removed_by_hand(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [1]}, topic_id="A" * 22)
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=s.writer(0, by_hand=True))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)
