"""The rules of eligible leader replicas, one by one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aiocontroller.core.broker_starts import BrokerStarts, Incarnation, disk_failed, observed, proven, stopping
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.election import Strategy, UncleanPolicy, elect
from aiocontroller.core.eligible_replicas import (
    are_kept,
    concerned,
    eligible_replicas,
    enter,
    newly_proven,
    topics_of,
)
from aiocontroller.core.ids import NO_LEADER, Eligible, LeaderAndIsr, MinIsr, ReplicaAssignment
from tests.builders import ctx, topic_id

TWO = MinIsr(2, 70)
T = topic_id("t")
MIN_ISRS = {T: TWO}
"""What is known of topics; each ``cluster`` begins with two for its only one."""


def cluster(*replicas: int, brokers: int = 3) -> ControllerContext:
    """One partition with all replicas in sync; brokers have epochs 101, 102 and so on; the record begins in epoch 1."""
    context = ctx(brokers=brokers, topics={"t": [replicas or (1, 2, 3)]})
    known = {b: Incarnation(100 + b, 0) for b in range(1, brokers + 1)}
    context.keep_starts(BrokerStarts(1, 1, brokers, 2, known))
    MIN_ISRS[T] = TWO
    return context


def write(context: ControllerContext, leader: int, *isr: int, epoch: int = 1) -> Eligible | None:
    """Decide on this state, write it, and return the eligible replicas that it leaves."""
    before = context.table.leadership(0)
    assert before is not None
    after = LeaderAndIsr(leader, before.leader_epoch + 1, isr, epoch, before.partition_epoch)
    decisions = Decisions([0], [after], [()])
    enter(context, decisions, concerned(context, decisions), MIN_ISRS)
    context.table.set_leadership(0, decisions.leaderships[0])
    return decisions.leaderships[0].eligible


def eligible(context: ControllerContext, min_isr: MinIsr | None = TWO) -> tuple[int, ...]:
    return eligible_replicas(context, 0, min_isr)


def restart(context: ControllerContext, broker: int, epoch: int, *, clean: bool) -> None:
    starts = context.starts
    assert starts is not None
    gone = context.brokers[broker]
    context.remove_brokers([broker])
    if clean:
        starts = stopping(starts, broker, gone.epoch)
    registered = [type(gone)(broker, epoch, gone.endpoints), *context.brokers.values()]
    context.keep_starts(observed(starts, registered, starts.registrations + 1, closed=[broker] if clean else ()).starts)
    context.add_brokers(registered)


def test_what_leaves_an_isr_that_is_large_enough_is_not_eligible() -> None:
    context = cluster()
    assert write(context, 1, 1, 2) is None
    assert eligible(context) == ()


def test_what_leaves_an_isr_that_is_too_small_then_is() -> None:
    context = cluster()
    write(context, 1, 1, 2)
    assert write(context, 1, 1) == Eligible(70, ((2, 102),))
    assert eligible(context) == (2,)


def test_all_that_leave_at_once_are() -> None:
    context = cluster()
    assert write(context, 1, 1) == Eligible(70, ((2, 102), (3, 103)))


def test_eligible_replicas_stay_so_when_the_leader_changes() -> None:
    context = cluster()
    write(context, 1, 1)
    assert write(context, 2, 2) == Eligible(70, ((1, 101), (3, 103)))
    assert write(context, NO_LEADER, 2) == Eligible(70, ((1, 101), (3, 103)))


def test_none_is_eligible_once_the_isr_is_large_enough() -> None:
    context = cluster()
    write(context, 1, 1)
    assert write(context, 1, 1, 2) is None


def test_one_that_joins_the_isr_is_no_longer_outside_it() -> None:
    context = cluster(1, 2, 3, 4, brokers=4)
    MIN_ISRS[T] = MinIsr(3, 70)
    write(context, 1, 1)
    assert write(context, 1, 1, 2) == Eligible(70, ((3, 103), (4, 104)))


def test_min_isr_above_the_number_of_replicas_means_all_of_them() -> None:
    context = cluster(1, 2)
    MIN_ISRS[T] = MinIsr(3, 70)
    assert write(context, 1, 1) == Eligible(70, ((2, 102),))
    assert write(context, 1, 1, 2) is None


def test_an_unclean_start_ends_it_and_a_clean_one_does_not() -> None:
    context = cluster()
    write(context, 1, 1)
    restart(context, 2, 202, clean=True)
    restart(context, 3, 203, clean=False)
    assert eligible(context) == (2,)
    assert write(context, 2, 2) == Eligible(70, ((1, 101), (2, 102))[:1])


def test_what_a_replica_gets_after_an_unclean_start_counts() -> None:
    context = cluster()
    write(context, 1, 1, 2)
    restart(context, 2, 202, clean=False)
    assert write(context, 1, 1) == Eligible(70, ((2, 202),))
    assert eligible(context) == (2,)


def test_a_broker_that_bounces_unseen_takes_its_old_epoch_out_of_the_isr() -> None:
    """Its start is observed, and its removal from the ISR is written, before it is registered in the context again."""
    context = cluster()
    starts = context.starts
    assert starts is not None
    registered = [type(b)(b.id, 202 if b.id == 2 else b.epoch, b.endpoints) for b in context.brokers.values()]
    context.keep_starts(observed(starts, registered, 4).starts)
    context.remove_brokers([2])
    assert write(context, 1, 1) == Eligible(70, ((3, 103),))


def test_a_failed_disk_ends_it() -> None:
    context = cluster()
    write(context, 1, 1)
    assert context.starts is not None
    context.keep_starts(disk_failed(context.starts, 2))
    assert eligible(context) == (3,)


def test_a_replica_on_a_failed_disk_does_not_become_eligible() -> None:
    context = cluster()
    context.set_offline_dir_replicas(2, [0], [])
    assert write(context, 1, 1) == Eligible(70, ((3, 103),))


def test_an_unclean_election_leaves_none() -> None:
    context = cluster()
    write(context, 1, 1, 2)
    assert write(context, 3, 3) is None


def test_a_replica_that_is_removed_is_not_eligible_also_not_when_it_is_added_again() -> None:
    context = cluster()
    write(context, 1, 1)
    context.table.set_assignment(0, ReplicaAssignment((1, 3)))
    assert eligible(context) == (3,)
    context.table.set_assignment(0, ReplicaAssignment((1, 3, 2), adding=(2,)))
    assert eligible(context) == (3,)


def test_while_replicas_change_the_smaller_set_counts() -> None:
    context = cluster(1, 2)
    MIN_ISRS[T] = MinIsr(4, 70)
    context.table.set_assignment(0, ReplicaAssignment((1, 2, 3), adding=(3,)))
    write(context, 1, 1, 2, 3)
    assert write(context, 1, 1, 2) is None
    assert write(context, 1, 1) == Eligible(70, ((2, 102),))


def test_changed_settings_of_the_topic_end_it_even_if_min_isr_is_as_before() -> None:
    context = cluster()
    write(context, 1, 1)
    assert eligible(context, MinIsr(2, 71)) == ()
    assert eligible(context, MinIsr(1, 70)) == ()
    assert eligible(context, None) == ()
    MIN_ISRS[T] = MinIsr(2, 71)
    assert write(context, NO_LEADER, 1) is None


def test_states_of_an_earlier_record_do_not_count() -> None:
    context = cluster()
    write(context, 1, 1, epoch=1)
    assert context.starts is not None
    context.keep_starts(replace(context.starts, valid_from=2))
    assert eligible(context) == ()
    assert not are_kept(context)
    context.keep_starts(None)
    assert eligible(context) == ()
    assert not are_kept(context)


def test_without_min_isr_none_is_eligible() -> None:
    context = cluster()
    decisions = Decisions([0], [LeaderAndIsr(1, 1, (1,), 1, 0)], [()])
    assert [topic.name for topic in topics_of(context, decisions, concerned(context, decisions))] == ["t"]
    assert topics_of(context, decisions, []) == []
    enter(context, decisions, [0], {})
    assert decisions.leaderships[0].eligible is None


def test_states_with_the_whole_isr_are_not_looked_at() -> None:
    context = cluster()
    write(context, 1, 1, 2)
    for isr in ((1, 2), (2, 1), (1, 2, 3)):
        assert concerned(context, Decisions([0], [LeaderAndIsr(1, 1, isr, 1, 0)], [()])) == []
    assert concerned(context, Decisions([0], [LeaderAndIsr(1, 1, (1,), 1, 0)], [()])) == [0]
    assert concerned(context, Decisions([0], [LeaderAndIsr(3, 1, (1, 3), 1, 0)], [()])) == [0]


# -- elections ---------------------------------------------------------------------------------------------------------


def elected(context: ControllerContext, strategy: Strategy = Strategy.OFFLINE, *, unclean: bool = False) -> object:
    found = elect(context, [0], strategy, UncleanPolicy(unclean), {"t": TWO})
    return found.outcomes[0][:2] if found.outcomes else None


@pytest.mark.parametrize("strategy", list(Strategy))
def test_an_eligible_replica_leads_where_no_isr_member_can_by_every_strategy(strategy: Strategy) -> None:
    context = cluster(2, 1)
    write(context, 1, 1)
    assert elected(context, strategy) in (None, (1, (1,)))
    if strategy is Strategy.CONTROLLED_SHUTDOWN:
        context.begin_shutdown(1)
    else:
        context.remove_brokers([1])
    assert elected(context, strategy) == (2, (2,))
    assert elected(context, strategy, unclean=True) == (2, (2,))


def test_a_dead_eligible_replica_leads_not() -> None:
    context = cluster()
    write(context, 1, 1)
    context.remove_brokers([1, 2])
    assert elected(context) == (3, (3,))
    context.begin_shutdown(3)
    assert elected(context) is None


def test_one_that_started_uncleanly_leads_not() -> None:
    context = cluster()
    write(context, 1, 1)
    context.remove_brokers([1, 3])
    restart(context, 2, 202, clean=False)
    assert elected(context) is None


def test_a_suspected_isr_member_may_hold_more() -> None:
    context = cluster()
    write(context, 1, 1)
    context.suspect([1])
    assert elected(context) is None


def test_an_isr_member_that_started_uncleanly_leads_after_all_others_that_may() -> None:
    context = cluster()
    write(context, 1, 1)
    write(context, NO_LEADER, 1)
    restart(context, 1, 201, clean=False)
    assert elected(context) == (2, (2,))
    context.remove_brokers([2, 3])
    assert elected(context) == (1, (1,))


def test_of_a_dead_isr_the_members_that_lost_nothing_lead_and_make_up_the_isr() -> None:
    context = cluster()
    write(context, NO_LEADER, 1, 2, 3)
    restart(context, 1, 201, clean=False)
    assert elected(context) == (2, (2, 3))
    restart(context, 2, 202, clean=False)
    restart(context, 3, 203, clean=False)
    assert elected(context) == (1, (1,))


@pytest.mark.parametrize("strategy", [Strategy.OFFLINE, Strategy.REASSIGN, Strategy.PREFERRED])
def test_a_non_replica_in_the_isr_keeps_no_member_from_leading(strategy: Strategy) -> None:
    context = cluster(1, 2)
    write(context, NO_LEADER, 3, 1)
    restart(context, 1, 201, clean=False)
    assert elected(context, strategy) == (1, (3, 1))


def test_a_member_that_has_joined_again_since_its_unclean_start_is_not_unproven() -> None:
    context = cluster()
    restart(context, 1, 201, clean=False)
    write(context, 2, 1, 2, 3)
    context.remove_brokers([2])
    assert elected(context) == (1, (1, 3))


def prove(context: ControllerContext) -> list[int]:
    found = newly_proven(context)
    assert context.starts is not None
    context.keep_starts(proven(context.starts, found))
    return found


def test_a_member_that_has_joined_since_its_unclean_start_leads_though_its_partition_had_no_leader_meanwhile() -> None:
    """Without waiting for an eligible replica that is dead (seeds 1803000000468 and 1803000000904)."""
    context = cluster()
    write(context, 2, 2, 3)
    restart(context, 1, 201, clean=False)
    assert prove(context) == [1]
    assert prove(context) == []
    write(context, 2, 2, 1)
    write(context, NO_LEADER, 1)
    assert elected(context) == (1, (1,))
    assert write(context, 2, 2) == Eligible(70, ((1, 201),))
    write(context, 1, 1)
    write(context, NO_LEADER, 1)
    restart(context, 1, 301, clean=False)
    assert prove(context) == []
    assert elected(context) == (2, (2,))


@pytest.mark.parametrize("leader, isr, found", [(1, (1,), [1]), (2, (2, 1), [1]), (NO_LEADER, (2, 1), [])])
def test_an_unproven_member_proves_itself_as_its_partition_is_led(
    leader: int, isr: tuple[int, ...], found: list[int]
) -> None:
    context = cluster()
    write(context, NO_LEADER, 1)
    restart(context, 1, 201, clean=False)
    assert prove(context) == []
    write(context, leader, *isr)
    assert prove(context) == found


def test_a_start_proves_nothing_before_the_death_ahead_of_it_is_dealt_with() -> None:
    """Broker 1 is still in the ISR of its earlier incarnation, and the leader may be dead, too."""
    context = cluster()
    starts, earlier = context.starts, context.brokers[1]
    assert starts is not None
    context.keep_starts(observed(starts, [type(earlier)(1, 201, earlier.endpoints)], 4).starts)
    assert prove(context) == []
    context.keep_starts(proven(observed(starts, [type(earlier)(1, 201, earlier.endpoints)], 4).starts, [1]))
    write(context, NO_LEADER, 1)
    assert context.unproven_brokers() == {1}


def test_a_failed_disk_ends_the_proof() -> None:
    context = cluster()
    restart(context, 1, 201, clean=False)
    write(context, 2, 2, 3)
    assert prove(context) == [1]
    assert context.starts is not None
    context.keep_starts(disk_failed(context.starts, 1))
    assert context.unproven_brokers() == {1}


def test_unproven_members_are_not_eligible_when_another_leads() -> None:
    context = cluster()
    write(context, NO_LEADER, 1, 2)
    restart(context, 1, 201, clean=False)
    assert write(context, 2, 2) is None
    assert eligible(context) == ()
