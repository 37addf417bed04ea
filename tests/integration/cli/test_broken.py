"""``topics list --offline`` and its like: of a controller that is in charge, and of what ZooKeeper holds."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.data_folder import FolderLock
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.integration.cli.program import aiocontroller
from tests.integration.controller.harness import Cluster, running, until


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        yield cluster


def described(service: Service, zk_connect: str, folder: Path) -> Path:
    """The folder of the controller, as ``run --data`` leaves it."""
    FolderLock(folder).acquire()
    address = f"http://127.0.0.1:{service.http_port}"
    ready = ControllerReady(service.shell.id, os.getpid(), address, [], service.token, zk_connect)
    (folder / READY_FILE).write_bytes(msgspec.json.encode(ready))
    return folder


async def listed(*arguments: str) -> dict[str, Any]:
    done = await asyncio.to_thread(aiocontroller, "topics", "list", "--json", *arguments)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def names(found: Mapping[str, Any]) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in found["partitions"]]


def texts(partition: Mapping[str, Any]) -> list[str]:
    return [clause["text"] for clause in partition["reason"]]


async def broken(cluster: Cluster, **settings: Any) -> Service:
    """``t-0`` lost its only replica, ``t-1`` one of three, ``u-0`` so many that it is below its minimum."""
    service = await cluster.add_controller(**settings)
    await cluster.client.create("/config/topics/u", data=b'{"version":1,"config":{"min.insync.replicas":"3"}}')
    await cluster.create_topic("t", {0: [3], 1: [1, 2, 3]})
    await cluster.create_topic("u", {0: [1, 2, 3]})
    await cluster.until_leaders("t", [3, 1])
    await cluster.until_leaders("u", [1])
    await cluster.kill_broker(3)
    table = service.shell.context.table.broken
    await until(lambda: len(table.offline) == 1 and len(table.under_replicated) == 2 and table.under_min_isr)
    return service


async def test_a_controller_and_zookeeper_say_the_same(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    here = ("--data", str(described(service, zk_connect, tmp_path)))
    for option, expected in (
        ("--offline", ["t-0"]),
        ("--under-replicated", ["t-1", "u-0"]),
        ("--under-min-isr", ["u-0"]),
    ):
        ours, anybodys = await listed(option, *here), await listed(option, "--zookeeper", zk_connect)
        assert names(ours) == names(anybodys) == expected
        assert (ours["from"], anybodys["from"]) == (f"controller {service.shell.id}", "zookeeper")
        assert ours["count"] == anybodys["count"] == len(expected)
        for one, other in zip(ours["partitions"], anybodys["partitions"], strict=True):
            for key in ("leader", "replicas", "isr", "adding", "removing"):
                assert one[key] == other[key]
            assert one["since_us"] > 0
            assert not one["at_least"]
            assert (other["since_us"], other["at_least"]) == (None, True)
            [dead] = [clause for clause in one["reason"] if clause["text"] == "broker 3 dead"]
            assert dead["since_us"] == one["since_us"]
            assert "broker 3 not registered" in texts(other)


async def test_a_person_reads_a_table(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    here = ("--data", str(described(service, zk_connect, tmp_path)))
    done = await asyncio.to_thread(aiocontroller, "topics", "list", "--offline", *here)
    head, _, headings, row = done.stdout.rstrip("\n").split("\n")
    assert head == "1 partition offline:"
    assert headings.split() == ["partition", "since", "reason"]
    assert row.startswith("t-0        20")
    assert "no in-sync replica is alive; broker 3 dead since 20" in row
    done = await asyncio.to_thread(aiocontroller, "topics", "list", "--under-replicated", "--limit", "1", *here)
    assert "… and 1 more partition; --limit shows more, --json all" in done.stdout
    await cluster.add_broker(3)
    await until(lambda: not service.shell.context.table.broken.offline)
    done = await asyncio.to_thread(aiocontroller, "topics", "list", "--offline", *here)
    assert done.stdout == "0 partitions offline.\n"


async def test_a_standby_does_not_know_so_zookeeper_is_read(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    await broken(cluster)
    standby = await cluster.add_controller(aiocontroller_id=1002)
    found = await listed("--offline", "--data", str(described(standby, zk_connect, tmp_path)))
    assert (found["from"], names(found)) == ("zookeeper", ["t-0"])
    async with aiohttp.ClientSession(f"http://127.0.0.1:{standby.http_port}") as http:
        async with http.get("/partitions?state=offline") as answer:
            assert answer.status == 503
            assert "1002 is not in charge" in (await answer.json())["error"]


async def test_the_metrics_of_a_broken_cluster(cluster: Cluster) -> None:
    service = await broken(cluster)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{service.http_port}") as http:
        async with http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
    for line in (
        "kafka_controller_kafkacontroller_offlinepartitionscount 1.0",
        "kafka_server_replicamanager_underreplicatedpartitions 2.0",
        "kafka_server_replicamanager_underminisrpartitioncount 1.0",
        'aiocontroller_partitions_offline{topic="t"} 1.0',
        "aiocontroller_partitions_unreadtopics 0.0",
    ):
        assert line in lines


def test_two_questions_at_once_are_refused() -> None:
    done = aiocontroller("topics", "list", "--offline", "--under-min-isr", code=2)
    assert "list different things: give one of them" in done.stderr
    assert "give one of them" in aiocontroller("topics", "list", "--limit", "3", code=2).stderr
