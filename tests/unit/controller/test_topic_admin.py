"""CreateTopics, CreatePartitions and DeleteTopics on a whole controller: each topic's result, and when it comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.controller import topic_admin
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode as Code
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.request_content import NewPartitions, NewTopic, TopicResult
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.unit.controller.virtual_cluster import (
    Stage,
    ask,
    begin,
    stage,
    with_topic,
)


def topic(name: str, partitions: int = -1, factor: int = -1, **assignment: tuple[int, ...]) -> NewTopic:
    """``p0=(1, 2)`` is the assignment of partition 0."""
    return NewTopic(name, partitions, factor, {int(n[1:]): r for n, r in assignment.items()}, {})


async def create(service: Service, *topics: NewTopic, timeout_ms: int = 10_000, validate_only: bool = False) -> Any:
    return await ask(service, ev.CreateTopics, topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


async def grow(service: Service, *topics: NewPartitions, timeout_ms: int = 10_000, validate_only: bool = False) -> Any:
    return await ask(service, ev.CreatePartitions, topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


async def delete(service: Service, *topics: str | bytes, timeout_ms: int = 10_000) -> Any:
    return await ask(service, ev.DeleteTopics, topics=topics, timeout_ms=timeout_ms)


def codes(results: dict[str | bytes, TopicResult]) -> dict[str | bytes, Code]:
    return {name: Code(result.error_code) for name, result in results.items()}


async def replicas(it: Stage, name: str) -> dict[int, tuple[int, ...]]:
    [found] = (await it.zk.get_topic_assignments([name], watch=False)).found
    return {number: each.replicas for number, each in found.partitions.items()}


# -- creating ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_topic_is_placed_over_the_live_brokers_or_as_it_is_asked_for() -> None:
    async with stage() as it:
        service = await begin(it, 3, num_partitions=2, default_replication_factor=3)
        results = await create(service, topic("placed", 4, 2), topic("given", p0=(3, 9), p1=(2, 1)), topic("default"))
        assert codes(results) == dict.fromkeys(("placed", "given", "default"), Code.NONE)
        counts = {name: (r.partitions, r.replication_factor) for name, r in results.items()}
        assert counts == {"placed": (4, 2), "given": (2, 2), "default": (2, 3)}
        for name, result in results.items():
            assert result.topic_id == service.shell.context.table.topic_by_name[name].id != NO_TOPIC_ID
        assert await replicas(it, "given") == {0: (3, 9), 1: (2, 1)}
        placed = await replicas(it, "placed")
        assert sorted(placed) == [0, 1, 2, 3]
        assert all(len(set(each)) == 2 and set(each) <= {1, 2, 3} for each in placed.values())


@virtual_time
async def test_each_topic_is_refused_by_itself() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await create(service, topic("there", 1, 1))
        both = NewTopic("both", 1, -1, {0: (1,)}, {})
        controllers = topic("ours", p0=(1, service.shell.id))
        null = NewTopic("null", 1, 1, {}, {"retention.ms": None})
        asked = (
            topic("there", 1, 1),
            both,
            controllers,
            null,
            topic("large", 1, 3),
            topic("none", 0, 1),
            topic("t", 1, 1),
        )
        assert codes(await create(service, *asked)) == {
            "there": Code.TOPIC_ALREADY_EXISTS,
            "both": Code.INVALID_REQUEST,
            "ours": Code.INVALID_REPLICA_ASSIGNMENT,
            "null": Code.INVALID_CONFIG,
            "large": Code.INVALID_REPLICATION_FACTOR,
            "none": Code.INVALID_PARTITIONS,
            "t": Code.NONE,
        }
        assert await it.zk.get_all_topics_in_cluster(watch=False) == ["t", "there"]


@virtual_time
async def test_a_validation_alone_writes_nothing() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        results = await create(service, topic("t", 3, 2), topic("large", 1, 3), validate_only=True)
        assert codes(results) == {"t": Code.NONE, "large": Code.INVALID_REPLICATION_FACTOR}
        assert (results["t"].partitions, results["t"].replication_factor) == (3, 2)
        assert await it.zk.get_all_topics_in_cluster(watch=False) == []


@virtual_time
async def test_what_is_too_much_together_is_refused_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "MAX_PARTITIONS_PER_REQUEST", 5)
    monkeypatch.setattr(topic_admin, "MAX_TOPICS_PER_REQUEST", 3)
    async with stage() as it:
        service = await begin(it, 1)
        given = topic("b", p0=(1,), p1=(1,), p2=(1,))
        assert set(codes(await create(service, topic("a", 3, 1), given)).values()) == {Code.POLICY_VIOLATION}
        assert set(codes(await create(service, *(topic(n, 1, 1) for n in "abcd"))).values()) == {Code.POLICY_VIOLATION}
        assert await it.zk.get_all_topics_in_cluster(watch=False) == []
        results = await create(service, topic("twice", 9, 1), topic("a", 2, 1), given, topic("twice", 9, 1))
        assert set(codes(results).values()) == {Code.INVALID_REQUEST, Code.POLICY_VIOLATION}
        assert codes(await create(service, topic("a", 2, 1), given)) == {"a": Code.NONE, "b": Code.NONE}
        assert codes(await create(service, topic("alone", 6, 1))) == {"alone": Code.NONE}


# -- answers -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_answer_waits_for_brokers_but_not_for_ever() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        began_s = it.world.clock.monotonic()
        assert codes(await create(service, topic("quick", 1, 2))) == {"quick": Code.NONE}
        assert it.world.clock.monotonic() - began_s < 0.5
        it.brokers[2].unanswered.add(ApiKey.UPDATE_METADATA)
        began_s = it.world.clock.monotonic()
        assert codes(await create(service, topic("slow", p0=(1,)))) == {"slow": Code.NONE}
        assert it.world.clock.monotonic() - began_s == pytest.approx(topic_admin.ACKNOWLEDGED_WITHIN_S, abs=0.5)


@virtual_time
async def test_topics_without_a_leader_are_answered_when_time_is_up() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        began_s = it.world.clock.monotonic()
        results = await create(service, topic("led", p0=(1,)), topic("not", p0=(1,), p1=(9,)), timeout_ms=3000)
        assert codes(results) == {"led": Code.NONE, "not": Code.REQUEST_TIMED_OUT}
        assert results["not"].topic_id == service.shell.context.table.topic_by_name["not"].id
        assert it.world.clock.monotonic() - began_s == pytest.approx(3, abs=0.2)
        results = await create(service, topic("now", p0=(1,)), topic("large", 1, 3), timeout_ms=0)
        assert codes(results) == {"now": Code.REQUEST_TIMED_OUT, "large": Code.INVALID_REPLICATION_FACTOR}
        assert "now" in await it.zk.get_all_topics_in_cluster(watch=False), "it is created all the same"


# -- growing -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_partitions_are_added_or_refused_topic_by_topic() -> None:
    async with stage() as it:
        service = await begin(it, 3)
        await create(service, topic("t", p0=(2, 3)), topic("u", p0=(2, 3)), topic("v", p0=(1,)))
        results = await grow(
            service,
            NewPartitions("t", 3, None),
            NewPartitions("u", 3, ((1, 2), (3, 1))),
            NewPartitions("v", 1, None),
            NewPartitions("none", 1, None),
        )
        assert codes(results) == {
            "t": Code.NONE,
            "u": Code.NONE,
            "v": Code.INVALID_PARTITIONS,
            "none": Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await replicas(it, "u") == {0: (2, 3), 1: (1, 2), 2: (3, 1)}
        assert [len(each) for each in (await replicas(it, "t")).values()] == [2, 2, 2]


@virtual_time
@pytest.mark.parametrize(
    "count, assignment, code",
    [
        (1, None, Code.INVALID_PARTITIONS),
        (2, None, Code.INVALID_PARTITIONS),
        (3, ((1, 2), (2, 1)), Code.INVALID_REPLICA_ASSIGNMENT),
        (4, ((1, 2),), Code.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1,),), Code.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 9),), Code.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 1),), Code.INVALID_REPLICA_ASSIGNMENT),
        (3, ((1, 2),), Code.NONE),
    ],
)
async def test_new_partitions_that_do_not_fit_their_topic(
    count: int, assignment: tuple[tuple[int, ...], ...] | None, code: Code
) -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await create(service, topic("t", p0=(1, 2), p1=(2, 1)))
        for validate_only in (True, False):
            wanted = NewPartitions("t", count, assignment)
            assert codes(await grow(service, wanted, validate_only=validate_only)) == {"t": code}
            grown = code is Code.NONE and not validate_only
            assert len(await replicas(it, "t")) == 2 + grown


@virtual_time
async def test_a_topic_with_a_gap_does_not_grow() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        await it.create("/brokers/topics/t", msgspec.json.encode({"version": 1, "partitions": {"0": [1], "2": [1]}}))
        await it.until(lambda: "t" in service.shell.context.table.topic_by_name)
        assert codes(await grow(service, NewPartitions("t", 3, None))) == {"t": Code.UNKNOWN_SERVER_ERROR}


# -- deleting ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_topic_is_deleted_by_its_name_or_by_its_id() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await create(service, *(topic(name, 1, 2) for name in "tuv"))
        ids = {name: known.id for name, known in service.shell.context.table.topic_by_name.items()}
        results = await delete(service, "t", ids["u"], "u", "none", b"another topics's")
        assert codes(results) == {
            "t": Code.NONE,
            ids["u"]: Code.NONE,
            "u": Code.NONE,
            "none": Code.UNKNOWN_TOPIC_OR_PARTITION,
            b"another topics's": Code.UNKNOWN_TOPIC_ID,
        }
        assert results[ids["u"]].name == "u"
        assert await it.zk.get_all_topics_in_cluster(watch=False) == ["v"]
        assert codes(await delete(service, "v", timeout_ms=0)) == {"v": Code.REQUEST_TIMED_OUT}


@virtual_time
async def test_no_topic_is_deleted_where_deletion_is_forbidden() -> None:
    async with stage() as it:
        service = await begin(it, 1, delete_topic_enable=False)
        await create(service, topic("t", 1, 1))
        assert codes(await delete(service, "t", "none")) == {
            "t": Code.TOPIC_DELETION_DISABLED,
            "none": Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await it.zk.get_topic_deletions(watch=False) == []


@virtual_time
async def test_a_deletion_is_answered_as_soon_as_all_topics_are_gone() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        for name in ("t", "u"):
            await it.create(f"/brokers/topics/{name}", msgspec.json.encode({"version": 1, "partitions": {"0": [1, 2]}}))
        await it.until(lambda: len(service.shell.context.table) == 2)
        await it.sleep(1)
        began_s = it.world.clock.monotonic()
        answer = await ask(service, ev.DeleteTopics, topics=("t", "u"), timeout_ms=25_000)
        assert it.world.clock.monotonic() - began_s < topic_admin.ACKNOWLEDGED_WITHIN_S
        assert [result.error_code for result in answer.values()] == [Code.NONE] * 2
        assert await it.zk.get_all_topics_in_cluster(watch=False) == []


@virtual_time
async def test_new_partitions_are_asked_for_once_and_of_a_topic_that_there_is() -> None:
    """Kafka's ``CreatePartitions``: each topic that is refused is refused by itself."""
    async with stage() as it:
        service = await begin(it, 1)
        await with_topic(it, [1], 1)
        for names, expected in (
            (("none",), {"none": Code.UNKNOWN_TOPIC_OR_PARTITION}),
            (("t", "t"), {"t": Code.INVALID_REQUEST}),
            (("t",), {"t": Code.NONE}),
        ):
            topics = tuple(NewPartitions(name, 2, None) for name in names)
            answer = await ask(service, ev.CreatePartitions, topics=topics, timeout_ms=5000, validate_only=False)
            assert {name: result.error_code for name, result in answer.items()} == expected
