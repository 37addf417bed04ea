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

from aiocontroller.chaos.plan import Step
from aiocontroller.chaos.processes.cluster import NotWholeError, ProcessCluster, Shape
from aiocontroller.chaos.processes.steps import ProcessSteps
from aiocontroller.chaos.processes.wholeness import Forgiving, leaderships, process_missing
from aiocontroller.core.replica_placement import assign_replicas_to_brokers

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
"""What ``Faults.storm`` draws from."""


class KafkaCluster:
    """ZooKeeper, brokers with ids from 1, and controllers numbered from 1, as processes on loopback.

    ``topics`` maps names to numbers of partitions.  ``kafka`` runs Apache Kafka's own brokers, which keep messages
    (Maven fetches them at first); otherwise brokers are simulated: they answer metadata requests and lead and follow,
    and store nothing.  ``data_dir`` is kept if it is given, else everything goes with the cluster.
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
        """Until all processes run, the topics exist and everything is led.  JavaMissingError, ChildFailedError."""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="kafka-cluster", daemon=True)
        self._thread.start()
        ready.wait()
        try:
            self._call(self._cluster.start())
            for name, partitions in self._wanted.items():
                self.create_topic(name, partitions)
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes; takes about a second.  A second call does nothing."""
        if self._thread is None:
            return
        self._call(self._cluster.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def _run(self, ready: threading.Event) -> None:
        """Children die with the thread that started them, so this one lives for as long as the cluster."""
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
        """``host:port,host:port,…``, as clients take it."""
        return self._cluster.bootstrap

    @property
    def zookeeper(self) -> str:
        """``host:port``, past all faults of links."""
        return self._cluster.zookeeper

    @property
    def brokers(self) -> list[int]:
        """All ids, of brokers that run and of those that do not."""
        return list(self._cluster.brokers)

    @property
    def controllers(self) -> list[int]:
        return list(self._cluster.controllers)

    def journal(self, controller: int) -> Path:
        """The folder of a controller's journal (docs/journal.md)."""
        return self._cluster.controllers[controller].folder / "journal"

    # -- what it does ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int | None = None) -> None:
        """Leaders follow at once; ``wait_until_whole`` waits for them."""
        ids = [(broker, None) for broker in self.brokers]
        factor = replication_factor or self.replication_factor
        start = len(self.topics) % len(ids)
        placed = assign_replicas_to_brokers(ids, partitions, factor, start_index=start)
        self._call(self._cluster.admin.create_topic(name, placed))
        self.topics[name] = partitions

    def delete_topic(self, name: str) -> None:
        self._call(self._cluster.admin.delete_topic(name))
        self.topics.pop(name, None)

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads, by ZooKeeper; None while nobody does."""
        state = self._call(self._leaderships()).get((topic, partition))
        return state.leader if state is not None and state.leader >= 0 else None

    def isr(self, topic: str, partition: int) -> tuple[int, ...]:
        """The replicas that are in sync."""
        state = self._call(self._leaderships()).get((topic, partition))
        return tuple(state.isr) if state is not None else ()

    async def _leaderships(self) -> Any:
        return await leaderships(self._cluster)

    def controller(self) -> int | None:
        """The number of the controller in office; None while nobody is."""
        return self._call(self._cluster.active_controller())

    def wait_until(self, holds: Callable[[], object], within_s: float = 30.0, what: str = "the condition") -> None:
        """Ask until the answer is true; TimeoutError after ``within_s`` seconds."""
        deadline_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what} did not come about within {within_s:g} s")
            time.sleep(0.05)

    def wait_until_whole(self, within_s: float = WHOLE_WITHIN_S) -> float:
        """Until all brokers live, one controller rules, all replicas are in sync, and all brokers know all that.

        Returns the seconds that it took; NotWholeError, with what is missing, when it takes too long.
        """
        return self._call(self._cluster.until(lambda: process_missing(self._cluster, Forgiving()), within_s))

    def faults(self, seed: int = 0) -> Faults:
        """What can be done to this cluster; what is not named is drawn from the seed."""
        return Faults(self, seed)


class Faults:
    """Each method is one step; whom it is about is drawn from the seed where it is not said.

    ``steps`` holds what was done, as lines of a scenario file.  Nothing fails that cannot be done (a broker that is to
    be killed and does not run): as in a real outage, the world does not wait for the script.
    """

    def __init__(self, cluster: KafkaCluster, seed: int) -> None:
        self.seed = seed
        self.steps: list[str] = []
        self._cluster = cluster
        self._chance = random.Random(f"faults {seed}")
        self._steps = cluster._call(_steps(cluster._cluster))
        self._steps.topics = dict(cluster.topics)

    def step(self, kind: str, *words: object, pause_s: float = 0.0) -> None:
        """Any step of the vocabulary (docs/scenarios.md), also those without a method here."""
        told = tuple(str(word) for word in words if word is not None)
        step = Step(kind.replace("-", "_"), self._chance.randrange(1 << 32), pause_s, told)
        self.steps.append(str(step))
        self._cluster._call(self._steps.take(step))

    def storm(self, seconds: float, *, pause_s: float = 0.5, kinds: tuple[str, ...] = DRAWN) -> None:
        """Steps drawn from the seed, one after another, for so long."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.step(self._chance.choice(kinds), pause_s=pause_s)

    # -- brokers

    def kill_broker(self, broker: int | None = None) -> None:
        """SIGKILL: it is missed when its session has ended."""
        self.step("kill_broker", broker)

    def stop_broker(self, broker: int | None = None) -> None:
        """A controlled shutdown: its leaders move first."""
        self.step("stop_broker", broker)

    def start_broker(self, broker: int | None = None) -> None:
        """One that does not run; comes back while your code goes on."""
        self.step("start_broker", broker)

    def bounce_broker(self, broker: int | None = None) -> None:
        """Gone and back before the controller has looked."""
        self.step("bounce_broker", broker)

    def pause_broker(self, broker: int | None = None, seconds: float = 3.0) -> None:
        """SIGSTOP; goes on by itself."""
        self.step("pause_broker", self._one(broker, self._cluster.brokers), seconds)

    def expire_broker(self, broker: int | None = None) -> None:
        """Its ZooKeeper session ends, while it goes on serving clients."""
        self.step("expire_broker", broker)

    def cut_broker(self, broker: int | None = None) -> None:
        """All its connections are reset; new ones work."""
        self.step("cut_broker", broker)

    def block_broker(self, broker: int | None = None) -> None:
        """It and the controller do not reach each other any more, though both reach ZooKeeper; until ``heal``."""
        self.step("block", self._one(broker, self._cluster.brokers))

    # -- controllers

    def kill_controller(self, controller: int | str = "active") -> None:
        """``active``, ``standby`` or a number."""
        self.step("kill_controller", controller)

    def stop_controller(self, controller: int | str = "active") -> None:
        """It gives the role back and ends."""
        self.step("stop_controller", controller)

    def start_controller(self, controller: int | None = None) -> None:
        self.step("start_controller", controller)

    def pause_controller(self, controller: int | str = "active", seconds: float = 6.0) -> None:
        """SIGSTOP; the session ends after 4 s."""
        self.step("pause_controller", controller, seconds)

    def expire_controller(self, controller: int | str = "active") -> None:
        self.step("expire_controller", controller)

    def cut_controller(self, controller: int | str = "active") -> None:
        self.step("cut_controller", controller)

    # -- links and ZooKeeper

    def restart_zookeeper(self, seconds: float = 1.0) -> None:
        """SIGKILL, and back after so long; of an ensemble, the server that leads."""
        self.step("restart_zookeeper", seconds)

    def pause_zookeeper(self, seconds: float = 2.0) -> None:
        """It takes connections and says nothing."""
        self.step("pause_zookeeper", seconds)

    def lag(self) -> None:
        """A link gets slow; until ``heal``."""
        self.step("lag")

    def heal(self) -> None:
        """All links carry, all processes run and go on.  ``KafkaCluster.wait_until_whole`` waits for the rest."""
        self.steps.append("heal")
        self._cluster._call(self._steps.heal_everything())

    def _one(self, named: int | None, among: list[int]) -> int:
        return self._chance.choice(among) if named is None else named


async def _steps(cluster: ProcessCluster) -> ProcessSteps:
    return ProcessSteps(cluster)
