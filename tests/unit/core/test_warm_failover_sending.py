"""Everything is sent once, in slices, and nothing that a broker must not have."""

from __future__ import annotations

import pytest

from aiocontroller.core import warm_failover_sending
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import ReplicaState
from aiocontroller.core.warm_failover_sending import FullMetadata
from tests.builders import ctx, row_of


@pytest.mark.parametrize("rows, metadata_rows", [(1, 1), (2, 4), (3, 4), (2, 100), (100, 100)])
def test_slices_hold_every_partition_once(monkeypatch: pytest.MonkeyPatch, rows: int, metadata_rows: int) -> None:
    monkeypatch.setattr(warm_failover_sending, "ROWS", rows)
    monkeypatch.setattr(warm_failover_sending, "METADATA_ROWS", metadata_rows)
    monkeypatch.setattr(warm_failover_sending, "TOPICS", 1)
    context = ctx(brokers=3, topics={"a": [[1, 2], [2, 3], [3, 1]], "b": [[1], [2], [3], [1, 2, 3]], "c": []})
    context.remove_topic(context.table.topic_by_name["a"])
    work = FullMetadata(len(context.table.topic_of), context.table.topic_by_name, 0.0)
    sent: dict[int, list[int]] = {}
    metadata: list[int] = []
    topics: list[str] = []
    left = [work.left]
    while not work.is_complete:
        topics += work.take_topics()
        batch = RequestBatch(context)
        work.fill(batch, context.table, context.brokers)
        requests = batch.take()
        for request in requests.leader_and_isr:
            assert len(request.rows) <= rows
            assert not request.new
            sent.setdefault(request.broker, []).extend(request.rows)
        if requests.update_metadata is not None:
            assert requests.update_metadata.brokers == [1, 2, 3]
            metadata += requests.update_metadata.rows
        left.append(work.left)
    table = context.table
    assert metadata == list(table.rows())
    assert sent == {broker: table.partitions_on_broker(broker) for broker in (1, 2, 3)}
    assert topics == ["b", "c"]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_empty_cluster_needs_one_step_at_most() -> None:
    assert FullMetadata(0, (), 0.0).is_complete


def test_replicas_that_are_deleted_offline_or_without_leadership_are_left_out() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [1, 2]], "going": [[1, 2]]})
    context.table.add_partition(context.table.topic_by_name["t"], 2, context.table.assignment(0))
    context.queue_topic_deletion(["going"])
    set_replica_states(context.table, {1: [1]}, ReplicaState.ReplicaDeletionStarted)
    set_replica_states(context.table, {2: [0]}, ReplicaState.OfflineReplica)
    set_replica_states(context.table, {2: [1]}, ReplicaState.NewReplica)
    work = FullMetadata(len(context.table.topic_of), (), 0.0)
    batch = RequestBatch(context)
    work.fill(batch, context.table, context.brokers)
    requests = batch.take()
    assert {request.broker: request.rows for request in requests.leader_and_isr} == {1: [0], 2: [1]}
    assert requests.update_metadata is not None
    assert requests.update_metadata.rows == [0, 1, row_of(context, "going-0")], "its end has to be sent"
