"""What elections and the release of the role would do, and when there is nothing to do."""

from __future__ import annotations

import pytest

from aiocontroller.core import dry_runs
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.dry_runs import DryRun, elect_preferred, release_role
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from tests.builders import ctx, lead
from tests.unit.core.playing import Played


def elected(context: ControllerContext, topic: str | None = "t") -> DryRun:
    return Played(context, elect_preferred(context, topic)).result


def refused(context: ControllerContext, topic: str | None) -> str:
    with pytest.raises(BadInputError) as error:
        elected(context, topic)
    return str(error.value)


def test_leaders_that_would_change_and_those_that_cannot() -> None:
    context = ctx(3, {"t": [[1, 2], [2, 1], [3, 1], [1, 2]]})
    lead(context, "t-0", 2, (1, 2))
    lead(context, "t-2", 1, (1,))
    assert elected(context)[:3] == (
        "Elect the preferred leaders of t",
        (
            "t-0: leader 2 → 1",
            "1 partition not led by the preferred replica, which is not live and in sync: nothing changes (t-2)",
        ),
        (TopicPartition("t", 0),),
    )


def test_nothing_to_elect() -> None:
    context = ctx(3, {"t": [[1, 2]], "u": [[3, 1]]})
    assert "the preferred replica leads already" in refused(context, "t")
    assert refused(context, None) == "no leader of the cluster would change: the preferred replica leads already"
    assert "leads already" in refused(ctx(), None)
    lead(context, "u-0", 1, (1,))
    assert "not live and in sync (u-0)" in refused(context, "u")
    assert "not live and in sync (u-0)" in refused(context, None)
    assert "found 'nobody', expected one of the cluster" in refused(context, "nobody")
    assert len(refused(context, "x" * 10_000)) < 400
    context.queue_topic_deletion(["u"])
    assert "being deleted" in refused(context, "u")
    assert "leads already" in refused(context, None), "what is deleted does not count"


def test_many_leaders_are_told_by_the_brokers_that_they_go_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "LINES_SHOWN", 3)
    monkeypatch.setattr(dry_runs, "PARTITIONS_AT_ONCE", 2)
    context = ctx(3, {"t": [[1, 2, 3]] * 5, "u": [[2, 3]] * 4})
    for n in range(5):
        lead(context, f"t-{n}", 2, (1, 2, 3))
    for n in range(2):
        lead(context, f"u-{n}", 3, (2, 3))
    found = elected(context, None)
    assert found.lines == (
        "7 leaders would change",
        "leader 2 → 1: 5 partitions (t-0, t-1, t-2, …)",
        "leader 3 → 2: 2 partitions (u-0, u-1)",
    )
    assert len(found.elections) == 7
    assert found.essence().elections == ()
    assert [str(tp) for tp in elected(context, "u").elections] == ["u-0", "u-1"]


def test_pairs_of_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "LINES_SHOWN", 2)
    context = ctx(6, {"t": [[n, 6] for n in range(1, 6)]})
    for n in range(5):
        lead(context, f"t-{n}", 6, (n + 1, 6))
    assert elected(context).lines[-1] == "… and between 3 more pairs of brokers"


def test_two_dry_runs_are_the_same_only_if_every_election_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "LINES_SHOWN", 1)
    context = ctx(3, {"t": [[1, 2, 3]] * 9})
    for n in range(8):
        lead(context, f"t-{n}", 2, (1, 2, 3))
    shown = elected(context).essence()
    assert elected(context).essence() == shown
    lead(context, "t-7", 1, (1, 2, 3))
    lead(context, "t-8", 2, (1, 2, 3))
    again = elected(context).essence()
    assert again.lines == shown.lines
    assert again != shown


@pytest.mark.parametrize("name", ["t", None])
def test_a_topic_that_goes_while_others_have_their_turn(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_runs, "PARTITIONS_AT_ONCE", 2)
    context = ctx(2, {"t": [[1, 2]] * 5, "u": [[1, 2]]})
    for n in range(5):
        lead(context, f"t-{n}", 2, (1, 2))
    steps = elect_preferred(context, name)
    next(steps)
    context.remove_topic(context.table.topic_by_name["t"])
    found = Played(context, steps).result
    assert list(map(str, found.elections)) == ["t-0", "t-1"]


def test_releasing() -> None:
    context = ctx(2, {"t": [[1, 7]]})
    context.epoch = 5
    assert "after epoch 5" in release_role(context, 7).lines[0]
    assert "1 replicas that name controller 7" in release_role(context, 7).lines[-1]
    assert len(release_role(context, 9).lines) == 3
