"""The controllers of a cluster: one of the brokers, aiocontroller, or a KRaft quorum.

The role can be taken and given back (where that means something), its holder killed by SIGKILL, and restored.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.cluster.kraft import KRaftCluster
from aiocontroller.lab.cluster.processes import Child, ChildFailedError
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.lab.kafka.programs import THIS
from aiocontroller.lab.kafka.view import controller_named_by
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

OUR_ID = 1_000_001
WITHIN_S = 120.0
_POLL_S = 0.02


async def until(condition: Callable[[], Awaitable[Any]], what: str, within_s: float = WITHIN_S) -> Any:
    """Wait until the condition holds and return its result.  Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not (found := await condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(_POLL_S)
    return found


class ClusterController:
    """One cluster's controller.  The base class is for a role that is held from the start and cannot be taken."""

    name = "?"

    async def take(self) -> None:
        """Take the role."""

    async def give(self) -> None:
        """Leave the role to the brokers."""

    async def kill(self) -> frozenset[int]:
        """Kill the active controller by SIGKILL, and return the brokers that died with it."""
        raise NotImplementedError

    async def succeeded(self) -> None:
        """Wait until another controller is active after ``kill``."""
        raise NotImplementedError

    async def restore(self) -> None:
        """Take the role again and restart everything that was running."""

    def close(self) -> None:
        """End the processes that it started."""


class ZooKeeperController(ClusterController):
    """A controller that holds ``/controller``."""

    def __init__(self, zk: KafkaZkClient, brokers: Mapping[int, RealKafkaBroker]) -> None:
        self.zk = zk
        self.brokers = brokers
        self._epoch_before = 0

    async def holder(self) -> int | None:
        found = await self.zk.get_controller(watch=False)
        return getattr(found, "controller_id", None)

    async def epoch(self) -> int:
        found = await self.zk.get_controller_epoch()
        return 0 if found is None else found[0]

    async def held_by_a_broker(self) -> bool:
        return await self.holder() in self.brokers

    async def succeeded(self) -> None:
        async def newer() -> bool:
            return await self.epoch() > self._epoch_before and await self.holder() is not None

        await until(newer, "another controller")


class BrokerAsController(ZooKeeperController):
    """The controller inside one of the brokers; ``take`` and ``give`` make the brokers elect a new one."""

    name = "kafka"

    async def take(self) -> None:
        await self._reelect()

    async def give(self) -> None:
        await self._reelect()

    async def kill(self) -> frozenset[int]:
        self._epoch_before = await self.epoch()
        holder = await self.holder()
        assert holder is not None and holder in self.brokers, f"{holder} holds /controller, which is no broker"
        self.brokers[holder].kill()
        return frozenset((holder,))

    async def _reelect(self) -> None:
        self._epoch_before = await self.epoch()
        try:
            await self.zk.client.delete("/controller")
        except exc.NoNode:
            pass  # another broker is about to win the election
        await self.succeeded()


class OurController(ZooKeeperController):
    """An aiocontroller process; it takes over when it starts and releases when it stops."""

    name = "aiocontroller"

    def __init__(
        self,
        zk: KafkaZkClient,
        brokers: Mapping[int, RealKafkaBroker],
        zookeeper: str,
        folder: Path,
        properties: Mapping[str, str],
        controller_id: int = OUR_ID,
    ) -> None:
        super().__init__(zk, brokers)
        self.controller_id = controller_id
        self.folder = folder
        self._zookeeper = zookeeper
        self.properties = {"aiocontroller.takeover.policy": "takeover", **properties}
        self.program = THIS
        """The version that is started."""
        self._child: Child | None = None
        self._wanted = False

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def launch(self) -> None:
        """Start the process without waiting; it is a standby while another controller is active."""
        assert not self.running
        self._wanted = True
        own = ["--id", str(self.controller_id), "--http-port", "0", "--data", str(self.folder)]
        command = [*self.program.command, "run", "--zookeeper", self._zookeeper, *own]
        for key, value in self.properties.items():
            command += ["--property", f"{key}={value}"]
        self._child = Child("aiocontroller", command, log=self.folder / "log", env=self.program.env)

    async def take(self) -> None:
        self.launch()
        await until(self._ours, "aiocontroller holds /controller")
        await until(self.is_known, "every broker names aiocontroller as the controller")

    async def take_through(self, zookeeper: str) -> None:
        """Take the role with ZooKeeper at this address for as long as the process runs."""
        usual, self._zookeeper = self._zookeeper, zookeeper
        try:
            await self.take()
        finally:
            self._zookeeper = usual

    async def give(self) -> None:
        await self.give_up()
        await until(self.held_by_a_broker, "a broker holds /controller")

    async def give_up(self) -> None:
        """Stop the process without waiting for a successor."""
        assert self._child is not None
        self._wanted = False
        await self._child.stop_async(30)

    async def kill(self) -> frozenset[int]:
        assert self._child is not None
        self._epoch_before = await self.epoch()
        self._child.kill()
        return frozenset()

    async def restore(self) -> None:
        if self._wanted and not self.running:
            await until(self.held_by_a_broker, "a broker holds /controller")
            await self.take()

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()

    def forget_address(self) -> None:
        """Remove the previous process's address, before the next one starts."""
        (self.folder / READY_FILE).unlink(missing_ok=True)

    async def is_warm(self) -> bool:
        """Whether it is a standby whose copy of the cluster is complete."""
        status = await asyncio.to_thread(self._status)
        return bool(status and status["standby"]["state"] == "warm")

    async def could_take_over(self) -> bool:
        """Whether it is warm and ready for election."""
        status = await asyncio.to_thread(self._status)
        return bool(status and status["standby"]["state"] == "warm" and status["readiness"]["ready"])

    async def ask_to_take_over(self) -> None:
        """Run ``aiocontroller takeover``, as an operator does if a broker has the role.

        ChildFailedError with the command's output if it fails.
        """
        command = [*self.program.command, "takeover", "--data", str(self.folder)]
        asked = Child("aiocontroller takeover", command, log=self.folder / "takeover.log", env=self.program.env)
        if not await asked.ended(WITHIN_S) or asked.exit_code:
            raise ChildFailedError(asked.log_tail())

    def _status(self) -> Any:
        """Return the controller's ``/status``; None while it does not answer."""
        try:
            ready = msgspec.json.decode((self.folder / READY_FILE).read_bytes(), type=ControllerReady)
            with urllib.request.urlopen(f"{ready.http}/status", timeout=5) as answer:
                return msgspec.json.decode(answer.read())
        except (OSError, urllib.error.URLError):
            return None

    async def is_known(self) -> bool:
        """Whether every running broker names it as the controller."""
        running = [broker.address for broker in self.brokers.values() if broker.running]
        named = [await asyncio.to_thread(controller_named_by, address) for address in running]
        return set(named) == {self.controller_id}

    async def _ours(self) -> bool:
        assert self._child is not None
        assert self._child.running, f"aiocontroller ended:\n{self._child.log_tail()}"
        return await self.holder() == self.controller_id


class ControllerPair(ZooKeeperController):
    """Two aiocontroller processes, an active one and a standby; ``take`` returns when the standby is warm."""

    name = "pair"

    def __init__(self, first: OurController, second: OurController) -> None:
        super().__init__(first.zk, first.brokers)
        self.first = first
        self.instances = {each.controller_id: each for each in (first, second)}

    async def take(self) -> None:
        await self.first.take()
        await self.restore()

    async def give(self) -> None:
        for instance in self.instances.values():
            if instance.running:
                await instance.give_up()
        await until(self.held_by_a_broker, "a broker holds /controller")

    async def kill(self) -> frozenset[int]:
        self._epoch_before = await self.epoch()
        holder = await self.holder()
        assert holder in self.instances, f"{holder} holds /controller, which is none of the pair"
        await self.instances[holder].kill()
        return frozenset()

    async def succeeded(self) -> None:
        async def by_the_other() -> bool:
            return await self.epoch() > self._epoch_before and await self.holder() in self.instances

        await until(by_the_other, "the standby holds /controller")

    async def restore(self) -> None:
        for instance in self.instances.values():
            if not instance.running:
                instance.forget_address()
                instance.launch()
                await until(instance.is_warm, "the standby is warm")

    def close(self) -> None:
        for instance in self.instances.values():
            instance.close()


class KRaftController(ClusterController):
    """A quorum of three dedicated KRaft controllers."""

    name = "kraft"

    def __init__(self, cluster: KRaftCluster) -> None:
        self.cluster = cluster
        self._dead: int | None = None

    async def leader(self) -> int | None:
        return await asyncio.to_thread(self._leader)

    async def kill(self) -> frozenset[int]:
        self._dead = await until(self.leader, "an active KRaft controller")
        self.cluster.controllers[self._dead].kill()
        return frozenset()

    async def succeeded(self) -> None:
        async def other() -> bool:
            return await self.leader() not in (None, self._dead)

        await until(other, "another KRaft controller")

    async def restore(self) -> None:
        for node in self.cluster.controllers.values():
            if not node.running:
                await node.start_async()

    def _leader(self) -> int | None:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        running = ",".join(broker.address for broker in self.cluster.brokers.values() if broker.running)
        try:
            admin = KafkaAdminClient(bootstrap_servers=running, request_timeout_ms=5000)
        except KafkaError:
            return None
        try:
            quorum = admin.describe_metadata_quorum()
            found = int(quorum["topics"][0]["partitions"][0]["leader_id"])
        except (KafkaError, LookupError):
            return None
        finally:
            admin.close()
        return None if found < 0 else found
