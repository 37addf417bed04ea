"""Leaders of inter.broker.protocol.version < 2.7 write ISRs themselves, so memory may be older than ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from aiocontroller.controller import state_changes, steps
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import BrokerChange
from aiocontroller.core.leadership_changes import LeadershipChange
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, held, idle, running, until
from tests.integration.controller.test_reassignment import T0, reassign


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2):
            await cluster.add_broker(broker)
        yield cluster


async def expanded_unnoticed(cluster: Cluster) -> Service:
    """Broker 2 dies and returns; broker 1 takes it into the ISR, only in ZooKeeper."""
    service = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await cluster.until_state("t", 1, (1,))
    await cluster.add_broker(2)
    await until(lambda: 2 in service.shell.context.live)
    await idle(service)
    await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=(1, 2)))
    assert service.shell.context.table.isr(0) == (1,)
    return service


async def notify_of_isr(cluster: Cluster) -> None:
    """Notify of t-0's ISR, as its leader does after writing it."""
    await cluster.client.create(
        "/isr_change_notification/isr_change_",
        data=msgspec.json.encode({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}),
        sequential=True,
    )


async def test_live_replica_that_only_zookeeper_knows_to_be_in_sync_leads(cluster: Cluster) -> None:
    await expanded_unnoticed(cluster)
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))


async def test_isr_that_grows_while_the_election_goes_on_is_swept_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's last write reaches ZooKeeper after the election's read, and no notification follows it."""
    monkeypatch.setattr(state_changes, "SWEEP_S", 0.2)
    service = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(2)
    await cluster.until_state("t", 1, (1,))
    await cluster.add_broker(2)
    await until(lambda: 2 in service.shell.context.live)
    await idle(service)
    await cluster.kill_broker(1)
    state = await cluster.until_state("t", -1, (1,))
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 2)))
    await cluster.until_state("t", 2, (2,))


async def test_notification_of_an_offline_partition_elects(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_changes, "SWEEP_S", 1000.0)
    service = await expanded_unnoticed(cluster)
    state = await cluster.state("t")
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1,)))
    entered, release = held(monkeypatch, BrokerChange)
    release.set()
    await cluster.kill_broker(1)
    state = await cluster.until_state("t", -1, (1,))
    assert entered.is_set()
    await idle(service)
    await cluster.write_state("t", msgspec.structs.replace(state, isr=(1, 2)))
    await notify_of_isr(cluster)
    await cluster.until_state("t", 2, (2,))


async def test_dead_leader_that_only_zookeeper_knew_of_is_replaced_when_another_broker_dies(cluster: Cluster) -> None:
    """When a broker goes, Kafka checks the leader of every partition, even of those without a replica on the broker."""
    service = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.add_broker(3)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(1)
    state = await cluster.until_state("t", 2, (2,))
    await idle(service)
    await cluster.write_state("t", msgspec.structs.replace(state, leader=1, isr=(1, 2)))
    await notify_of_isr(cluster)
    await until(lambda: service.shell.context.table.leader[0] == 1)
    await idle(service)
    assert (await cluster.state("t")).leader == 1
    await cluster.kill_broker(3)
    await cluster.until_state("t", 2, (2,))


async def test_move_ends_as_soon_as_its_leader_has_written_the_isr(cluster: Cluster) -> None:
    """Kafka watches the state of a partition that is moved; the leader's notification may come seconds later."""
    service = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await reassign(service, {T0: (2,)})
    for isr in ((1,), (1, 2)):  # a write that completes nothing is followed too
        await idle(service)
        await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=isr))
    await cluster.until_state("t", 2, (2,))


async def test_move_under_way_is_followed_by_the_next_controller(cluster: Cluster) -> None:
    first = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    await reassign(first, {T0: (2,)})
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    second = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await until(lambda: second.shell.context.partitions_being_reassigned)
    await idle(second)
    await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=(1, 2)))
    await cluster.until_state("t", 2, (2,))


async def test_dead_follower_that_only_zookeeper_knows_to_be_in_sync_leaves_the_isr(cluster: Cluster) -> None:
    """Its leader does not remove it: it had read everything."""
    await expanded_unnoticed(cluster)
    await cluster.kill_broker(2)
    state = await cluster.until_state("t", 1, (1,))

    def received() -> bool:
        requests = cluster.brokers[1].of(ApiKey.LEADER_AND_ISR)
        states = [p for request in requests for topic in request.topic_states for p in topic.partition_states]
        return (states[-1].leader_epoch, states[-1].isr) == (state.leader_epoch, (1,))

    await until(received, "the leader hears of it under a new epoch")


@pytest.mark.parametrize("read_by", ["the end of the move", "an election"])
async def test_broker_that_its_leader_took_in_late_and_that_is_no_replica_is_dropped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, read_by: str
) -> None:
    """The leader's notification, which is not sent here, is not needed: any read of the state reveals it."""
    service = await cluster.add_controller(inter_broker_protocol_version="2.6")
    await cluster.add_broker(3)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    if read_by == "the end of the move":
        await reassign(service, {T0: (1, 2, 3)})
        await idle(service)
        real = steps.bump_leader_epochs

        async def late(shell: ControllerShell, rows: Sequence[int]) -> LeadershipChange:
            """The leader does not know of the cancellation when it takes the added replica into the ISR."""
            if rows and service.shell.context.table.replicas(0) == (1, 2):
                monkeypatch.setattr(steps, "bump_leader_epochs", real)
                await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=(1, 2, 3)))
            return await real(shell, rows)

        monkeypatch.setattr(steps, "bump_leader_epochs", late)
        await reassign(service, {T0: None})
        assert steps.bump_leader_epochs is real, "the leader has written"
        await cluster.until_state("t", 1, (1, 2))
    else:
        await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=(1, 2, 3)))
        await cluster.kill_broker(1)
        await cluster.until_state("t", 2, (2,))
    await idle(service)
    assert service.shell.context.table.isr(0) == (await cluster.state("t")).isr
