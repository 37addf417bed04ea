"""Made-up histories of ISRs, each with the replicas outside the ISR that are complete then, and the steady ones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from aiocontroller.core.ids import LeaderAndIsr
from tests.unit.lab.checkers import records_story as records
from tests.unit.lab.checkers.history_story import Case

T, U = ("t", 0), ("t", 1)
ELIGIBLE: list[Case] = []


class Story:
    """t-0 and t-1 have replicas 1, 2 and 3, all in sync; the topic needs two.  The controller of epoch 1 records."""

    def __init__(self, module: ModuleType) -> None:
        self.twin = module.EligibleTwin()
        self.twin.min_isr = lambda topic: {"t": 2, "u": 1}[topic]
        self.replicas = (1, 2, 3)
        self.states: dict[tuple[str, int], LeaderAndIsr] = {}
        self.begin()

    def begin(self) -> None:
        self.term(1)
        for partition in (T, U):
            self.state(1, 1, 2, 3, of=partition)

    def term(self, epoch: int) -> None:
        """A controller that records is elected."""
        self.twin.term(epoch)
        self.twin.recorded()

    def state(self, leader: int, *isr: int, of: tuple[str, int] = T) -> None:
        after = LeaderAndIsr(leader, 0, isr, 1, 0)
        self.twin.written(of, self.states.get(of), after, self.replicas)
        self.states[of] = after

    def configured(self, topic: str = "t") -> None:
        self.twin.configured(topic, self.states.items())

    def shown(self) -> list[str]:
        return [
            f"{partition[1]}:{','.join(map(str, sorted(self.twin.complete(partition))))}"
            f"/{','.join(map(str, sorted(self.twin.steady(partition))))}"
            for partition in (T, U)
        ]


def case(expected: str) -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    """``expected``: for t-0 and t-1 ``complete/steady``; nothing more of t-1 where nothing has happened to it."""

    def add(scenario: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            scenario(story)
            return story.shown()

        words = expected.split()
        ELIGIBLE.append(Case(scenario.__name__, play, words if len(words) > 1 else [*words, "1:/1,2,3"]))
        return scenario

    return add


@case("0:/1,2")
def the_isr_is_still_large_enough(s: Story) -> None:
    s.state(1, 1, 2)


@case("0:2/1,2")
def it_is_too_small(s: Story) -> None:
    s.state(1, 1, 2)
    s.state(1, 1)


@case("0:1,3/1,2,3")
def another_leads(s: Story) -> None:
    s.state(1, 1)
    s.state(2, 2)


@case("0:2,3/1,2,3")
def none_leads(s: Story) -> None:
    s.state(1, 1)
    s.state(-1, 1)


@case("0:1,2/0,1,2")
def broker_0_leads(s: Story) -> None:
    s.replicas = (0, 1, 2)
    s.state(0, 0, 1, 2)
    s.state(0, 0)


@case("0:/0")
def broker_0_led_uncleanly(s: Story) -> None:
    s.replicas = (0, 1, 2)
    s.state(1, 1)
    s.state(0, 0)


@case("0:/3")
def an_unclean_election(s: Story) -> None:
    s.state(1, 1, 2)
    s.state(3, 3)


@case("0:/1,2")
def it_is_large_enough_again(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, 2)


@case("0:/1")
def one_of_one_replica(s: Story) -> None:
    s.replicas = (1,)
    s.state(1, 1)


@case("0:2/1,2")
def a_replica_is_removed(s: Story) -> None:
    s.replicas = (1, 2)
    s.state(1, 1)


@case("0:3/1,3 1:2,3/1,2,3")
def a_log_has_lost_records(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, of=U)
    s.twin.lost(2, T)
    s.twin.lost(3, ("u", 0))


@case("0:2,3/1,3 1:3/1,3")
def a_log_has_lost_records_that_no_controller_can_know_of(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, of=U)
    s.twin.lost(2, T, noticed=False)
    s.twin.lost(2, U)


@case("0:3/ 1:2,3/3")
def its_broker_has_registered_again(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, of=U)
    s.twin.lost(2, T, noticed=False)
    s.twin.lost(2, ("u", 0), noticed=False)
    s.twin.lost(3, T, noticed=False)
    s.twin.topic_gone("u")
    s.twin.registered(2)
    s.twin.registered(1)


@case("0:2,3/1,3 1:2,3/1,3")
def its_broker_has_registered_again_and_regained_them(s: Story) -> None:
    s.twin.lost(2, T, noticed=False)
    s.twin.registered(2)
    s.twin.regained(2, T)
    s.state(1, 1)
    s.state(1, 1, of=U)


@case("0:2,3/1,3")
def it_leaves_before_a_controller_can_know(s: Story) -> None:
    s.twin.lost(2, T, noticed=False)
    s.state(1, 1)


@case("0:2,3/1,3 1:/")
def an_earlier_topics_log_had_lost_records(s: Story) -> None:
    s.twin.lost(2, T, noticed=False)
    s.twin.topic_gone("t")
    s.states.clear()
    s.state(1, 1, 2, 3)
    s.state(1, 1)
    s.twin.registered(2)


@case("0:/1,3")
def a_member_of_the_isr_has_lost_records(s: Story) -> None:
    s.twin.lost(2, T)


@case("0:3/1,3")
def it_leaves_the_isr(s: Story) -> None:
    s.twin.lost(2, T)
    s.state(1, 1)


@case("0:2,3/1,2,3")
def it_leaves_after_it_had_joined_again(s: Story) -> None:
    s.twin.lost(2, T)
    s.state(1, 1, 3)
    s.state(1, 1, 3, 2)
    s.state(1, 1)


@case("0:2,3/1,3")
def it_leaves_after_it_had_led(s: Story) -> None:
    s.twin.lost(2, T)
    s.state(2, 1, 2, 3)
    s.state(1, 1)


@case("0:2,3/1,3")
def it_leaves_after_it_had_fetched_them_again(s: Story) -> None:
    s.twin.lost(2, T)
    s.twin.regained(2, T)
    s.twin.regained(3, T)
    s.state(1, 1)


@case("0:2,3/1,3 1:2,3/1,3")
def a_broker_restarts(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, of=U)
    s.twin.registered(2)


@case("0:/1,3 1:/1,3")
def a_member_of_the_isr_restarts(s: Story) -> None:
    s.twin.registered(2)
    s.state(3, 1, 2, 3)


@case("0:/1,2,3 1:/1,3")
def it_joins_again(s: Story) -> None:
    s.twin.registered(2)
    s.state(1, 1, 3)
    s.state(1, 1, 3, 2)


@case("0:/1,2,3 1:2,3/1,3")
def it_joins_again_where_one_leads_and_waits_where_none_does(s: Story) -> None:
    """A controller that is elected then cannot tell the two apart."""
    s.twin.registered(2)
    s.state(-1, 1, 2, 3, of=U)
    s.state(1, 1, 3)
    s.state(1, 1, 3, 2)
    s.state(-1, 2, of=("u", 0))
    assert s.shown() == ["0:/1,3", "1:/1,3"]
    s.state(1, 1, of=U)


@case("0:/ 1:/")
def the_topic_is_gone(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, of=U)
    s.twin.topic_gone("u")
    assert s.shown() == ["0:2,3/1,2,3", "1:2,3/1,2,3"]
    s.twin.topic_gone("t")


@case("0:/1 1:/")
def brokers_that_commit_with_any_isr(s: Story) -> None:
    s.twin, s.states = type(s.twin)(), {}
    s.term(1)
    s.state(1, 1, 2, 3)
    s.state(1, 1)


# -- settings ----------------------------------------------------------------------------------------------------------


@case("0:/1")
def settings_change_while_one_leads(s: Story) -> None:
    s.state(1, 1)
    s.configured()


@case("0:/0")
def settings_change_while_broker_0_leads(s: Story) -> None:
    s.replicas = (0, 1, 2)
    s.state(0, 0, 1, 2)
    s.state(0, 0)
    s.configured()


@case("0:2,3/1")
def settings_change_while_none_leads(s: Story) -> None:
    s.state(-1, 1)
    s.configured()


@case("0:2,3/1,2,3")
def settings_of_another_topic_change(s: Story) -> None:
    s.state(1, 1)
    s.configured("u")


@case("0:/1")
def settings_change_where_nothing_is_eligible(s: Story) -> None:
    s.state(1, 1)
    s.state(1, 1, 2, 3)
    s.configured()
    s.state(1, 1)
    s.configured()


# -- controllers -------------------------------------------------------------------------------------------------------


@case("0:2,3/1,2,3")
def another_controller_goes_on_with_the_record(s: Story) -> None:
    s.state(1, 1)
    s.term(2)


@case("0:2,3/ 1:/")
def a_controller_does_not_record(s: Story) -> None:
    s.state(1, 1)
    s.twin.term(2)


@case("0:2,3/1")
def a_controller_has_not_recorded(s: Story) -> None:
    s.state(1, 1)
    s.twin.term(2)
    s.term(3)


@case("0:2,3/1,2,3")
def the_next_one_records_what_it_sees(s: Story) -> None:
    s.twin.term(2)
    s.term(3)
    s.state(1, 1)


@case("0:/ 1:/")
def the_first_controller_does_not_record(s: Story) -> None:
    s.twin, s.states = type(s.twin)(), {}
    s.twin.term(1)
    s.state(1, 1, 2, 3)


@case("0:/ 1:/")
def a_record_from_before_the_first_controller(s: Story) -> None:
    s.twin, s.states = type(s.twin)(), {}
    s.twin.recorded()
    s.twin.registered(2)
    s.term(2)
    assert not s.twin.must_notice(2)


@case("0:/1,2,3")
def a_start_is_noticed(s: Story) -> None:
    assert not s.twin.must_notice(2)
    s.twin.registered(2)
    assert s.twin.must_notice(2)
    assert not s.twin.must_notice(1)
    s.twin.term(2)
    assert not s.twin.must_notice(2)
    s.twin.recorded()
    assert s.twin.must_notice(2)
    s.twin.term(4)
    s.twin.recorded()
    assert not s.twin.must_notice(2)
    s.begin()
    s.state(1, 1, 3)
    s.state(1, 1, 2, 3)
    s.state(1, 1, 3, of=U)
    s.state(1, 1, 2, 3, of=U)


# -- what the checker of records makes of it ---------------------------------------------------------------------------


def two_are_complete(s: records.Story) -> None:
    """Brokers 2 and 3 have left an ISR that was too small then."""
    s.check.eligible.min_isr = lambda topic: 2
    s.in_sync(1, 2, 3)
    s.in_sync(1)
    assert s.check.eligible.complete(records.T) == {2, 3}


@records.case()
def a_complete_log_loses_records(s: records.Story) -> None:
    two_are_complete(s)
    s.check.damaged(2, records.T, 3, 6)
    assert s.check.eligible.complete(records.T) == {3}


@records.case()
def a_complete_log_loses_records_with_its_power(s: records.Story) -> None:
    two_are_complete(s)
    s.check.damaged(2, records.T, 3, 6, noticed=False)
    assert s.check.eligible.complete(records.T) == {2, 3}
    s.check.eligible.registered(2)
    assert s.check.eligible.complete(records.T) == {3}


def two_leaves(s: records.Story) -> bool:
    """Broker 2 leaves an ISR that is too small then; whether it is complete."""
    s.in_sync(1)
    return 2 in s.check.eligible.complete(records.T)


def two_has_lost_records(s: records.Story) -> None:
    s.check.eligible.min_isr = lambda topic: 2
    s.in_sync(1, 2, 3)
    s.check.damaged(2, records.T, 3, 6)


@records.case()
def a_log_that_lost_records_leaves(s: records.Story) -> None:
    two_has_lost_records(s)
    s.check.copied(2, records.T, 5)
    assert not two_leaves(s)


@records.case()
def it_has_fetched_all_of_them(s: records.Story) -> None:
    two_has_lost_records(s)
    s.check.copied(2, records.T, 6)
    assert two_leaves(s)


@records.case("", "I13 excused: lost power,I14 excused: lost power")
def its_leader_has_lost_more_of_them(s: records.Story) -> None:
    two_has_lost_records(s)
    s.check.damaged(1, records.T, 3, 10)
    s.led(1, 1, (0, 1, 3))
    assert two_leaves(s)


@records.case("", "I13 excused: lost power,I14 excused: lost power")
def its_leader_has_lost_fewer_of_them(s: records.Story) -> None:
    """As seed 445 of the family restarts: all of an ISR lose power, one leads, and another follows it."""
    two_has_lost_records(s)
    s.check.damaged(1, records.T, 5, 10)
    s.led(1, 1, (0, 1, 5))
    s.check.copied(2, records.T, 4)
    assert not two_leaves(s)
    s.in_sync(1, 2, 3)
    s.check.damaged(2, records.T, 3, 5)
    s.check.copied(2, records.T, 5)
    assert two_leaves(s)


@records.case()
def complete_logs_of_a_topic_that_has_lost_a_replica(s: records.Story) -> None:
    two_are_complete(s)
    s.check.replica_gone("u")
    assert s.check.eligible.complete(records.T) == {2, 3}
    s.check.replica_gone("t")
    assert not s.check.eligible.complete(records.T)


@records.case()
def the_topic_of_complete_logs_is_gone(s: records.Story) -> None:
    two_are_complete(s)
    s.check.topic_gone("u")
    assert s.check.eligible.complete(records.T) == {2, 3}
    s.check.topic_gone("t")
    assert not s.check.eligible.complete(records.T)
