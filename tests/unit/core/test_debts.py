"""Debts as the ledger keeps them: what is owed once, what identity means, what may not be sent and not be deleted."""

from __future__ import annotations

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Changes, Ledger
from aiocontroller.core.ids import EPOCH_DURING_DELETE, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.invariants import violations
from aiocontroller.core.reassignment import no_longer_owed, nothing_can_be_lost
from aiocontroller.core.request_batch import RequestBatch, StopReplicaRequest
from tests.builders import ctx

OLD, NEW, NEWEST = b"an earlier topic", b"the present one.", b"a later topic..."


def named(ledger: Ledger) -> list[tuple[int, str, int, bytes]]:
    return [(debt.broker, debt.topic, debt.partition, debt.topic_id) for debt in ledger]


def apply(ledger: Ledger, changes: Changes) -> None:
    for key, partitions in changes.wanted().items():
        ledger.set(*key, partitions, ledger.version(*key) + 1 if partitions else -1)


def test_debts_come_in_order_and_are_counted() -> None:
    ledger = Ledger()
    changes = Changes(ledger)
    for broker, topic, partition in ((3, "b", 1), (3, "b", 0), (1, "z", 0), (3, "a", 7)):
        changes.owe(broker, topic, OLD, partition)
    assert changes.topics() == {"a", "b", "z"}
    apply(ledger, changes)
    assert named(ledger) == [(1, "z", 0, OLD), (3, "a", 7, OLD), (3, "b", 0, OLD), (3, "b", 1, OLD)]
    assert (len(ledger), ledger.brokers(), ledger.topics) == (
        4,
        [1, 3],
        {"a": {3: None}, "b": {3: None}, "z": {1: None}},
    )
    assert ledger.version(3, "b") == 0
    assert changes.wanted() == {}, "nothing is left to be written"
    paid = Changes(ledger)
    for debt in ledger:
        paid.forget(debt)
    apply(ledger, paid)
    assert (named(ledger), len(ledger), ledger.topics, ledger.version(3, "b")) == ([], 0, {}, -1)


def test_the_first_debt_of_a_name_stays() -> None:
    """One StopReplica pays for all topics that had the name; the oldest is what its broker has."""
    ledger = Ledger()
    ledger.set(1, "t", {0: OLD}, 5)
    (first,) = ledger
    changes = Changes(ledger)
    changes.owe(1, "t", NEW, 0)
    changes.owe(1, "t", NEW, 1)
    apply(ledger, changes)
    assert named(ledger) == [(1, "t", 0, OLD), (1, "t", 1, NEW)]
    assert ledger.holds(first), "it is the same debt: an answer to it counts"
    assert ledger.version(1, "t") == 6


def test_an_answer_pays_for_the_debt_that_it_was_asked_for() -> None:
    ledger = Ledger()
    ledger.set(1, "t", {0: OLD}, 0)
    (first,) = ledger
    ledger.set(1, "t", {}, -1)
    ledger.set(1, "t", {0: OLD}, 0)
    late = Changes(ledger)
    late.forget(first)
    assert late.wanted() == {}
    assert not ledger.holds(first)


def test_changes_are_decided_anew_after_a_foreign_write() -> None:
    ledger = Ledger()
    ledger.set(1, "t", {0: OLD, 1: OLD}, 0)
    changes = Changes(ledger)
    changes.forget(ledger.of(1, "t")[0])
    changes.owe(1, "t", OLD, 2)
    assert changes.wanted("t") == {(1, "t"): {1: OLD, 2: OLD}}
    assert changes.wanted("u") == {}
    ledger.set(1, "t", {}, -1)  # an operator has deleted the znode
    assert changes.wanted("t") == {(1, "t"): {2: OLD}}


def recreated(*, live: bool = True) -> ControllerContext:
    """t-0 on brokers 1 and 2; broker 1 still has what an earlier t left."""
    context = ctx(3, {"t": [[1, 2]]}, dead=() if live else (1,))
    context.debts.set(1, "t", {0: OLD}, 0)
    context.hold_back([0])
    return context


def test_a_broker_that_owes_an_earlier_topic_is_not_online_and_hears_nothing() -> None:
    context = recreated()
    assert context.held_back == {1: {0}}
    assert not context.is_replica_online(0, 1)
    assert context.is_replica_online(0, 2)
    assert violations(context) == []
    batch = RequestBatch(context)
    batch.add_leader_and_isr_request_for_brokers((1, 2), [0], is_new=True)
    batch.add_stop_replica_request_for_brokers((1,), [0], delete=True)
    requests = batch.take()
    assert [request.broker for request in requests.leader_and_isr] == [2]
    assert requests.stop_replica == []


def test_it_is_sent_what_its_answer_would_say_of_directories_in_vain() -> None:
    context = recreated()
    context.set_offline_dir_replicas(1, [], [0])
    assert not context.is_replica_online(0, 1)


def test_it_stays_held_back_over_its_death() -> None:
    context = recreated(live=False)
    assert context.offline_dirs == {}
    context.add_brokers(ctx(3, {}).brokers.values())
    assert not context.is_replica_online(0, 1)
    context.remove_brokers([1])
    assert (context.held_back, context.offline_dirs) == ({1: {0}}, {})


def test_it_is_let_go_when_it_has_paid() -> None:
    context = recreated()
    context.debts.set(1, "t", {}, -1)
    assert context.release_hold(1, [0, 0]) == [0]
    assert context.release_hold(1, [0]) == []
    assert context.is_replica_online(0, 1)
    assert (context.held_back, context.offline_dirs) == ({}, {})


def test_a_deleted_topic_holds_back_no_broker() -> None:
    context = recreated()
    context.remove_topic(context.table.topic_by_name["t"])
    assert (context.held_back, context.offline_dirs) == ({}, {})
    assert named(context.debts) == [(1, "t", 0, OLD)]


def stops(context: ControllerContext) -> list[StopReplicaRequest]:
    batch = RequestBatch(context)
    batch.add_debts(context.debts)
    return batch.take().stop_replica


def test_a_debt_of_an_earlier_topic_passes_any_epoch() -> None:
    context = recreated()
    (debt,) = context.debts
    assert stops(context) == [StopReplicaRequest(1, [], ((debt, EPOCH_DURING_DELETE),))]
    assert stops(context) == [], "asked already"


def test_a_debt_of_the_present_topic_bears_its_leader_epoch() -> None:
    """So that one that arrives late, after the replica has come back, is refused."""
    context = ctx(3, {"t": [[1, 2]]})
    context.table.set_leadership(0, LeaderAndIsr(1, 7, (1, 2), 1, 3))
    context.debts.set(3, "t", {0: context.table.topic_by_name["t"].id}, 0)
    (debt,) = context.debts
    assert stops(context) == [StopReplicaRequest(3, [], ((debt, 7),))]


def test_a_replica_is_never_asked_for_whatever_the_ledger_says() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    context.debts.set(1, "t", {0: context.table.topic_by_name["t"].id}, 0)
    assert stops(context) == []
    context.debts.set(2, "t", {0: OLD}, 0)  # and the broker has received the present topic already
    assert stops(context) == []


def test_a_debt_that_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    context.debts.set(3, "t", {0: OLD}, 0)
    batch = RequestBatch(context)
    batch.add_debts(context.debts)
    context.debts.set(3, "t", {}, -1)
    assert batch.take().stop_replica == []


def test_brokers_that_are_away_are_not_asked() -> None:
    context = ctx(3, {}, dead=(3,))
    context.debts.set(3, "t", {0: OLD}, 0)
    assert stops(context) == []


def test_a_replica_that_is_wanted_again_is_owed_no_longer() -> None:
    context = ctx(4, {"t": [[1, 2], [1, 2]], "u": [[1]]})
    present = context.table.topic_by_name["t"].id
    context.debts.set(3, "t", {0: present, 1: present}, 0)
    context.debts.set(4, "t", {0: OLD}, 0)
    wanted = {0: ReplicaAssignment((3, 4, 1, 2), (3, 4), ()), 2: ReplicaAssignment((3,))}
    assert [repr(debt) for debt in no_longer_owed(context, wanted)] == ["t-0 on broker 3"]


def test_nothing_is_deleted_before_leader_and_isr_are_in_the_target() -> None:
    context = ctx(3, {"t": [[1, 2, 3]]})
    context.table.set_assignment(0, ReplicaAssignment((1, 2)))
    for leader, isr, safe in (
        (1, (1, 2), True),
        (1, (1,), True),
        (3, (3, 1), False),
        (1, (1, 3), False),
        (-1, (1,), False),
    ):
        context.table.set_leadership(0, LeaderAndIsr(leader, 1, isr, 1, 1))
        assert nothing_can_be_lost(context, 0) is safe, (leader, isr)
