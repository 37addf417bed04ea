"""What Kafka's PlaintextAdminIntegrationTest asks of elections and reassignments.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of, errors_of, exists_everywhere, topic_req
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster

PREFERRED, UNCLEAN = 0, 1
P0, P1 = TopicPartition("unclean-test-topic-1", 0), TopicPartition("unclean-test-topic-1", 1)
Outcomes = dict[TopicPartition, tuple[int, str | None]]


def grouped(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return list(topics.items())


async def elect(admin: Admin, kind: int, *partitions: TopicPartition, everything: bool = False) -> Outcomes:
    asked = [{"topic": topic, "partitions": numbers} for topic, numbers in grouped(partitions)]
    fields = {"election_type": kind, "topic_partitions": None if everything else asked, "timeout": 10_000}
    answer = await admin.ask(ApiKey.ELECT_LEADERS, 2, **fields)
    assert answer.error_code == E.NONE
    return {
        TopicPartition(each.topic, p.partition_id): (int(p.error_code), p.error_message)
        for each in answer.replica_election_results
        for p in each.partition_result
    }


async def reassign(admin: Admin, targets: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, int]:
    topics = [
        {
            "name": topic,
            "partitions": [{"partition_index": n, "replicas": targets[TopicPartition(topic, n)]} for n in ns],
        }
        for topic, ns in grouped(list(targets))
    ]
    answer = await admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=10_000)
    assert answer.error_code == E.NONE
    return {
        TopicPartition(t.name, p.partition_index): int(p.error_code) for t in answer.responses for p in t.partitions
    }


async def listed(admin: Admin, *partitions: TopicPartition, everything: bool = False) -> list[str]:
    asked = [{"name": topic, "partition_indexes": numbers} for topic, numbers in grouped(partitions)]
    answer = await admin.ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None if everything else asked, timeout=10_000
    )
    assert answer.error_code == E.NONE
    return [topic.name for topic in answer.topics]


async def made(stage: SimulatedCluster, admin: Admin, topic: str, *replicas: Sequence[int]) -> None:
    answer = await admin.create_topics(topic_req(topic, assignment=dict(enumerate(replicas))))
    assert errors_of(answer) == {topic: E.NONE}
    await exists_everywhere(stage, topic, len(replicas))


async def led(stage: SimulatedCluster, tp: TopicPartition, leader: int) -> None:
    await stage.until_cached(tp.topic, tp.partition, leader=leader)


async def gone_in_turn(stage: SimulatedCluster, first: int, then: int, *partitions: TopicPartition) -> None:
    """``first`` leaves the ISRs that it is in, then no replica in them is left."""
    await stage.kill_broker(first)
    for tp in partitions:
        await stage.until_isr(tp.topic, {then}, tp.partition)
    await stage.kill_broker(then)
    for tp in partitions:
        await led(stage, tp, -1)


# -- elections ---------------------------------------------------------------------------------------------------------


async def test_elect_preferred_leaders(on: Setting) -> None:
    tp1, tp2 = (TopicPartition(f"elect-preferred-leaders-topic-{n}", 0) for n in (1, 2))
    unknown = TopicPartition("topic-does-not-exist", 0)
    async with on(3) as stage, admin_of(stage.service) as admin:
        for tp in (tp1, tp2):
            await made(stage, admin, tp.topic, [0, 1, 2])

        async def prefer(*replicas: int) -> None:
            """The preferred leaders change, the present ones do not."""
            assert set((await reassign(admin, {tp1: replicas, tp2: replicas})).values()) == {E.NONE}
            for tp in (tp1, tp2):
                await stage.until_cached(tp.topic, 0, replicas=tuple(replicas))

        async def leaders(first: int, second: int) -> None:
            await led(stage, tp1, first)
            await led(stage, tp2, second)

        async def elected(*partitions: TopicPartition, everything: bool = False) -> dict[TopicPartition, int]:
            found = await elect(admin, PREFERRED, *partitions, everything=everything)
            return {tp: code for tp, (code, _) in found.items()}

        assert await elected(tp1) == {tp1: E.ELECTION_NOT_NEEDED}
        assert await elected(everything=True) == {}
        await leaders(0, 0)
        await prefer(1, 2, 0)
        await leaders(0, 0)
        assert await elected(tp1) == {tp1: E.NONE}
        await leaders(1, 0)
        assert await elected(everything=True) == {tp2: E.NONE}
        await leaders(1, 1)

        assert await elect(admin, PREFERRED, unknown) == {
            unknown: (E.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        }
        await prefer(2, 0, 1)
        assert await elected(unknown, tp1) == {unknown: E.UNKNOWN_TOPIC_OR_PARTITION, tp1: E.NONE}
        await leaders(2, 1)
        assert await elected(tp2) == {tp2: E.NONE}
        await leaders(2, 2)

        await prefer(1, 2, 0)
        await stage.kill_broker(1)
        for tp in (tp1, tp2):
            await stage.until_isr(tp.topic, {0, 2})
        assert await elected(tp1) == {tp1: E.PREFERRED_LEADER_NOT_AVAILABLE}
        found = await elect(admin, PREFERRED, everything=True)
        assert {tp: code for tp, (code, _) in found.items()} == dict.fromkeys(
            (tp1, tp2), E.PREFERRED_LEADER_NOT_AVAILABLE
        )
        assert all(message for _, message in found.values())
        await leaders(2, 2)


async def test_elect_unclean_leaders_for_one_partition(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2])
        await gone_in_turn(stage, 2, 1, P0)
        await stage.start_broker(2)
        assert await elect(admin, UNCLEAN, P0) == {P0: (E.NONE, None)}
        await led(stage, P0, 2)


async def test_elect_unclean_leaders_for_many_partitions(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2], [1, 2])
        await gone_in_turn(stage, 2, 1, P0, P1)
        await stage.start_broker(2)
        assert await elect(admin, UNCLEAN, P0, P1) == {P0: (E.NONE, None), P1: (E.NONE, None)}
        await led(stage, P0, 2)
        await led(stage, P1, 2)


async def test_elect_unclean_leaders_for_all_partitions(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2], [1, 0])
        await stage.kill_broker(2)
        await stage.until_isr(P0.topic, {1})
        await stage.kill_broker(1)
        await led(stage, P0, -1)
        await led(stage, P1, 0)
        await stage.start_broker(2)
        assert await elect(admin, UNCLEAN, everything=True) == {P0: (E.NONE, None)}
        await led(stage, P0, 2)
        await led(stage, P1, 0)


async def test_elect_unclean_leaders_for_unknown_partitions(on: Setting) -> None:
    nowhere = TopicPartition("unknown-topic", 0)
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2])
        found = await elect(admin, UNCLEAN, P1, nowhere)
        assert {tp: code for tp, (code, _) in found.items()} == dict.fromkeys(
            (P1, nowhere), E.UNKNOWN_TOPIC_OR_PARTITION
        )


async def test_elect_unclean_leaders_when_no_live_brokers(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2])
        await gone_in_turn(stage, 2, 1, P0)
        ((code, _),) = (await elect(admin, UNCLEAN, P0)).values()
        assert code == E.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_elect_unclean_leaders_noop(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2])
        await stage.kill_broker(1)
        await led(stage, P0, 2)
        await stage.start_broker(1)
        ((code, _),) = (await elect(admin, UNCLEAN, P0)).values()
        assert code == E.ELECTION_NOT_NEEDED


async def test_elect_unclean_leaders_and_noop(on: Setting) -> None:
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, P0.topic, [1, 2], [1, 0])
        await stage.kill_broker(2)
        await stage.until_isr(P0.topic, {1})
        await stage.kill_broker(1)
        await led(stage, P0, -1)
        await led(stage, P1, 0)
        await stage.start_broker(2)
        found = await elect(admin, UNCLEAN, P0, P1)
        assert {tp: code for tp, (code, _) in found.items()} == {P0: E.NONE, P1: E.ELECTION_NOT_NEEDED}
        await led(stage, P0, 2)
        await led(stage, P1, 0)


# -- reassignments -----------------------------------------------------------------------------------------------------


async def test_list_reassignments_does_not_show_non_reassigning_partitions(on: Setting) -> None:
    tp = TopicPartition("list-reassignments-no-reassignments", 0)
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, tp.topic, [0, 1, 2])
        assert await listed(admin, tp) == []
        assert await listed(admin, everything=True) == []


async def test_list_reassignments_does_not_show_deleted_partitions(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        assert await listed(admin, TopicPartition("list-reassignments-no-reassignments", 0)) == []
        assert await listed(admin, everything=True) == []


async def test_invalid_alter_partition_reassignments(on: Setting) -> None:
    tp1, tp2, tp3, beyond = (TopicPartition("alter-reassignments-topic-1", n) for n in (0, 1, 2, 4))
    nowhere = TopicPartition("topicA", 0)
    async with on(3) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, tp1.topic, [0], [1], [2], [0])
        found = await reassign(admin, dict.fromkeys((tp1, tp2, tp3, nowhere, beyond), (0, 1, 2)))
        assert (found[nowhere], found[beyond]) == (E.UNKNOWN_TOPIC_OR_PARTITION,) * 2
        assert {found[tp] for tp in (tp1, tp2, tp3)} == {E.NONE}
        found = await reassign(admin, {tp1: (0, 1, 2, 3), tp2: (-3, -2, -1), tp3: (0, 1, 1)})
        assert found == dict.fromkeys((tp1, tp2, tp3), E.INVALID_REPLICA_ASSIGNMENT)
