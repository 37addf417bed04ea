"""A failover tells of more partitions than a request may hold: in pieces, each of them whole, nothing left out."""

from __future__ import annotations

import pytest

from aiocontroller.controller import broker_requests, failover
from aiocontroller.core import events as ev
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from tests.unit.controller.pure_cluster import PureCluster


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_every_broker_hears_everything(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    for module in (broker_requests, failover):
        monkeypatch.setattr(module, "PARTITIONS_PER_REQUEST", at_once)
    it = PureCluster()
    for broker in (1, 2, 3):
        it.register(broker)
    it.queue.append(ev.BrokerChange())
    it.create_topic("a", [[1, 2], [2, 3], [3, 1], [1, 3]])
    it.create_topic("b", [[2, 1, 3], [3], [1]])
    it.step()
    for broker in (1, 2, 3):  # they have forgotten
        it.register(broker)
        it.views[broker].hosted.clear()
    it.failover()
    table = it.shell.context.table
    everything = {table.topic_partition(row) for row in table.rows()}
    assert len(everything) == 7
    for broker, view in it.views.items():
        assert set(view.metadata) == everything
        hosted = {tp for tp in everything if broker in table.replicas(table.row(*tp))}
        assert set(view.hosted) == hosted, f"broker {broker}"
    assert it.views[1].hosted[TopicPartition("a", 0)].leader == 1


@pytest.mark.parametrize("rows", [0, 1, 5, 6, 11])
def test_ranges_hold_every_row_once(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(failover, "PARTITIONS_PER_REQUEST", 5)
    ranges = failover._ranges(rows)
    assert [row for low, high in ranges for row in range(low, high)] == list(range(rows))
    assert all(0 < high - low <= 5 for low, high in ranges)


def test_groups_of_topics_are_not_small_before_their_size_is_known() -> None:
    it = PureCluster()
    names = [f"t{n}" for n in range(250)]
    groups = failover._groups(it.shell, names)
    assert [len(next(groups)) for _ in range(2)] == [failover.FIRST_GROUP] * 2  # nothing has been taken in yet
    topic = it.shell.context.table.add_topic("large")
    it.shell.context.table.add_partitions(topic, {n: ReplicaAssignment((1,)) for n in range(1000)})
    assert [len(group) for group in groups] == [10] * 5
