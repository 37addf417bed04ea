"""What actions would do, and when there is nothing to do."""

from __future__ import annotations

import pytest

from aiocontroller.core import actions
from aiocontroller.core.actions import DryRun
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from tests.builders import ctx, lead


def refused(context: ControllerContext, topic: str, partition: int | None = None) -> str:
    with pytest.raises(BadInputError) as error:
        _ = (
            actions.elect_preferred(context, topic)
            if partition is None
            else actions.cancel_reassignment(context, topic, partition)
        )
    return str(error.value)


def test_leaders_that_would_change_and_those_that_cannot() -> None:
    context = ctx(3, {"t": [[1, 2], [2, 1], [3, 1], [1, 2]]})
    lead(context, "t-0", 2, (1, 2))
    lead(context, "t-2", 1, (1,))
    assert actions.elect_preferred(context, "t") == DryRun(
        "Elect the preferred leaders of t",
        ("t-0: leader 2 → 1", "t-2: stays with leader 1"),
        (TopicPartition("t", 0),),
    )


def test_nothing_to_elect() -> None:
    context = ctx(3, {"t": [[1, 2]], "u": [[3, 1]]})
    assert "the preferred replica leads already" in refused(context, "t")
    lead(context, "u-0", 1, (1,))
    assert "not live and in sync" in refused(context, "u")
    assert "found 'nobody', expected one of the cluster" in refused(context, "nobody")
    context.queue_topic_deletion(["u"])
    assert "being deleted" in refused(context, "u")


def test_a_large_topic_is_for_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_PARTITIONS", 2)
    assert "with 3 partitions, expected 2 at most" in refused(ctx(1, {"t": [[1]] * 3}), "t")


def test_lines_are_bounded_and_partitions_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "LINES_SHOWN", 2)
    context = ctx(2, {"t": [[1, 2]] * 5})
    for n in range(5):
        lead(context, f"t-{n}", 2, (1, 2))
    found = actions.elect_preferred(context, "t")
    assert (found.lines[-1], len(found.lines), len(found.partitions)) == ("… and 3 more", 3, 5)


def test_cancelling() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 4, 1), (3, 4), (1,)), [1, 2]]})
    lead(context, "t-0", 1, (1,))
    context.begin_reassignments([0])
    found = actions.cancel_reassignment(context, "t", 0)
    assert found.lines == ("t-0: goes back to replicas 1", "what has been copied to 3, 4 is deleted")
    assert found.partitions == (TopicPartition("t", 0),)
    assert "no reassignment is in progress" in refused(context, "t", 1)
    assert "no reassignment is in progress" in refused(context, "t", -1)
    assert "no reassignment is in progress" in refused(context, "t", 2**70)
    assert "no reassignment is in progress" in refused(context, "nobody", 0)


def test_cancelling_never_loses_the_only_replica_in_sync() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((3, 1), (3,), (1,))]})
    lead(context, "t-0", 3, (3,))
    context.begin_reassignments([0])
    assert refused(context, "t", 0)


def test_releasing() -> None:
    context = ctx(2, {"t": [[1, 7]]})
    context.epoch = 5
    assert "after epoch 5" in actions.release_role(context, 7).lines[0]
    assert "1 replicas that name controller 7" in actions.release_role(context, 7).lines[-1]
    assert len(actions.release_role(context, 9).lines) == 3
