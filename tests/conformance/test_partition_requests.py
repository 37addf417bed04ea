"""Kafka's AddPartitionsTest, and PlaintextAdminIntegrationTest on partitions.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of, errors_of, exists_everywhere, topic_req
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster

ASSIGNMENTS = {"new-topic1": [0, 1], "new-topic2": [1, 2], "new-topic3": [2, 3, 0, 1], "new-topic4": [0, 3]}


@asynccontextmanager
async def four_brokers(on: Setting) -> AsyncIterator[tuple[SimulatedCluster, Admin]]:
    async with on(4) as stage, admin_of(stage.service) as admin:
        topics = [topic_req(name, assignment={0: replicas}) for name, replicas in ASSIGNMENTS.items()]
        assert set(errors_of(await admin.create_topics(*topics)).values()) == {E.NONE}
        yield stage, admin


async def increase(
    admin: Admin,
    topic: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    validate_only: bool = False,
) -> Any:
    given = None if assignments is None else [{"broker_ids": each} for each in assignments]
    topics = [{"name": topic, "count": count, "assignments": given}]
    answer = await admin.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=10_000, validate_only=validate_only)
    (result,) = answer.results
    return result


async def placed(stage: SimulatedCluster, topic: str, partitions: int) -> list[tuple[int, set[int]]]:
    """Leader and replicas of each partition, as every broker has them in its metadata."""
    await exists_everywhere(stage, topic, partitions)
    found = []
    for partition in range(partitions):
        cached = {
            (each.leader, tuple(sorted(each.replicas)))
            for broker in stage.simulated
            if (each := stage.cached(broker, topic, partition)) is not None
        }
        ((leader, replicas),) = cached
        found.append((leader, set(replicas)))
    return found


async def test_wrong_replica_count(on: Setting) -> None:
    async with four_brokers(on) as (_, admin):
        assert (await increase(admin, "new-topic1", 2, [[0, 1, 2]])).error_code == E.INVALID_REPLICA_ASSIGNMENT


async def test_missing_partitions_in_create_topics(on: Setting) -> None:
    async with four_brokers(on) as (_, admin):
        answer = await admin.create_topics(
            topic_req("new-topic6", assignment={1: [0, 1], 2: [1, 0]}),
            topic_req("new-topic7", assignment={2: [0, 1], 3: [1, 0]}),
        )
        for topic in answer.topics:
            assert topic.error_code == E.INVALID_REPLICA_ASSIGNMENT
            assert "partitions should be a consecutive 0-based integer sequence" in topic.error_message


async def test_missing_partitions_in_create_partitions(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        result = await increase(admin, "new-topic1", 3, [[0, 1, 2]])
        assert result.error_code == E.INVALID_REPLICA_ASSIGNMENT
        assert "Increasing the number of partitions by 2 but 1 assignments provided." in result.error_message
        await stage.create_topic("new-topic5", {1: [0, 1]})
        result = await increase(admin, "new-topic5", 3, [[0, 1], [0, 1]])
        assert result.error_code not in (E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION)
        found = await stage.topic("new-topic5")
        assert found is not None
        assert list(found.partitions) == [1]


async def test_increment_partitions(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        assert (await increase(admin, "new-topic1", 3)).error_code == E.NONE
        for leader, replicas in await placed(stage, "new-topic1", 3):
            assert len(replicas) == 2
            assert leader in replicas


async def test_manual_assignment_of_replicas(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        assert (await increase(admin, "new-topic2", 3, [[0, 1], [2, 3]])).error_code == E.NONE
        found = await placed(stage, "new-topic2", 3)
        assert found == [(1, {1, 2}), (0, {0, 1}), (2, {2, 3})]


async def test_replica_placement_all_servers(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        assert (await increase(admin, "new-topic3", 7)).error_code == E.NONE
        assert await placed(stage, "new-topic3", 7) == [(leader, {0, 1, 2, 3}) for leader in (2, 3, 0, 1, 2, 3, 0)]
        found = await stage.topic("new-topic3")
        assert found is not None
        assert [found.partitions[n].replicas for n in range(1, 7)] == [
            (3, 2, 0, 1),
            (0, 3, 1, 2),
            (1, 0, 2, 3),
            (2, 3, 0, 1),
            (3, 0, 1, 2),
            (0, 1, 2, 3),
        ]


async def test_replica_placement_partial_servers(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        assert (await increase(admin, "new-topic2", 3)).error_code == E.NONE
        assert await placed(stage, "new-topic2", 3) == [(1, {1, 2}), (2, {0, 2}), (3, {1, 3})]


async def test_placement_begins_at_the_next_broker_where_the_first_leader_is_gone(on: Setting) -> None:
    async with four_brokers(on) as (stage, admin):
        await stage.kill_broker(1)
        assert (await increase(admin, "new-topic2", 3)).error_code == E.NONE
        found = await stage.topic("new-topic2")
        assert found is not None
        assert [found.partitions[n].replicas[0] for n in (1, 2)] == [3, 0]


async def test_create_partitions(on: Setting) -> None:
    """Every refusal, with and without validateOnly, leaves the topics as they are."""
    async with four_brokers(on) as (stage, admin):
        await admin.create_topics(topic_req("topic1", assignment={0: [0]}), topic_req("topic2", assignment={0: [1, 2]}))
        given = [[0, 1], [1, 2]]
        for topic, more in (("topic1", None), ("topic2", given)):
            assert (await increase(admin, topic, 3, more, validate_only=True)).error_code == E.NONE
            unchanged = await stage.topic(topic)
            assert unchanged is not None
            assert list(unchanged.partitions) == [0]
            assert (await increase(admin, topic, 3, more)).error_code == E.NONE
        found = await stage.topic("topic2")
        assert found is not None
        assert [found.partitions[n].replicas for n in (1, 2)] == [(0, 1), (1, 2)]
        refused: list[tuple[str, int, list[list[int]] | None, E, str]] = [
            ("topic1", 1, None, E.INVALID_PARTITIONS, "has 3 partitions, which is higher than the requested 1"),
            ("topic2", 3, None, E.INVALID_PARTITIONS, "already has 3 partitions"),
            ("topic2", 3, given, E.INVALID_PARTITIONS, "already has 3 partitions"),
            ("topic2", 3, given[::-1], E.INVALID_PARTITIONS, "already has 3 partitions"),
            ("an-unknown-topic", 2, None, E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'an-unknown-topic' does not exist"),
            ("topic1", -22, None, E.INVALID_PARTITIONS, "has 3 partitions, which is higher than the requested -22"),
            ("topic1", 4, [[1, 2]], E.INVALID_REPLICA_ASSIGNMENT, "Inconsistent replication factor"),
            ("topic1", 6, [[1]], E.INVALID_REPLICA_ASSIGNMENT, "by 3 but 1 assignments provided"),
            ("topic1", 4, [[1], [2]], E.INVALID_REPLICA_ASSIGNMENT, "by 1 but 2 assignments provided"),
            ("topic1", 4, [[1, 1]], E.INVALID_REPLICA_ASSIGNMENT, "Duplicate brokers"),
            ("topic1", 5, [[1], [1, 0]], E.INVALID_REPLICA_ASSIGNMENT, "Inconsistent replication factor"),
            ("topic1", 4, [[12]], E.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s) in replica assignment: 12"),
            ("topic1", 4, [], E.INVALID_REPLICA_ASSIGNMENT, "by 1 but 0 assignments provided"),
        ]
        before = [await stage.topic(topic) for topic in ("topic1", "topic2")]
        for validate_only in (True, False):
            for topic, count, assignments, code, text in refused:
                result = await increase(admin, topic, count, assignments, validate_only=validate_only)
                assert (result.error_code, text in result.error_message) == (code, True), (topic, count, result)
                assert [await stage.topic(each) for each in ("topic1", "topic2")] == before
        answer = await admin.create_partitions({"topic1": 4, "topic2": 2})
        assert errors_of(answer) == {"topic1": E.NONE, "topic2": E.INVALID_PARTITIONS}
        await exists_everywhere(stage, "topic1", 4)
        assert await stage.topic("topic2") == before[1]
