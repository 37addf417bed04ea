"""``aiocontroller plan``: on any ZooKeeper, with brokers that do not tell their bytes; ``what-if`` takes its plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiocontroller.cli.reassign import read_plan
from aiocontroller.core.ids import TopicPartition
from tests.integration.cli.program import aiocontroller

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


@pytest.fixture
def cluster(kazoo: KazooClient, zk_connect: str) -> str:
    """Four brokers that cannot be reached, and a topic on three of them; no controller."""
    for broker, rack in RACKS.items():
        registration = {
            "version": 5,
            "endpoints": ["PLAINTEXT://127.0.0.1:1"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "rack": rack,
            "host": "127.0.0.1",
            "port": 1,
            "jmx_port": -1,
            "features": {},
            "timestamp": "1",
        }
        kazoo.create(f"/brokers/ids/{broker}", json.dumps(registration).encode(), ephemeral=True, makepath=True)
    partitions = {"0": [1, 3], "1": [3, 2], "2": [2, 3]}
    kazoo.create("/brokers/topics/t", json.dumps({"version": 1, "partitions": partitions}).encode(), makepath=True)
    for number, replicas in partitions.items():
        state = {"controller_epoch": 1, "leader": replicas[0], "version": 1, "leader_epoch": 0, "isr": replicas}
        kazoo.create(f"/brokers/topics/t/partitions/{number}/state", json.dumps(state).encode(), makepath=True)
    return zk_connect


def test_a_plan_is_shown_with_its_cost_and_what_if_takes_it(cluster: str, tmp_path: Path, kazoo: KazooClient) -> None:
    before = kazoo.get("/brokers/topics/t")[1].mzxid
    out = tmp_path / "plan.json"
    output = aiocontroller("plan", "--drain", "3", "--zookeeper", cluster, "--out", str(out)).stdout
    assert output.startswith("3 partitions to change: 3 replicas to copy (0 B), 1 preferred leader to change.\n")
    assert f"The plan is in {out}. Next: aiocontroller move --plan {out}\n" in output
    assert "Broker 1 did not report its bytes: " in output
    assert "The bytes of 3 replicas to copy are not known." in output
    assert read_plan(out).targets == {
        TopicPartition("t", 0): (1, 4),
        TopicPartition("t", 1): (4, 2),
        TopicPartition("t", 2): (2, 4),
    }
    foreseen = json.loads(aiocontroller("what-if", "--plan", str(out), "--zookeeper", cluster, "--json").stdout)
    assert [(each["id"], each["replicas"]) for each in foreseen["brokers"]] == [
        (1, [1, 1]),
        (2, [2, 2]),
        (3, [3, 0]),
        (4, [0, 3]),
    ]
    assert kazoo.get("/brokers/topics/t")[1].mzxid == before


def test_a_program_gets_the_same_and_a_person_gets_the_plan_last(cluster: str) -> None:
    found = json.loads(aiocontroller("plan", "--add", "4", "--zookeeper", cluster, "--json").stdout)
    assert found["cost"]["replicas"] == len(found["plan"]["partitions"]) == 1
    assert [each["replicas"] for each in found["cost"]["brokers"]] == [[1, 1], [2, 2], [3, 2], [0, 1]]
    assert set(found["sizes_unknown"]) == {"1", "2", "3", "4"}
    output = aiocontroller("plan", "--add", "4", "--zookeeper", cluster).stdout
    assert json.loads(output.splitlines()[-1]) == found["plan"]
    assert aiocontroller("plan", "--racks", "--zookeeper", cluster).stdout.endswith("There is nothing to do.\n")


def test_the_plan_of_a_move_that_was_cut_off_stays(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    out.write_text("the plan")
    audit = tmp_path / "plan.json.moves.jsonl"
    audit.write_text('{"at_ms":1,"what":"begin"}\n')
    arguments = ("plan", "--leaders", "--out", str(out), "--zookeeper", "127.0.0.1:1")
    assert f"--out {out}: a move by this plan has not ended" in aiocontroller(*arguments, code=1).stderr
    assert out.read_text() == "the plan"


@pytest.mark.parametrize(
    "arguments, code, error",
    [
        ([], 2, "give one goal"),
        (["--racks", "--leaders"], 2, "give one goal"),
        (["--drain", "x"], 2, "found 'x', expected broker ids"),
        (["--drain", "9"], 1, "found broker 9, expected one of: 1, 2, 3, 4"),
        (["--drain", "2,3,4"], 1, "t-0: found 2 replicas for 1 brokers, expected a broker for each"),
        (["--replication-factor", "5"], 1, "replication factor: found 5 for 4 live brokers"),
        (["--replicas", "--topic", "no"], 1, "found topic 'no', expected one that exists"),
        (["--bytes"], 1, "--bytes needs all replicas' sizes, and broker 1 did not report them: "),
        (["--drain", "3", "--out", "/proc/none/plan.json"], 1, "--out /proc/none/plan.json: "),
    ],
)
def test_what_cannot_be_planned_is_named(cluster: str, arguments: list[str], code: int, error: str) -> None:
    assert error in aiocontroller("plan", *arguments, "--zookeeper", cluster, code=code).stderr
