"""A cluster of real brokers, the clients that work on it, and its controller: where events are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from aiocontroller.chaos.kafka.offices import KafkasOffice, KRaftOffice, Office, OurOffice, until
from aiocontroller.chaos.kafka.view import PartitionKey, View, look, whole
from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.cluster.kraft import KRaftCluster
from aiocontroller.cluster.load.clients import Load, LoadClient
from aiocontroller.cluster.real_kafka import DEFAULT_VERSION, RealKafkaBroker, RealKafkaCluster
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

BROKERS = 3
TOPIC_CONFIG = {"min.insync.replicas": "2"}

AS_SHIPPED = {
    "zookeeper.session.timeout.ms": "18000",
    "replica.lag.time.max.ms": "30000",
    "controller.socket.timeout.ms": "30000",
    "controlled.shutdown.retry.backoff.ms": "5000",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "auto.leader.rebalance.enable": "false",
}
"""Kafka's own defaults where test brokers have others; but leaders go back when the play says so."""


class Stage:
    """``offices`` are those that the cluster can have; ``office`` is the one in charge."""

    def __init__(self, brokers: Mapping[int, RealKafkaBroker], offices: Mapping[str, Office]) -> None:
        self.brokers = dict(brokers)
        self.offices = dict(offices)
        self.office = next(iter(self.offices.values()))
        self.frozen: set[int] = set()
        self._youngest = 0
        self.load = Load([])
        self._replicas: dict[PartitionKey, tuple[int, ...]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._replicas})

    async def open_load(self, kinds: Sequence[str], partitions: int, folder: Path, version: str) -> None:
        """A topic and a client for each kind; every broker is the preferred leader of as many partitions as another."""
        ids = sorted(self.brokers)
        turned = [tuple(ids[i:] + ids[:i]) for i in range(len(ids))]
        for kind in kinds:
            assignment = {p: turned[p % len(ids)] for p in range(partitions)}
            await asyncio.to_thread(self._create, kind, assignment)
            self._replicas |= {(kind, p): replicas for p, replicas in assignment.items()}
        await self.until(whole, "the topics are led")
        self.load = Load([LoadClient(k, self.bootstrap, k, partitions, folder, version=version) for k in kinds])
        await self.load.__aenter__()

    def close(self) -> None:
        self.load.kill()
        for office in self.offices.values():
            office.close()

    async def view(self) -> View:
        running = [b for n, b in self.brokers.items() if b.running and n not in self.frozen]
        running.sort(key=lambda broker: broker.id == self._youngest)  # it may not answer yet
        return await asyncio.to_thread(look, running[0].address, self.topics)

    async def until(self, condition: Callable[[View], bool], what: str) -> None:
        async def holds() -> bool:
            return condition(await self.view())

        await until(holds, what)

    async def heal(self) -> None:
        """Everything runs, every replica is in sync, and every leader is the preferred one."""
        for number in sorted(self.frozen):
            self.brokers[number].resume()
        self.frozen.clear()
        for broker in self.brokers.values():
            if not broker.running:
                await self.start(broker)
        await self.office.restore()
        await self.until(whole, "every replica is in sync")
        view = await self.view()
        moved = [key for key, replicas in self._replicas.items() if view[key].replicas != replicas]
        if moved:
            await self.reassign({key: self._replicas[key] for key in moved})
        if any(partition.leader != self._replicas[key][0] for key, partition in view.items()):
            await self.elect_preferred(list(self._replicas))
        await self.until(self._as_made, "every leader is the preferred one")
        await self.load.settled()

    async def start(self, broker: RealKafkaBroker) -> None:
        """As a supervisor does: a broker whose old registration is still there ends, and is started again."""
        self._youngest = broker.id
        child = broker.launch()

        async def up() -> bool:
            nonlocal child
            if not child.running:
                child = broker.launch()
            return await asyncio.to_thread(broker.answers)

        await until(up, f"broker {broker.id} is up")

    async def reassign(self, wanted: Mapping[PartitionKey, Sequence[int]]) -> None:
        """By Kafka's protocol; returns when the replicas are as wanted."""
        await asyncio.to_thread(self._reassign, wanted)
        await self.until(
            lambda view: all(view[key].replicas == tuple(replicas) for key, replicas in wanted.items()),
            "the reassignment is done",
        )

    async def elect_preferred(self, partitions: Sequence[PartitionKey]) -> None:
        await asyncio.to_thread(self._elect_preferred, partitions)

    def _as_made(self, view: View) -> bool:
        return whole(view) and all(view[key].leader == replicas[0] for key, replicas in self._replicas.items())

    def _admin(self) -> Any:
        from kafka import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=20_000)

    def _create(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        admin = self._admin()
        try:
            admin.create_topics({topic: {"assignments": dict(assignment), "configs": TOPIC_CONFIG}})
        finally:
            admin.close()

    def _reassign(self, wanted: Mapping[PartitionKey, Sequence[int]]) -> None:
        from kafka import TopicPartition

        admin = self._admin()
        try:
            plan = {TopicPartition(*key): list(replicas) for key, replicas in wanted.items()}
            errors = {key: error for key, error in admin.alter_partition_reassignments(plan).items() if error}
            assert not errors, f"reassignment refused: {errors}"
        finally:
            admin.close()

    def _elect_preferred(self, partitions: Sequence[PartitionKey]) -> None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)
        admin = self._admin()
        try:
            admin.elect_leaders(0, wanted, raise_errors=False)
        finally:
            admin.close()


@asynccontextmanager
async def zookeeper_stage(
    folder: Path,
    *,
    overrides: Mapping[str, str] = AS_SHIPPED,
    properties: Mapping[str, str] | None = None,
    version: str = DEFAULT_VERSION,
) -> AsyncIterator[Stage]:
    """ZooKeeper and three brokers; its controller is Kafka's own, or aiocontroller with ``properties``."""
    async with AsyncExitStack() as stack:
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        await zookeeper.start_async()
        stack.callback(zookeeper.kill)
        cluster = RealKafkaCluster(BROKERS, zookeeper.address, folder, version=version, overrides=overrides)
        stack.callback(cluster.kill)
        await cluster.start_async()
        client = ZooKeeperClient(zookeeper.address, world=real_world(), session_timeout_s=30)
        await client.start(30)
        stack.push_async_callback(client.close)
        zk = KafkaZkClient(client)
        ours = {
            "zookeeper.session.timeout.ms": overrides["zookeeper.session.timeout.ms"],
            "auto.leader.rebalance.enable": "false",
            **(properties or {}),
        }
        kafkas = KafkasOffice(zk, cluster.brokers)
        our = OurOffice(zk, cluster.brokers, zookeeper.address, folder / "aiocontroller", ours)
        stage = Stage(cluster.brokers, {office.name: office for office in (kafkas, our)})
        stack.callback(stage.close)
        yield stage


@asynccontextmanager
async def kraft_stage(
    folder: Path, *, overrides: Mapping[str, str] = AS_SHIPPED, version: str = DEFAULT_VERSION
) -> AsyncIterator[Stage]:
    """Three brokers and three controllers that are no brokers."""
    settings = {key: value for key, value in overrides.items() if not key.startswith("zookeeper.")}
    cluster = KRaftCluster(BROKERS, folder, version=version, overrides=settings)
    async with AsyncExitStack() as stack:
        stack.callback(cluster.kill)
        await cluster.start_async()
        stage = Stage(cluster.brokers, {KRaftOffice.name: KRaftOffice(cluster)})
        stack.callback(stage.close)
        yield stage
