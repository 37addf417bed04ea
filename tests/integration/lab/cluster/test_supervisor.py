"""A whole local cluster: it comes up, obeys commands, and leaves nothing behind, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.data_folder import LOCK_FILE, FolderInUseError, FolderLock
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.processes import ChildFailedError
from aiocontroller.lab.cluster.supervisor import (
    CLUSTER_FILE,
    ClusterNotRunningError,
    ClusterOptions,
    ClusterSupervisor,
    CommandError,
    read_cluster_file,
    send_command,
)
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient

pytestmark = pytest.mark.zookeeper


def options(data_dir: Path, **more: Any) -> ClusterOptions:
    return ClusterOptions(
        data_dir=data_dir,
        topics=2,
        partitions=3,
        broker_session_timeout_ms=2000,
        controller_properties={"zookeeper.session.timeout.ms": "2000", "leader.imbalance.check.interval.seconds": "1"},
        **more,
    )


async def eventually(condition: Callable[[], Any], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterSupervisor]:
    supervisor = ClusterSupervisor(options(tmp_path))
    await supervisor.start()
    yield supervisor
    await supervisor.stop()


async def leaderships(cluster: ClusterSupervisor) -> list[LeaderAndIsr]:
    topics = [f"topic-{n}" for n in range(2) for _ in range(3)]
    found = await cluster.zk.get_topic_partition_states(topics, [0, 1, 2] * 2)
    return [each for each in found if isinstance(each, LeaderAndIsr)]


async def send(
    cluster: ClusterSupervisor, command: str, broker: int | None = None, mode: str | None = None
) -> dict[str, Any]:
    return await asyncio.to_thread(send_command, cluster.options.data_dir, command, broker=broker, mode=mode)


async def test_a_cluster_lives_through_every_command(cluster: ClusterSupervisor) -> None:
    before = await leaderships(cluster)
    assert len(before) == 6
    assert {each.isr for each in before} <= {(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2), (2, 1, 3), (3, 2, 1)}
    port = cluster.snapshot().brokers[2].port

    killed = await send(cluster, "kill-broker", 2)
    assert "SIGKILL" in killed["done"]

    async def two_left() -> bool:
        states = await leaderships(cluster)
        return all(each.leader != 2 and 2 not in each.isr for each in states)

    await eventually(two_left)
    after = await leaderships(cluster)
    assert [each.leader_epoch for each in after] == [each.leader_epoch + 1 for each in before]

    await send(cluster, "start-broker", 2)
    assert cluster.snapshot().brokers[2].port == port

    async def balanced_again() -> bool:
        states = await leaderships(cluster)
        return all(len(each.isr) == 3 for each in states) and [s.leader for s in states] == [b.leader for b in before]

    await eventually(balanced_again)

    stopped = await send(cluster, "stop-broker", 3)
    assert "exit code 0" in stopped["done"]
    assert all(each.leader != 3 for each in await leaderships(cluster))
    with pytest.raises(CommandError, match="broker 3 does not run"):
        await send(cluster, "kill-broker", 3)
    await send(cluster, "start-broker", 3)
    restarted = await send(cluster, "restart-broker", 3)
    assert re.fullmatch(r"broker 3 shut down .*; broker 3 runs again \(process \d+\)", restarted["done"])

    epoch = (await cluster.zk.get_controller_epoch() or (0, 0))[0]
    await send(cluster, "kill-zookeeper-session")

    async def elected_again() -> bool:
        return (await cluster.zk.get_controller_epoch() or (0, 0))[0] > epoch

    await eventually(elected_again)
    await send(cluster, "kill-controller")
    assert not cluster.snapshot().controller.running
    with pytest.raises(CommandError, match="the controller does not run"):
        await send(cluster, "kill-zookeeper-session")
    await send(cluster, "start-controller")
    await eventually(balanced_again)


async def test_commands_that_cannot_be_done_say_why(tmp_path: Path) -> None:
    async with ClusterSupervisor(options(tmp_path, brokers=1, replication_factor=1)) as cluster:
        await refusals(cluster)
        status = await send(cluster, "status")
    assert status["controller"]["running"]
    assert sorted(status["brokers"]) == ["1"]


async def refusals(cluster: ClusterSupervisor) -> None:
    for command, broker, why in (
        ("start-broker", 1, r"broker 1 runs already \(process \d+\)"),
        ("start-broker", 9, "broker id: found 9, expected one of 1, or the next higher"),
        ("stop-broker", 9, "broker id: found 9, expected one of 1"),
        ("kill-broker", None, "found no broker id"),
        ("start-controller", None, "the controller runs already"),
        ("dance", None, "command: found 'dance', expected one of kill-broker"),
    ):
        with pytest.raises(CommandError, match=why):
            await send(cluster, command, broker)
    for command, broker, mode, why in (
        ("start-kraft-controller", None, None, "brokers: found simulated ones, which do not migrate"),
        ("start-broker", 2, "kraft", "brokers: found simulated ones, which do not migrate"),
        ("start-broker", 2, "raft", "command: found Invalid enum value 'raft'"),
    ):
        with pytest.raises(CommandError, match=why):
            await send(cluster, command, broker, mode)


async def test_a_folder_whose_cluster_kraft_has_claimed_is_refused(tmp_path: Path) -> None:
    """Brokers in ZooKeeper mode would never get a controller, and the start would wait for it in vain."""
    zookeeper = EmbeddedZooKeeper(tmp_path / "zookeeper")
    await zookeeper.start_async()
    try:
        client = ZooKeeperClient(zookeeper.address, world=real_world())
        await client.start()
        holder = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}'
        await client.create("/controller", holder)
        await client.close()
    finally:
        await zookeeper.stop_async()
    cluster = ClusterSupervisor(options(tmp_path, brokers=1, replication_factor=1))
    with pytest.raises(CommandError, match="found a cluster that KRaft has claimed: delete the folder to begin anew"):
        await cluster.start()
    assert not (tmp_path / LOCK_FILE).exists()
    assert not cluster.snapshot().zookeeper.running


async def test_one_cluster_for_each_folder_and_nothing_left_after_it(tmp_path: Path) -> None:
    cluster = ClusterSupervisor(options(tmp_path, brokers=1, replication_factor=1))
    with pytest.raises(ClusterNotRunningError, match="start one with scripts/up"):
        read_cluster_file(tmp_path)
    await cluster.start()
    try:
        with pytest.raises(FolderInUseError, match=rf"process {os.getpid()} has the folder .* already"):
            await ClusterSupervisor(options(tmp_path)).start()
        contents = read_cluster_file(tmp_path)
        assert contents.zookeeper == cluster.zookeeper_address
        assert (tmp_path / CLUSTER_FILE).stat().st_mode & 0o077 == 0
        assert all(alive(pid) for pid in contents.processes.values())
        assert set(contents.processes) == {"zookeeper", "controller", "broker-1"}
        unknown = msgspec.structs.replace(contents, token="wrong")
        (tmp_path / CLUSTER_FILE).write_bytes(msgspec.json.encode(unknown))
        with pytest.raises(CommandError, match="wrong token"):
            await send(cluster, "status")
    finally:
        started = time.monotonic()
        await cluster.stop()
    assert time.monotonic() - started < 25
    assert not any(alive(pid) for pid in contents.processes.values())
    assert not (tmp_path / CLUSTER_FILE).exists()
    assert not (tmp_path / LOCK_FILE).exists()
    assert (tmp_path / "broker-1" / "log").read_text().count("controlled shutdown") == 0


async def test_a_supervisor_that_is_killed_takes_everything_along(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, pathlib\n"
        "from aiocontroller.lab.cluster.supervisor import ClusterOptions, ClusterSupervisor\n"
        "async def main():\n"
        "    options = ClusterOptions(data_dir=pathlib.Path(sys.argv[1]), brokers=1, topics=1, replication_factor=1)\n"
        "    await ClusterSupervisor(options).start()\n"
        "    print('up', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        assert await asyncio.to_thread(up.stdout.readline) == "up\n"
        processes = read_cluster_file(tmp_path).processes
        assert len(processes) == 3
        up.send_signal(signal.SIGKILL)
        up.wait()
    await eventually(lambda: not any(alive(pid) for pid in processes.values()))
    with pytest.raises(ClusterNotRunningError, match=rf"left over from process {up.pid}, which is gone"):
        send_command(tmp_path, "status")
    lock = FolderLock(tmp_path)
    lock.acquire()
    lock.release()


async def test_a_child_that_does_not_come_up_ends_the_start(tmp_path: Path) -> None:
    cluster = ClusterSupervisor(options(tmp_path, brokers=1, replication_factor=1, http_port=99_999))
    with pytest.raises(ChildFailedError, match=r"controller ended with .*before it was ready"):
        await cluster.start()
    assert not (tmp_path / LOCK_FILE).exists()
    assert not cluster.snapshot().zookeeper.running
