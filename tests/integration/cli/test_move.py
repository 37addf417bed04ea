"""``aiocontroller move`` as a process: what ends it, what does not, what is left. No new replica catches up here."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES
from tests.integration.cli.test_reassign_and_elect import cluster, command, plan  # noqa: F401
from tests.integration.controller.harness import Cluster

OWN = {"retention.ms": "600000", FOLLOWER_REPLICAS: "9:9"}


@pytest.fixture
async def wanted(cluster: Cluster, tmp_path: Path, kazoo: KazooClient) -> Path:  # noqa: F811
    """The plan of a topic on brokers 1 and 2, with settings of its own, that goes to 3 and 2."""
    await cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    await cluster.until_leaders("t", [1, 1])
    await asyncio.to_thread(kazoo.ensure_path, "/config/topics/t")
    await asyncio.to_thread(kazoo.set, "/config/topics/t", json.dumps({"version": 1, "config": OWN}).encode())
    entries = [{"topic": "t", "partition": number, "replicas": [3, 2]} for number in (0, 1)]
    return Path(plan(tmp_path, *entries))


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(150):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.02)


class Tree:
    """What ZooKeeper holds."""

    def __init__(self, kazoo: KazooClient) -> None:
        self._kazoo = kazoo

    def config(self, path: str) -> dict[str, str]:
        """Of ``topics/t`` or ``brokers/1``."""
        if self._kazoo.exists(f"/config/{path}") is None:
            return {}
        found: dict[str, str] = json.loads(self._kazoo.get(f"/config/{path}")[0])["config"]
        return found

    def replicas(self) -> dict[str, Any]:
        found = json.loads(self._kazoo.get("/brokers/topics/t")[0])
        return {"replicas": found["partitions"], "adding": found.get("adding_replicas") or {}}

    def moves(self) -> bool:
        return set(self.replicas()["adding"]) == {"0", "1"}

    def as_before(self) -> bool:
        rates = [self.config(f"brokers/{broker}") for broker in (1, 2, 3)]
        return (
            self.replicas() == {"replicas": {"0": [1, 2], "1": [1, 2]}, "adding": {}}
            and self.config("topics/t") == OWN
            and rates == [{}, {}, {}]
        )


@pytest.fixture
def tree(kazoo: KazooClient) -> Tree:
    return Tree(kazoo)


async def begun(cluster: Cluster, wanted: Path, tree: Tree, *options: str) -> asyncio.subprocess.Process:  # noqa: F811
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiocontroller", "move", "--plan", str(wanted), "--zookeeper", cluster.zk_connect),
        *("--answer-ms", "60000", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await until(tree.moves)
    assert tree.config("topics/t") == {**OWN, LEADER_REPLICAS: "0:1,0:2,1:1,1:2", FOLLOWER_REPLICAS: "9:9,0:3,1:3"}
    assert set(tree.config("brokers/3")) == set(RATES)
    return process


def records(wanted: Path) -> list[str]:
    return [json.loads(line)["what"] for line in Path(f"{wanted}.moves.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
async def test_a_reader_that_has_gone_ends_nothing_and_a_signal_ends_it_in_order(
    cluster: Cluster,  # noqa: F811
    wanted: Path,
    tree: Tree,
    number: signal.Signals,
    as_json: list[str],
) -> None:
    process = await begun(cluster, wanted, tree, *as_json)
    assert process.stdout is not None
    process.stdout._transport.close()  # type: ignore[attr-defined]
    seen = records(wanted).count("rate")
    await until(
        lambda: records(wanted).count("rate") > seen
    )  # the rate rises after calm looks, of which some are shown
    assert process.returncode is None
    process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 40) == 3
    assert tree.as_before()
    assert records(wanted)[-2:] == ["unthrottled", "end"]


async def test_a_killed_move_can_be_stopped_and_a_running_one_too(
    cluster: Cluster,  # noqa: F811
    wanted: Path,
    tree: Tree,
) -> None:
    process = await begun(cluster, wanted, tree)
    process.kill()
    await process.wait()
    assert "Result: stopped." in await command(cluster, "move", "--plan", str(wanted), "--stop")
    assert tree.as_before()
    process = await begun(cluster, wanted, tree)
    output = await command(cluster, "move", "--plan", str(wanted), code=1)
    assert f"process {process.pid} works by this file already" in output
    assert "Result: stopped." in await command(cluster, "move", "--plan", str(wanted), "--stop")
    assert await asyncio.wait_for(process.wait(), 40) == 3
    assert tree.as_before()


async def test_what_is_not_ours_to_change_is_refused_and_stays(
    cluster: Cluster,  # noqa: F811
    wanted: Path,
    tree: Tree,
    kazoo: KazooClient,
) -> None:
    rate = {RATES[0]: "77"}
    await asyncio.to_thread(kazoo.ensure_path, "/config/brokers/2")
    await asyncio.to_thread(kazoo.set, "/config/brokers/2", json.dumps({"version": 1, "config": rate}).encode())
    output = await command(cluster, "move", "--plan", str(wanted), "--answer-ms", "60000", code=1)
    assert f"broker 2: found {RATES[0]}=77, expected no throttle of others" in output
    assert tree.config("brokers/2") == rate
    assert tree.config("topics/t") == OWN
    assert await asyncio.to_thread(kazoo.exists, "/config/brokers/1") is None


async def test_a_record_of_another_cluster_is_refused(
    cluster: Cluster,  # noqa: F811
    wanted: Path,
    tree: Tree,
    kazoo: KazooClient,
) -> None:
    """Topics and brokers have the same names there, so a reversal would move ours to where theirs were."""
    await asyncio.to_thread(kazoo.create, "/cluster/id", b'{"version":"1","id":"this"}', makepath=True)
    audit = wanted.with_name("elsewhere.jsonl")
    text = '{"at_ms":1,"who":"a@b","pid":7,"what":"cluster","id":"another"}\n'
    for options in (["move", "--plan", str(wanted)], ["roll", "--command", "false"]):
        for dry in ([], ["--dry-run"]):
            audit.write_text(text)
            output = await command(cluster, *options, *dry, "--audit", str(audit), code=1)
            assert f"{audit}: found the record of cluster another, expected one of this: name another file by" in output
    assert tree.as_before()


async def test_a_dry_run_shows_what_would_be_set_and_put_back(
    cluster: Cluster,  # noqa: F811
    wanted: Path,
    tree: Tree,
) -> None:
    output = await command(cluster, "move", "--plan", str(wanted), "--dry-run", "--answer-ms", "60000")
    shown = [line.strip() for line in output.splitlines()]
    assert shown.count(f"{FOLLOWER_REPLICAS} = 9:9,0:3,1:3") == 1
    assert shown.count(f"{FOLLOWER_REPLICAS} = 9:9") == 1
    assert shown.count(f"{RATES[0]} removed") == 3
    assert shown[-1].startswith("Nothing was sent or written")
    assert tree.as_before()
