"""Made-up histories of a cluster, each with the invariants that it violates; none where nothing is wrong.

A case gets the module whose checker it feeds, so that the same cases judge mutated checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from aiocontroller.core.events import ElectionType, TopicResult
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.lab.checkers.records import Records
from aiocontroller.lab.cluster.logs import Run
from aiocontroller.zookeeper import paths, znodes


class Case(NamedTuple):
    name: str
    play: Callable[[ModuleType], list[str]]
    """Returns the invariants that the checker finds violated."""
    violated: list[str]


class Story:
    """Session 7 has won epoch 1; t-0 is on brokers 1, 2 and 3, led by 1, and 1 and 2 are in sync; broker 4 has no
    replica, and broker 5 was never registered."""

    def __init__(self, module: ModuleType) -> None:
        self.now_s = 100.0
        self.there: set[str] = set()
        self.epochs = {1: 10, 2: 20}
        self.writer = module.Writer
        self.won = module.Writer(session=7, fenced=True, controller=True)
        self.history = module.ZNodeHistory(
            self.there.__contains__, lambda broker: self.epochs.get(broker, 0), lambda: self.now_s
        )
        self.change("/controller_epoch", b"1", 1)
        for broker in (1, 2, 3, 4):
            self.change(f"/brokers/ids/{broker}", b"{}", writer=self.writer(50 + broker))
        self.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=self.writer(99))
        self.state(version=0)
        self.told = self.history.told
        self.asked = self.history.asked

    def change(self, path: str, data: bytes | None, version: int = 0, writer: Any = None, **more: Any) -> None:
        self.history.changed(path, data, version, writer or self.won, **more)

    def delete(self, path: str, writer: Any = None) -> None:
        self.history.deleted(path, writer or self.won)

    def topic(
        self, partitions: dict[int, list[int]], *, topic_id: str = "", name: str = "t", writer: Any = None
    ) -> None:
        placed = ",".join(f'"{number}":{replicas}' for number, replicas in partitions.items())
        named = f'"topic_id":"{topic_id}",' if topic_id else ""
        self.change(paths.topic(name), f'{{"version":3,{named}"partitions":{{{placed}}}}}'.encode(), writer=writer)

    def state(
        self,
        leader: int = 1,
        epoch: int = 0,
        isr: tuple[int, ...] = (1, 2),
        *,
        version: int = 1,
        of: str = "t-0",
        controller_epoch: int = 1,
        **more: Any,
    ) -> None:
        """Write a state; one after the first unless ``version`` is told."""
        [data] = znodes.encode_partition_states([LeaderAndIsr(leader, epoch, isr, controller_epoch, 0)])
        name, _, number = of.partition("-")
        self.change(paths.topic_partition_state(name, int(number)), data, version, **more)

    def settings(self, text: str) -> None:
        self.change("/config/topics/t", f'{{"version":1,"config":{{{text}}}}}'.encode())

    def later(self, seconds: float) -> None:
        self.now_s += seconds


CASES: list[Case] = []


def case(violated: str = "") -> Callable[[Callable[[Story], None]], Callable[[Story], None]]:
    """``violated`` names what is found in the story, in order."""

    def add(tell: Callable[[Story], None]) -> Callable[[Story], None]:
        def play(module: ModuleType) -> list[str]:
            story = Story(module)
            tell(story)
            return [found.invariant.replace(" ", "-") for found in story.history.violations]

        CASES.append(Case(tell.__name__, play, violated.split()))
        return tell

    return add


STATE = paths.topic_partition_state("t", 0)
UNCLEAN = '"unclean.leader.election.enable":"{}"'


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
def a_state_by_a_stranger(s: Story) -> None:
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
    s.change("/controller_epoch", b"1", 2)
    assert s.history.controller_epoch == 1


@case()
def a_controller_epoch_that_is_created(s: Story) -> None:
    s.history.controller_epoch = 0
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


# -- who writes --------------------------------------------------------------------------------------------------------


@case("I1")
def the_deposed_write_a_topic(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)


@case("I1")
def the_deposed_delete(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.delete("/admin/reassign_partitions")


@case()
def the_deposed_write_elsewhere(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    s.change("/config/users/u", b"{}")


@case()
def the_new_controller_and_others_write(s: Story) -> None:
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    for session in (8, 99):
        s.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=s.writer(session))
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22, writer=s.writer(7, by_hand=True))


@case()
def a_leader_writes_its_isr(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), writer=s.writer(55, broker=1))
    assert s.history.probes == {"an ISR written by its leader": 1, "ISR shrinks": 1}


@case("I1")
def a_follower_writes_an_isr(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), writer=s.writer(55, broker=2))


@case("I1 I3")
def a_leader_writes_its_epoch(s: Story) -> None:
    s.state(1, 1, (1, 2, 3), writer=s.writer(55, broker=1))


@case("I1")
def a_broker_makes_itself_leader(s: Story) -> None:
    s.state(2, 1, (2,), writer=s.writer(55, broker=2))


@case("I1")
def a_leader_writes_the_first_state(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.state(1, 0, (1,), version=0, of="u-0", writer=s.writer(55, broker=1))


@case("I2")
def a_leader_writes_the_controller_epoch(s: Story) -> None:
    s.asked(("t", 0), 0, (1,), 0)
    s.state(1, 0, (1,), controller_epoch=2, writer=s.writer(55, broker=1))


@case("I3")
def a_broker_0_writes_what_it_did_not_ask_for(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}", writer=s.writer(50))
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")
    s.state(0, 0, (0,), of="u-0", writer=s.writer(55, broker=0))


# -- writes by hand ----------------------------------------------------------------------------------------------------


@case()
def after_a_write_by_hand_everything_is_uncertain(s: Story) -> None:
    s.state(2, 5, (2,), version=1, writer=s.writer(0, by_hand=True))
    assert s.history.states["t", 0].leader == 2
    s.told(1, ("t", 0), (2, 5, (2,), 1))
    s.state(1, 6, (1,), version=2)
    assert s.history.written_by_hand == {"t": {STATE: 1}}
    assert not s.history.cannot_be_mended("t")
    assert not s.history.cannot_be_mended("u")
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    assert s.history.cannot_be_mended("t")


@case()
def a_leader_written_by_hand_may_lead_in_an_epoch_of_another(s: Story) -> None:
    s.state(2, 0, (1, 2), writer=s.writer(0, by_hand=True))
    s.asked(("t", 0), 0, (2,), 1)
    s.state(2, 0, (2,), version=2)


@case("one-leader one-leader I8")
def another_leader_of_an_epoch_beside_a_write_by_hand(s: Story) -> None:
    s.topic({0: [1, 2, 3], 1: [2, 1]}, topic_id="A" * 22)
    s.state(2, 0, (2, 1), version=0, of="t-1")
    s.state(2, 0, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 0, (2, 1), of="t-1")
    s.delete(STATE)


@case()
def what_is_deleted_by_hand(s: Story) -> None:
    s.delete(STATE, s.writer(0, by_hand=True))
    s.delete(paths.topic("t"), s.writer(0, by_hand=True))
    assert set(s.history.written_by_hand["t"]) == {STATE, paths.topic("t")}
    s.state(2, 0, (2,), version=0)


# -- deletions ---------------------------------------------------------------------------------------------------------


@case("I8 I8")
def a_topic_that_was_not_to_be_deleted(s: Story) -> None:
    s.delete(STATE)
    s.delete(paths.topic("t"))


@case("I8")
def a_state_where_brokers_forbid_deletion(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.deletion_forbidden = True
    s.delete(STATE)


@case()
def a_state_deleted_by_hand_where_brokers_forbid_it(s: Story) -> None:
    s.history.deletion_forbidden = True
    s.delete(STATE, s.writer(0, by_hand=True))


@case()
def a_topic_is_deleted_and_brokers_may_not_know(s: Story) -> None:
    s.topic({0: [1]}, name="u")
    s.there |= {paths.delete_topics_topic("t")}
    s.delete(STATE)
    assert ("t", 0) not in s.history.states
    s.delete(paths.topic("t"))
    assert not any(p[0] == "t" for p in (*s.history.replicas, *s.history.assigned))
    assert ("u", 0) in s.history.replicas
    assert ("u", 0) in s.history.assigned
    assert not s.history.may_not_know_of_end("t", 1)
    assert not s.history.may_not_know_of_end("t", 8)
    assert not s.history.may_not_know_of_end("u", 1)
    s.epochs[1] = 11
    assert s.history.may_not_know_of_end("t", 1)
    assert not s.history.may_not_know_of_end("t", 2)
    s.change("/controller_epoch", b"2", 2, s.writer(8, controller=True))
    assert s.history.may_not_know_of_end("t", 2)


@case("deleted")
def a_replica_in_sync_is_deleted(s: Story) -> None:
    s.history.replica_deleted(2, ("t", 0))


@case()
def a_replica_out_of_sync_is_deleted(s: Story) -> None:
    s.history.replica_deleted(3, ("t", 0))
    s.history.replica_deleted(1, ("u", 0))


@case()
def a_replica_that_was_taken_away_is_deleted(s: Story) -> None:
    s.topic({0: [1, 3]}, topic_id="A" * 22)
    s.history.replica_deleted(2, ("t", 0))


@case()
def a_replica_of_a_topic_to_be_deleted(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.replica_deleted(1, ("t", 0))


@case("deleted")
def a_replica_of_a_topic_that_must_not_be_deleted(s: Story) -> None:
    s.there |= {paths.delete_topics_topic("t")}
    s.history.deletion_forbidden = True
    s.history.replica_deleted(1, ("t", 0))


# -- what brokers hear -------------------------------------------------------------------------------------------------


@case()
def brokers_are_told_what_zookeeper_held(s: Story) -> None:
    s.told(1, ("t", 0), (1, 0, (1, 2), 0))
    s.history.acknowledged(1, ("t", 0), (1, 0, (1, 2), 0))
    s.state(2, 1, (2,))
    s.told(1, ("t", 0), (1, 0, (1, 2), 0))
    s.told(1, ("t", 0), (2, 1, (2,), 1))


@case("I5 I5 I5 I5 I5")
def brokers_are_told_what_zookeeper_never_held(s: Story) -> None:
    for told in ((2, 0, (1, 2), 0), (1, 1, (1, 2), 0), (1, 0, (1,), 0), (1, 0, (1, 2), 1)):
        s.told(1, ("t", 0), told)
    s.told(1, ("u", 0), (1, 0, (1, 2), 0))


@case("I3 I3")
def leaders_are_told_that_they_have_an_isr_that_was_not_written(s: Story) -> None:
    s.history.acknowledged(1, ("t", 0), (1, 0, (1,), 1))
    s.history.acknowledged(1, ("u", 0), (1, 0, (1, 2), 0))


@case()
def defaults(s: Story) -> None:
    assert s.writer(1) == (1, False, False, False, -1)
    assert not s.history.forgives_strays
    assert not s.history.deletion_forbidden


@case()
def a_broker_0_may_lead(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")


@case("alive")
def a_broker_0_that_was_never_there(s: Story) -> None:
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")


@case("I3")
def a_broker_0_that_leads_from_outside_its_isr(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (1,), version=0, of="u-0")


@case("one-leader one-leader")
def a_broker_0_that_leads_beside_another(s: Story) -> None:
    s.change("/brokers/ids/0", b"{}")
    s.topic({0: [0, 1]}, name="u")
    s.state(0, 0, (0, 1), version=0, of="u-0")
    s.state(1, 0, (0, 1), of="u-0")


@case()
def an_isr_that_keeps_its_size(s: Story) -> None:
    s.asked(("t", 0), 0, (1, 3), 0)
    s.state(1, 0, (1, 3))
    assert s.history.probes == {"ISR grows": 1}


@case("I2")
def a_leader_epoch_that_stays_behind_a_write_by_hand(s: Story) -> None:
    s.state(1, 3, (1, 2), writer=s.writer(0, by_hand=True))
    s.state(1, 0, (1, 2), version=2)


@case("answers answers answers answers answers")
def clients_are_told_of_what_was_deleted(s: Story) -> None:
    """The history passes on everything that answers are judged by."""
    s.there |= {paths.delete_topics_topic("t")}
    tp = TopicPartition("t", 0)
    answers, elected = s.history.answers, {tp: (0, "")}
    s.later(1)
    answers.elected(ElectionType.PREFERRED, s.now_s, elected, ())
    answers.removed(s.now_s, {"t": TopicResult(0)})  # 1
    s.change(paths.delete_topics_topic("t"), None)
    answers.removed(s.now_s, {"t": TopicResult(7)})
    s.delete(STATE)
    s.delete(paths.topic("t"))
    answers.removed(s.now_s, {"t": TopicResult(0)})
    s.delete(paths.delete_topics_topic("t"))
    s.later(16)
    answers.removed(s.now_s, {"t": TopicResult(0)})
    s.topic({0: [1, 2, 3]}, topic_id="B" * 22)
    answers.elected(ElectionType.PREFERRED, s.now_s + 16, elected, ())  # 2: it has no leader
    s.state(2, 0, (1, 2), version=0)
    answers.elected(ElectionType.PREFERRED, s.now_s + 16, elected, ())  # 3: not the preferred one
    s.later(16)
    answers.removed(s.now_s, {"t": TopicResult(0)})  # 4
    answers.removed(s.now_s, {"t": TopicResult(7)})  # 5


@case()
def every_write_counts_for_the_digest(s: Story) -> None:
    seen = {s.history.digest.hexdigest()}
    s.change("/a", b"1")
    seen.add(s.history.digest.hexdigest())
    s.delete("/a")
    seen.add(s.history.digest.hexdigest())
    assert len(seen) == 3


# -- records (made_up_records has more) --------------------------------------------------------------------------------


def led(s: Story, broker: int, epoch: int, *runs: Run) -> None:
    s.history.data.led(broker, ("t", 0), epoch, list(runs), "A" * 22)


def acknowledge(s: Story) -> None:
    led(s, 1, 0)
    s.history.data.acknowledged(("t", 0), Records(0, 1, 0, 3), "A" * 22)


@case("I13")
def a_record_is_lost(s: Story) -> None:
    acknowledge(s)
    s.state(2, 1, (2,))
    led(s, 2, 1)


@case()
def a_record_is_given_up_by_an_unclean_election(s: Story) -> None:
    acknowledge(s)
    s.settings(UNCLEAN.format("true"))
    s.state(3, 1, (3,))
    led(s, 3, 1)
    assert s.history.probes["I13 excused: an unclean election"] == 1


@case("I4 I13")
def a_record_is_lost_by_an_unclean_election_that_is_forbidden(s: Story) -> None:
    acknowledge(s)
    s.state(3, 1, (3,))
    led(s, 3, 1)


@case()
def a_record_goes_with_its_topic(s: Story) -> None:
    acknowledge(s)
    s.there.add(paths.delete_topics_topic("t"))
    led(s, 1, 0)
    s.delete(STATE)
    s.delete(paths.topic("t"))
    s.there.clear()
    s.topic({0: [1, 2, 3]}, topic_id="A" * 22)
    led(s, 1, 0)


@case()
def a_record_goes_with_a_deletion_that_brokers_forbid_half_way(s: Story) -> None:
    """Seed 30761."""
    acknowledge(s)
    s.there.add(paths.delete_topics_topic("t"))
    s.history.replica_deleted(1, ("t", 0))
    s.there.clear()
    led(s, 1, 0)


@case("I13")
def a_record_goes_with_a_replica_out_of_sync(s: Story) -> None:
    acknowledge(s)
    s.history.replica_deleted(3, ("t", 0))
    led(s, 1, 0)
