"""Our own bugs: requests are answered, memory is correct afterwards, the role stays, and other events go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiocontroller.controller import failover, reassignment
from aiocontroller.controller import faults as faults_module
from aiocontroller.controller.event_handlers import GATHERED, HANDLERS
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.request_content import ElectionType
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from tests.integration.controller.asking import asking, change
from tests.integration.controller.harness import Cluster, idle, journal_of, until


async def active_controller(cluster: Cluster) -> Service:
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    return service


async def ask(service: Service, event: Callable[[Reply], Request]) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(event(Reply(answer.set_result)))
    return await asyncio.wait_for(answer, 20)


async def elect(service: Service) -> Any:
    return await ask(
        service,
        lambda reply: ev.ReplicaLeaderElection(partitions=None, election_type=ElectionType.PREFERRED, reply=reply),
    )


def counting(error: Exception) -> tuple[list[Any], Any]:
    calls: list[Any] = []

    async def broken(shell: Any, event: Any) -> None:
        calls.append(event)
        raise error

    return calls, broken


async def test_request_that_keeps_failing_is_refused_for_a_growing_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client cannot make us reload forever, and other requests are answered meanwhile."""
    service = await active_controller(cluster)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    calls, broken = counting(RuntimeError("a bug"))
    monkeypatch.setitem(HANDLERS, ev.ReplicaLeaderElection, broken)
    for _ in range(50):
        assert await elect(service) == KafkaErrorCode.UNKNOWN_SERVER_ERROR
    assert len(calls) == 2, "the first failure is forgiven"
    assert service.shell.faults.reloads.value == 2
    assert service.shell.faults.refused.value == 48
    (aside,) = service.controller.status()["set_aside"]
    assert (aside["event"], aside["failures"]) == ("ReplicaLeaderElection", 2)
    listed = await ask(service, lambda reply: ev.ListPartitionReassignments(partitions=None, reply=reply))
    assert listed == {}
    await cluster.create_topic("u", {0: [2]})
    await cluster.until_leaders("u", [2])
    assert service.shell.context.epoch == 1
    assert "aiocontroller_events_refused_total 48" in service.metrics.render()


async def test_event_that_keeps_failing_is_set_aside_and_the_others_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults_module, "FIRST_RETRY_S", 0.1)
    service, standby = await active_controller(cluster), await cluster.add_controller(aiocontroller_id=1000002)
    real = GATHERED[ev.PartitionModifications]
    poisoned = True
    calls: list[list[str]] = []

    async def broken(shell: Any, events: Any) -> Any:
        calls.append([event.topic for event in events])
        if poisoned and any(event.topic == "bad" for event in events):
            raise RuntimeError("a bug")
        return await real(shell, events)

    monkeypatch.setitem(GATHERED, ev.PartitionModifications, broken)
    for topic in ("bad", "good"):
        await cluster.create_topic(topic, {0: [1, 2]})
        await cluster.until_leaders(topic, [1])
    service.queue.append(ev.PartitionModifications("good"))
    service.queue.append(ev.PartitionModifications("bad"))
    await until(lambda: calls.count(["bad"]) >= 3, "it is tried again, by itself")
    assert [each["event"] for each in service.controller.status()["set_aside"]] == ["PartitionModifications bad"]
    await cluster.create_topic("later", {0: [3]})
    await cluster.until_leaders("later", [3])
    poisoned = False
    await until(lambda: service.controller.status()["set_aside"] == [])
    assert service.shell.context.epoch == 1
    assert not standby.controller.election.active


async def test_one_request_of_many_that_are_handled_together_fails_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await active_controller(cluster)
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    await cluster.until_leaders("t", [1, 2])
    await idle(service)
    real = GATHERED[ev.AlterPartitionReceived]

    async def broken(shell: Any, events: Any) -> Any:
        if any(event.broker == 1 for event in events):
            raise RuntimeError("a bug")
        return await real(shell, events)

    monkeypatch.setitem(GATHERED, ev.AlterPartitionReceived, broken)
    state = await cluster.state("t", 1)
    async with asking(service) as one, asking(service) as two:
        epochs = [cluster.brokers[broker].epoch for broker in (1, 2)]
        codes = []
        for _ in range(3):
            first, second = await asyncio.gather(
                one.alter_partition(1, 1, epochs[0]), two.alter_partition(1, 2, epochs[1], change("t", 1, state, (2,)))
            )
            assert first.error_code == KafkaErrorCode.UNKNOWN_SERVER_ERROR
            codes.append(second.error_code)
        assert codes[-1] == KafkaErrorCode.NONE
    await cluster.until_state("t", 2, (2,), partition=1)
    assert service.shell.context.epoch == 1


async def test_step_of_the_failover_that_fails_is_made_up_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes an event fail may make every controller's failover fail: the cluster must have a controller anyway."""
    monkeypatch.setattr(faults_module, "FIRST_RETRY_S", 0.2)
    real = reassignment.initialize_partition_reassignments
    poisoned = True

    async def broken(shell: Any) -> None:
        if poisoned:
            raise RuntimeError("a bug")
        await real(shell)

    steps = tuple((name, broken if step is real else step) for name, step in failover.FAILOVER)
    monkeypatch.setattr(failover, "FAILOVER", steps)
    await cluster.create_topic("t", {0: [1, 2]})
    service = await cluster.add_controller()
    await cluster.until_leaders("t", [1])
    await until(lambda: service.controller.election.active)
    (aside,) = service.controller.status()["set_aside"]
    assert aside["event"] == "FailoverStep resume reassignments"
    await cluster.create_topic("u", {0: [2]})
    await cluster.until_leaders("u", [2])
    poisoned = False
    await until(lambda: service.controller.status()["set_aside"] == [])
    assert service.shell.context.epoch == 1


async def test_memory_is_what_zookeeper_says_after_a_fault(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a handler that stops half way, its changes are not left in memory, and brokers are informed."""
    service = await active_controller(cluster)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)

    async def half(shell: Any, event: Any) -> None:
        table = shell.context.table
        table.set_assignment(table.row("t", 0), table.assignment(table.row("t", 0)).reassign_to((3,)))
        shell.context.brokers.pop(2, None)
        raise RuntimeError("half way")

    monkeypatch.setitem(HANDLERS, ev.ReplicaLeaderElection, half)
    sent = len(cluster.brokers[2].of(ApiKey.UPDATE_METADATA))
    assert await elect(service) == KafkaErrorCode.UNKNOWN_SERVER_ERROR
    await idle(service)
    table = service.shell.context.table
    assert table.replicas(table.row("t", 0)) == (1, 2)
    assert sorted(service.shell.context.live) == [1, 2, 3]
    await until(lambda: len(cluster.brokers[2].of(ApiKey.UPDATE_METADATA)) > sent)
    assert [r.controller_epoch for r in journal_of(service).of_kind("elected")] == [1]


@pytest.mark.parametrize("epoch", [b"2147483647", b"seven"])
async def test_controller_epoch_that_none_can_follow_is_named_and_keeps_us_out(
    cluster: Cluster, epoch: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """After the highest epoch Kafka's controller wraps around to a negative one, and no broker obeys it."""
    await cluster.client.create(paths.CONTROLLER_EPOCH, data=epoch)
    service = await cluster.add_controller()

    def reasons() -> str:
        return " ".join(service.controller.status()["readiness"]["reasons"])

    found = f"/controller_epoch: found {epoch.decode()}, expected the controller epoch as a decimal number"
    await until(lambda: found in reasons())
    assert "Error" not in reasons()
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert all(r.getMessage().startswith(f"Not taking the role: {found}") and r.exc_info is None for r in errors)
    assert (await cluster.client.get_many([paths.CONTROLLER_EPOCH])).data == [epoch]
    await cluster.client.set_data(paths.CONTROLLER_EPOCH, b"6")
    await cluster.active()
    assert service.shell.context.epoch == 7
