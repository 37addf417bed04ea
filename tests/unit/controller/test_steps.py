"""The driver of steps: each kind has its function, an error ends the steps, and requests leave when a step says so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aiocontroller.controller.steps import DRIVERS, carry_out_steps
from aiocontroller.core import events as ev
from aiocontroller.core import steps as st
from aiocontroller.core.effects import Effects, SharedLeaderAndIsrRequests
from aiocontroller.core.events import TopicChange, ZkPartitionReassignment
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.znode_json import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

T0 = TopicPartition("t", 0)


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, t=[[1, 2]])


def carry_out(it: PureCluster, *steps: st.Step[Any]) -> list[Any]:
    """What came of each step."""

    def all_of_them() -> st.Steps[list[Any]]:
        results = []
        for step in steps:
            results.append((yield step))
        return results

    return run(carry_out_steps(it.shell, all_of_them()))


def test_every_kind_of_step_is_carried_out() -> None:
    kinds = {kind for kind in vars(st).values() if isinstance(kind, type) and issubclass(kind, st.Step)} - {st.Step}
    assert set(DRIVERS) == kinds


def test_requests_are_sent_when_a_step_says_so(it: PureCluster) -> None:
    before = it.views[2].hosted.pop(T0)
    requests = Effects(leader_and_isr=[SharedLeaderAndIsrRequests([2], [0])])
    carry_out(it, st.CarryOut(requests))
    assert T0 not in it.views[2].hosted
    carry_out(it, st.CarryOut(requests), st.SendRequests())
    assert it.views[2].hosted[T0].leader_epoch == before.leader_epoch


def test_each_sending_begins_another_batch(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    held_back: list[bool] = []
    send = it.shell.send

    async def noting(batch: Any) -> Any:
        held_back.append(batch.held_back)
        return await send(batch)

    monkeypatch.setattr(it.shell, "send", noting)
    carry_out(it, st.HoldRequests(), st.SendRequests(), st.SendRequests())
    assert held_back == [True, False]


def test_what_waits_for_slow_brokers_is_encoded_before_the_context_gets_ahead(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that hears of an added replica too early takes it into its ISR before ZooKeeper has its assignment."""
    row = it.shell.context.table.row("t", 0)
    seen: list[ReplicaAssignment] = []
    monkeypatch.setattr(it.shell.channels, "encode_merged", lambda: seen.append(it.shell.context.table.assignment(row)))
    before = it.shell.context.table.assignment(row)
    it.register(3)
    it.queue.append(ev.BrokerChange())
    it.step()
    it.ask(ev.ApiPartitionReassignment, targets={T0: (1, 3)})
    assert seen == [before]
    assert it.znodes.topics["t"].partitions[0] != before


def test_an_error_ends_the_steps(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def deciding() -> st.Steps[None]:
        try:
            yield st.LoadKnownControllers()
            ended.append("went on")
        finally:
            ended.append("closed")

    async def expired() -> Any:
        raise SessionExpiredError("the session is gone")

    monkeypatch.setattr(it.znodes, "get_known_controllers", expired)
    with pytest.raises(SessionExpiredError):
        run(carry_out_steps(it.shell, deciding()))
    assert ended == ["closed"]


def test_a_znode_that_cannot_be_read_is_none_and_reported_where_it_is_watched(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = BadZNode("/admin/reassign_partitions", "{", "JSON")
    watched: list[bool] = []

    async def read(*, watch: bool) -> BadZNode:
        watched.append(watch)
        return damaged

    monkeypatch.setattr(it.znodes, "get_partition_reassignment", read)
    assert carry_out(it, st.ReadRequestedReassignments(watch=False)) == [None]
    assert list(it.shell.bad_paths()) == []
    assert carry_out(it, st.ReadRequestedReassignments(watch=True)) == [None]
    assert list(it.shell.bad_paths()) == [damaged.path]
    assert watched == [False, True]


def test_a_znode_without_entries_is_deleted(it: PureCluster) -> None:
    carry_out(it, st.WriteRequestedReassignments({T0: (2, 1)}))
    assert it.znodes.reassignment == {T0: (2, 1)}
    carry_out(it, st.WriteRequestedReassignments({}))
    assert it.znodes.reassignment is None


def test_only_what_is_too_large_has_a_reason_against_it(it: PureCluster) -> None:
    small = TopicAssignment("t", bytes(16), {0: ReplicaAssignment((1, 2))})
    large = TopicAssignment("t", bytes(16), {0: ReplicaAssignment(tuple(range(MAX_DATA_BYTES // 2)))})
    [fits, reason] = carry_out(it, st.ReasonAgainstSize(small, 1), st.ReasonAgainstSize(large, 3))
    assert fits is None
    assert f"with 3 more reassignments in progress, {MAX_DATA_BYTES} fit" in reason


def test_results_go_back_to_where_steps_are_decided(it: PureCluster) -> None:
    raised, stay, failed = carry_out(
        it,
        st.RaiseLeaderEpochs([0]),
        st.ShrinkIsrs({2: [0]}),
        st.WriteAssignments({0: ReplicaAssignment((1, 2, 3), (3,))}, {}),
    )
    assert (raised, stay, failed) == ([0], {}, {})
    assert (it.znodes.states[T0].leader_epoch, it.znodes.states[T0].isr) == (2, (1,))
    assert it.znodes.topics["t"].partitions[0] == ReplicaAssignment((1, 2, 3), (3,))


def test_events_wait_in_the_queue(it: PureCluster) -> None:
    carry_out(it, st.Enqueue(ZkPartitionReassignment()), st.Schedule("later", 30.0, TopicChange()))
    assert it.queue.take().event == ZkPartitionReassignment()
    assert it.queue.scheduled("later")


@pytest.mark.parametrize("severity", ["info", "warning", "error"])
def test_reports_are_log_lines(it: PureCluster, caplog: pytest.LogCaptureFixture, severity: Any) -> None:
    with caplog.at_level(logging.INFO):
        carry_out(it, st.WriteToLog(severity, "100 % of t-0"))
    [record] = [record for record in caplog.records if record.name == "aiocontroller.controller.steps"]
    assert (record.levelname, record.getMessage()) == (severity.upper(), "100 % of t-0")
