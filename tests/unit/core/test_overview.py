"""The cluster at a glance, of small contexts; and that nothing is listed without a bound."""

from __future__ import annotations

from aiocontroller.core import overview
from aiocontroller.core.context import SickBroker
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.overview import BrokerView, Channel, Deletion, Move
from aiocontroller.core.states import ReplicaState
from tests.builders import ctx, lead


def test_brokers() -> None:
    context = ctx(4, {"t": [[1, 2, 9], [2, 1, 9]], "u": [[3]]}, shutting_down=[2])
    context.table.broken.now_us = 5
    context.remove_brokers([4])
    context.suspect([3])
    context.set_offline_dir_replicas(1, [0, 1], ())
    context.debts.set(1, "old", {0: b"x" * 16, 1: b"x" * 16}, 0)
    found = overview.brokers(context, {1: Channel(7, True, 2, 99)}, {3: ("silent",)})
    assert found == [
        BrokerView(1, "live", 1, 2, None, "b1:9092", None, 7, True, 2, 99, 2, 2, (), ("old",)),
        BrokerView(2, "shutting down", 1, 2, None, "b2:9092"),
        BrokerView(3, "suspected", 1, 1, None, "b3:9092", evidence=("silent",)),
        BrokerView(9, "gone", 0, 2),
    ]
    context.set_sick(SickBroker(1, 1))
    assert overview.state_of(context, 1) == "sick"


def test_a_broker_that_owes_an_answer_for_long_is_not_live() -> None:
    context = ctx(3, {"t": [[1, 2]]}, shutting_down=[2])
    silent = Channel(7, True, 2, 99, 55)
    found = overview.brokers(context, {1: silent, 2: silent, 3: Channel(7, True, 2, 99)}, {})
    assert [(b.state, b.since_us) for b in found] == [("not answering", 55), ("shutting down", None), ("live", None)]


def test_a_broker_that_left_is_shown_while_it_has_replicas() -> None:
    context = ctx(2, {"t": [[1, 2]]})
    context.table.broken.now_us = 5
    context.remove_brokers([2])
    assert [(b.id, b.state, b.since_us) for b in overview.brokers(context, {}, {})] == [
        (1, "live", None),
        (2, "gone", 5),
    ]
    context.remove_topic(context.table.topic_by_name["t"])
    assert [b.id for b in overview.brokers(context, {}, {})] == [1]


def test_moves() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 4, 1), (3, 4), (1,)), [1, 2], [1]]})
    lead(context, "t-0", 1, (1, 4))
    context.begin_reassignments([0, 1, 2], cancelled=[1])
    assert overview.moves(context, 2) == [
        Move("t", 0, (3, 4, 1), (3, 4), (1,), (4,), False, ()),
        Move("t", 1, (1, 2), (), (), (), True),
    ]
    context.remove_brokers([3])
    assert overview.moves(context, 1)[0].waits_for == (3,)
    context.set_offline_dir_replicas(4, [0], ())
    assert overview.moves(context, 1)[0].waits_for == (3,), "it has caught up already"


def test_deletions() -> None:
    context = ctx(2, {"a": [[1, 2], [1, 2]], "b": [[1]], "c": [[2]]})
    context.queue_topic_deletion(["a", "b", "c"])
    context.begin_topic_deletion(["a"])
    context.mark_topics_ineligible_for_deletion(["b"])
    context.topics_to_be_deleted["gone already"] = None
    done = (ReplicaState.ReplicaDeletionSuccessful, ReplicaState.ReplicaDeletionStarted)
    context.table.set_replica_states([1], [context.table.replica_states.id(done)])
    assert overview.deletions(context) == [
        Deletion("a", 2, "deleting", 3, "broker 1, broker 2"),
        Deletion("b", 1, "halted", 1, "broker 1"),
        Deletion("c", 1, "waiting", 1, "broker 2"),
    ]
    context.remove_brokers([2])
    context.begin_reassignments([context.table.row("c", 0)])
    assert [each.waits_for for each in overview.deletions(context)] == [
        "broker 2 (gone), broker 1",
        "broker 1",
        "the end of its reassignment",
    ]
    assert len(overview.deletions(context, 1)) == 1


def test_a_deletion_names_few_of_many_brokers() -> None:
    context = ctx(9, {"wide": [list(range(1, 10))]})
    context.queue_topic_deletion(["wide"])
    [found] = overview.deletions(context)
    assert (found.replicas_left, found.waits_for) == (9, "broker 1, broker 2, broker 3, broker 4, broker 5, 4 more")


def test_replicas_of_huge_topics_are_not_counted() -> None:
    context = ctx(1, {"a": [[1]], "huge": [[1]] * (overview.REPLICAS_COUNTED + 1), "b": [[1]]})
    context.queue_topic_deletion(["a", "huge", "b"])
    assert [each.replicas_left for each in overview.deletions(context)] == [1, None, None]
