"""Kafka in KRaft mode, as child processes on loopback, for comparison with ZooKeeper-mode clusters.

Brokers and controllers are separate processes, so that one can die without the other.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aiocontroller.java import SMALL_JVM, find_java
from aiocontroller.lab.cluster.embedded_zookeeper import LOOPBACK, free_port
from aiocontroller.lab.cluster.processes import ChildFailedError
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, START_TIMEOUT_S, RealKafkaBroker, kafka_jars

FIRST_CONTROLLER = 3001
CLUSTER_ID = "YWlvY29udHJvbGxlci1jbA"
"""16 bytes in URL-safe base64, as Kafka requires."""


class KRaftNode(RealKafkaBroker):
    """A broker or a controller of a KRaft cluster.  ``voters`` are the ports of the controllers by their ids."""

    def __init__(
        self,
        node_id: int,
        role: str,
        voters: Mapping[int, int],
        data_dir: Path,
        *,
        version: str = DEFAULT_VERSION,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        assert role in ("broker", "controller"), role
        port = voters[node_id] if role == "controller" else 0
        super().__init__(node_id, "", data_dir, version=version, port=port, replication_factor=3, overrides=overrides)
        self.role = role
        self.voters = dict(voters)

    def properties(self) -> dict[str, str]:
        inherited = {k: v for k, v in super().properties().items() if k != "broker.id" and "zookeeper" not in k}
        listener = "CONTROLLER" if self.role == "controller" else "PLAINTEXT"
        return inherited | {
            "process.roles": self.role,
            "node.id": str(self.id),
            "listeners": f"{listener}://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{n}@{LOOPBACK}:{port}" for n, port in self.voters.items()),
        }

    def format(self, cluster_id: str = CLUSTER_ID) -> None:
        """Write the storage's first metadata; required before the first start."""
        self.port = self.port or free_port()
        self.write_settings()
        tool = [str(find_java()), *SMALL_JVM, "-cp", f"{kafka_jars(self.version)}/*", "kafka.tools.StorageTool"]
        run = subprocess.run(
            [*tool, "format", "--cluster-id", cluster_id, "--config", str(self.settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise ChildFailedError(f"cannot format the storage of KRaft node {self.id}: {run.stdout}{run.stderr}")


class KRaftCluster:
    """``size`` brokers with ids from 1 and three controllers."""

    def __init__(
        self,
        size: int,
        data_dir: Path,
        *,
        version: str = DEFAULT_VERSION,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        voters = {FIRST_CONTROLLER + n: free_port() for n in range(3)}

        def node(node_id: int, role: str) -> KRaftNode:
            folder = data_dir / f"{role}-{node_id}"
            return KRaftNode(node_id, role, voters, folder, version=version, overrides=overrides)

        self.controllers: dict[int, RealKafkaBroker] = {n: node(n, "controller") for n in voters}
        self.brokers: dict[int, RealKafkaBroker] = {n: node(n, "broker") for n in range(1, size + 1)}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    async def start_async(self, timeout_s: float = START_TIMEOUT_S) -> None:
        nodes = [*self.controllers.values(), *self.brokers.values()]
        for node in nodes:
            assert isinstance(node, KRaftNode)
            await asyncio.to_thread(node.format)
        children = [node.launch() for node in nodes]
        for node, child in zip(nodes, children, strict=True):
            await child.wait_until_async(node.answers, timeout_s)

    def kill(self) -> None:
        for node in [*self.brokers.values(), *self.controllers.values()]:
            node.kill()
