"""A Kafka cluster on this machine that fails on command: for tests of your own consumers and automation.

    with KafkaCluster(topics={"orders": 6}) as cluster:
        faults = cluster.faults(seed=7)
        faults.kill_broker(cluster.leader("orders", 0))
        ...                                   # what your code does now is what you test
        faults.heal()
        cluster.wait_until_whole()

Nothing here needs asyncio: the cluster lives in a thread of its own.  With pytest the fixtures ``kafka_cluster`` and
``faults`` do the rest (``pytest_plugin``).  docs/testing-with-chaos.md has a complete example.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from aiocontroller.core.replica_placement import assign_replicas_to_brokers
from aiocontroller.lab.cluster.real_kafka import INTERNAL_TOPIC_CONFIGS, INTERNAL_TOPICS
from aiocontroller.lab.processes.cluster import NotWholeError, ProcessCluster, Shape
from aiocontroller.lab.processes.recovery_checks import Forgiving, leaderships, process_missing
from aiocontroller.lab.processes.steps import ProcessSteps
from aiocontroller.lab.scenarios.plan import ScenarioStep

__all__ = ["DRAWN", "Faults", "KafkaCluster", "NotWholeError"]

T = TypeVar("T")

WHOLE_WITHIN_S = 90.0
DRAWN = (
    "kill_broker",
    "stop_broker",
    "bounce_broker",
    "pause_broker",
    "cut_broker",
    "expire_broker",
    "kill_controller",
    "pause_controller",
    "expire_controller",
    "cut_controller",
    "block",
    "lag",
    "restart_zookeeper",
    "pause_zookeeper",
    "start_broker",
    "start_broker",
    "start_controller",
    "wait",
)
"""The kinds of steps that ``Faults.storm`` draws by default."""


class KafkaCluster:
    """ZooKeeper, brokers with ids from 1 and controllers numbered from 1, as processes on loopback.

    ``topics`` maps topic names to numbers of partitions.  With ``kafka``, the brokers are Apache Kafka's own, and Maven
    fetches them at first use.  Otherwise they are simulated: they answer metadata requests, lead and follow, and keep
    no messages.  Logs and journals are kept in ``data_dir`` if it is given, and deleted with the cluster otherwise.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        controllers: int = 2,
        topics: Mapping[str, int] | None = None,
        replication_factor: int = 3,
        ensemble: bool = False,
        kafka: bool = False,
        data_dir: Path | None = None,
    ) -> None:
        self.topics: dict[str, int] = {}
        self.replication_factor = min(replication_factor, brokers)
        self._wanted = dict(topics or {})
        self._temporary = tempfile.TemporaryDirectory(prefix="kafka-cluster-") if data_dir is None else None
        self.data_dir = Path(self._temporary.name) if self._temporary is not None else data_dir
        assert self.data_dir is not None
        self._cluster = ProcessCluster(
            Shape(data_dir=self.data_dir, brokers=brokers, controllers=controllers, ensemble=ensemble, kafka=kafka)
        )
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all processes, create the topics, and wait until every partition is in sync.

        Raises JavaMissingError, KafkaMissingError or ChildFailedError, and then leaves nothing running.
        """
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="kafka-cluster", daemon=True)
        self._thread.start()
        ready.wait()
        try:
            self._call(self._cluster.start())
            for name, partitions in self._wanted.items():
                self.create_topic(name, partitions)
            self._create_internal_topics()
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise

    def _create_internal_topics(self) -> None:
        """Create the internal topics.

        A broker creates them for the first group and the first transaction, but only while at least as many brokers
        live as their replication factor: the first consumer after a broker's death would have to wait for that broker.
        """
        if not self._cluster.shape.kafka:
            return
        ids = [(broker, None) for broker in self.brokers]
        for name, partitions in INTERNAL_TOPICS.items():
            placed = assign_replicas_to_brokers(ids, partitions, min(3, len(ids)), start_index=0)
            self._call(self._cluster.admin.create_topic(name, placed, configs=INTERNAL_TOPIC_CONFIGS))

    def stop(self) -> None:
        """End all processes, within about a second.  A second call does nothing."""
        if self._thread is None:
            return
        self._call(self._cluster.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def _run(self, ready: threading.Event) -> None:
        """Run the event loop.  Processes end with the thread that started them, so this thread lives as long as the
        cluster."""
        self._loop = asyncio.new_event_loop()
        self._loop.call_soon(ready.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _call(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result()

    # -- where it is -----------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, ``host:port,host:port,…``, as clients expect them."""
        return self._cluster.bootstrap

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's address, ``host:port``; no fault affects this connection."""
        return self._cluster.zookeeper

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self._cluster.brokers)

    @property
    def controllers(self) -> list[int]:
        """The numbers of all controllers, running or not."""
        return list(self._cluster.controllers)

    def journal(self, controller: int) -> Path:
        """The folder of a controller's journal; docs/journal.md describes its records."""
        return self._cluster.controllers[controller].folder / "journal"

    # -- what it does ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Create a topic.  Its leaders are elected afterwards; ``wait_until_whole`` waits for them."""
        ids = [(broker, None) for broker in self.brokers]
        factor = replication_factor or self.replication_factor
        start = len(self.topics) % len(ids)
        placed = assign_replicas_to_brokers(ids, partitions, factor, start_index=start)
        self._call(self._cluster.admin.create_topic(name, placed))
        self.topics[name] = partitions

    def delete_topic(self, name: str) -> None:
        """Mark a topic for deletion; the controller deletes it afterwards."""
        self._call(self._cluster.admin.delete_topic(name))
        self.topics.pop(name, None)

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader according to ZooKeeper; None while there is none."""
        state = self._call(self._leaderships()).get((topic, partition))
        return state.leader if state is not None and state.leader >= 0 else None

    def isr(self, topic: str, partition: int) -> tuple[int, ...]:
        """The brokers in the partition's ISR according to ZooKeeper; empty if the partition does not exist."""
        state = self._call(self._leaderships()).get((topic, partition))
        return tuple(state.isr) if state is not None else ()

    async def _leaderships(self) -> Any:
        return await leaderships(self._cluster)

    def controller(self) -> int | None:
        """The number of the active controller; None while there is none, or while a broker is the controller."""
        return self._call(self._cluster.active_controller())

    def wait_until(self, holds: Callable[[], object], within_s: float = 30.0, what: str = "the condition") -> None:
        """Call ``holds`` until it returns true; raises TimeoutError, naming ``what``, after ``within_s`` seconds."""
        deadline_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what} did not come about within {within_s:g} s")
            time.sleep(0.05)

    def wait_until_whole(self, within_s: float = WHOLE_WITHIN_S) -> float:
        """Wait until all brokers are live, one controller is active, all replicas are in sync, and all brokers know.

        Returns the seconds that passed; raises NotWholeError, which names what is missing, after ``within_s`` seconds.
        """
        return self._call(self._cluster.until(lambda: process_missing(self._cluster, Forgiving()), within_s))

    def faults(self, seed: int = 0) -> Faults:
        """The faults of this cluster; arguments that are left out are drawn from ``seed``."""
        return Faults(self, seed)


class Faults:
    """Injects faults into a cluster: each method is one step, and arguments that are left out are drawn from the seed.

    ``steps`` lists the steps so far, as lines of a scenario file.  A step that is impossible, such as killing a broker
    that does not run, does nothing.
    """

    def __init__(self, cluster: KafkaCluster, seed: int) -> None:
        self.seed = seed
        self.steps: list[str] = []
        self._cluster = cluster
        self._chance = random.Random(f"faults {seed}")
        self._steps = cluster._call(_steps(cluster._cluster))
        self._steps.topics = dict(cluster.topics)

    def step(self, kind: str, *arguments: object, pause_s: float = 0.0) -> None:
        """Take any step of the scenario language (docs/scenarios.md), including those without a method here."""
        given = tuple(str(word) for word in arguments if word is not None)
        step = ScenarioStep(kind.replace("-", "_"), self._chance.randrange(1 << 32), pause_s, given)
        self.steps.append(str(step))
        self._cluster._call(self._steps.take(step))

    def storm(self, seconds: float, *, pause_s: float = 0.5, kinds: tuple[str, ...] = DRAWN) -> None:
        """Take random steps of ``kinds``, drawn from the seed, one after another for ``seconds``."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.step(self._chance.choice(kinds), pause_s=pause_s)

    # -- brokers

    def kill_broker(self, broker: int | None = None) -> None:
        """Kill a broker by SIGKILL; the controller notices when the broker's session ends."""
        self.step("kill_broker", broker)

    def stop_broker(self, broker: int | None = None) -> None:
        """Stop a broker by a controlled shutdown, which moves its leaders first."""
        self.step("stop_broker", broker)

    def start_broker(self, broker: int | None = None) -> None:
        """Start a broker that does not run; returns at once, before the broker is up."""
        self.step("start_broker", broker)

    def bounce_broker(self, broker: int | None = None) -> None:
        """Restart a broker so fast that the controller sees its death and its return together."""
        self.step("bounce_broker", broker)

    def pause_broker(self, broker: int | None = None, seconds: float = 3.0) -> None:
        """Suspend a broker by SIGSTOP for ``seconds``."""
        self.step("pause_broker", self._one(broker, self._cluster.brokers), seconds)

    def expire_broker(self, broker: int | None = None) -> None:
        """End a broker's ZooKeeper session while it still serves clients."""
        self.step("expire_broker", broker)

    def cut_broker(self, broker: int | None = None) -> None:
        """Reset all connections of a broker; new connections work."""
        self.step("cut_broker", broker)

    def block_broker(self, broker: int | None = None) -> None:
        """Cut the link between a broker and the controller until ``heal``; both still reach ZooKeeper."""
        self.step("block", self._one(broker, self._cluster.brokers))

    # -- controllers

    def kill_controller(self, controller: int | str = "active") -> None:
        """Kill a controller by SIGKILL: the ``active`` one, the ``standby``, or one by number."""
        self.step("kill_controller", controller)

    def stop_controller(self, controller: int | str = "active") -> None:
        """Stop a controller, which gives the role back first."""
        self.step("stop_controller", controller)

    def start_controller(self, controller: int | None = None) -> None:
        """Start a controller that does not run."""
        self.step("start_controller", controller)

    def pause_controller(self, controller: int | str = "active", seconds: float = 6.0) -> None:
        """Suspend a controller by SIGSTOP for ``seconds``; its session ends after 4 s."""
        self.step("pause_controller", controller, seconds)

    def expire_controller(self, controller: int | str = "active") -> None:
        """End a controller's ZooKeeper session."""
        self.step("expire_controller", controller)

    def cut_controller(self, controller: int | str = "active") -> None:
        """Reset all connections of a controller; new connections work."""
        self.step("cut_controller", controller)

    # -- links and ZooKeeper

    def restart_zookeeper(self, seconds: float = 1.0) -> None:
        """Kill ZooKeeper by SIGKILL and restart it after ``seconds``; in an ensemble, the server that leads."""
        self.step("restart_zookeeper", seconds)

    def pause_zookeeper(self, seconds: float = 2.0) -> None:
        """Suspend ZooKeeper for ``seconds``: connections succeed, and requests get no answer."""
        self.step("pause_zookeeper", seconds)

    def lag(self) -> None:
        """Make one link slow until ``heal``."""
        self.step("lag")

    def heal(self) -> None:
        """Restore all links, and resume and restart all processes; ``wait_until_whole`` waits for the effects."""
        self.steps.append("heal")
        self._cluster._call(self._steps.heal_everything())

    def _one(self, named: int | None, among: list[int]) -> int:
        return self._chance.choice(among) if named is None else named


async def _steps(cluster: ProcessCluster) -> ProcessSteps:
    return ProcessSteps(cluster)
