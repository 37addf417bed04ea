"""A cluster of real brokers with its clients and its controller, on which events are played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.kraft import KRaftCluster
from aiocontroller.lab.cluster.load.clients import Load, LoadClient
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, RealKafkaBroker, RealKafkaCluster
from aiocontroller.lab.cluster.slowness import Slowness, slowness_library
from aiocontroller.lab.kafka.controllers import (
    OUR_ID,
    BrokerAsController,
    ClusterController,
    ControllerPair,
    KRaftController,
    OurController,
    until,
)
from aiocontroller.lab.kafka.view import PartitionKey, View, controller_address, look, whole
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

BROKERS = 3
ADMIN_WITHIN_S = 30.0
ELECT_AGAIN_S = 10.0
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
"""Kafka's defaults for settings that test brokers change, except that leaders do not move back by themselves."""


class PlayedCluster:
    """The cluster; ``controllers`` are the controllers that it can have, and ``controller`` is the one in charge."""

    def __init__(self, brokers: Mapping[int, RealKafkaBroker], controllers: Mapping[str, ClusterController]) -> None:
        self.brokers = dict(brokers)
        self.controllers = dict(controllers)
        self.controller = next(iter(self.controllers.values()))
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

    def made(self) -> Mapping[PartitionKey, tuple[int, ...]]:
        """Return the replicas with which the partitions under load were created; the first is preferred."""
        return self._replicas

    async def open_load(
        self,
        kinds: Sequence[str],
        partitions: int,
        folder: Path,
        version: str,
        *,
        suffix: str = "",
        replicas: Sequence[tuple[int, ...]] = (),
    ) -> None:
        """Start a client of each kind with a topic of the same name.

        Partitions get ``replicas`` in turns; by default they are on all brokers, which are preferred in turns.
        """
        ids = sorted(self.brokers)
        turned = replicas or [tuple(ids[i:] + ids[:i]) for i in range(len(ids))]
        topics = [kind + suffix for kind in kinds]
        for topic in topics:
            assignment = {p: turned[p % len(turned)] for p in range(partitions)}
            await self.create_topic(topic, assignment)
            self._replicas |= {(topic, p): replicas for p, replicas in assignment.items()}
        await self.until(whole, "the topics are led")
        self.load = Load(
            [
                LoadClient(kind, self.bootstrap, topic, partitions, folder, version=version)
                for kind, topic in zip(kinds, topics, strict=True)
            ]
        )
        await self.load.start()

    def close(self) -> None:
        self.load.kill()
        for controller in self.controllers.values():
            controller.close()

    async def create_topic(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        """Create a topic with TOPIC_CONFIG from replicas by partition, as an admin client does."""
        await asyncio.to_thread(self._create, topic, assignment)

    async def delete_topic(self, topic: str) -> None:
        """Request a topic's deletion, as an admin client does."""
        await asyncio.to_thread(self._delete, topic)

    async def view(self) -> View:
        """Return every partition under load, from the Metadata of a broker that is known to be up to date."""

        async def complete() -> View | None:
            found = await self.look_at(self.topics)
            return found if len(found) == len(self._replicas) else None

        view: View = await until(complete, "a broker tells of every partition")
        return view

    async def look_at(self, topics: Sequence[str]) -> View:
        """Return an up-to-date broker's view of these topics, without waiting; empty if it does not answer."""
        running = [b for n, b in self.brokers.items() if b.running and n not in self.frozen]
        running.sort(key=lambda broker: broker.id == self._youngest)  # it may not answer yet
        return await asyncio.to_thread(look, running[0].address, topics)

    async def until(self, condition: Callable[[View], bool], what: str) -> None:
        await until(lambda: self._holds(condition), what)

    async def heal(self) -> None:
        """Start and thaw everything, and wait until every replica is in sync and every leader is the preferred one."""
        for number in sorted(self.frozen):
            self.thaw(number)
        for broker in self.brokers.values():
            if broker.slowness is not None:
                broker.slowness.heal()
            if not broker.running:
                await self.start(broker)
        await self.controller.restore()
        if not self._replicas:
            return
        await self.until(whole, "every replica is in sync")
        view = await self.view()
        moved = [key for key, replicas in self._replicas.items() if view[key].replicas != replicas]
        if moved:
            await self.reassign({key: self._replicas[key] for key in moved})
        made = {key: replicas[0] for key, replicas in self._replicas.items()}
        if not await self._holds(lambda view: all(view[key].leader == leader for key, leader in made.items())):
            await self.elect_preferred(made)
            await self.until(whole, "every replica is in sync, and every leader the preferred one")
        await self.load.settled()

    def freeze(self, number: int) -> None:
        """Stop a broker by SIGSTOP, and do not ask it for Metadata until it runs again."""
        self.frozen.add(number)
        self.brokers[number].suspend()

    def thaw(self, number: int) -> None:
        """Continue a broker by SIGCONT, and ask the others for Metadata while its own is outdated."""
        self._youngest = number
        self.brokers[number].resume()
        self.frozen.discard(number)

    async def start(self, broker: RealKafkaBroker) -> None:
        """Start a broker as a supervisor does.

        A broker exits if its old registration still exists, and is then started again.
        """
        self._youngest = broker.id
        child = broker.launch()

        async def up() -> bool:
            nonlocal child
            if not child.running:
                child = broker.launch()
            return await asyncio.to_thread(broker.answers)

        await until(up, f"broker {broker.id} is up")

    async def reassign(self, wanted: Mapping[PartitionKey, Sequence[int]]) -> None:
        """Reassign by Kafka's protocol, and wait until the replicas are as wanted."""
        await self.ask_to_reassign(wanted)
        await self.until(
            lambda view: all(view[key].replicas == tuple(replicas) for key, replicas in wanted.items()),
            "the reassignment is done",
        )

    async def ask_to_reassign(self, wanted: Mapping[PartitionKey, Sequence[int]]) -> None:
        """Request a reassignment, as an admin client does."""
        await asyncio.to_thread(self._reassign, wanted)

    async def elect_preferred(self, wanted: Mapping[PartitionKey, int]) -> None:
        """Elect the preferred replicas, which are ``wanted``, and wait until they lead.

        On a busy machine a replica may have left its ISR just before the election, which then does nothing: it is
        requested again.
        """

        async def led() -> bool:
            view = await self.view()
            return all(view[key].leader == leader for key, leader in wanted.items())

        async def elected() -> bool:
            await asyncio.to_thread(self._elect_preferred, list(wanted))
            try:
                await until(led, "preferred leaders", ELECT_AGAIN_S)
            except TimeoutError:
                return False
            return True

        await until(elected, f"the preferred replicas lead: {dict(wanted)}")

    async def _holds(self, condition: Callable[[View], bool]) -> bool:
        return condition(await self.view())

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        """Send an admin request by kafka-python, and repeat it while the brokers do not know a controller.

        kafka-python sends only requests that its first broker supports, even if another node handles them.  So requests
        that 2.2 brokers do not support are sent by a client that first connects to the controller.
        """
        from confluent_kafka import KafkaException
        from kafka import KafkaAdminClient
        from kafka.errors import (
            IncompatibleBrokerVersion,
            KafkaError,
            TopicAlreadyExistsError,
            UnknownTopicOrPartitionError,
        )

        deadline = time.monotonic() + ADMIN_WITHIN_S
        bootstrap = self.bootstrap
        while True:
            admin = None
            try:
                admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=20_000)
                return request(admin)
            except (TopicAlreadyExistsError, UnknownTopicOrPartitionError):
                raise
            except IncompatibleBrokerVersion:
                if bootstrap != self.bootstrap or time.monotonic() > deadline:
                    raise
                try:
                    bootstrap = controller_address(self.bootstrap)
                except (KafkaException, KeyError):
                    time.sleep(0.2)
            except (KafkaError, RuntimeError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            finally:
                if admin is not None:
                    admin.close()

    def _create(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        from kafka.errors import IncompatibleBrokerVersion, TopicAlreadyExistsError

        try:
            self._ask(lambda admin: admin.create_topics({topic: {"assignments": assignment, "configs": TOPIC_CONFIG}}))
        except TopicAlreadyExistsError:
            pass  # created by an earlier try whose answer was lost
        except IncompatibleBrokerVersion:
            self._create_before_2_4(topic, assignment)

    def _create_before_2_4(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
        """Create a topic with confluent-kafka: kafka-python cannot send an assignment to brokers before 2.4."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        replicas = [list(assignment[number]) for number in sorted(assignment)]
        wanted = NewTopic(topic, len(replicas), replica_assignment=replicas, config=dict(TOPIC_CONFIG))
        # keep a reference: without the client, the request ends
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + ADMIN_WITHIN_S
        while True:
            (made,) = admin.create_topics([wanted]).values()
            try:
                made.result(ADMIN_WITHIN_S)
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)  # the brokers have yet to learn who it is

    def _delete(self, topic: str) -> None:
        from kafka.errors import UnknownTopicOrPartitionError

        try:
            self._ask(lambda admin: admin.delete_topics([topic]))
        except UnknownTopicOrPartitionError:
            pass  # deleted by an earlier try whose answer was lost

    def _reassign(self, wanted: Mapping[PartitionKey, Sequence[int]]) -> None:
        from kafka import TopicPartition

        plan = {TopicPartition(*key): list(replicas) for key, replicas in wanted.items()}
        answers = self._ask(lambda admin: admin.alter_partition_reassignments(plan))
        errors = {key: error for key, error in answers.items() if error}
        assert not errors, f"reassignment refused: {errors}"

    def _elect_preferred(self, partitions: Sequence[PartitionKey]) -> None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)
        self._ask(lambda admin: admin.elect_leaders(0, wanted, raise_errors=False))


def make_slowable(brokers: Iterable[RealKafkaBroker], folder: Path) -> None:
    """Prepare brokers, before they start, for slow disks and networks.  Raises NoCompilerError."""
    library = slowness_library(folder)
    for broker in brokers:
        broker.slowness = Slowness(library, broker.data_dir)


@asynccontextmanager
async def zookeeper_cluster(
    folder: Path,
    *,
    overrides: Mapping[str, str] = AS_SHIPPED,
    properties: Mapping[str, str] | None = None,
    version: str = DEFAULT_VERSION,
    slowable: bool = False,
) -> AsyncIterator[PlayedCluster]:
    """Start ZooKeeper and three brokers, and yield their cluster (see ``cluster_on``).

    ``slowable``: whether their disks and networks can be made slow.  Raises NoCompilerError.
    """
    async with AsyncExitStack() as stack:
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        await zookeeper.start_async()
        stack.callback(zookeeper.kill)
        started = RealKafkaCluster(BROKERS, zookeeper.address, folder, version=version, overrides=overrides)
        stack.callback(started.kill)
        if slowable:
            make_slowable(started.brokers.values(), folder)
        await started.start_async()
        session_ms = int(overrides["zookeeper.session.timeout.ms"])
        played = cluster_on(zookeeper.address, started.brokers, folder, session_ms=session_ms, properties=properties)
        yield await stack.enter_async_context(played)


@asynccontextmanager
async def cluster_on(
    zookeeper: str,
    brokers: Mapping[int, RealKafkaBroker],
    folder: Path,
    *,
    session_ms: int,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[PlayedCluster]:
    """Yield a running cluster; its controller is Kafka's own, or aiocontroller with ``properties``."""
    async with AsyncExitStack() as stack:
        client = ZooKeeperClient(zookeeper, world=real_world(), session_timeout_s=30)
        await client.start(30)
        stack.push_async_callback(client.close)
        zk = KafkaZkClient(client)
        ours = {
            "zookeeper.session.timeout.ms": str(session_ms),
            "auto.leader.rebalance.enable": "false",
            **(properties or {}),
        }
        kafkas = BrokerAsController(zk, brokers)
        our = OurController(zk, brokers, zookeeper, folder / "aiocontroller", ours)
        pair = ControllerPair(our, OurController(zk, brokers, zookeeper, folder / "standby", ours, OUR_ID + 1))
        cluster = PlayedCluster(brokers, {controller.name: controller for controller in (kafkas, our, pair)})
        stack.callback(cluster.close)
        yield cluster


@asynccontextmanager
async def kraft_cluster(
    folder: Path,
    *,
    overrides: Mapping[str, str] = AS_SHIPPED,
    version: str = DEFAULT_VERSION,
    slowable: bool = False,
) -> AsyncIterator[PlayedCluster]:
    """Start three brokers and three dedicated controllers, and yield their cluster; see ``zookeeper_cluster``."""
    settings = {key: value for key, value in overrides.items() if not key.startswith("zookeeper.")}
    started = KRaftCluster(BROKERS, folder, version=version, overrides=settings)
    if slowable:
        make_slowable(started.brokers.values(), folder)
    async with AsyncExitStack() as stack:
        stack.callback(started.kill)
        await started.start_async()
        cluster = PlayedCluster(started.brokers, {KRaftController.name: KRaftController(started)})
        stack.callback(cluster.close)
        yield cluster
