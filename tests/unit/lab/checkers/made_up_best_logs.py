"""Made-up unclean elections: who had told where its log ends, and what the logs were."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from aiocontroller.lab.cluster.logs import Run, deleted
from tests.unit.lab.checkers.history_story import Case

T, U = ("t", 0), ("u", 0)
BEST_LOGS: list[Case] = []


class Story:
    """Broker 1 has 500 records of epoch 1, broker 2 has 400 of epoch 2, broker 3 has 401 of epoch 2 and died; broker 4
    has 400 of epoch 2, and led in epoch 3 without writing anything."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.found: list[str] = []
        self.probes: list[str] = []
        self.dead = {3}
        self.logs = {
            1: [Run(1, 1, 500)],
            2: [Run(1, 1, 350), Run(2, 2, 400)],
            3: [Run(1, 1, 350), Run(2, 2, 401)],
            4: [Run(1, 1, 350), Run(2, 2, 400), Run(3, 4, 400)],
            5: [],
            6: [deleted(399)],
            7: [deleted(400)],
            8: [deleted(300), Run(1, 1, 399)],
        }
        self.old: set[int] = set()
        """Brokers that tell no epochs."""
        self.check = self.checks()

    def checks(self, **options: bool) -> Any:
        def logs(partition: tuple[str, int]) -> dict[int, Any]:
            return {broker: self.module.ReportedLog(runs, broker not in self.old) for broker, runs in self.logs.items()}

        return self.module.BestLogs(self.complain, self.probes.append, logs, **options)

    def complain(self, rule: str, partition: tuple[str, int], detail: str) -> None:
        assert partition == T
        self.found.append(rule)

    def reported(self, *brokers: int, epoch: int = 7) -> None:
        self.check.reported(T, self.module.Reported(epoch, brokers, lambda broker: broker not in self.dead))

    def chosen(self, leader: int, epoch: int = 8, *, complete: tuple[int, ...] = (), by_order: bool = False) -> None:
        self.check.chosen(T, leader, epoch, complete, by_order)

    def asked(self, epoch: int = 8, of: tuple[str, int] = T) -> set[int] | None:
        found: set[int] | None = self.check.asked(of, epoch)
        return found


def case(violated: str = "", probes: int = 1) -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    def add(scenario: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            scenario(story)
            assert len(story.probes) == probes
            return story.found

        BEST_LOGS.append(Case(scenario.__name__, play, [violated] if violated else []))
        return scenario

    return add


@case()
def the_later_epoch_leads(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(2)


@case("I15")
def the_longer_log_of_an_older_epoch_leads(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(1)


@case()
def an_epoch_without_records_does_not_count(it: Story) -> None:
    it.reported(2, 4)
    it.chosen(2)


@case()
def equal_logs(it: Story) -> None:
    it.reported(2, 4)
    it.chosen(4)


@case("I15")
def an_empty_log_leads(it: Story) -> None:
    it.reported(1, 5)
    it.chosen(5)


@case()
def a_log_that_ends_where_an_emptied_one_begins_does_not_lead(it: Story) -> None:
    it.reported(2, 7)
    it.chosen(7)


@case("I15")
def an_emptied_log_leads_before_one_that_goes_on(it: Story) -> None:
    it.reported(2, 6)
    it.chosen(6)


@case("I15")
def a_log_whose_beginning_is_deleted_leads_before_a_better_one(it: Story) -> None:
    it.reported(2, 8)
    it.chosen(8)


@case()
def another_log_than_the_leaders_begins_late(it: Story) -> None:
    it.reported(1, 2, 7)
    it.check.reported(T, it.module.Reported(7, (8, 2, 7), lambda broker: True))
    it.chosen(8)


@case()
def the_best_log_is_on_a_broker_that_cannot_be_elected(it: Story) -> None:
    it.reported(2, 3)
    it.chosen(2)


@case("I15")
def one_record_fewer(it: Story) -> None:
    it.dead.clear()
    it.reported(2, 3)
    it.chosen(2)


@case("I15", probes=0)
def who_has_told_nothing_leads(it: Story) -> None:
    it.reported(1)
    it.chosen(2)


@case(probes=0)
def nobody_who_has_told_can_be_elected(it: Story) -> None:
    it.reported(3)
    it.chosen(2)


@case(probes=0)
def nobody_has_told(it: Story) -> None:
    it.reported()
    it.chosen(1)


@case(probes=0)
def another_controller_chooses(it: Story) -> None:
    it.chosen(1)


@case(probes=0)
def what_was_told_was_of_an_earlier_epoch(it: Story) -> None:
    it.reported(1, 2, epoch=6)
    it.chosen(1)


@case("I15", probes=1)
def a_member_of_the_isr_leads_although_another_log_is_better(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(1, complete=(1,))
    assert it.probes == ["a complete replica leads by evidence"]


@case(probes=0)
def a_member_of_the_isr_that_was_not_asked_leads_by_rule(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(4, complete=(4,))


@case()
def who_was_asked(it: Story) -> None:
    assert it.asked() is None
    it.reported(1, 2, 3)
    assert (it.asked(), it.asked(9), it.asked(7), it.asked(of=U)) == ({1, 2}, None, None, None)
    it.chosen(2)
    assert it.probes == ["unclean election by evidence"]
    assert it.asked() is None


@case(probes=0)
def who_was_asked_and_has_told_nothing(it: Story) -> None:
    it.reported()
    assert it.asked() == set()


@case()
def what_was_told_counts_once(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(2)
    it.chosen(1)


@case(probes=0)
def a_leader_whose_log_is_gone(it: Story) -> None:
    it.reported(1, 2)
    del it.logs[2]
    it.chosen(2)


@case()
def an_operators_leader_may_have_any_log(it: Story) -> None:
    it.reported(1, 2)
    it.chosen(1, by_order=True)
    assert it.asked() is None


# -- one of those that have reported is older than 2.7, and tells no epochs: lengths decide ----------------------------


@case("I15", probes=2)
def a_longer_log_leads_in_place_of_a_complete_one(it: Story) -> None:
    """As in seed 1796000000935: what a deposed leader wrote alone replaces what its successor has acknowledged."""
    it.old = {1}
    it.reported(1, 2)
    it.chosen(1, complete=(2,))


@case(probes=2)
def a_complete_log_leads_before_one_that_is_longer(it: Story) -> None:
    it.old = {1}
    it.reported(1, 2)
    it.chosen(2, complete=(2,))
    assert it.probes == ["a complete replica leads by evidence", "logs compared by their lengths"]


@case(probes=2)
def a_complete_log_leads_before_a_better_one_whose_epochs_are_not_told(it: Story) -> None:
    it.old = {2}
    it.reported(2, 8)
    it.chosen(8, complete=(8,))


@case(probes=2)
def the_longer_log_leads_where_none_is_complete(it: Story) -> None:
    it.old = {4}
    it.reported(1, 2, 4)
    it.chosen(1)


@case("I15", probes=2)
def the_shorter_log_leads_where_none_is_complete(it: Story) -> None:
    it.old = {4}
    it.reported(1, 2, 4)
    it.chosen(2)


@case(probes=2)
def a_complete_log_without_records_gives_way(it: Story) -> None:
    it.old = {5}
    it.reported(1, 5)
    it.chosen(1, complete=(5,))


@case("I15", probes=2)
def a_complete_log_without_records_leads(it: Story) -> None:
    it.old = {5}
    it.reported(1, 5)
    it.chosen(5, complete=(5,))


@case("I15", probes=2)
def the_shorter_of_two_complete_logs_leads(it: Story) -> None:
    it.old = {1}
    it.reported(1, 2)
    it.chosen(2, complete=(1, 2))


@case(probes=2)
def the_shorter_of_two_complete_logs_leads_by_rule(it: Story) -> None:
    it.check = it.checks(by_rule=True)
    it.old = {1}
    it.reported(1, 2)
    it.chosen(2, complete=(1, 2))


@case("I15", probes=2)
def a_longer_log_leads_against_the_rule(it: Story) -> None:
    it.check = it.checks(by_rule=True)
    it.old = {1}
    it.reported(1, 2)
    it.chosen(1, complete=(2,))


@case("I15")
def by_rule_a_worse_log_leads_whose_epochs_are_told(it: Story) -> None:
    it.check = it.checks(by_rule=True)
    it.reported(1, 2)
    it.chosen(1, complete=(1,))


@case(probes=2)
def an_old_broker_has_died(it: Story) -> None:
    """What it has told counts: a controller compares all that it was told, and elects of those that live."""
    it.old = it.dead = {3}
    it.reported(1, 2, 3)
    it.chosen(1)


@case("I15")
def an_old_broker_has_told_nothing(it: Story) -> None:
    it.old = {4}
    it.reported(1, 2)
    it.chosen(1)
