"""The model of a KRaft controller that migrates a cluster: what it waits for, what it writes, and who leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.lab.cluster.simulated_kraft import KRAFT_ID, DeposedError, SimulatedKRaft
from aiocontroller.lab.simulated_net import Host, SimulatedClock
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.znodes import ControllerZNode
from tests.unit.controller.virtual_cluster import Stage, stage, state

EPOCH = 52


class Cluster:
    """Brokers, each on a host of its own, and one KRaft controller; ``/controller_epoch`` begins at 7."""

    def __init__(self, it: Stage, kraft: SimulatedKRaft, tasks: asyncio.TaskGroup) -> None:
        self.it = it
        self.kraft = kraft
        self.brokers: dict[int, tuple[SimulatedBroker, Host, asyncio.Task[None]]] = {}
        self.tasks = tasks

    async def start(self, number: int, *, migrating: bool = True) -> None:
        host = self.it.network.host(f"broker {number}")
        world = World(host, SimulatedClock(host), self.it.world.random, debug=True)
        voters = self.kraft.voters if migrating else ""
        config = BrokerConfig(number, self.it.zookeeper.address, None, controller_quorum_voters=voters)
        broker = SimulatedBroker(config, world)
        self.brokers[number] = broker, host, self.tasks.create_task(broker.run())
        await self.it.until(lambda: broker.epoch >= 0)

    async def kill(self, number: int) -> None:
        _, host, task = self.brokers.pop(number)
        self.it.network.crash(host)
        task.cancel()

    async def stop(self, number: int) -> None:
        broker, _, task = self.brokers.pop(number)
        broker.stop()
        await task

    async def held(self) -> ControllerZNode:
        found = await self.it.zk.get_controller(watch=False)
        assert isinstance(found, ControllerZNode)
        return found

    async def until_state(self, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
        found = None
        for _ in range(300):
            found = await state(self.it)
            if found is not None and (found.leader, found.isr) == (leader, isr):
                return found
            await self.it.sleep(0.1)
        raise AssertionError(found)


@asynccontextmanager
async def cluster(replicas: str = "1,2") -> AsyncIterator[Cluster]:
    """``t-0`` is led by broker 1, both in sync; the KRaft controller is provisioned, no broker runs."""
    async with stage() as it, asyncio.TaskGroup() as tasks:
        await it.create("/controller_epoch", b"7")
        await it.create("/controller", b'{"version":1,"brokerid":9,"timestamp":"0"}')
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[%s]}}' % replicas.encode())
        await it.create("/brokers/topics/t/partitions", b"")
        await it.create("/brokers/topics/t/partitions/0", b"")
        first = b'{"controller_epoch":7,"leader":1,"leader_epoch":3,"version":1,"isr":[1,2]}'
        await it.create("/brokers/topics/t/partitions/0/state", first)
        kraft = SimulatedKRaft(it.world, it.zookeeper.address, epoch=EPOCH, session_timeout_s=3)
        running = tasks.create_task(kraft.run())
        await it.until(lambda: kraft.port)
        made = Cluster(it, kraft, tasks)
        yield made
        for _, _, task in made.brokers.values():
            task.cancel()
        running.cancel()


@virtual_time
async def test_it_claims_the_cluster_when_the_last_broker_is_in_migration_mode() -> None:
    async with cluster() as it:
        await it.start(1)
        await it.start(2, migrating=False)
        await it.it.sleep(5)
        assert (await it.held()).controller_id == 9
        assert await it.it.zk.get_controller_epoch() == (7, 0)
        await it.kill(2)
        await it.it.sleep(10)
        await it.start(2)
        await it.it.until(lambda: it.kraft.leads)
        held = await it.held()
        assert (held.controller_id, held.kraft_controller_epoch, held.owner_session) == (KRAFT_ID, EPOCH, 0)
        assert await it.it.zk.get_controller_epoch() == (8, 1)
        await it.it.sleep(1)
        assert [broker.status().controller_id for broker, *_ in it.brokers.values()] == [KRAFT_ID] * 2
        assert {broker.status().controller_epoch for broker, *_ in it.brokers.values()} == {8}


@virtual_time
async def test_a_replica_on_a_broker_that_does_not_exist_blocks_the_claim() -> None:
    async with cluster("1,2,1000001") as it:
        await it.start(1)
        await it.start(2)
        await it.it.sleep(60)
        assert (await it.held()).controller_id == 9
        await it.it.client.set_data("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}', -1)
        await it.it.until(lambda: it.kraft.leads)


@virtual_time
async def test_leaders_come_from_the_isr_only_and_states_bear_the_kraft_epoch() -> None:
    async with cluster() as it:
        await it.start(1)
        await it.start(2)
        await it.it.until(lambda: it.kraft.leads)
        await it.kill(1)
        assert await it.until_state(2, (2,)) == LeaderAndIsr(2, 4, (2,), EPOCH, 1)
        await it.kill(2)
        assert (await it.until_state(-1, (2,))).leader_epoch == 5
        await it.start(1)
        await it.it.sleep(10)
        assert (await it.until_state(-1, (2,))).leader_epoch == 5
        await it.start(2)
        await it.until_state(2, (2, 1))
        assert await it.it.zk.get_controller_epoch() == (8, 1)


@virtual_time
async def test_what_nobody_leads_at_the_claim_is_led_after_it() -> None:
    """The controller before it had no time to elect brokers that came back last."""
    async with cluster() as it:
        nobody = b'{"controller_epoch":7,"leader":-1,"leader_epoch":4,"version":1,"isr":[1]}'
        await it.it.client.set_data("/brokers/topics/t/partitions/0/state", nobody, -1)
        await it.start(1)
        await it.start(2)
        assert (await it.until_state(1, (1, 2))).leader_epoch == 5


@virtual_time
async def test_leaders_move_before_a_broker_shuts_down() -> None:
    async with cluster() as it:
        await it.start(1)
        await it.start(2)
        await it.it.until(lambda: it.kraft.leads)
        await it.it.sleep(1)
        before_s = it.it.world.clock.monotonic()
        await it.stop(1)
        assert it.it.world.clock.monotonic() - before_s < 1
        assert await state(it.it) == LeaderAndIsr(2, 4, (2,), EPOCH, 1)


@virtual_time
async def test_it_ends_when_another_process_takes_the_cluster() -> None:
    async def deposed() -> None:
        async with cluster() as it:
            await it.start(1)
            await it.start(2)
            await it.it.until(lambda: it.kraft.leads)
            await it.it.client.set_data("/controller_epoch", b"60", -1)
            await it.it.sleep(10)

    with pytest.raises(ExceptionGroup) as ended:
        await deposed()
    assert ended.group_contains(DeposedError, match="/controller_epoch was written by another process")
