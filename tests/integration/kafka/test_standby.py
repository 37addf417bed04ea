"""The active instance is killed repeatedly: the standby becomes the controller, not a broker."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from tests.integration.kafka.conftest import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(600)]

KILLS = 5


class Instances:
    """An active instance and its standby, with default settings except these; each has an id of its own."""

    def __init__(self, stage: PlayedCluster, kafka: KafkaCluster, folder: Path, policy: str, standby: str) -> None:
        ours = stage.controllers["aiocontroller"]
        assert isinstance(ours, OurController)
        self.first = ours
        self._kafka, self._folder, self._policy, self._standby = kafka, folder, policy, standby
        self.started: list[OurController] = []

    async def start(self, policy: str | None = None) -> OurController:
        """Start an instance; return when it is the controller, or a standby that is ready, and warm if it should be."""
        controller_id = 1_000_010 + len(self.started)
        folder = self._folder / str(controller_id)
        folder.mkdir()
        properties = {
            "aiocontroller.takeover.policy": policy or self._policy,
            "aiocontroller.standby": self._standby,
        }
        brokers = self._kafka.brokers.brokers
        instance = OurController(
            self.first.zk, brokers, self._kafka.zookeeper.address, folder, properties, controller_id=controller_id
        )
        self.started.append(instance)
        instance.launch()
        await until(lambda: asyncio.to_thread(_ready, folder), f"instance {controller_id} is ready")
        if policy is None and self._standby == "warm":
            await until(instance.is_warm, f"instance {controller_id} is warm")
        return instance

    async def went_on_with_its_copy(self, instance: OurController) -> bool:
        """Whether its failover was a warm one; waits until everything has been sent to all brokers."""
        log = self._folder / str(instance.controller_id) / "log"

        async def is_over() -> bool:
            logged = log.read_text()
            return "partitions to all brokers" in logged or self._standby == "cold"

        await until(is_over, "the failover is over")
        return "Failing over with the copy of the cluster" in log.read_text()

    async def active(self) -> OurController:
        instance = await self.start("takeover")
        await until(instance._ours, "it holds /controller")
        return instance

    def end(self) -> None:
        for instance in self.started:
            instance.close()


def _ready(folder: Path) -> bool:
    try:
        ready = msgspec.json.decode((folder / READY_FILE).read_bytes(), type=ControllerReady)
        with urllib.request.urlopen(f"{ready.http}/readyz", timeout=5) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return False
    except OSError:
        return False


def skip_when_overloaded() -> None:
    """Skip the test on an overloaded machine, at its start and after a lost vacancy: that would prove nothing."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > 2 * processors:
        pytest.skip(f"a race between processes that wait for a processor (load {load:.0f}, {processors} processors)")


@asynccontextmanager
async def instances(
    stage: PlayedCluster, kafka: KafkaCluster, folder: Path, policy: str, standby: str
) -> AsyncIterator[Instances]:
    made = Instances(stage, kafka, folder, policy, standby)
    try:
        yield made
    finally:
        made.end()
        await until(made.first.held_by_a_broker, "a broker holds /controller again")


@pytest.mark.parametrize("standby_is", ["warm", "cold"])
async def test_active_instance_is_killed_five_times(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path, standby_is: str
) -> None:
    """The epoch has risen by one each time, so no broker was the controller in between."""
    skip_when_overloaded()
    async with instances(stage, kafka, tmp_path, "wait", standby_is) as them:
        active = await them.active()
        outcomes: list[str] = []
        for _ in range(KILLS):
            standby = await them.start()
            await active.kill()
            await active.succeeded()
            won = await standby._ours() and await active.epoch() == active._epoch_before + 1
            outcomes.append("standby" if won else "broker")
            if won:
                assert await them.went_on_with_its_copy(standby) == (standby_is == "warm")
            if not won:
                skip_when_overloaded()
                standby.close()
            active = standby if won else await them.active()
        assert outcomes == ["standby"] * KILLS


@pytest.mark.parametrize("standby_is", ["warm", "cold"])
async def test_standby_takes_the_role_back_from_a_broker(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path, standby_is: str
) -> None:
    """It is suspended during the vacancy, so that a broker is faster."""
    async with instances(stage, kafka, tmp_path, "standby", standby_is) as them:
        active = await them.active()
        standby = await them.start()
        assert standby._child is not None
        await active.kill()
        standby._child.send_signal(signal.SIGSTOP)
        try:
            await until(active.held_by_a_broker, "a broker holds /controller")
        finally:
            standby._child.send_signal(signal.SIGCONT)
        try:
            await until(standby._ours, "the standby has taken the role back")
        except TimeoutError as error:
            raise AssertionError(f"{error}; it says:\n{standby._child.log_tail()}") from error
        assert await active.epoch() == active._epoch_before + 2
