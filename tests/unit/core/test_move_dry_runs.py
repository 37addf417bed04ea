"""What moves of replicas would do, what they are refused for, and that nobody loses data by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from aiocontroller.core import move_dry_runs, replica_plans
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.dry_runs import DryRun
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, ReplicaAssignment, TopicPartition
from aiocontroller.core.move_dry_runs import COST, cancel_reassignment, drain_broker, move_partition
from aiocontroller.core.replica_plans import Layout
from tests.builders import broker, ctx, lead
from tests.unit.core.playing import Played

T0 = TopicPartition("t", 0)


def refused(context: ControllerContext, topic: str, partition: int, replicas: Sequence[int] | None) -> str:
    with pytest.raises(BadInputError) as error:
        _ = (
            cancel_reassignment(context, topic, partition)
            if replicas is None
            else move_partition(context, topic, partition, replicas)
        )
    return str(error.value)


# -- one partition -----------------------------------------------------------------------------------------------------


def test_replicas_and_the_leader_that_would_change() -> None:
    found = move_partition(ctx(4, {"t": [[1, 2, 3]]}), "t", 0, (4, 2, 3))
    assert found.title == "Move t-0 to 4, 2, 3"
    assert found.lines == (
        "t-0: replicas 1, 2, 3 → 4, 2, 3",
        "leader 1 → 4, once all of 4, 2, 3 are in sync",
        "preferred leader 1 → 4",
        "deleted from 1, once all of 4, 2, 3 are in sync",
        "copied to 4",
        COST,
    )
    assert found.targets == {T0: (4, 2, 3)}


def test_another_order_copies_nothing() -> None:
    found = move_partition(ctx(3, {"t": [[1, 2, 3]]}), "t", 0, (2, 1, 3))
    assert found.lines == ("t-0: replicas 1, 2, 3 → 2, 1, 3", "leader 1 stays", "preferred leader 1 → 2")


def test_without_a_leader_nothing_is_copied() -> None:
    context = ctx(3, {"t": [[1, 2]]}, dead=(1,))
    assert "no live broker leads it" in move_partition(context, "t", 0, (1, 2, 3)).lines[1]


@pytest.mark.parametrize(
    "topic, partition, replicas, reason",
    [
        ("t", 0, (), "INVALID_REPLICA_ASSIGNMENT: found an empty replica list"),
        ("t", 0, (1, 1), "found a replica twice"),
        ("t", 0, (-1,), "negative"),
        ("t", 0, (9, 2), "brokers 9 are not live (live: 1, 2, 3)"),
        ("t", 0, (2**63,), "are not live"),
        ("t", 0, (4, 2), "brokers 4 are not live"),
        ("t", 0, tuple(range(10_000)), "found 10000 replicas"),
        ("t", 1, (1, 2), "t-1: UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", -1, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 2**70, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("x" * 10_000, 0, (1, 2), "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 0, (1, 2), "has the replicas 1, 2, in this order, already"),
    ],
)
def test_the_controllers_own_refusals(topic: str, partition: int, replicas: Sequence[int], reason: str) -> None:
    context = ctx(4, {"t": [[1, 2]]}, dead=(4,))
    found = refused(context, topic, partition, replicas)
    assert reason in found
    assert len(found) < 500


def test_one_move_at_a_time() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 1), (3,), (1,))]})
    lead(context, "t-0", 1, (1,))
    context.begin_reassignments([0])
    assert refused(context, "t", 0, (4,)).startswith("t-0 is being reassigned to 3 already")


def test_a_topic_that_is_being_deleted_goes_nowhere() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    context.queue_topic_deletion(["t"])
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused(context, "t", 0, (3,))


# -- all of a broker's -------------------------------------------------------------------------------------------------


def drained(context: ControllerContext, broker: int) -> DryRun:
    return Played(context, drain_broker(context, broker)).result


def not_drained(context: ControllerContext, broker: int) -> str:
    with pytest.raises(BadInputError) as error:
        drained(context, broker)
    return str(error.value)


def test_draining() -> None:
    context = ctx(4, {"t": [[3, 1], [1, 3], [1, 2]], "u": [[2, 3], [2, 3]]})
    found = drained(context, 3)
    assert found.title == "Move all replicas off broker 3"
    assert found.targets == {
        TopicPartition("t", 0): (4, 1),
        TopicPartition("t", 1): (1, 4),
        TopicPartition("u", 0): (2, 4),
        TopicPartition("u", 1): (2, 1),
    }, "broker 4 had none, until it has as many as the others"
    assert found.lines == (
        "4 replicas copied: 1 to 1, 3 to 4",
        "leader 3 → 4: 1 partition, once its new replica is in sync",
        "t-0: replicas 3, 1 → 4, 1; leader 3 → 4",
        "t-1: replicas 1, 3 → 1, 4",
        "u-0: replicas 2, 3 → 2, 4",
        "u-1: replicas 2, 3 → 2, 1",
        COST,
    )


def test_what_cannot_be_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ctx(3, {"t": [[1, 2, 3]]})
    assert "found 9, which has no replicas" in not_drained(context, 9)
    assert "found -1, which has no replicas" in not_drained(context, -1)
    assert "found 3 replicas for 2 brokers" in not_drained(context, 3)
    monkeypatch.setattr(move_dry_runs, "MOST_MOVED", 0)
    assert "with 1 replicas, expected 0 at most" in not_drained(context, 3)


def test_what_may_not_move_is_left_out() -> None:
    topics = {"t": [ReplicaAssignment((4, 1), (4,), (1,)), [1, 2], [1, 2]], "gone": [[1]], "dark": [[1, 5]]}
    context = ctx(5, topics, dead=(5,))
    lead(context, "t-0", 1, (1,))
    lead(context, "dark-0", 5, (5,))
    context.begin_reassignments([0])
    context.queue_topic_deletion(["gone"])
    found = drained(context, 1)
    assert sorted(map(str, found.targets)) == ["t-1", "t-2"]
    assert found.lines[-4:-1] == (
        "left out, being reassigned: 1 partition",
        "left out, of topics being deleted: 1 partition",
        "left out, without a live leader: 1 partition",
    )
    assert not_drained(context, 4) == "no replica can be moved off broker 4: left out, being reassigned: 1 partition"


def test_a_dead_broker_is_drained() -> None:
    context = ctx(4, {"t": [[3, 1]]}, dead=(3,))
    lead(context, "t-0", 1, (1,))
    found = drained(context, 3)
    assert list(found.targets.values()) == [(2, 1)]
    assert "leader 1 → 2" not in str(found.lines)


def test_racks_that_a_drain_leaves() -> None:
    context = ctx(0, {"t": [[1, 2]]})
    racks: list[Broker] = [broker(1, rack="a"), broker(2, rack="b"), broker(3, rack="a")]
    context.add_brokers(racks)
    assert "in fewer racks than before: 1 partition" in drained(context, 2).lines


def test_a_plan_in_slices_is_the_plan_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    monkeypatch.setattr(move_dry_runs, "PARTITIONS_AT_ONCE", 3)
    for _ in range(20):
        partitions = [random.sample(range(1, 8), random.randint(1, 4)) for _ in range(random.randint(1, 40))]
        context = ctx(7, {"a": [*partitions[::2], [7]], "b": partitions[1::2]})
        replicas = {
            context.table.topic_partition(row): context.table.replicas(row)
            for row in context.table.partitions_on_broker(7)
        }
        others = Counter(b for row in context.table.rows() for b in context.table.replicas(row))
        others.subtract(b for own in replicas.values() for b in own)
        whole = replica_plans.drain(Layout(replicas, dict.fromkeys(range(1, 8)), other_replicas=others), (7,))
        assert drained(context, 7).targets == whole


def test_what_is_shown_of_a_large_drain_is_bounded() -> None:
    found = drained(ctx(40, {"t": [[1, n] for n in range(2, 40)] * 10}), 1)
    assert len(found.targets) == 380
    assert len(found.lines) < 70
    assert "… and 350 more" in found.lines


# -- back again --------------------------------------------------------------------------------------------------------


def test_cancelling() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 4, 1), (3, 4), (1,)), [1, 2]]})
    lead(context, "t-0", 1, (1,))
    context.begin_reassignments([0])
    found = cancel_reassignment(context, "t", 0)
    assert found.lines == ("t-0: goes back to replicas 1", "what has been copied to 3, 4 is deleted")
    assert found.targets == {T0: None}
    for topic, partition in (("t", 1), ("t", -1), ("t", 2**70), ("nobody", 0)):
        assert "no reassignment is in progress" in refused(context, topic, partition, None)


def test_cancelling_never_loses_the_only_replica_in_sync() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 1), (3,), (1,))]})
    lead(context, "t-0", 3, (3,))
    context.begin_reassignments([0])
    assert "data would be lost" in refused(context, "t", 0, None)
