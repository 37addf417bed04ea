"""Scenarios of Kafka's smaller test classes that no test of a room plays by itself: machines, context, queue."""

from __future__ import annotations

import msgspec

from aiocontroller.core import events as ev
from aiocontroller.core.debts import Deletions
from aiocontroller.core.event_kinds import ControllerState
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.metrics import Timer
from aiocontroller.zookeeper.codec import Create
from tests.builders import ctx, row_of
from tests.conformance.conftest import Setting
from tests.integration.controller.harness import idle, until

# -- PartitionStateMachineTest -----------------------------------------------------------------------------------------


async def test_new_partition_to_online_partition_transition_error_code_from_create_states(on: Setting) -> None:
    """The state znode is there already.  Kafka's partition stays New; ours takes the state over and elects from it."""
    async with on(2) as stage:
        await idle(stage.service)
        root = "/brokers/topics/t"
        topic = msgspec.json.encode({"version": 1, "partitions": {"0": [0, 1]}})
        state = {"version": 1, "leader": 0, "leader_epoch": 7, "controller_epoch": 1, "isr": [1, 0]}
        done = await stage.client.multi(
            [
                Create(root, topic),
                Create(f"{root}/partitions", None),
                Create(f"{root}/partitions/0", None),
                Create(f"{root}/partitions/0/state", msgspec.json.encode(state)),
            ]
        )
        assert [result.code for result in done] == [0, 0, 0, 0]
        after = await stage.wait_for_partition_state("t", 0, 0, 8)
        assert after.isr == (1, 0)
        table = stage.service.shell.context.table
        await until(lambda: table.state[table.row("t", 0)] == PartitionState.OnlinePartition)
        await stage.until_cached("t", 0, leader=0, leader_epoch=8)


async def test_offline_partition_to_online_partition_transition_error_code_from_state_lookup(on: Setting) -> None:
    """Its state znode is gone: it stays Offline, and the others of its batch do not."""
    async with on(2) as stage:
        await stage.create_topic("t", {0: [1], 1: [1]})
        await stage.until_leaders("t", [1, 1])
        await stage.stop_broker(1)
        await stage.until_leaders("t", [-1, -1])
        await idle(stage.service)
        await stage.client.delete("/brokers/topics/t/partitions/0/state")
        await stage.start_broker(1)
        await stage.wait_for_partition_state("t", 1, 1, 2)
        table = stage.service.shell.context.table
        states = [table.state[table.row("t", number)] for number in (0, 1)]
        assert states == [PartitionState.OfflinePartition, PartitionState.OnlinePartition]


# -- ControllerChannelManagerTest --------------------------------------------------------------------------------------


async def test_stop_replica_request_without_delete_partition_while_topic_deletion_started(on: Setting) -> None:
    """The answer to a request that only stopped says nothing about a deletion."""
    async with on(1) as stage:
        await stage.create_topic("t", {0: [0]})
        await stage.until_leaders("t", [0])
        stage.service.shell.owner = None  # the test changes the context
        context = stage.service.shell.context
        table = context.table
        row = table.row("t", 0)
        started = table.replica_states.id((ReplicaState.ReplicaDeletionStarted,))
        online, table.replica_states_of[row] = table.replica_states_of[row], started
        epoch = stage.simulated[0].epoch
        stage.service.queue.append(ev.StopReplicaResponseReceived(0, epoch, 0, (("t", 0, 0),), Deletions()))
        await idle(stage.service)
        assert table.replica_state(row, 0) is ReplicaState.ReplicaDeletionStarted
        table.replica_states_of[row] = online


# -- ControllerContextTest ---------------------------------------------------------------------------------------------


def test_update_partition_full_replica_assignment_updates_replica_assignment() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    row = row_of(context, "t-0")
    context.table.set_assignment(row, ReplicaAssignment((3, 1, 2), (3,), (1,)))
    assert context.table.replicas(row) == (3, 1, 2)
    assert context.table.assignment(row) == ReplicaAssignment((3, 1, 2), (3,), (1,))
    assert [list(context.table.partitions_on_broker(b)) for b in (1, 2, 3)] == [[row]] * 3


def test_partition_replica_assignment_for_topic_returns_expected_replica_assignments() -> None:
    context = ctx(3, {"t": [[1, 2], [2, 3]], "u": [[3]]})
    topic = context.table.topic_by_name["t"]
    found = {context.table.topic_partition(p): context.table.replicas(p) for p in topic.partitions()}
    assert found == {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (2, 3)}
    assert "absent" not in context.table.topic_by_name


# -- ControllerEventManagerTest ----------------------------------------------------------------------------------------


def timers(service: object) -> dict[str, int]:
    found = service.controller._timers  # type: ignore[attr-defined]
    assert all(isinstance(timer, Timer) for timer in found.values())
    return {state.name: timer.count for state, timer in found.items()}


async def test_event_without_rate_metrics(on: Setting) -> None:
    async with on(1) as stage:
        await idle(stage.service)
        before = timers(stage.service)
        epoch = stage.simulated[0].epoch
        assert await stage.ask(ev.AllocateProducerIds, broker=0, broker_epoch=epoch) == (0, 1000)
        assert await stage.ask(ev.AllocateProducerIds, broker=0, broker_epoch=epoch) == (1000, 1000)
        await idle(stage.service)
        assert timers(stage.service) == before
        assert ControllerState.Idle.timer is None


async def test_event_queue_time(on: Setting) -> None:
    async with on(1) as stage:
        await idle(stage.service)
        waited = stage.service.controller._queue_time
        before = waited.count
        stage.service.queue.append(ev.TopicChange())
        stage.service.queue.append(ev.BrokerChange())
        await idle(stage.service)
        assert waited.count == before + 2
        assert waited.quantiles(0.0)[0] >= 0


async def test_successful_event(on: Setting) -> None:
    async with on(1) as stage:
        await idle(stage.service)
        before = timers(stage.service)
        stage.service.queue.append(ev.TopicChange())
        await idle(stage.service)
        assert timers(stage.service) == before | {"TopicChange": before["TopicChange"] + 1}
        assert stage.service.controller.state is ControllerState.Idle
