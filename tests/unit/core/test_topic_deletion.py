"""Topic deletion's decisions: what Kafka's ``TopicDeletionManagerTest`` pins, one step after the other.

Where brokers do not compare topic ids, dead brokers are waited for, as by Kafka; the tests at the end are of others.
"""

from __future__ import annotations

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Deletions
from aiocontroller.core.events import StopReplicaResponseReceived
from aiocontroller.core.ids import NO_TOPIC_ID, ReplicaAssignment
from aiocontroller.core.replica_state_machine import check_valid_previous_states, set_replica_states
from aiocontroller.core.states import ReplicaState
from aiocontroller.core.topic_deletion import (
    Answered,
    Deletion,
    DeletionProgress,
    Failure,
    answered,
    being_deleted,
    blocked_at_failover,
    left_behind,
    plan_deletion,
    plan_failure,
    progress,
    replicas_in_state,
    replicas_ineligible_to_delete,
    replicas_of,
    replicas_to_delete,
    to_be_queued,
    to_be_resumed,
    to_be_watched,
    unanswered,
    waits_for_debts,
    way_to_successful,
)
from tests.builders import Replicas, ctx, row_of

Offline = ReplicaState.OfflineReplica
Started = ReplicaState.ReplicaDeletionStarted
Successful = ReplicaState.ReplicaDeletionSuccessful
Ineligible = ReplicaState.ReplicaDeletionIneligible


def queued(topics: dict[str, list[Replicas]], *names: str, dead: tuple[int, ...] = ()) -> ControllerContext:
    context = ctx(3, topics, dead=dead)
    context.topic_ids_supported = False
    for name in names:
        context.topics_to_be_deleted[name] = None
        context.table.set_topic_deleting(context.table.topic_by_name[name], True)
    return context


def steps(context: ControllerContext) -> tuple[list[str], dict[int, list[int]], list[str]]:
    found: DeletionProgress = progress(context)
    return [t.name for t in found.complete], found.retry, [t.name for t in found.start]


FOO_BAR: dict[str, list[Replicas]] = {"foo": [[1, 2], [2, 3]], "bar": [[3, 1]], "stays": [[1, 2]]}


def test_the_replicas_of_topics() -> None:
    context = queued(FOO_BAR)
    foo, bar = (context.table.topic_by_name[name] for name in ("foo", "bar"))
    assert replicas_of(context, [foo, bar]) == {1: [0, 2], 2: [0, 1], 3: [1, 2]}
    set_replica_states(context.table, {2: [1], 3: [1, 2]}, Started)
    assert replicas_in_state(context, foo, Started) == {2: [1], 3: [1]}
    assert replicas_in_state(context, bar, Offline) == {}


def test_initialization() -> None:
    """At failover: queued topics with a replica that is offline, or being reassigned, have to wait."""
    topics: dict[str, list[Replicas]] = {"a": [[1, 2]], "b": [[1, 3]], "c": [[2, 1], [1, 2]], "d": [[2]]}
    context = ctx(3, topics, dead=[3])
    context.topic_ids_supported = False
    context.partitions_being_reassigned[context.table.row("c", 1)] = None
    context.set_offline_dir_replicas(2, [context.table.row("d", 0)], [])
    assert blocked_at_failover(context, ["d", "c", "b", "a", "unknown"]) == ["d", "c", "b"]


def test_a_replica_that_names_a_controller_holds_nothing_up() -> None:
    context = queued({"foo": [[1, 9], [9]], "bar": [[2, 8]]}, "foo", "bar", dead=(8, 9))
    context.controllers = frozenset((9,))
    assert blocked_at_failover(context, ["foo", "bar"]) == ["bar"]
    topics = [context.table.topic_by_name[name] for name in ("foo", "bar")]
    assert plan_deletion(context, topics) == ({1: [0], 2: [2]}, {}, {8: [2]}, ["bar"], {9: [0, 1]})
    set_replica_states(context.table, {1: [0], 9: [0, 1]}, Successful)
    assert steps(context)[0] == ["foo"]


def test_basic_deletion() -> None:
    """Two topics: both start, all their replicas are to be deleted; when all are, both are complete."""
    context = queued(FOO_BAR, "foo", "bar")
    assert steps(context) == ([], {}, ["foo", "bar"])
    topics = [context.table.topic_by_name[name] for name in ("foo", "bar")]
    plan = plan_deletion(context, topics)
    assert plan == Deletion(replicas_of(context, topics), {}, {}, [], {})
    set_replica_states(context.table, plan.delete, Started)
    assert steps(context) == ([], {}, [])
    set_replica_states(context.table, {1: [0, 2], 3: [2]}, Successful)
    assert steps(context) == (["bar"], {}, [])
    set_replica_states(context.table, {2: [0, 1], 3: [1]}, Successful)
    assert steps(context) == (["foo", "bar"], {}, [])


def test_deletion_with_broker_offline() -> None:
    """The live replicas are deleted meanwhile; the dead ones wait, and are retried once nothing is under way."""
    context = queued(FOO_BAR, "foo", dead=(2,))
    foo = context.table.topic_by_name["foo"]
    plan = plan_deletion(context, [foo])
    assert plan == ({1: [0], 3: [1]}, {}, {2: [0, 1]}, ["foo"], {})
    context.topics_ineligible_for_deletion["foo"] = None
    set_replica_states(context.table, plan.delete, Started)
    set_replica_states(context.table, plan.ineligible, Ineligible)
    assert steps(context) == ([], {}, [])
    set_replica_states(context.table, plan.delete, Successful)
    assert steps(context) == ([], {2: [0, 1]}, [])
    assert plan_deletion(context, [foo]) == ({}, {}, {}, ["foo"], {})  # marked already; what is deleted stays so


def test_resumption_once_the_broker_is_back() -> None:
    context = queued(FOO_BAR, "foo")
    set_replica_states(context.table, {1: [0], 3: [1]}, Successful)
    set_replica_states(context.table, {2: [0, 1]}, Ineligible)
    assert steps(context) == ([], {2: [0, 1]}, ["foo"])
    set_replica_states(context.table, {2: [0, 1]}, Offline)
    assert plan_deletion(context, [context.table.topic_by_name["foo"]]) == ({2: [0, 1]}, {}, {}, [], {})


def test_broker_failure_after_deletion_started() -> None:
    """What failed stays ineligible until what was started is done."""
    context = queued(FOO_BAR, "foo")
    set_replica_states(context.table, {1: [0], 3: [1]}, Started)
    set_replica_states(context.table, {2: [0, 1]}, Ineligible)
    assert steps(context) == ([], {}, [])
    set_replica_states(context.table, {1: [0]}, Successful)
    assert steps(context) == ([], {}, [])
    set_replica_states(context.table, {3: [1]}, Successful)
    assert steps(context) == ([], {2: [0, 1]}, ["foo"])


def test_a_failed_log_directory_is_as_good_as_a_dead_broker() -> None:
    context = queued(FOO_BAR, "bar")
    context.set_offline_dir_replicas(3, [2], [])
    assert plan_deletion(context, [context.table.topic_by_name["bar"]]) == ({1: [2]}, {}, {3: [2]}, ["bar"], {})


def test_topics_without_partitions_or_already_gone() -> None:
    context = queued({"empty": []}, "empty")
    context.topics_to_be_deleted["gone"] = None
    assert steps(context) == (["empty"], {}, [])


def test_retries_of_several_topics_come_together() -> None:
    context = queued({"a": [[1, 2]], "b": [[2, 1]]}, "a", "b")
    set_replica_states(context.table, {1: [0, 1], 2: [0, 1]}, Ineligible)
    assert steps(context) == ([], {1: [0, 1], 2: [0, 1]}, ["a", "b"])


def test_replicas_are_counted_while_they_wait() -> None:
    context = queued({"t": [[1, 2], [2]], "stays": [[1]]}, "t")
    assert (replicas_to_delete(context), replicas_ineligible_to_delete(context)) == (3, 0)
    set_replica_states(context.table, {1: [0]}, ReplicaState.ReplicaDeletionSuccessful)
    set_replica_states(context.table, {2: [0, 1]}, ReplicaState.ReplicaDeletionIneligible)
    assert (replicas_to_delete(context), replicas_ineligible_to_delete(context)) == (2, 2)


def test_replicas_that_failed_by_how_far_their_deletion_had_come() -> None:
    context = queued({"t": [[1], [1], [1], [1]], "stays": [[1]]}, "t")
    for row, state in (
        (0, ReplicaState.OnlineReplica),
        (1, ReplicaState.ReplicaDeletionStarted),
        (2, ReplicaState.ReplicaDeletionIneligible),
        (3, ReplicaState.ReplicaDeletionSuccessful),
    ):
        set_replica_states(context.table, {1: [row]}, state)
    failure = plan_failure(context, {1: [0, 1, 2, 3, 4]})
    assert failure == Failure({}, {}, standing={1: [0]}, ineligible={1: [0, 1]}, halted={"t": None}, queued={"t": None})
    assert failure.transitions() == [(Offline, {}), (Offline, {1: [0]}), (Ineligible, {1: [0, 1]})]
    for state, replicas in failure.transitions():
        checked = check_valid_previous_states(context.table, replicas, state)
        assert checked.refused == {}
        set_replica_states(context.table, replicas, state)
    assert not plan_failure(context, {1: [0, 1, 2, 3, 4]}).ineligible, "each fails once"
    assert plan_failure(context, {1: [4]}) == ({}, {}, {}, {}, {}, {}), "this topic is not being deleted"


def test_what_may_be_queued_and_resumed() -> None:
    context = queued(FOO_BAR, "foo")
    context.partitions_being_reassigned[row_of(context, "foo-1")] = None
    assert to_be_queued(context, ["bar", "foo", "unknown"]) == ["bar"]
    context.queue_topic_deletion(["bar"])
    assert context.table.topic_by_name["bar"].deleting
    assert context.mark_topics_ineligible_for_deletion(["foo", "bar"]) == ["foo", "bar"]
    assert context.mark_topics_ineligible_for_deletion(["foo"]) == [], "it is halted already"
    assert steps(context) == ([], {}, [])
    assert to_be_resumed(context, ["foo", "bar", "stays"]) == ["bar"], "foo waits for its reassignment"
    context.resume_topic_deletion(["bar"])
    assert steps(context) == ([], {}, ["bar"])


def test_answers_of_a_broker_that_deletes() -> None:
    context = queued(FOO_BAR, "foo", "bar")
    foo, bar = (context.table.topic_by_name[name] for name in ("foo", "bar"))
    set_replica_states(context.table, {2: [0, 1], 3: [2]}, Started)

    def answer(broker_epoch: int = 102, error_code: int = 0) -> Answered:
        asked = Deletions([0, 1, 2], [foo, foo, bar])  # bar has no replica on broker 2
        codes = (("foo", 0, 0), ("foo", 1, 56), ("bar", 0, 0))
        return answered(context, StopReplicaResponseReceived(2, broker_epoch, error_code, codes, asked))

    assert answer() == ([0], [1])
    assert answer(error_code=41) == ([], [0, 1]), "a response that names no partition fails them all"
    assert answer(broker_epoch=101) == ([], []), "an earlier incarnation has answered"
    context.remove_topic(foo)
    again = context.table.add_topic("foo", foo.id)
    context.table.add_partitions(again, {0: ReplicaAssignment((2,))})
    set_replica_states(context.table, {2: [0]}, Started)
    assert answer() == ([], []), "the row is another topic's now"


# -- topics with ids wait for no broker --------------------------------------------------------------------------------


def with_ids(topics: dict[str, list[Replicas]], *names: str, dead: tuple[int, ...] = ()) -> ControllerContext:
    context = queued(topics, *names, dead=dead)
    context.topic_ids_supported = True
    for number, topic in enumerate(context.table.topic_by_name.values()):
        context.table.set_topic_id(topic, bytes([number + 1]) * 16)
    return context


def test_a_dead_broker_blocks_only_topics_without_ids() -> None:
    context = with_ids({"foo": [[1, 2], [2, 3]], "bar": [[3, 1]]}, "foo", "bar", dead=(2,))
    context.table.set_topic_id(context.table.topic_by_name["bar"], NO_TOPIC_ID)
    context.remove_brokers([3])
    assert blocked_at_failover(context, ["foo", "bar"]) == ["bar"]
    topics = [context.table.topic_by_name[name] for name in ("foo", "bar")]
    assert plan_deletion(context, topics) == ({1: [0, 2]}, {2: [0, 1], 3: [1]}, {3: [2]}, ["bar"], {})


def test_replicas_are_left_behind_by_legal_steps_from_any_state() -> None:
    context = with_ids({"foo": [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]}, "foo")
    states = (Offline, Started, Successful, Ineligible, ReplicaState.OnlineReplica)
    for row, state in enumerate(states):
        set_replica_states(context.table, {1: [row]}, state)
    for step, replicas in way_to_successful(context, {1: [0, 1, 2, 3, 4]}):
        checked = check_valid_previous_states(context.table, replicas, step)
        assert checked.refused == {}
        set_replica_states(context.table, replicas, step)
    assert {context.table.replica_state(row, 1) for row in range(5)} == {Successful}


def test_replicas_are_left_behind_once_the_deletion_has_started() -> None:
    context = with_ids({"foo": [[1, 2]], "bar": [[1]]}, "foo", "bar")
    context.begin_topic_deletion(["foo"])
    failure = plan_failure(context, {1: [0, 1]})
    assert failure == Failure({1: [0]}, {1: [1]}, {}, {}, {}, queued={"foo": None, "bar": None})
    assert failure.transitions() == [(Offline, {1: [1]})]
    context.leave_behind(failure.left)
    assert context.left_behind == {0: {1: None}}


def test_silent_brokers_are_watched_for() -> None:
    context = with_ids({"foo": [[1, 2]], "bar": [[1]], "baz": [[2]]}, "foo", "bar", "baz")
    foo, bar, baz = context.table.topic_by_name.values()
    context.table.set_topic_id(bar, NO_TOPIC_ID)
    context.begin_topic_deletion(["foo", "bar", "baz"])
    assert to_be_watched(context, [foo, bar]) == (foo,), "bar waits for all replicas, however long"
    assert context.watch_deletions((foo,))
    assert not context.watch_deletions((baz,)), "a timer runs"
    set_replica_states(context.table, {1: [0]}, Started)
    assert being_deleted(context) == [foo]
    assert unanswered(context, context.stop_watching_deletions()) == [{1: [0]}]
    assert not context.watch_deletions(())
    context.remove_topic(foo)
    assert unanswered(context, [foo]) == []
    assert to_be_watched(context, [foo]) == ()


def test_what_is_left_behind_is_owed_under_the_topics_id() -> None:
    context = with_ids({"foo": [[1, 2], [1, 2]], "bar": [[1, 2]]}, "foo", "bar")
    context.left_behind = {0: {2: None}, 1: {2: None, 1: None}, 2: {1: None}}
    foo = context.table.topic_by_name["foo"]
    assert left_behind(context, [foo]).wanted() == {(1, "foo"): {1: foo.id}, (2, "foo"): {0: foo.id, 1: foo.id}}
    context.remove_topic(foo)
    assert context.left_behind == {2: {1: None}}


def test_a_topic_without_an_id_waits_until_its_debts_are_paid() -> None:
    context = queued({"foo": [[1]]}, "foo")
    foo = context.table.topic_by_name["foo"]
    context.debts.set(2, "foo", {0: foo.id}, 0)
    assert waits_for_debts(context, foo)
    assert steps(context) == ([], {}, [])
    context.topic_ids_supported = True
    context.table.set_topic_id(foo, b"i" * 16)
    assert steps(context) == ([], {}, ["foo"])
