"""``aiocontroller check`` as a process, on a real ZooKeeper that holds a cluster with faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_status import cluster, put, put_state

__all__ = ["cluster"]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "check.md"


@pytest.mark.usefixtures("cluster")
def test_it_prints_what_the_page_shows(zk_connect: str) -> None:
    done = aiocontroller("check", "--zookeeper", zk_connect, "--no-brokers", code=4)
    printed = re.sub(r"\(zxid 0x[0-9a-f]+\)", "(zxid …)", done.stdout)
    block = PAGE.read_text(encoding="utf-8").partition("-->\n\n")[2].partition("\n\n**For cron.**")[0]
    assert printed.splitlines() == [line.removeprefix("    ") for line in block.splitlines()]


@pytest.mark.usefixtures("cluster")
def test_what_if_prints_what_the_page_shows(zk_connect: str) -> None:
    done = aiocontroller("what-if", "--zookeeper", zk_connect, "--kill", "2")
    block = PAGE.read_text(encoding="utf-8").partition("--kill 2\n\n")[2].partition("\n\n`--shutdown")[0]
    assert done.stdout.splitlines() == [line.removeprefix("    ") for line in block.splitlines()]


@pytest.mark.usefixtures("cluster")
def test_what_if_as_json_names_every_partition(zk_connect: str, tmp_path: Path, kazoo: KazooClient) -> None:
    before = changes(kazoo)
    found = json.loads(aiocontroller("what-if", "--zookeeper", zk_connect, "--shutdown", "1", "--json").stdout)
    assert [(each["topic"], each["partition"], each["after"]["leader"]) for each in found["new_leader"]] == [
        ("t", 0, 2),
        ("t", 3, 2),
    ]
    assert changes(kazoo) == before
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}')
    found = json.loads(aiocontroller("what-if", "--zookeeper", zk_connect, "--plan", str(plan), "--json").stdout)
    assert found["brokers"][0] == {"id": 1, "leaders": [1, 0], "replicas": [3, 2]}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "arguments, code, error",
    [
        ((), 2, "nothing happens"),
        (("--kill", "x"), 2, "expected broker ids"),
        (("--kill", "2", "--shutdown", "2"), 2, "give it once"),
        (("--kill", "9"), 1, "found broker 9, expected one that is registered: 1, 2"),
        (("--rack", "r"), 1, "found rack 'r', expected one that a broker is in: none"),
        (("--kill", "2", "--config", "x"), 2, "expected KEY=VALUE"),
        (("--kill", "2", "--config", "min.insync.replicas=abc"), 2, "a broker would refuse the value 'abc'"),
        (("--kill", "2", "--config", "unclean.leader.election.enable="), 2, "a broker would refuse the value ''"),
        (("--kill", "2", "--config", "min.isr=2"), 2, "expected min.insync.replicas or"),
        (("--kill", "1_0"), 2, "expected broker ids"),
        (("--kill", "-1"), 2, "expected broker ids"),
    ],
)
def test_what_cannot_happen_is_refused(zk_connect: str, arguments: tuple[str, ...], code: int, error: str) -> None:
    assert error in aiocontroller("what-if", "--zookeeper", zk_connect, *arguments, code=code).stderr


def changes(kazoo: KazooClient, path: str = "/") -> dict[str, int]:
    found = {path: kazoo.get(path)[1].mzxid}
    for child in kazoo.get_children(path):
        if path != "/" or child != "zookeeper":
            found |= changes(kazoo, f"{path.rstrip('/')}/{child}")
    return found


@pytest.mark.usefixtures("cluster")
def test_it_changes_no_znode_and_compares_with_last_week(zk_connect: str, kazoo: KazooClient, tmp_path: Path) -> None:
    before, file = changes(kazoo), tmp_path / "evidence.json"
    aiocontroller("check", "--zookeeper", zk_connect, "--out", str(file), code=4)
    assert changes(kazoo) == before
    put_state(kazoo, "t", 3, 2, [2, 1])
    done = aiocontroller("check", "--zookeeper", zk_connect, "--since", str(file), "--json", code=4)
    found = json.loads(done.stdout)
    assert [finding["kind"] for finding in found["difference"]["gone"]] == ["never-led"]
    assert not found["difference"]["new"]
    assert "never-led" not in {finding["kind"] for finding in found["report"]["findings"]}


@pytest.mark.usefixtures("cluster")
def test_what_is_no_evidence_file_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    done = aiocontroller("check", "--zookeeper", "127.0.0.1:1", "--since", str(file), code=1)
    assert "other.json: found" in done.stderr


def test_an_empty_zookeeper_has_no_controller(zk_connect: str) -> None:
    done = aiocontroller("check", "--zookeeper", zk_connect, "--json", code=4)
    assert [finding["kind"] for finding in json.loads(done.stdout)["findings"]] == ["no-controller"]


SECRETS = {
    "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-512":"salt=c2FsdA==,stored_key=c3RvcmVk"}}',
    "/config/brokers/1": b'{"version":1,"config":{"listener.name.x.ssl.keystore.password":"hunter2"}}',
    "/kafka-acl/Topic/t": b'{"version":1,"acls":[{"principal":"User:alice","operation":"READ","host":"zebra-host"}]}',
    "/delegation_token/tokens/swordfish": b'{"owner":"User:alice","tokenId":"swordfish"}',
    "/config/topics/t": b'{"version":1,"config":{"retention.ms":"1000","plugin.password":"hunter2"}}',
}


@pytest.mark.usefixtures("cluster")
def test_a_saved_tree_is_judged_as_the_cluster_is_and_holds_no_secrets(
    zk_connect: str, kazoo: KazooClient, tmp_path: Path
) -> None:
    for path, data in SECRETS.items():
        kazoo.create(path, data, makepath=True)
    before, plain, hashed = changes(kazoo), tmp_path / "plain.json", tmp_path / "hashed.json"
    asking_nobody = ("check", "--zookeeper", zk_connect, "--no-brokers")
    live = aiocontroller(*asking_nobody, "--save-tree", str(plain), code=4)
    aiocontroller(*asking_nobody, "--save-tree", str(hashed), "--hash-names", code=4)
    assert changes(kazoo) == before
    for file in (plain, hashed):
        text = file.read_text(encoding="utf-8")
        assert [
            word for word in ("hunter2", "alice", "swordfish", "zebra", "c3RvcmVk", "keystore") if word in text
        ] == []
        assert "1000" in text
    assert "127.0.0.1" not in hashed.read_text(encoding="utf-8")

    assert json.loads(plain.read_bytes())["topics"].keys() == {"t"}
    later = aiocontroller("check", "--tree", str(plain), code=4)
    without_evidence = [line for line in live.stdout.splitlines() if not line.startswith("      see: ")]
    assert later.stdout.splitlines() == without_evidence
    assert len(aiocontroller("check", "--tree", str(hashed), code=4).stdout.splitlines()) == len(without_evidence)
    asked = aiocontroller("what-if", "--zookeeper", zk_connect, "--kill", "2")
    assert aiocontroller("what-if", "--tree", str(plain), "--kill", "2").stdout == asked.stdout


@pytest.mark.usefixtures("cluster")
def test_reports_of_two_clusters_are_not_compared(zk_connect: str, kazoo: KazooClient, tmp_path: Path) -> None:
    put(kazoo, "/cluster/id", {"version": "1", "id": "the-first"})
    file = tmp_path / "evidence.json"
    aiocontroller("check", "--zookeeper", zk_connect, "--out", str(file), code=4)
    kazoo.set("/cluster/id", b'{"version":"1","id":"the-second"}')
    done = aiocontroller("check", "--zookeeper", zk_connect, "--since", str(file), code=1)
    assert "found a report of cluster the-first" in done.stderr
    assert "expected one of cluster the-second" in done.stderr


@pytest.mark.parametrize(
    "arguments, code, error",
    [
        (("check", "--hash-names"), 2, "give --save-tree, too"),
        (("check", "--tree", "{file}", "--zookeeper", "127.0.0.1:1"), 2, "leave --data and --zookeeper out"),
        (("what-if", "--tree", "{file}", "--data", "x", "--kill", "1"), 2, "leave --data and --zookeeper out"),
        (("check", "--tree", "{file}"), 1, "no-tree.json: found"),
        (("what-if", "--tree", "{file}", "--kill", "1"), 1, "expected what aiocontroller check --save-tree writes"),
    ],
)
def test_a_wrong_use_of_a_tree_is_refused(tmp_path: Path, arguments: tuple[str, ...], code: int, error: str) -> None:
    file = tmp_path / "no-tree.json"
    file.write_text('{"format": 1}')
    assert error in aiocontroller(*(word.format(file=file) for word in arguments), code=code).stderr


@pytest.mark.usefixtures("cluster")
def test_the_exit_code_tells_what_was_found_though_nobody_reads_it(zk_connect: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "aiocontroller", "check", "--zookeeper", zk_connect]
    try:
        done = subprocess.run(command, check=False, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=200)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (4, "")


@pytest.mark.usefixtures("cluster")
def test_brokers_that_do_not_answer_are_a_notice(zk_connect: str) -> None:
    found = json.loads(aiocontroller("check", "--zookeeper", zk_connect, "--json", code=4).stdout)["findings"]
    silent = [finding for finding in found if finding["kind"] == "settings-not-told"]
    assert sorted(subject for finding in silent for subject in finding["subjects"]) == ["broker 1", "broker 2"]
    assert all("9001" in finding["why"] or "9002" in finding["why"] for finding in silent)
