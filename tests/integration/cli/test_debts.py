"""``aiocontroller debts``: an operator sees what brokers still have to delete, and gives it up."""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_status import register_broker

ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(autouse=True)
def debtors(kazoo: KazooClient) -> None:
    """Brokers 1 and 3 owe something, of which 3 is dead."""
    register_broker(kazoo, 1)
    for path, numbers in (("1/orders", [0]), ("3/orders", [7, 0]), ("3/users", range(12))):
        data = json.dumps({"version": 1, "topics": {ID: [*numbers]}}).encode()
        kazoo.create(f"/aiocontroller_debts/{path}", data, makepath=True)


def test_debts_by_broker(kazoo: KazooClient, zk_connect: str) -> None:
    kazoo.create("/aiocontroller_debts/unknown", b"")
    here = ("--zookeeper", zk_connect)
    done = aiocontroller("debts", "list", *here)
    assert done.stdout == (
        "broker  alive  topic   replicas  partitions\n"
        "     1  yes    orders         1  0\n"
        "     3  no     orders         2  0,7\n"
        "     3  no     users         12  0,1,2,3,4,5,6,7,8,9,…\n"
    )
    assert done.stderr.startswith("Unreadable: /aiocontroller_debts/unknown: ")
    found = json.loads(aiocontroller("debts", "list", "--json", *here).stdout)
    assert found["debts"][1] == {"broker": 3, "alive": False, "topic": "orders", "partitions": [0, 7]}
    assert [each["path"] for each in found["unreadable"]] == ["/aiocontroller_debts/unknown"]


def test_nothing_is_given_up_unasked(kazoo: KazooClient, zk_connect: str) -> None:
    here = ("--zookeeper", zk_connect)
    done = aiocontroller("debts", "drop", "3", *here, code=1, answer="n\n")
    assert "Broker 3 still has to delete 14 replicas, of orders,users." in done.stderr
    assert done.stderr.endswith("Error: nothing was given up\n")
    done = aiocontroller("debts", "drop", "3", *here, code=1, answer="")
    assert done.stderr.endswith("Error: nothing was given up: without a terminal to confirm, give --yes\n")
    assert kazoo.get_children("/aiocontroller_debts/3") == ["orders", "users"]
    for wrong in (("2",), ("1", "users")):
        done = aiocontroller("debts", "drop", *wrong, "--yes", *here, code=1)
        assert "to delete: nothing was given up" in done.stderr


def test_one_topic_and_then_the_rest_is_given_up(kazoo: KazooClient, zk_connect: str) -> None:
    here = ("--zookeeper", zk_connect)
    done = aiocontroller("debts", "drop", "3", "orders", *here, answer="y\n")
    assert done.stdout == "Given up: 2 replicas on broker 3.\n"
    assert kazoo.get_children("/aiocontroller_debts/3") == ["users"]
    done = aiocontroller("debts", "drop", "3", "--yes", "--json", *here)
    assert json.loads(done.stdout) == {"broker": 3, "given_up": [{"topic": "users", "partitions": [*range(12)]}]}
    assert kazoo.get_children("/aiocontroller_debts") == ["1"]
    aiocontroller("debts", "drop", "1", "--yes", *here)
    assert aiocontroller("debts", "list", *here).stdout == "No broker has replicas to delete.\n"
