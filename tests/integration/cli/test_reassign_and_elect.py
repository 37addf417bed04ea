"""``aiocontroller reassign`` and ``elect``: against a controller whose brokers only listen, and against ``up``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire import messages
from aiocontroller.wire.apis import ApiKey
from tests.integration.cli.program import aiocontroller
from tests.integration.controller.harness import Cluster, idle, running


class Knowing(RecordingBroker):
    """Answers Metadata too, so that commands find the controller."""

    controller: Service | None = None

    def respond(self, api: ApiKey, version: int, request: Any) -> bytes:
        if api is not ApiKey.METADATA:
            return super().respond(api, version, request)
        assert self.controller is not None
        at = self.controller.endpoints[0]
        nodes = (messages.MetadataBroker(self.controller.shell.id, at.host, at.port, None),)
        answer = messages.MetadataResponse(nodes, (), self.controller.shell.id, "c")
        return messages.encode_metadata_response(version, answer)


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(auto_leader_rebalance_enable=False)
        for broker_id in (1, 2, 3):
            broker = cluster.brokers[broker_id] = Knowing(world, zk_connect, broker_id)
            broker.served[ApiKey.METADATA] = (0, 12)
            broker.controller = service
            await broker.start()
        yield cluster


async def command(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aiocontroller",
        *arguments,
        "--zookeeper",
        cluster.zk_connect,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == code, f"{out.decode()}\n{err.decode()}"
    return out.decode() + err.decode()


def plan(tmp_path: Path, *entries: dict[str, Any]) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": list(entries)}))
    return str(path)


async def test_a_move_begins_is_listed_and_is_taken_back(cluster: Cluster, tmp_path: Path) -> None:
    service = await cluster.active()
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    await cluster.until_leaders("t", [1, 2])
    assert await command(cluster, "reassign", "--list") == "No reassignment is in progress.\n"
    assert await command(cluster, "reassign", "--cancel") == "No reassignment is in progress.\n"
    wanted = plan(tmp_path, {"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "/data"]})
    output = await command(cluster, "reassign", "--plan", wanted)
    assert output == "Started: 1 reassignment; refused: 0.\nNote: the log_dirs of 1 partition are ignored.\n"
    shown = json.loads(await command(cluster, "reassign", "--list", "--json"))
    entry = {"topic": "t", "partition": 0, "replicas": [3, 1, 2], "adding": [3], "removing": [2]}
    assert shown == {"reassignments": [entry]}
    assert "3,1,2" in await command(cluster, "reassign", "--list", "--plan", wanted)
    assert await command(cluster, "reassign", "--cancel") == "Cancelled: 1 reassignment; refused: 0.\n"
    await idle(service)
    assert await command(cluster, "reassign", "--list") == "No reassignment is in progress.\n"
    output = await command(cluster, "reassign", "--cancel", "--plan", wanted, "--json", code=1)
    (row,) = json.loads(output)["cancelled"]
    assert (row["topic"], row["error"]) == ("t", "NO_REASSIGNMENT_IN_PROGRESS")


async def test_what_is_refused_is_named(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    wanted = plan(
        tmp_path,
        {"topic": "t", "partition": 0, "replicas": [2, 9]},
        {"topic": "t", "partition": 7, "replicas": [1]},
    )
    output = await command(cluster, "reassign", "--plan", wanted, code=1)
    assert "INVALID_REPLICA_ASSIGNMENT: replicas 2, 9: brokers 9 are not live (live: 1, 2, 3)" in output
    assert "UNKNOWN_TOPIC_OR_PARTITION" in output
    assert output.endswith("Started: 0 reassignments; refused: 2.\n")


async def test_elections(cluster: Cluster) -> None:
    service = await cluster.active()
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 1], 2: [3]})
    await cluster.until_leaders("t", [1, 2, 3])
    assert await command(cluster, "elect", "--preferred", "--all") == "Elected 0 leaders; 0 not needed, 0 failed.\n"
    output = await command(cluster, "elect", "--preferred", "--topic", "t")
    assert output == "Elected 0 leaders; 3 not needed, 0 failed.\n"
    await cluster.bounce_broker(1)
    state = await cluster.until_state("t", 2, (2,), 0)
    await idle(service)
    output = await command(cluster, "elect", "--preferred", "--topic", "t", "--partition", "0", code=1)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in output
    await cluster.kill_broker(2)
    await cluster.until_state("t", -1, (2,), 0)
    output = await command(cluster, "elect", "--unclean", "--topic", "t", "--json")
    errors = [row["error"] for row in json.loads(output)["elections"]]
    assert errors == [None, None, "ELECTION_NOT_NEEDED"]
    final = await cluster.state("t", 0)
    assert (final.leader, final.isr, final.recovery_state) == (1, (1,), 1)
    assert isinstance(state, LeaderAndIsr)
    assert final.leader_epoch > state.leader_epoch


@pytest.mark.parametrize(
    "arguments,code,words",
    [
        (("reassign",), 2, "nothing to do"),
        (("reassign", "--cancel", "--list"), 2, "exclude each other"),
        (("elect", "--all"), 2, "one of --preferred and --unclean"),
        (("elect", "--preferred", "--unclean", "--all"), 2, "one of --preferred and --unclean"),
        (("elect", "--preferred"), 2, "give --topic TOPIC"),
        (("elect", "--preferred", "--all", "--partition", "1"), 2, "give --topic TOPIC"),
    ],
)
def test_wrong_use_is_said(arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in aiocontroller(*arguments, code=code).stderr


@pytest.mark.parametrize(
    "text,words",
    [
        ("{", "expected Kafka's reassignment plan, version 1"),
        ('{"version": 2, "partitions": []}', "found version 2, expected 1"),
        ('{"version": 1, "partitions": []}', "found no partitions"),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "found t-0 twice",
        ),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "`int` >= 0"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 2147483648, "replicas": [1]}]}', "<= 2147483647"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}', "`int` >= 0"),
        ('{"version": 1, "partitions": [{"topic": "", "partition": 0, "replicas": [1]}]}', "length >= 1"),
        (f'{{"version": 1, "partitions": [{{"topic": "{"t" * 40_000}", "partition": 0, "replicas": []}}]}}', "<= 249"),
    ],
)
def test_bad_plans_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    done = aiocontroller("reassign", "--plan", str(path), "--zookeeper", "127.0.0.1:1", code=1)
    assert words in done.stderr
    assert str(path) in done.stderr
