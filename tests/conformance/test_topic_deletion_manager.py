"""Kafka's TopicDeletionManagerTest, and PartitionStateMachineTest on offline partitions, by a whole controller.

On the network in memory and virtual time.  Where Kafka's tests complete or fail the deletion of replicas by a call, the
brokers' answers to StopReplica do so here: a broker that keeps silent is one whose replicas are still being deleted.

Brokers are waited for as Kafka waits, which this controller does where brokers do not compare topic ids
(inter.broker.protocol.version below 2.8); elsewhere it departs from that (docs/debts.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import topic_deletion
from aiocontroller.core import events as ev
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Deletions
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.codec import Create
from tests.unit.controller.virtual_cluster import Stage, is_active, stage

Replica = tuple[str, int, int]
"""(topic, partition, broker)"""

BROKERS = (1, 2, 3)
ASSIGNMENTS = {"bar": [[1, 2, 3], [2, 3, 1]], "foo": [[3, 1, 2], [1, 2, 3]]}
Started = ReplicaState.ReplicaDeletionStarted
Successful = ReplicaState.ReplicaDeletionSuccessful
Ineligible = ReplicaState.ReplicaDeletionIneligible


class Deleting:
    """Two topics of two partitions on three brokers, which take StopReplica and do not answer it."""

    def __init__(self, it: Stage, service: Service) -> None:
        self.it = it
        self.service = service

    @property
    def context(self) -> ControllerContext:
        return self.service.shell.context

    @property
    def table(self) -> PartitionTable:
        return self.context.table

    async def delete(self, *topics: str) -> None:
        """In one transaction, so that one event sees them all."""
        done = await self.it.client.multi([Create(f"/admin/delete_topics/{topic}", None) for topic in topics])
        assert not any(result.code for result in done)
        await self.it.sleep(1)

    def replicas(self, topic: str, *states: ReplicaState) -> set[Replica]:
        """All of the topic, or those in one of these states."""
        found = set()
        for row in self.table.topic_by_name[topic].partitions():
            for broker in self.table.replicas(row):
                if not states or self.table.replica_state(row, broker) in states:
                    found.add((topic, self.table.index_of[row], broker))
        return found

    def partitions(self, topic: str) -> list[PartitionState]:
        rows = self.table.topic_by_name[topic].partitions()
        return [PartitionState(self.table.state[row]) for row in rows]

    def topics(self) -> tuple[set[str], set[str], set[str]]:
        """To be deleted, with deletion started, ineligible."""
        context = self.context
        return (
            set(context.topics_to_be_deleted),
            set(context.topics_with_deletion_started),
            set(context.topics_ineligible_for_deletion),
        )

    async def answer(self, replicas: set[Replica], error: int = 0) -> None:
        """As the brokers' answers would."""
        for broker in sorted({broker for _, _, broker in replicas}):
            own = sorted((t, p) for t, p, b in replicas if b == broker)
            rows = tuple(self.table.row(t, p) for t, p in own)
            answered = tuple((t, p, error) for t, p in own)
            epoch = self.context.brokers[broker].epoch
            asked = Deletions(rows, tuple(self.table.topic(row) for row in rows))
            self.service.queue.append(ev.StopReplicaResponseReceived(broker, epoch, 0, answered, asked))
        await self.it.sleep(1)

    def sent_to_forget(self, broker: int) -> list[tuple[str, int]]:
        """Partitions of which the broker has heard that they are being deleted."""
        requests = self.it.brokers[broker].of(ApiKey.UPDATE_METADATA)
        partitions = ((t.topic_name, p) for r in requests for t in r.topic_states for p in t.partition_states)
        return [(topic, p.partition_index) for topic, p in partitions if p.leader == -2]

    def sent_to_delete(self, broker: int) -> list[tuple[str, int]]:
        requests = self.it.brokers[broker].of(ApiKey.STOP_REPLICA)
        partitions = ((t.topic_name, p) for r in requests for t in r.topic_states for p in t.partition_states)
        return [(topic, p.partition_index) for topic, p in partitions if p.delete_partition]

    def is_gone(self, topic: str) -> bool:
        return topic not in self.table.topic_by_name


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Any, ...]]:
    """(target state, partition or replica) -> how often the deletion moved it there."""
    found: Counter[tuple[Any, ...]] = Counter()
    partitions, replicas = topic_deletion.handle_partition_state_changes, topic_deletion.handle_replica_state_changes

    async def of_partitions(shell: Any, rows: Any, target: Any, *rest: Any, **named: Any) -> Any:
        found.update((target.name, row) for row in rows)
        return await partitions(shell, rows, target, *rest, **named)

    async def of_replicas(shell: Any, moved: Any, target: Any, *rest: Any, **named: Any) -> Any:
        found.update((target.name, row, broker) for broker, rows in moved.items() for row in rows)
        return await replicas(shell, moved, target, *rest, **named)

    monkeypatch.setattr(topic_deletion, "handle_partition_state_changes", of_partitions)
    monkeypatch.setattr(topic_deletion, "handle_replica_state_changes", of_replicas)
    return found


@asynccontextmanager
async def deleting() -> AsyncIterator[Deleting]:
    async with stage() as it:
        for broker in BROKERS:
            await it.add_broker(broker)
        service = await it.add_controller(auto_leader_rebalance_enable=False, inter_broker_protocol_version="2.7")
        await it.until(lambda: is_active(service))
        for topic, replicas in ASSIGNMENTS.items():
            assignment = {str(n): r for n, r in enumerate(replicas)}
            await it.create(f"/brokers/topics/{topic}", msgspec.json.encode({"version": 1, "partitions": assignment}))
        await it.until(lambda: service.shell.context.table.leadership_count == 4)
        await it.sleep(1)
        for found in it.brokers.values():
            found.unanswered.add(ApiKey.STOP_REPLICA)
            found.take()
        yield Deleting(it, service)


# -- TopicDeletionManagerTest ------------------------------------------------------------------------------------------


@virtual_time
async def test_initialization() -> None:
    """foo and bar are queued when a controller begins; bar and baz have a replica on a broker that is away."""
    async with stage() as it:
        for broker in (1, 2):
            it_broker = await it.add_broker(broker)
            it_broker.unanswered.add(ApiKey.STOP_REPLICA)
        for topic, replicas in (("foo", [1, 2]), ("bar", [1, 3]), ("baz", [3])):
            data = msgspec.json.encode({"version": 1, "partitions": {"0": replicas, "1": replicas}})
            await it.create(f"/brokers/topics/{topic}", data)
        for topic in ("foo", "bar"):
            await it.create(f"/admin/delete_topics/{topic}")
        service = await it.add_controller(inter_broker_protocol_version="2.7")
        await it.until(lambda: is_active(service))
        found = Deleting(it, service)
        assert found.topics() == ({"foo", "bar"}, {"foo"}, {"bar"})
        assert found.replicas("foo", Started) == found.replicas("foo")
        assert found.replicas("bar", Started, Successful) == set()


@virtual_time
async def test_basic_deletion(changes: Counter[tuple[Any, ...]]) -> None:
    """Every partition and every replica passes each state once."""
    async with deleting() as it:
        foo, bar = it.replicas("foo"), it.replicas("bar")
        await it.delete("foo", "bar")
        assert it.partitions("foo") == it.partitions("bar") == [PartitionState.NonExistentPartition] * 2
        assert (it.replicas("foo", Started), it.replicas("bar", Started)) == (foo, bar)
        assert it.topics() == ({"foo", "bar"}, {"foo", "bar"}, set())
        for broker in BROKERS:
            everything = [(topic, number) for topic in ("bar", "foo") for number in (0, 1)]
            assert sorted(set(it.sent_to_forget(broker))) == sorted(it.sent_to_delete(broker)) == everything
        await it.answer(foo | bar)
        assert it.is_gone("foo")
        assert it.is_gone("bar")
        assert len(it.table) == 0
        assert it.topics() == (set(), set(), set())
        assert set(changes.values()) == {1}
        assert Counter(state for state, *_ in changes) == {
            "OfflinePartition": 4,
            "NonExistentPartition": 4,
            "OfflineReplica": 12,
            "ReplicaDeletionStarted": 12,
            "ReplicaDeletionSuccessful": 12,
            "NonExistentReplica": 12,
        }
        assert await it.it.zk.get_all_topics_in_cluster(watch=False) == []
        assert await it.it.zk.get_topic_deletions(watch=False) == []


@virtual_time
async def test_deletion_with_broker_offline() -> None:
    async with deleting() as it:
        foo = it.replicas("foo")
        offline = {replica for replica in foo if replica[2] == 2}
        await it.it.kill_broker(2)
        await it.it.until(lambda: set(it.context.brokers) == {1, 3})
        await it.delete("foo")
        assert it.partitions("foo") == [PartitionState.NonExistentPartition] * 2
        assert it.replicas("foo", Started) == foo - offline
        assert it.replicas("foo", Ineligible) == offline
        assert it.topics() == ({"foo"}, {"foo"}, {"foo"})
        for broker in (1, 3):
            assert sorted(it.sent_to_forget(broker)) == sorted(it.sent_to_delete(broker)) == [("foo", 0), ("foo", 1)]

        await it.answer(foo - offline)
        assert it.partitions("foo") == [PartitionState.NonExistentPartition] * 2
        assert it.topics() == ({"foo"}, {"foo"}, {"foo"})
        assert it.replicas("foo", Successful) == foo - offline
        assert it.replicas("foo", ReplicaState.OfflineReplica) == offline

        returned = await it.it.add_broker(2)
        returned.unanswered.add(ApiKey.STOP_REPLICA)
        await it.it.until(lambda: it.sent_to_delete(2))
        assert it.replicas("foo", Successful) == foo - offline
        assert it.replicas("foo", Started) == offline
        await it.answer(offline)
        assert it.is_gone("foo")
        assert it.topics() == (set(), set(), set())
        assert list(it.table.topic_by_name) == ["bar"]


@virtual_time
async def test_broker_failure_after_deletion_started() -> None:
    async with deleting() as it:
        foo = it.replicas("foo")
        offline = {replica for replica in foo if replica[2] == 2}
        await it.delete("foo")
        assert it.partitions("foo") == [PartitionState.NonExistentPartition] * 2
        assert it.replicas("foo", Started) == foo
        await it.it.kill_broker(2)
        await it.it.until(lambda: set(it.context.brokers) == {1, 3})
        await it.it.sleep(1)
        assert it.topics() == ({"foo"}, {"foo"}, {"foo"})
        assert it.replicas("foo", Ineligible) == offline
        assert it.replicas("foo", Started) == foo - offline

        returned = await it.it.add_broker(2)
        returned.unanswered.add(ApiKey.STOP_REPLICA)
        await it.it.until(lambda: 2 in it.context.brokers)
        await it.it.sleep(1)
        assert it.topics() == ({"foo"}, {"foo"}, set())
        assert it.replicas("foo", Started) == foo - offline
        # Kafka's test resumes the deletion alone; a broker's start makes its replicas Online before, in Kafka too.
        assert it.replicas("foo", ReplicaState.OnlineReplica) == offline

        await it.answer(foo - offline)
        assert it.topics() == ({"foo"}, {"foo"}, set())
        assert it.replicas("foo", Successful) == foo - offline
        assert it.replicas("foo", Started) == offline
        await it.answer(offline)
        assert it.is_gone("foo")


# -- PartitionStateMachineTest: offline partitions ---------------------------------------------------------------------


def offline_count(it: Deleting) -> int:
    """The metric, as it is scraped."""
    name = "kafka_controller_kafkacontroller_offlinepartitionscount"
    (line,) = (line for line in it.service.metrics.render().splitlines() if line.lower().startswith(name))
    return int(float(line.rsplit(" ", 1)[1]))


async def four_on_one_broker(it: Deleting) -> None:
    partitions = {str(n): [3] for n in range(4)}
    await it.it.create("/brokers/topics/test", msgspec.json.encode({"version": 1, "partitions": partitions}))
    await it.it.until(lambda: it.table.leadership_count == 8)
    assert offline_count(it) == 0


@virtual_time
async def test_updating_offline_partitions_count() -> None:
    async with deleting() as it:
        await four_on_one_broker(it)
        await it.it.kill_broker(3)
        await it.it.until(lambda: 3 not in it.context.brokers)
        await it.it.sleep(1)
        assert it.partitions("test") == [PartitionState.OfflinePartition] * 4
        assert offline_count(it) == 4
        await it.it.add_broker(3)
        await it.it.sleep(2)
        assert it.partitions("test") == [PartitionState.OnlinePartition] * 4
        assert offline_count(it) == 0


@virtual_time
async def test_no_offline_partitions_change_for_topics_being_deleted() -> None:
    async with deleting() as it:
        await four_on_one_broker(it)
        it.it.brokers[3].unanswered.add(ApiKey.STOP_REPLICA)
        await it.delete("test")
        assert it.topics()[1] == {"test"}
        assert offline_count(it) == 0
        await it.it.kill_broker(3)
        await it.it.until(lambda: 3 not in it.context.brokers)
        await it.it.sleep(1)
        assert offline_count(it) == 0


@virtual_time
async def test_updating_offline_partitions_count_during_topic_deletion() -> None:
    async with deleting() as it:
        await four_on_one_broker(it)
        await it.it.kill_broker(3)
        await it.it.until(lambda: offline_count(it) == 4)
        await it.delete("test")
        assert not it.is_gone("test")
        assert offline_count(it) == 0
