"""Made-up elections of logs that are better than those of the ISR: which of them no rule allows."""

from __future__ import annotations

from aiocontroller.lab.checkers.records import Records
from aiocontroller.lab.cluster.logs import Run
from tests.unit.lab.checkers.history_story import Story, case

T = ("t", 0)
RECORD = "/aiocontroller_broker_starts"


def start(s: Story, broker: int) -> None:
    s.change(f"/brokers/ids/{broker}", b"{}", writer=s.writer(60 + broker))


def returned(s: Story, *reported: int, isr: tuple[int, ...] = (1,), recorded: bool = True) -> None:
    """t-0 has no leader; broker 1 has started again, and these brokers have told where their logs end."""
    if recorded:
        s.change(RECORD, b"{}")
    s.history.running = lambda: {1, 2, 3, 4}
    s.history.must_ask = lambda partition, leader: (partition, leader) == (T, 1)
    s.state(-1, 1, isr)
    start(s, 1)
    s.history.reported = lambda partition, epoch: set(reported) if (partition, epoch) == (T, 2) and reported else None


def noted(s: Story) -> list[tuple[object, ...]]:
    """(partition, leader, leader epoch, whether it is complete, whether it was ordered) of each later election."""
    elections: list[tuple[object, ...]] = []
    s.history.on_election = lambda partition, leader, epoch, complete, by_order: elections.append(
        (partition, leader, epoch, leader in complete, by_order)
    )
    return elections


@case()
def a_better_log_leads(s: Story) -> None:
    returned(s, 1, 3)
    elections = noted(s)
    s.state(3, 2, (3,), version=2)
    assert s.history.probes["unclean election"] == 1
    assert elections == [(T, 3, 2, False, False)]


@case("I4")
def nobody_was_asked(s: Story) -> None:
    returned(s)
    s.state(3, 2, (3,), version=2)


@case("I4")
def the_new_leader_has_told_nothing(s: Story) -> None:
    returned(s, 1, 2)
    s.state(3, 2, (3,), version=2)


@case("I4")
def no_member_of_the_isr_has_told_anything(s: Story) -> None:
    returned(s, 2, 3)
    s.state(3, 2, (3,), version=2)


@case("I4")
def another_member_of_the_isr_has_lost_nothing(s: Story) -> None:
    returned(s, 1, 3, isr=(1, 2))
    s.state(3, 2, (3,), version=2)


@case()
def another_member_that_has_lost_nothing_is_dead(s: Story) -> None:
    returned(s, 1, 3, isr=(1, 2))
    s.delete("/brokers/ids/2")
    s.state(3, 2, (3,), version=2)


@case()
def another_member_has_started_again_too(s: Story) -> None:
    returned(s, 1, 2, 3, isr=(1, 2))
    start(s, 2)
    s.state(3, 2, (3,), version=2)


@case("I4")
def another_member_that_has_told_has_not_started_again(s: Story) -> None:
    s.history.data.eligible.term(5)  # the record begins anew
    returned(s, 1, 2, 3, isr=(1, 2))
    s.state(3, 2, (3,), version=2)


@case("I4")
def an_eligible_replica_lives(s: Story) -> None:
    s.history.data.eligible.min_isr = lambda topic: 2
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)


@case("I4")
def starts_are_not_recorded(s: Story) -> None:
    returned(s, 1, 3, recorded=False)
    s.state(3, 2, (3,), version=2)


@case("I4")
def there_was_a_leader(s: Story) -> None:
    returned(s, 1, 3)
    s.state(1, 2, (1,), version=2)
    start(s, 1)
    s.history.reported = lambda partition, epoch: {1, 3}
    s.state(3, 3, (3,), version=3)


@case()
def a_member_of_the_isr_leads(s: Story) -> None:
    returned(s, 1, 3)
    elections = noted(s)
    s.state(1, 2, (1,), version=2)
    s.state(1, 3, (1,), version=3)
    s.state(-1, 4, (1,), version=4)
    assert elections == [(T, 1, 2, True, False)]


@case()
def an_eligible_replica_leads_by_rule(s: Story) -> None:
    s.history.data.eligible.min_isr = lambda topic: 2
    returned(s, 1, 3)
    elections = noted(s)
    s.state(2, 2, (2,), version=2)
    assert elections == [(T, 2, 2, True, False)]


# -- what may be lost then ---------------------------------------------------------------------------------------------


def acknowledged(s: Story, damaged: int = 1) -> None:
    """Broker 1 has records 0 to 9, all acknowledged; what it or another has from 3 on is lost with the power."""
    s.history.data.led(1, T, 0, [], "A" * 22)
    s.history.data.acknowledged(T, Records(0, 1, 0, 10), "A" * 22)
    s.history.data.damaged(damaged, T, 3, 10)


@case()
def what_the_isr_has_lost_is_missing(s: Story) -> None:
    acknowledged(s)
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)
    s.history.data.led(3, T, 2, [Run(0, 1, 4)], "A" * 22)


@case("I13")
def what_it_still_has_is_missing(s: Story) -> None:
    acknowledged(s)
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)
    s.history.data.led(3, T, 2, [Run(0, 1, 2)], "A" * 22)


@case("I13")
def unclean_elections_are_allowed_and_a_member_of_the_isr_lives(s: Story) -> None:
    s.history.unclean.by_default = True
    acknowledged(s)
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)
    s.history.data.led(3, T, 2, [Run(0, 1, 2)], "A" * 22)


@case()
def unclean_elections_are_allowed_and_none_lives(s: Story) -> None:
    s.history.unclean.by_default = True
    acknowledged(s)
    returned(s, 2, 3)
    s.state(3, 2, (3,), version=2)
    s.history.data.led(3, T, 2, [Run(0, 1, 2)], "A" * 22)


@case("I13")
def a_member_of_the_isr_leads_and_nobody_was_asked(s: Story) -> None:
    acknowledged(s)
    returned(s)
    s.state(1, 2, (1,), version=2)
    s.history.data.led(1, T, 2, [Run(0, 1, 3)], "A" * 22)


@case()
def it_leads_and_nobody_need_be_asked(s: Story) -> None:
    acknowledged(s)
    returned(s)
    s.history.must_ask = lambda partition, leader: False
    s.state(1, 2, (1,), version=2)
    s.history.data.led(1, T, 2, [Run(0, 1, 3)], "A" * 22)


@case()
def nobody_says_who_must_be_asked_about(s: Story) -> None:
    acknowledged(s)
    s.state(-1, 1, (1,))
    s.state(1, 2, (1,), version=2)
    s.history.data.led(1, T, 2, [Run(0, 1, 3)], "A" * 22)


@case()
def it_leads_and_others_were_asked(s: Story) -> None:
    acknowledged(s)
    returned(s)
    s.history.reported = lambda partition, epoch: ()
    s.state(1, 2, (1,), version=2)
    s.history.data.led(1, T, 2, [Run(0, 1, 3)], "A" * 22)


@case()
def it_leads_after_another(s: Story) -> None:
    """A clean election: nobody need be asked."""
    s.change(RECORD, b"{}")
    start(s, 2)
    s.history.running = lambda: {2, 3}
    s.history.must_ask = lambda partition, leader: True
    acknowledged(s, damaged=2)
    s.state(2, 1, (2,))
    s.history.data.led(2, T, 1, [Run(0, 1, 3)], "A" * 22)


@case()
def a_request_from_before_a_better_log_led_deletes_its_replica(s: Story) -> None:
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)
    s.history.replica_deleted(3, T, 1)


@case("deleted")
def a_later_one_deletes_it(s: Story) -> None:
    returned(s, 1, 3)
    s.state(3, 2, (3,), version=2)
    s.history.replica_deleted(3, T, 2)


# -- after the deadline of Aggressive, and by order --------------------------------------------------------------------


def waited(s: Story, *reported: int, seconds: float = 15.0) -> None:
    """All in-sync replicas of t-0 are dead, and it has had no leader for so long; 15 s are the deadline."""
    s.history.unclean.after_s = 15.0
    s.state(-1, 1, (1,))
    s.delete("/brokers/ids/1")
    s.later(seconds)
    s.history.reported = lambda partition, epoch: set(reported) if reported else None


@case()
def who_has_told_leads_after_the_deadline(s: Story) -> None:
    waited(s, 3)
    s.state(3, 2, (3,), version=2)


@case("I4")
def who_has_told_leads_before_the_deadline(s: Story) -> None:
    waited(s, 3, seconds=14.9)
    s.state(3, 2, (3,), version=2)


@case("I4")
def another_leads_than_those_that_have_told(s: Story) -> None:
    waited(s, 2)
    s.state(3, 2, (3,), version=2)


@case("I4")
def nobody_has_told_by_the_deadline(s: Story) -> None:
    waited(s)
    s.state(3, 2, (3,), version=2)


@case("I4")
def a_partition_that_was_led_meanwhile_waits_anew(s: Story) -> None:
    waited(s, 1, 3, seconds=10.0)
    start(s, 1)
    s.state(1, 2, (1,), version=2)
    s.state(-1, 3, (1,), version=3)
    s.later(5.0)
    s.state(3, 4, (3,), version=4)


@case()
def a_partition_waits_on_when_its_state_is_written_again(s: Story) -> None:
    waited(s, 3, seconds=10.0)
    s.state(-1, 2, (1,), version=2)
    s.later(5.0)
    s.state(3, 3, (3,), version=3)


@case("I4")
def without_aggressive_a_partition_waits_for_ever(s: Story) -> None:
    waited(s, 3, seconds=1e9)
    s.history.unclean.after_s = float("inf")
    s.state(3, 2, (3,), version=2)


@case()
def an_operator_may_choose_anybody(s: Story) -> None:
    elections = noted(s)
    returned(s, 1, 3)
    s.history.ordered(T, 3)
    s.state(3, 2, (3,), version=2)
    s.state(-1, 3, (3,), version=3)
    s.state(3, 4, (3,), version=4)
    assert elections == [(T, 3, 2, False, True), (T, 3, 4, True, False)]


@case()
def an_operator_may_ask_for_the_best_log(s: Story) -> None:
    elections = noted(s)
    waited(s, 3)
    s.history.unclean.after_s = float("inf")
    s.history.ordered(T, None)
    s.state(3, 2, (3,), version=2)
    assert elections == [(T, 3, 2, False, False)]


@case()
def an_operators_choice_may_lack_what_was_acknowledged(s: Story) -> None:
    """Its log has lost nothing, and it was not in sync when the records were acknowledged."""
    returned(s, 1, 3)
    s.history.data.acknowledged(T, Records(0, 1, 0, 10), "A" * 22)
    s.history.ordered(T, 3)
    s.state(3, 2, (3,), version=2)
    s.history.data.led(3, T, 2, [Run(0, 1, 5)], "A" * 22)
