"""``brokers``, ``incidents``, ``status --watch`` and ``explain``: one question each to a controller that runs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from aiocontroller.journal.records import encode_records
from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_broken import broken, cluster, described
from tests.integration.controller.harness import Cluster, journal_of, until

__all__ = ["cluster"]


async def output_of(*arguments: str) -> str:
    return (await asyncio.to_thread(aiocontroller, *arguments)).stdout


async def test_who_is_dead_and_since_when(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    here = ("--data", str(described(service, zk_connect, tmp_path)))
    text = await output_of("brokers", *here)
    assert text.splitlines()[0].split() == "broker state leaders replicas waiting requests last answer remarks".split()
    found = json.loads(await output_of("brokers", "--json", *here))
    assert [(b["id"], b["state"], b["leaders"], b["replicas"]) for b in found["brokers"]] == [
        (1, "live", 2, 2),
        (2, "live", 0, 2),
        (3, "gone", 0, 3),
    ]
    assert found["controller"]["id"] == service.shell.id
    assert "3  gone since 20" in text


async def test_incidents_and_failovers(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    here = ("--data", str(described(service, zk_connect, tmp_path)))
    text = await output_of("incidents", *here)
    assert "ongoing; at worst 1 offline" in text
    assert "  broker 3 died: " in text
    assert "Failover to epoch 1 at " in text
    assert "read topics, assignments and partition states" in text
    await cluster.add_broker(3)
    found: dict[str, Any] = {}

    async def ended() -> bool:  # chapters are told when an event's work has ended
        found.update(json.loads(await output_of("incidents", "--json", *here)))
        return "every partition has a leader" in [phase["text"] for phase in found["incidents"][0]["phases"]]

    await until(ended)
    assert found["failovers"][0]["epoch"] == 1


async def test_watching_until_it_is_stopped(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    folder = described(service, zk_connect, tmp_path)
    command = [sys.executable, "-m", "aiocontroller", "status", "--watch", "--json", "--data", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    assert process.stdout is not None
    screens = [json.loads(await asyncio.wait_for(process.stdout.readline(), 60)) for _ in range(2)]
    process.terminate()
    await process.wait()
    assert screens[0]["now_us"] < screens[1]["now_us"]
    assert [p["topic"] for p in screens[1]["broken"]["offline"]] == ["t"]
    command.remove("--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    lines = [(await asyncio.wait_for(process.stdout.readline(), 60)).decode() for _ in range(6)]
    process.terminate()
    await process.wait()
    assert lines[0].startswith(f"Controller {service.shell.id}, epoch 1, active since 20")
    assert lines[1].startswith("Partitions: 1 offline, 2 under-replicated, 1 below min.insync.replicas.")
    assert lines[2:5] == ["No standby runs.\n", "\n", "1 partition offline:\n"]


def test_watching_any_cluster_is_refused() -> None:
    assert "give --data instead" in aiocontroller("status", "--watch", "--zookeeper", "x:1", code=2).stderr


async def test_the_story_of_a_partition(cluster: Cluster, zk_connect: str, tmp_path: Path) -> None:
    service = await broken(cluster)
    records = journal_of(service).records
    (tmp_path / f"journal-{service.shell.id}-1-1-000000.jsonl").write_bytes(encode_records(records))
    lines = (await output_of("explain", "t-0", "--data", str(tmp_path))).splitlines()
    texts = [line.partition("  ")[2] for line in lines]
    assert texts[0] == f"controller {service.shell.id} took the role, epoch 1"
    assert texts[1] == "leader 3, before none; in sync 3, before none: it was created (leader epoch 0)"
    assert texts[2] == "broker 3: dead"
    assert texts[3].startswith("it has no leader")
