"""Early detection among processes: what is killed by SIGKILL is succeeded while its ZooKeeper session still lives.

Sessions last 18 s here, as shipped.  What is compared is the order of events, not a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from aiocontroller.core.ids import Broker, LeaderAndIsr
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.supervisor import ClusterOptions, ClusterSupervisor
from tests.integration.controller.harness import until

pytestmark = pytest.mark.zookeeper

SESSION_MS = 18_000
EARLY = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "aiocontroller.early.broker.detection": "refused",
    "aiocontroller.early.controller.detection": "refused",
}
STANDBY_ID = 1_000_002
VICTIM = 2


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterSupervisor]:
    options = ClusterOptions(
        data_dir=tmp_path / "cluster",
        topics=2,
        partitions=3,
        broker_session_timeout_ms=SESSION_MS,
        zookeeper_tick_ms=1000,
        controller_properties=EARLY,
    )
    async with ClusterSupervisor(options) as cluster:
        yield cluster


async def states(cluster: ClusterSupervisor) -> list[LeaderAndIsr]:
    topics = [f"topic-{n}" for n in range(2) for _ in range(3)]
    found = await cluster.zk.get_topic_partition_states(topics, [0, 1, 2] * 2)
    return [each for each in found if isinstance(each, LeaderAndIsr)]


async def test_the_killed_are_succeeded_while_their_sessions_live(cluster: ClusterSupervisor, tmp_path: Path) -> None:
    standby = await stand_by(cluster, tmp_path)
    try:
        await a_killed_broker_loses_its_leaders(cluster)
        await a_killed_controller_is_succeeded(cluster, tmp_path)
    finally:
        await standby.stop_async(10)


async def a_killed_broker_loses_its_leaders(cluster: ClusterSupervisor) -> None:
    registered = await cluster.zk.get_broker(VICTIM, watch=False)
    assert isinstance(registered, Broker)
    assert any(state.leader == VICTIM for state in await states(cluster))
    await cluster.execute("kill-broker", VICTIM)

    async def moved() -> bool:
        return all(s.leader != VICTIM and VICTIM not in s.isr for s in await states(cluster))

    await until(moved, "everything has moved off the dead broker")
    assert await cluster.zk.get_broker(VICTIM, watch=False) == registered, "its session has not even expired"


async def a_killed_controller_is_succeeded(cluster: ClusterSupervisor, tmp_path: Path) -> None:
    await cluster.execute("kill-controller")
    killed_s = time.monotonic()

    async def succeeded() -> bool:
        holder = await cluster.zk.get_controller(watch=False)
        return getattr(holder, "controller_id", None) == STANDBY_ID

    await until(succeeded, "the other controller holds /controller")
    assert time.monotonic() - killed_s < SESSION_MS / 1000 - 2
    epoch = await cluster.zk.get_controller_epoch()
    assert epoch is not None
    assert epoch[0] == 2
    await until(lambda: "Ready to serve as the new controller" in (tmp_path / "standby.log").read_text())


async def stand_by(cluster: ClusterSupervisor, folder: Path) -> Child:
    """Another controller, once all brokers have answered their settings: a dead one that has not would keep it out."""
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", cluster.zookeeper_address]
    command += ["--id", str(STANDBY_ID), "--data", str(folder / "standby")]
    for key, value in EARLY.items():
        command += ["--property", f"{key}={value}"]
    standby = Child("standby", command, log=folder / "standby.log")
    ready = folder / "standby" / "controller.json"
    await standby.wait_until_async(ready.exists, 30)
    url = msgspec.json.decode(ready.read_bytes())["http"]

    async def watching() -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/status") as response:
            status = await response.json()
        return status["standing_by_for"] is not None and status["readiness"]["ready"]

    await until(watching, "it has heard of the one active and of all brokers")
    return standby
