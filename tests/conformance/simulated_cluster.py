"""A cluster to play Kafka's own scenarios on: controllers, and simulated brokers that lead, follow and ask, all in one
process on a real ZooKeeper.

Broker ids are 0 and up, as in Kafka's tests.  Where those say "the controller's broker" any broker serves here: this
controller is none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.cluster.broker_requests import PartitionState
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.integration.controller.harness import WITHIN_S, Cluster, until


class SimulatedCluster(Cluster):
    def __init__(self, world: World, zk_connect: str, folder: Path) -> None:
        super().__init__(world, zk_connect)
        self.folder = folder
        self.simulated: dict[int, SimulatedBroker] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}

    @property
    def service(self) -> Service:
        """The only controller, or the one started last."""
        return self.services[-1]

    # -- brokers ---------------------------------------------------------------------------------------------------

    async def start(self, brokers: int = 0, **controller: Any) -> None:
        await super().start()
        await self.add_controller(**controller)
        await self.active()
        for broker_id in range(brokers):
            await self.start_broker(broker_id)

    async def start_broker(self, broker_id: int) -> SimulatedBroker:
        """Registered, known to the controller, and sent the cluster's state."""
        config = BrokerConfig(broker_id, self.zk_connect, self.folder, controlled_shutdown_retry_backoff_ms=100)
        broker = self.simulated[broker_id] = SimulatedBroker(config, self.world)
        self._lives[broker_id] = asyncio.create_task(broker.run())
        await until(lambda: broker.epoch >= 0, f"broker {broker_id} is registered")
        await until(lambda: broker_id in broker.metadata.alive, f"broker {broker_id} hears that it is alive")
        return broker

    async def stop_broker(self, broker_id: int) -> None:
        """A controlled shutdown; gone, and the controller knows."""
        await self._end(broker_id, controlled=True)

    async def kill_broker(self, broker_id: int) -> None:
        """Gone at once, and the controller knows."""
        await self._end(broker_id, controlled=False)

    async def _end(self, broker_id: int, *, controlled: bool) -> None:
        self.simulated.pop(broker_id).stop(controlled=controlled)
        await asyncio.wait_for(self._lives.pop(broker_id), WITHIN_S)
        if self._running:
            await until(lambda: broker_id not in self.service.shell.context.brokers)

    async def close(self) -> None:
        for broker_id in list(self.simulated):
            self.simulated.pop(broker_id).stop(controlled=False)
            await asyncio.wait_for(self._lives.pop(broker_id), WITHIN_S)
        await super().close()

    def cached(self, broker_id: int, topic: str, partition: int = 0) -> PartitionState | None:
        """What a broker has in its metadata cache."""
        found = self.simulated[broker_id].metadata.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    async def until_cached(self, topic: str, partition: int, **fields: Any) -> None:
        """Every broker's metadata cache holds this of the partition."""

        def received() -> bool:
            states = [self.cached(broker, topic, partition) for broker in self.simulated]
            return all(s is not None and {f: getattr(s, f) for f in fields} == fields for s in states)

        await until(received, f"{topic}-{partition} is received as {fields}")

    # -- partitions ------------------------------------------------------------------------------------------------

    async def wait_for_partition_state(
        self, topic: str, partition: int, leader: int, leader_epoch: int, *, controller_epoch: int = 1
    ) -> LeaderAndIsr:
        """Kafka's ``waitForPartitionState``."""
        wanted = (leader, leader_epoch, controller_epoch)

        async def reached() -> bool:
            (state,) = await self.zk.get_topic_partition_states([topic], [partition])
            if not isinstance(state, LeaderAndIsr):
                return False
            return (state.leader, state.leader_epoch, state.controller_epoch) == wanted

        await until(reached, f"{topic}-{partition}: leader, leader epoch, controller epoch {wanted}")
        return await self.state(topic, partition)

    async def until_isr(self, topic: str, isr: set[int], partition: int = 0) -> LeaderAndIsr:
        async def reached() -> bool:
            return set((await self.state(topic, partition)).isr) == isr

        await until(reached, f"ISR {isr} of {topic}-{partition}")
        return await self.state(topic, partition)

    async def topic(self, name: str) -> TopicAssignment | None:
        found = await self.zk.get_topic_assignments([name], watch=False)
        return found.found[0] if found.found else None

    async def expand(self, name: str, partitions: dict[int, list[int]]) -> None:
        """As a broker that adds partitions: everything else in the znode stays."""
        found = await self.topic(name)
        assert found is not None
        added = {number: ReplicaAssignment(tuple(replicas)) for number, replicas in partitions.items()}
        await self.rewrite(msgspec.structs.replace(found, partitions=found.partitions | added))

    async def rewrite(self, assignment: TopicAssignment) -> None:
        epoch = await self.zk.get_controller_epoch()
        assert epoch is not None
        writes = await self.zk.set_topic_assignments([assignment], fence=epoch[1])
        assert list(writes.code) == [0]

    # -- requests --------------------------------------------------------------------------------------------------

    async def ask(self, kind: type[Request], **fields: Any) -> Any:
        """Put a request into the controller's queue; its answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.service.queue.append(kind(reply=Reply(answer.set_result), **fields))
        return await asyncio.wait_for(answer, WITHIN_S)

    async def request_reassignment(self, targets: dict[TopicPartition, list[int]]) -> None:
        """By ``/admin/reassign_partitions``."""
        partitions = [{"topic": tp.topic, "partition": tp.partition, "replicas": r} for tp, r in targets.items()]
        await self._create_admin("reassign_partitions", partitions)

    async def request_preferred_election(self, *partitions: TopicPartition) -> None:
        """By ``/admin/preferred_replica_election``."""
        named = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
        await self._create_admin("preferred_replica_election", named)

    async def _create_admin(self, name: str, partitions: list[dict[str, Any]]) -> None:
        data = msgspec.json.encode({"version": 1, "partitions": partitions})
        await self.client.create(f"/admin/{name}", data=data)

    async def until_admin_path_is_gone(self, name: str) -> None:
        async def gone() -> bool:
            return not await self.client.exists(f"/admin/{name}")

        await until(gone, f"/admin/{name} is gone")

    async def finished(self, topic: str, target: list[int]) -> None:
        """The reassignment of partition 0 is over: in the topic znode, and in the admin path."""

        async def written() -> bool:
            found = await self.topic(topic)
            return found is not None and found.partitions[0] == ReplicaAssignment(tuple(target))

        await until(written, f"{topic}-0 is assigned to {target}")
        await self.until_admin_path_is_gone("reassign_partitions")


@asynccontextmanager
async def stage(
    world: World, zk_connect: str, folder: Path, brokers: int = 0, **controller: Any
) -> AsyncIterator[SimulatedCluster]:
    """``controller``: its settings; without rebalancing unless asked for."""
    made = SimulatedCluster(world, zk_connect, folder)
    settings = {"auto_leader_rebalance_enable": False} | controller
    try:
        await made.start(brokers, **settings)
        yield made
    finally:
        await made.close()
