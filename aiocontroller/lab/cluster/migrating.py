"""A ZooKeeper-mode cluster on its way to KRaft (KIP-866), as child processes on loopback.

It has one dedicated KRaft controller, and brokers that are restarted in one mode after the other: with ZooKeeper alone,
in migration mode, and with KRaft.  ``finalize`` restarts the controller without ZooKeeper.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from aiocontroller.lab.cluster.kraft import CLUSTER_ID, KRaftNode
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, START_TIMEOUT_S, RealKafkaBroker

CONTROLLER_ID = 3000
STOP_WITHIN_S = 120.0
"""If a broker takes longer and is killed, it must recover its logs."""
_LISTENERS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


class Mode(StrEnum):
    """How a broker is configured."""

    ZOOKEEPER = "zookeeper"
    MIGRATION = "migration"
    KRAFT = "kraft"


class MigratingBroker(RealKafkaBroker):
    """A broker that starts in ``mode``; ``voters`` as in ``controller.quorum.voters``."""

    mode = Mode.ZOOKEEPER
    voters = ""

    def properties(self) -> dict[str, str]:
        found = super().properties()
        if self.mode is Mode.ZOOKEEPER:
            return found
        found |= _LISTENERS | {"controller.quorum.voters": self.voters}
        if self.mode is Mode.MIGRATION:
            return found | {"zookeeper.metadata.migration.enable": "true"}
        kept = {k: v for k, v in found.items() if k not in ("broker.id", "inter.broker.protocol.version")}
        return {k: v for k, v in kept.items() if not k.startswith("zookeeper.")} | {
            "process.roles": "broker",
            "node.id": str(self.id),
        }


class MigrationController(KRaftNode):
    """The KRaft controller, which migrates what ``zookeeper`` holds until it is restarted without it."""

    def __init__(self, zookeeper: str, data_dir: Path, *, version: str = DEFAULT_VERSION) -> None:
        super().__init__(CONTROLLER_ID, "controller", {CONTROLLER_ID: free_port()}, data_dir, version=version)
        self.source = zookeeper
        self.migrates = True

    def properties(self) -> dict[str, str]:
        found = super().properties() | {"inter.broker.listener.name": "PLAINTEXT"}
        if not self.migrates:
            return found
        return found | {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": self.source}

    @property
    def voter(self) -> str:
        """The quorum as in ``controller.quorum.voters``."""
        return f"{CONTROLLER_ID}@{self.address}"

    def format(self, cluster_id: str = CLUSTER_ID) -> None:
        """As for every node, but without what an earlier migration has left: such a controller claims no cluster."""
        shutil.rmtree(self.data_dir / "logs", ignore_errors=True)
        super().format(cluster_id)

    def raise_epoch(self, epoch: int) -> None:
        """Make the next leader's epoch begin above ``epoch``, as after many elections; only while it is stopped."""
        state = self.data_dir / "logs" / "__cluster_metadata-0" / "quorum-state"
        state.write_text(re.sub(r'"leaderEpoch":\d+', f'"leaderEpoch":{epoch}', state.read_text()))


class MigratingCluster:
    """Brokers with ids from 1, and the KRaft controller that will take them over."""

    def __init__(
        self,
        size: int,
        zookeeper: str,
        folder: Path,
        *,
        version: str = DEFAULT_VERSION,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.controller = MigrationController(zookeeper, folder / "kraft", version=version)
        self.brokers: dict[int, MigratingBroker] = {}
        for number in range(1, size + 1):
            place = folder / f"broker-{number}"
            broker = MigratingBroker(
                number, zookeeper, place, version=version, replication_factor=min(3, size), overrides=overrides
            )
            broker.voters = self.controller.voter
            self.brokers[number] = broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    async def start_async(self) -> None:
        """Start all brokers with ZooKeeper alone."""
        for broker in self.brokers.values():
            await broker.start_async()

    async def provision(self, cluster_id: str, *, epoch: int = 0) -> None:
        """Start the KRaft controller for the cluster with this id; its first epoch is above ``epoch``."""
        await asyncio.to_thread(self.controller.format, cluster_id)
        await self.controller.start_async()
        if epoch:
            await self.controller.stop_async()
            self.controller.raise_epoch(epoch)
            await self.controller.start_async()

    async def restart(self, number: int, mode: Mode) -> None:
        """Shut a broker down cleanly and start it in another mode."""
        broker = self.brokers[number]
        await broker.stop_async(STOP_WITHIN_S)
        broker.mode = mode
        await broker.start_async(START_TIMEOUT_S)

    async def finalize(self) -> None:
        """Restart the controller without ZooKeeper, after which there is no way back."""
        await self.controller.stop_async()
        self.controller.migrates = False
        await self.controller.start_async()

    def kill(self) -> None:
        for node in (*self.brokers.values(), self.controller):
            node.kill()
