"""The failover: read in groups, sent in pieces."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.controller import broker_requests, failover
from aiocontroller.controller.failover import FIRST_GROUP
from aiocontroller.core import events as ev
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.ownership import NotTheOwnerError
from aiocontroller.core.states import PartitionState
from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.pure_cluster import PureCluster
from tests.unit.controller.virtual_cluster import begin, stage


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


@virtual_time
async def test_topics_of_a_large_cluster_are_taken_in_by_the_consumer_alone() -> None:
    """More than a group of them: three are read at once, and the guard of debug mode says which task takes them in."""
    async with stage() as it:
        for number in range(3 * FIRST_GROUP + 5):
            await it.create(f"/brokers/topics/t{number}", msgspec.json.encode({"version": 1, "partitions": {"0": [1]}}))
        service = await begin(it, 1)
        context = service.controller.shell.context
        assert len(context.table) == 3 * FIRST_GROUP + 5
        assert not service.journal.of_kind("fault")  # type: ignore[attr-defined]
        with pytest.raises(NotTheOwnerError, match="changes the context"):
            context.table.set_state([0], PartitionState.OfflinePartition)
