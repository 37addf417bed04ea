"""``aiocontroller status`` against a real ZooKeeper that holds what Kafka's brokers and tools would have written."""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller


def put(kazoo: KazooClient, path: str, value: object) -> None:
    kazoo.create(path, json.dumps(value).encode(), makepath=True)


def register_broker(kazoo: KazooClient, broker_id: int, port: int | None = None) -> None:
    port = port or 9000 + broker_id
    endpoint = f"PLAINTEXT://127.0.0.1:{port}"
    put(
        kazoo,
        f"/brokers/ids/{broker_id}",
        {
            "version": 5, "host": "127.0.0.1", "port": port, "jmx_port": -1, "timestamp": "1700000000000",
            "endpoints": [endpoint], "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "features": {},
        },
    )  # fmt: skip


def put_state(kazoo: KazooClient, topic: str, partition: int, leader: int, isr: list[int]) -> None:
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    put(kazoo, path, {"controller_epoch": 3, "leader": leader, "version": 1, "leader_epoch": 2, "isr": isr})


@pytest.fixture
def cluster(kazoo: KazooClient) -> None:
    """Brokers 1 and 2 live, 3 gone; one partition led by its preferred replica, one not, one offline, one new."""
    for broker_id in (1, 2):
        register_broker(kazoo, broker_id)
    put(kazoo, "/controller_epoch", 3)
    holder = {"version": 1, "brokerid": 1_000_001, "timestamp": "1700000000000"}
    kazoo.create("/controller", json.dumps(holder).encode(), ephemeral=True)
    assignment = {"0": [1, 2], "1": [1, 2], "2": [3, 2], "3": [2, 1]}
    put(kazoo, "/brokers/topics/t", {"version": 1, "partitions": assignment})
    put_state(kazoo, "t", 0, 1, [1, 2])
    put_state(kazoo, "t", 1, 2, [2])
    put_state(kazoo, "t", 2, -1, [3])


@pytest.mark.usefixtures("cluster")
def test_status_as_json(zk_connect: str) -> None:
    done = aiocontroller("status", "--zookeeper", zk_connect, "--json")
    assert json.loads(done.stdout) == {
        "controller": {"id": 1_000_001, "epoch": 3, "since": "2023-11-14T22:13:20.000Z"},
        "brokers": [
            {"id": 1, "live": True, "leaders": 1, "replicas": 3},
            {"id": 2, "live": True, "leaders": 1, "replicas": 4},
            {"id": 3, "live": False, "leaders": 0, "replicas": 1},
        ],
        "partitions": {"total": 4, "offline": 2, "under_replicated": 3, "not_preferred": 3},
        "unreadable": [],
        "instances": [],
        "problem": "",
    }


@pytest.mark.usefixtures("cluster")
def test_status_for_people(zk_connect: str) -> None:
    lines = aiocontroller("status", "--zookeeper", zk_connect).stdout.splitlines()
    assert lines == [
        "Controller 1000001, epoch 3, since 2023-11-14T22:13:20.000Z.",
        "",
        "broker  state  leaders  replicas",
        "     1  live         1         3",
        "     2  live         1         4",
        "     3  gone         0         1",
        "",
        "4 partitions: 2 offline, 3 under-replicated, 3 not led by their preferred replica.",
    ]


@pytest.mark.usefixtures("cluster")
def test_unreadable_znodes_are_named_and_the_rest_is_counted(zk_connect: str, kazoo: KazooClient) -> None:
    kazoo.set("/brokers/topics/t/partitions/0/state", b"{")
    put(kazoo, "/brokers/topics/u", ["no assignment"])
    status = json.loads(aiocontroller("status", "--zookeeper", zk_connect, "--json").stdout)
    assert [u["path"] for u in status["unreadable"]] == ["/brokers/topics/u", "/brokers/topics/t/partitions/0/state"]
    assert all(u["found"] and u["expected"] for u in status["unreadable"])
    assert status["partitions"]["total"] == 4


def test_an_empty_zookeeper_has_no_controller(zk_connect: str) -> None:
    lines = aiocontroller("status", "--zookeeper", zk_connect).stdout.splitlines()
    assert lines[0] == "No controller; the last epoch was 0."


def test_an_unreachable_zookeeper_is_one_line_with_the_address() -> None:
    done = aiocontroller("status", "--zookeeper", "127.0.0.1:1", code=1)
    assert "127.0.0.1:1" in done.stderr
    assert len(done.stderr.splitlines()) == 1
