"""The cluster of the false-alarm suite: four real brokers, an active controller, a standby, and links to cut.

    clients, brokers ──> brokers 1 to 4        half of the partitions are on 1, 2, 3, the others on 4, 2, 3
    controllers ──> control plane (broker 1: through a proxy) ──> brokers
    brokers ──> a proxy ──> controllers

Faults strike broker 1 or the active controller; broker 4 is killed meanwhile.  So no partition loses two replicas, and
the costs of the two events can be separated.
"""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from aiocontroller.journal.records import decode_record
from aiocontroller.lab.cluster.embedded_zookeeper import LOOPBACK, EmbeddedZooKeeper, free_port
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, RealKafkaCluster
from aiocontroller.lab.kafka.alarm_cases import Fault
from aiocontroller.lab.kafka.controllers import ClusterController, OurController, until
from aiocontroller.lab.kafka.links import OwnedProxy, Way
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

STRUCK, KILLED = 1, 4
REPLICAS = ((1, 2, 3), (4, 2, 3), (2, 3, 1), (2, 3, 4), (3, 1, 2), (3, 4, 2))
PROPERTIES = {
    "aiocontroller.early.broker.detection": "full",
    "aiocontroller.early.controller.detection": "full",
    "aiocontroller.early.fast.bounce.ms": "3000",
    "auto.leader.rebalance.enable": "false",
    "control.plane.listener.name": "CONTROL",
}
ACTIVE_ID, STANDBY_ID = 1_000_001, 1_000_002


class Instance(OurController):
    """One of the two controllers; brokers reach it through a proxy."""

    def __init__(
        self,
        stage: AlarmStage,
        controller_id: int,
        folder: Path,
        properties: Mapping[str, str],
    ) -> None:
        self.front = stage.fronts[controller_id]
        listening = {
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.front.target_port}",
            "advertised.listeners": f"PLAINTEXT://{self.front.address}",
        }
        super().__init__(
            stage.zk, stage.cluster.brokers, stage.zookeeper, folder, {**properties, **listening}, controller_id
        )
        self.folder = folder

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    async def is_active(self) -> bool:
        return await self._ours()

    def stop_or_go_on(self, number: signal.Signals) -> None:
        """Send SIGSTOP or SIGCONT."""
        assert self._child is not None
        self._child.send_signal(number)

    def alarms(self) -> list[int | None]:
        """Return the suspected broker of each alarm so far."""
        files = sorted((self.folder / "journal").glob("*.jsonl"))
        lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
        records = [decode_record(line) for line in lines if line.endswith(b"\n")]
        return [r.broker for r in records if (r.kind, r.event, r.state) == ("suspicion", "alarm", "broker")]


class AlarmStage:
    """The running cluster; ``begin_term`` restarts both controllers, so that their detectors begin without data."""

    def __init__(
        self,
        cluster: PlayedCluster,
        zk: KafkaZkClient,
        zookeeper: str,
        to_struck: OwnedProxy,
        fronts: Mapping[int, OwnedProxy],
        folder: Path,
        properties: Mapping[str, str],
    ) -> None:
        self.cluster = cluster
        self.zk = zk
        self.zookeeper = zookeeper
        self.to_struck = to_struck
        self.fronts = fronts
        self._folder = folder
        self._properties = properties
        self._terms = 0
        self.instances: list[Instance] = []
        """The controllers that were active and standby at the beginning of the term."""
        self.since_s = 0.0
        """The time at which the present controllers had started."""

    async def begin_term(self) -> None:
        for instance in reversed(self.instances):
            if instance.running:
                await instance.give_up()
        self._terms += 1
        active = self._instance(ACTIVE_ID, "takeover")
        standby = self._instance(STANDBY_ID, "standby")
        self.instances = [active, standby]
        await active.take()
        standby.launch()
        await until(standby.is_warm, "the standby is warm")
        self.since_s = time.monotonic()

    def _instance(self, controller_id: int, policy: str) -> Instance:
        properties = {**self._properties, "aiocontroller.takeover.policy": policy}
        folder = self._folder / f"term-{self._terms}" / str(controller_id)
        return Instance(self, controller_id, folder, properties)

    def begin(self, fault: Fault) -> None:
        active, struck = self.instances[0], self.cluster.brokers[STRUCK]
        if fault in (Fault.PAUSE, Fault.COLLECTOR):
            self.cluster.freeze(STRUCK)
        elif fault is Fault.CONTROLLER:
            active.stop_or_go_on(signal.SIGSTOP)
        elif fault is Fault.REQUESTS:
            self.to_struck.cut_process(active.pid, Way.REQUESTS)
        elif fault is Fault.ANSWERS:
            self.to_struck.cut_process(active.pid, Way.ANSWERS)
        elif fault is Fault.BROKERS_REQUESTS:
            assert struck.pid is not None
            active.front.cut_process(struck.pid, Way.REQUESTS)

    def end(self, fault: Fault) -> None:
        if fault in (Fault.PAUSE, Fault.COLLECTOR):
            self.cluster.thaw(STRUCK)
        elif fault is Fault.CONTROLLER:
            self.instances[0].stop_or_go_on(signal.SIGCONT)
        for proxy in (self.to_struck, *self.fronts.values()):
            proxy.heal()

    def alarms(self) -> list[int | None]:
        """Return the suspected broker of each alarm of this term."""
        return [broker for instance in self.instances for broker in instance.alarms()]

    def close(self) -> None:
        for instance in self.instances:
            instance.close()


class _Unmanaged(ClusterController):
    """A controller that does nothing, since the stage starts and ends the controllers."""

    name = "aiocontroller"


@asynccontextmanager
async def alarm_stage(
    folder: Path, version: str, kinds: Sequence[str], partitions: int, properties: Mapping[str, str]
) -> AsyncIterator[AlarmStage]:
    """Start everything but the controllers, and clients of these kinds."""
    async with AsyncExitStack() as stack:
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        await zookeeper.start_async()
        stack.callback(zookeeper.kill)
        started = RealKafkaCluster(KILLED, zookeeper.address, folder, version=version, overrides=AS_SHIPPED)
        stack.callback(started.kill)
        to_struck = await _opened(stack, free_port())
        for broker in started.brokers.values():
            _give_a_control_plane(broker, to_struck)
        await started.start_async()
        client = ZooKeeperClient(zookeeper.address, world=real_world(), session_timeout_s=30)
        await client.start(30)
        stack.push_async_callback(client.close)
        fronts = {number: await _opened(stack, free_port()) for number in (ACTIVE_ID, STANDBY_ID)}
        cluster = PlayedCluster(started.brokers, {"aiocontroller": _Unmanaged()})
        stack.callback(cluster.close)
        stage = AlarmStage(
            cluster, KafkaZkClient(client), zookeeper.address, to_struck, fronts, folder, {**PROPERTIES, **properties}
        )
        stack.callback(stage.close)
        await cluster.open_load(kinds, partitions, folder / "load", version, replicas=REPLICAS)
        yield stage


async def _opened(stack: AsyncExitStack, target_port: int) -> OwnedProxy:
    proxy = OwnedProxy(target_port)
    await proxy.start()
    stack.push_async_callback(proxy.close)
    return proxy


def _give_a_control_plane(broker: RealKafkaBroker, to_struck: OwnedProxy) -> None:
    broker.port = free_port()
    port = to_struck.target_port if broker.id == STRUCK else free_port()
    seen = to_struck.port if broker.id == STRUCK else port
    broker.overrides |= {
        "listeners": f"PLAINTEXT://{broker.address},CONTROL://{LOOPBACK}:{port}",
        "advertised.listeners": f"PLAINTEXT://{broker.address},CONTROL://{LOOPBACK}:{seen}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
