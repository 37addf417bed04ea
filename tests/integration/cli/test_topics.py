"""``aiocontroller topics``: the znodes it writes are those that Kafka's tools write, seen by another client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_status import put_state, register_broker


@pytest.fixture
def kazoo(zk_connect: str) -> Iterator[KazooClient]:
    client = KazooClient(zk_connect)
    client.start(timeout=20)
    for broker_id in (1, 2, 3):
        register_broker(client, broker_id)
    yield client
    client.stop()
    client.close()


def get(kazoo: KazooClient, path: str) -> dict[str, object]:
    data, _ = kazoo.get(path)
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def test_a_topics_life(zk_connect: str, kazoo: KazooClient) -> None:
    here = ("--zookeeper", zk_connect)
    done = aiocontroller(
        "topics",
        "create",
        "t",
        "--partitions",
        "4",
        "--replication-factor",
        "2",
        "--config",
        "retention.ms=5000",
        *here,
    )
    assert done.stdout == "Created topic t with 4 partitions.\n"
    topic = get(kazoo, "/brokers/topics/t")
    assignment = topic["partitions"]
    assert isinstance(assignment, dict)
    assert sorted(assignment) == ["0", "1", "2", "3"]
    assert all(len(set(replicas)) == 2 and set(replicas) <= {1, 2, 3} for replicas in assignment.values())
    assert topic["topic_id"]
    assert get(kazoo, "/config/topics/t")["config"] == {"retention.ms": "5000"}

    put_state(kazoo, "t", 0, assignment["0"][0], assignment["0"])
    described = json.loads(aiocontroller("topics", "describe", "t", "--json", *here).stdout)["topics"][0]
    assert described["id"] == topic["topic_id"]
    assert [p["leader"] for p in described["partitions"]] == [assignment["0"][0], None, None, None]
    assert [p["replicas"] for p in described["partitions"]] == [assignment[str(p)] for p in range(4)]
    text = aiocontroller("topics", "describe", *here).stdout.splitlines()
    assert text[0] == f"Topic t, id {described['id']}, 4 partitions, retention.ms=5000"
    assert text[1].split() == ["partition", "leader", "leader", "epoch", "replicas", "isr"]
    assert text[3].split()[:3] == ["1", "-", "-"]

    done = aiocontroller("topics", "alter", "t", "--partitions", "6", "--delete-config", "retention.ms", *here)
    assert done.stdout == "Topic t now has 6 partitions and configuration all default.\n"
    grown = get(kazoo, "/brokers/topics/t")["partitions"]
    assert isinstance(grown, dict)
    assert {k: grown[k] for k in assignment} == assignment
    assert len(grown) == 6
    changes = kazoo.get_children("/config/changes")
    assert get(kazoo, f"/config/changes/{changes[0]}")["entity_path"] == "topics/t"

    assert aiocontroller("topics", "list", *here).stdout == "t\n"
    assert json.loads(aiocontroller("topics", "delete", "t", "--json", *here).stdout) == {"marked_for_deletion": ["t"]}
    assert kazoo.get_children("/admin/delete_topics") == ["t"]


def test_a_given_assignment_is_taken(zk_connect: str, kazoo: KazooClient) -> None:
    aiocontroller("topics", "create", "t", "--replica-assignment", "3:1,1:2", "--zookeeper", zk_connect)
    assert get(kazoo, "/brokers/topics/t")["partitions"] == {"0": [3, 1], "1": [1, 2]}


@pytest.mark.parametrize(
    "arguments,code,words",
    [
        (("create", "a b"), 1, "Topic name is invalid: 'a b'"),
        (("create", "t", "--replication-factor", "4"), 1, "Replication factor: 4 larger than available brokers: 3"),
        (("create", "t", "--config", "retention.ms=long"), 1, "retention.ms"),
        (("create", "t", "--config", "x"), 2, "expected KEY=VALUE"),
        (("create", "t", "--replica-assignment", "a:b"), 2, "expected broker ids such as 1:2,2:3"),
        (("delete", "none"), 1, "none"),
        (("describe", "none"), 1, "no such topic: none"),
        (("alter", "none", "--partitions", "3"), 1, "no such topic: none"),
        (("alter", "none"), 2, "nothing to alter"),
        (("create", "t", "--partitions", "100000000"), 1, "found 100000000 partitions with 1 replicas each, expected"),
        (("create", "t", "--partitions", "100000000", "--replication-factor", "1000000000"), 1, "partitions"),
        (("alter", "small", "--partitions", "100000000"), 1, "found 100000000 partitions"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    zk_connect: str, kazoo: KazooClient, arguments: tuple[str, ...], code: int, words: str
) -> None:
    kazoo.create("/brokers/topics/small", b'{"version":1,"partitions":{"0":[1]}}', makepath=True)
    done = aiocontroller("topics", *arguments, "--zookeeper", zk_connect, code=code)
    assert words in done.stderr
    assert done.stdout == ""
    assert code == 2 or len(done.stderr.splitlines()) == 1


def test_a_name_gives_a_terminal_no_orders(zk_connect: str, kazoo: KazooClient) -> None:
    """ZooKeeper takes names that Kafka refuses."""
    kazoo.create("/brokers/topics/\u202eevil", b'{"version":1,"partitions":{"0":[1]}}', makepath=True)
    for command in ("list", "describe"):
        output = aiocontroller("topics", command, "--zookeeper", zk_connect).stdout
        assert r"\u202eevil" in output
        assert "\u202e" not in output
