"""Requests that are too large are refused before any work, with Kafka's error code, the limit and the value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiocontroller.controller import assignment_writes, steps
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import NewPartitions, NewTopic, ScramUpsertion, TopicResult
from aiocontroller.service import Service
from aiocontroller.zookeeper import kafka_zk_client
from tests.integration.controller.harness import Cluster, idle, journal_of, until

MANY = 2_000_000_000


@pytest.fixture
async def service(cluster: Cluster) -> AsyncIterator[Service]:
    """An active controller, which is still in the same term after the test, without a fault."""
    service = await cluster.add_controller()
    await cluster.active()
    await idle(service)
    yield service
    await idle(service)
    assert service.controller.election.active
    assert service.shell.context.epoch == 1
    assert journal_of(service).of_kind("fault") == []


async def ask(service: Service, event: Callable[[Reply], Request]) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(event(Reply(answer.set_result)))
    return await asyncio.wait_for(answer, 30)


async def create(
    service: Service, *topics: NewTopic, validate_only: bool = False, timeout_ms: int = 10_000
) -> dict[str, TopicResult]:
    found: dict[str, TopicResult] = await ask(
        service,
        lambda reply: ev.CreateTopics(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only, reply=reply),
    )
    return found


async def grow(service: Service, *topics: NewPartitions, validate_only: bool = False) -> dict[str, TopicResult]:
    found: dict[str, TopicResult] = await ask(
        service,
        lambda reply: ev.CreatePartitions(topics=topics, timeout_ms=10_000, validate_only=validate_only, reply=reply),
    )
    return found


def topic(name: str, partitions: int = 1, factor: int = 1, **given: Any) -> NewTopic:
    return NewTopic(name, partitions, factor, given.get("assignment", {}), given.get("configs", {}))


# -- finding 1 ---------------------------------------------------------------------------------------------------------


async def test_topic_that_is_too_large_for_its_znode_is_refused(cluster: Cluster, service: Service) -> None:
    result = (await create(service, topic("t", 100_000, 2)))["t"]
    assert result.error_code == Code.INVALID_PARTITIONS
    for word in ("found 100000 partitions with 2 replicas each", "expected 7", "1040000 fit"):
        assert word in result.message
    given = dict.fromkeys(range(80000), (1, 2, 3))
    result = (await create(service, topic("t", -1, -1, assignment=given)))["t"]
    assert result.error_code == Code.INVALID_PARTITIONS
    assert "80000 partitions would have 1" in result.message
    assert await cluster.zk.get_all_topics_in_cluster(watch=False) == []
    assert await cluster.zk.get_topic_configs(["t"]) == {"t": {}}
    assert (await create(service, topic("t")))["t"].error_code == Code.NONE


async def test_topic_cannot_outgrow_its_znode(cluster: Cluster, service: Service) -> None:
    await create(service, topic("t"))
    result = (await grow(service, NewPartitions("t", 100_000, None)))["t"]
    assert result.error_code == Code.INVALID_PARTITIONS
    assert "found 100000 partitions" in result.message
    given = tuple((1,) for _ in range(90_000))
    result = (await grow(service, NewPartitions("t", 90_001, given)))["t"]
    assert result.error_code == Code.INVALID_PARTITIONS
    assert "90001 partitions" in result.message
    assert len((await cluster.zk.get_topic_assignments(["t"], watch=False)).found[0].partitions) == 1


@pytest.fixture
def small_znodes(monkeypatch: pytest.MonkeyPatch) -> int:
    """A low limit on a znode's size: what would fail with 40,000 partitions fails with 40."""
    limit = 1_000
    for module in (assignment_writes, steps, kafka_zk_client):
        monkeypatch.setattr(module, "MAX_DATA_BYTES", limit)
    return limit


async def test_reassignment_that_is_too_large_for_the_topics_znode_is_refused(
    cluster: Cluster, service: Service, small_znodes: int
) -> None:
    """Only that topic's part is refused; a smaller part of it is accepted."""
    await cluster.create_topic("large", {n: [1, 2] for n in range(40)})
    await cluster.create_topic("small", {0: [1, 2]})
    await cluster.until_leaders("large", [1] * 40)
    await cluster.until_leaders("small", [1])
    before = await cluster.zk.get_topic_assignments(["large"], watch=False)
    targets: dict[TopicPartition, tuple[int, ...] | None] = {TopicPartition("large", n): (3, 1) for n in range(40)}
    targets[TopicPartition("small", 0)] = (3, 1)
    found = await ask(service, lambda reply: ev.ApiPartitionReassignment(targets=targets, reply=reply))
    assert found.pop(TopicPartition("small", 0)) == (Code.NONE, "")
    assert {code for code, _ in found.values()} == {Code.POLICY_VIOLATION}
    (message,) = {message for _, message in found.values()}
    assert "the znode of topic 'large' would have 1" in message
    assert f"with 40 more reassignments in progress, {small_znodes} fit" in message
    assert (await cluster.zk.get_topic_assignments(["large"], watch=False)).found == before.found
    assert {s.isr for s in await cluster.states("large", 40) if s is not None} == {(1, 2)}
    few = {TopicPartition("large", n): (3, 1) for n in range(5)}
    found = await ask(service, lambda reply: ev.ApiPartitionReassignment(targets=few, reply=reply))
    assert set(found.values()) == {(Code.NONE, "")}


async def test_reassignment_by_znode_that_is_too_large_is_taken_out_of_it(
    cluster: Cluster, service: Service, small_znodes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it once; the other topics' parts go on, and remain in the znode."""
    await cluster.create_topic("large", {n: [1, 2] for n in range(40)})
    await cluster.create_topic("small", {0: [1, 2]})
    await cluster.until_leaders("large", [1] * 40)
    await cluster.until_leaders("small", [1])
    wanted = [{"topic": "large", "partition": n, "replicas": [3, 1]} for n in range(40)]
    wanted.append({"topic": "small", "partition": 0, "replicas": [3, 1]})
    data = json.dumps({"version": 1, "partitions": wanted}).encode()
    await cluster.client.create("/admin/reassign_partitions", data=data)

    async def taken_out() -> bool:
        left = await cluster.zk.get_partition_reassignment(watch=False)
        return left == {TopicPartition("small", 0): (3, 1)}

    await until(taken_out)
    await idle(service)
    messages = [r.getMessage() for r in caplog.records if "'large'" in r.getMessage()]
    assert len(messages) == 1
    assert "40 in all" in messages[0]
    table = service.shell.context.table
    assert table.assignment(table.row("small", 0)).adding == (3,)


@pytest.mark.parametrize("target", [tuple(range(100_000)), (1,) * 100_000, (-1,) * 50_000])
async def test_absurd_replica_lists_are_refused(cluster: Cluster, service: Service, target: tuple[int, ...]) -> None:
    await create(service, topic("t"))
    tp = TopicPartition("t", 0)
    found = await ask(service, lambda reply: ev.ApiPartitionReassignment(targets={tp: target}, reply=reply))
    code, message = found[tp]
    assert code == Code.INVALID_REPLICA_ASSIGNMENT
    assert f"found {len(target)} replicas, expected 4 at most" in message
    given = (await create(service, topic("u", -1, -1, assignment={0: target})))["u"]
    assert given.error_code == Code.INVALID_REPLICA_ASSIGNMENT
    assert f"partition 0 has {len(target)} replicas, expected 1000 at most" in given.message


# -- finding 2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate_only", [True, False])
async def test_counts_are_refused_before_anything_is_computed(
    cluster: Cluster, service: Service, validate_only: bool
) -> None:
    """Placing so many partitions would exhaust the machine's memory."""
    await create(service, topic("there"))
    found = await create(service, topic("t", MANY), topic("u", 2**31 - 1, 3), validate_only=validate_only)
    assert {result.error_code for result in found.values()} == {Code.INVALID_PARTITIONS}
    assert "found 2000000000 partitions" in found["t"].message
    grown = await grow(service, NewPartitions("there", MANY, None), validate_only=validate_only)
    assert grown["there"].error_code == Code.INVALID_PARTITIONS
    fewest = await grow(service, NewPartitions("there", -(2**31), None), validate_only=validate_only)
    assert fewest["there"].error_code == Code.INVALID_PARTITIONS


async def test_many_topics_of_one_request_are_bounded_together(cluster: Cluster, service: Service) -> None:
    found = await create(service, *(topic(f"t{n}", 60_000, 1) for n in range(50)), validate_only=True)
    assert {r.error_code for r in found.values()} == {Code.POLICY_VIOLATION}
    assert found["t0"].message == "found 3000000 partitions in one request, expected 100000 at most"
    found = await create(service, *(topic(f"t{n}") for n in range(10_001)))
    assert {r.error_code for r in found.values()} == {Code.POLICY_VIOLATION}
    assert found["t0"].message == "found 10001 topics in one request, expected 10000 at most"
    grown = await grow(service, *(NewPartitions(f"t{n}", 2, None) for n in range(10_001)))
    assert {r.error_code for r in grown.values()} == {Code.POLICY_VIOLATION}
    assert await cluster.zk.get_all_topics_in_cluster(watch=False) == []


async def test_topics_that_stand_twice_in_a_request_are_refused(cluster: Cluster, service: Service) -> None:
    """They are counted in one pass: comparing each name with all others would be quadratic."""
    found = await create(service, *(topic(name) for name in ["t"] * 40_000 + ["u"] + ["v"] * 2))
    assert {name: r.error_code for name, r in found.items()} == {
        "t": Code.INVALID_REQUEST,
        "u": Code.POLICY_VIOLATION,
        "v": Code.INVALID_REQUEST,
    }
    found = await create(service, topic("t"), topic("u"), topic("t"))
    assert {name: r.error_code for name, r in found.items()} == {"t": Code.INVALID_REQUEST, "u": Code.NONE}
    grown = await grow(service, NewPartitions("u", 2, None), NewPartitions("u", 3, None))
    assert grown["u"].error_code == Code.INVALID_REQUEST
    assert await cluster.zk.get_all_topics_in_cluster(watch=False) == ["u"]


async def test_topics_of_a_request_that_collide_with_each_other(cluster: Cluster, service: Service) -> None:
    found = await create(service, topic("a.b"), topic("a_b"), topic("c"))
    assert {n: r.error_code for n, r in found.items()} == {"a.b": 0, "a_b": Code.INVALID_TOPIC_EXCEPTION, "c": 0}


@pytest.mark.parametrize("timeout_ms", [-(2**31), -1, 0, 2**31 - 1])
async def test_whatever_the_timeout_the_request_is_answered(
    cluster: Cluster, service: Service, timeout_ms: int
) -> None:
    (code,) = {r.error_code for r in (await create(service, topic("t"), timeout_ms=timeout_ms)).values()}
    assert code in ((Code.NONE,) if timeout_ms > 0 else (Code.NONE, Code.REQUEST_TIMED_OUT))
    gone = await ask(service, lambda r: ev.DeleteTopics(topics=("unknown",), timeout_ms=timeout_ms, reply=r))
    assert gone["unknown"].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_deletions_are_marked_in_bulk(cluster: Cluster, service: Service) -> None:
    names = [f"t{n}" for n in range(1_000)]
    await create(service, *(topic(name) for name in names))
    asked = (*names, *(f"none{n}" for n in range(20_000)), "t0")
    known = service.shell.context.table.topic_by_name["t1"].id
    found = await ask(service, lambda r: ev.DeleteTopics(topics=(*asked, known), timeout_ms=0, reply=r))
    assert len(found) == 21_001
    assert {found[each].error_code for each in (known, "t0", "t1")} == {Code.REQUEST_TIMED_OUT}
    assert found[known].name == "t1"
    assert found["none7"].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_users_of_one_request_are_refused(cluster: Cluster, service: Service) -> None:
    deletions = tuple((f"user{n}", 1) for n in range(1_001))
    found = await ask(
        service, lambda reply: ev.AlterUserScramCredentials(deletions=deletions, upsertions=(), reply=reply)
    )
    assert set(found.values()) == {(Code.POLICY_VIOLATION, "found 1001 users in one request, expected 1000 at most")}


async def test_of_several_wrong_credentials_of_a_user_the_last_is_answered(cluster: Cluster, service: Service) -> None:
    """That error also precedes the one for duplicates, as with Kafka."""
    unknown, few = (ScramUpsertion("alice", m, 1, b"s", b"p" * 32) for m in (9, 1))
    for wrong, code in (
        ((unknown, few), Code.UNACCEPTABLE_CREDENTIAL),
        ((few, unknown), Code.UNSUPPORTED_SASL_MECHANISM),
        ((few, few), Code.UNACCEPTABLE_CREDENTIAL),
    ):
        found = await ask(
            service,
            lambda reply, wrong=wrong: ev.AlterUserScramCredentials(deletions=(), upsertions=wrong, reply=reply),
        )
        assert found["alice"][0] == code


async def test_credential_that_is_too_large_for_its_znode_is_refused(cluster: Cluster, service: Service) -> None:
    credential = ScramUpsertion("alice", 1, 4096, b"s" * 1_000_000, b"p" * 32)
    found = await ask(
        service, lambda reply: ev.AlterUserScramCredentials(deletions=(), upsertions=(credential,), reply=reply)
    )
    code, message = found["alice"]
    assert code == Code.INVALID_CONFIG
    assert "1040000 together at most" in message


async def test_user_that_no_znode_can_name_is_refused_alone(cluster: Cluster, service: Service) -> None:
    """If it were a fault, two of them would make us refuse all credentials for a while, and reload the cluster."""
    users = (".", "..", "alice")
    found = await ask(
        service,
        lambda reply: ev.AlterUserScramCredentials(
            deletions=((".", 2), ("..", 2)),
            upsertions=tuple(ScramUpsertion(user, 1, 4096, b"salt", b"p" * 32) for user in users),
            reply=reply,
        ),
    )
    assert found["alice"] == (Code.NONE, "")
    assert {found[user][0] for user in users[:2]} == {Code.UNACCEPTABLE_CREDENTIAL}


async def test_empty_salted_password_is_refused(cluster: Cluster, service: Service) -> None:
    """No password leads to it, so the user could never log in."""
    credential = ScramUpsertion("alice", 1, 4096, b"salt", b"")
    found = await ask(
        service, lambda reply: ev.AlterUserScramCredentials(deletions=(), upsertions=(credential,), reply=reply)
    )
    assert found["alice"][0] == Code.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize(
    "partitions, code",
    [
        ({}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"1": [2]}, Code.UNKNOWN_SERVER_ERROR),
        ({"0": [1], "2": [3]}, Code.UNKNOWN_SERVER_ERROR),
    ],
)
@pytest.mark.parametrize("assignment", [None, ((1,), (1,))])
async def test_topic_whose_znode_lacks_partitions_does_not_grow(
    cluster: Cluster, service: Service, partitions: Any, code: Code, assignment: Any
) -> None:
    """Where partition 1 is missing, Kafka's controller gives partition 2 the new replicas."""
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await cluster.client.create("/brokers/topics/gaps", data=data)
    await idle(service)
    count = len(partitions) + 2
    result = await grow(service, NewPartitions("gaps", count, assignment), NewPartitions("nosuch", 1, None))
    assert {name: each.error_code for name, each in result.items()} == {
        "gaps": code,
        "nosuch": Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = json.loads(await cluster.client.get_data("/brokers/topics/gaps"))
    assert found["partitions"] == partitions
