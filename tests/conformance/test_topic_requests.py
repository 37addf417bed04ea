"""Kafka's CreateTopicsRequestTest, DeleteTopicsRequestTest and DeleteTopicsRequestWithDeletionDisabledTest.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiocontroller.controller import topic_admin
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import (
    Admin,
    admin_of,
    errors_of,
    exists_everywhere,
    gone_everywhere,
    topic_req,
)
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.harness import until

BROKERS = 3

# -- CreateTopicsRequestTest -------------------------------------------------------------------------------------------


async def validate_valid(
    stage: SimulatedCluster, admin: Admin, *topics: dict[str, Any], validate_only: bool = False
) -> None:
    """Kafka's ``validateValidCreateTopicsRequests``."""
    answer = await admin.create_topics(*topics, validate_only=validate_only)
    assert errors_of(answer) == {topic["name"]: E.NONE for topic in topics}
    for topic in topics:
        found = await stage.topic(topic["name"])
        if validate_only:
            assert found is None
            continue
        assert found is not None
        given = {a["partition_index"]: tuple(a["broker_ids"]) for a in topic["assignments"]}
        partitions = len(given) if given else max(topic["num_partitions"], 1)  # num.partitions is 1
        factor = max(topic["replication_factor"], 1)  # and so is default.replication.factor
        assert sorted(found.partitions) == list(range(partitions))
        for number, assignment in found.partitions.items():
            if given:
                assert assignment.replicas == given[number]
            else:
                assert len(set(assignment.replicas)) == factor
        configs = (await stage.zk.get_topic_configs([topic["name"]])).get(topic["name"], {})
        assert configs == {each["name"]: each["value"] for each in topic["configs"]}
        await exists_everywhere(stage, topic["name"], partitions)


async def test_valid_create_topics_requests(on: Setting) -> None:
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        given = {0: [0, 1], 1: [1, 0], 2: [1, 2]}
        config = {"min.insync.replicas": "2"}
        await validate_valid(stage, admin, topic_req("topic1"))
        await validate_valid(stage, admin, topic_req("topic2", 1, 3))
        await validate_valid(stage, admin, topic_req("topic3", 5, 2, config=config))
        await validate_valid(stage, admin, topic_req("topic4", assignment={0: [0]}))
        await validate_valid(stage, admin, topic_req("topic5", assignment=given, config=config))
        mixed = [topic_req("topic6"), topic_req("topic7", 5, 2), topic_req("topic8", assignment=given)]
        await validate_valid(stage, admin, *mixed)
        mixed = [topic_req("topic9"), topic_req("topic10", 5, 2), topic_req("topic11", assignment=given)]
        await validate_valid(stage, admin, *mixed, validate_only=True)
        await validate_valid(stage, admin, topic_req("topic12", -1, -1))
        await validate_valid(stage, admin, topic_req("topic13", -1, 2))
        await validate_valid(stage, admin, topic_req("topic14", 2, -1))


async def test_error_create_topics_requests(on: Setting) -> None:
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        await admin.create_topics(topic_req("existing-topic"))
        answer = await admin.create_topics(topic_req("existing-topic"))
        assert errors_of(answer) == {"existing-topic": E.TOPIC_ALREADY_EXISTS}
        assert answer.topics[0].error_message == "Topic 'existing-topic' already exists."

        uneven = {0: [0, 1], 1: [0]}
        for wrong, code in (
            (topic_req("t", -2), E.INVALID_PARTITIONS),
            (topic_req("t", 1, BROKERS + 1), E.INVALID_REPLICATION_FACTOR),
            (topic_req("t", config={"not.a.property": "error"}), E.INVALID_CONFIG),
            (topic_req("t", config={"message.format.version": "invalid-value"}), E.INVALID_CONFIG),
            (topic_req("t", assignment=uneven), E.INVALID_REPLICA_ASSIGNMENT),
        ):
            answer = await admin.create_topics(wrong)
            assert errors_of(answer) == {"t": code}
            assert answer.topics[0].error_message
            assert await stage.topic("t") is None

        answer = await admin.create_topics(
            topic_req("existing-topic"),
            topic_req("partial-partitions", -2),
            topic_req("partial-replication", 1, BROKERS + 1),
            topic_req("partial-assignment", assignment=uneven),
            topic_req("partial-none"),
        )
        assert errors_of(answer) == {
            "existing-topic": E.TOPIC_ALREADY_EXISTS,
            "partial-partitions": E.INVALID_PARTITIONS,
            "partial-replication": E.INVALID_REPLICATION_FACTOR,
            "partial-assignment": E.INVALID_REPLICA_ASSIGNMENT,
            "partial-none": E.NONE,
        }
        await exists_everywhere(stage, "partial-none")


async def test_create_topics_with_very_short_timeouts(on: Setting) -> None:
    """Kafka's 1 ms is too short for its controller; here a broker that hears nothing makes any time too short."""
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        for timeout_ms in (0, -1):
            name = f"error-timeout{timeout_ms}"
            answer = await admin.create_topics(topic_req(name, 10, 3), timeout_ms=timeout_ms)
            assert errors_of(answer) == {name: E.REQUEST_TIMED_OUT}
            assert answer.topics[0].error_message is None
            assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (-1, -1)
            await exists_everywhere(stage, name, 10)
        nowhere = topic_req("error-timeout", assignment={0: [7]})
        answer = await admin.create_topics(nowhere, topic_req("in-time"), timeout_ms=500)
        assert errors_of(answer) == {"error-timeout": E.REQUEST_TIMED_OUT, "in-time": E.NONE}
        assert await stage.topic("error-timeout") is not None
        assert answer.topics[0].topic_id is not None


async def test_invalid_create_topics_requests(on: Setting) -> None:
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        for validate_only in (False, True):
            wrong = topic_req("bad-args-topic", 10, 3, assignment={0: [0]})
            answer = await admin.create_topics(wrong, validate_only=validate_only)
            assert errors_of(answer) == {"bad-args-topic": E.INVALID_REQUEST}
            assert await stage.topic("bad-args-topic") is None


async def test_not_controller_creates_no_topics(on: Setting) -> None:
    async with on(1) as stage:
        other = await stage.add_controller()
        async with admin_of(other) as admin:
            answer = await admin.create_topics(topic_req("topic1"))
            assert errors_of(answer) == {"topic1": E.NOT_CONTROLLER}
        assert await stage.topic("topic1") is None


async def test_create_topics_request_versions(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        for version in range(8):
            name = f"topic_{version}"
            wanted = topic_req(name, config={"min.insync.replicas": "2"})
            (topic,) = (await admin.create_topics(wanted, version=version)).topics
            assert (topic.name, topic.error_code) == (name, E.NONE)
            if version >= 5:
                assert (topic.num_partitions, topic.replication_factor) == (1, 1)
                configs = {config.name: config for config in topic.configs}
                assert configs["min.insync.replicas"].value == "2"
                assert configs["min.insync.replicas"].config_source == 1  # the topic's own
                assert configs["retention.ms"].value == "604800000"
                assert configs["retention.ms"].config_source == 5  # Kafka's default
                assert not any(config.read_only or config.is_sensitive for config in topic.configs)
                assert not getattr(topic, "topic_config_error_code", 0)
            if version >= 7:
                assert topic.topic_id is not None
                found = await stage.topic(name)
                assert found is not None
                assert topic.topic_id.bytes == found.topic_id != NO_TOPIC_ID


async def test_create_cluster_metadata_topic(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        answer = await admin.create_topics(topic_req("__cluster_metadata"))
        assert errors_of(answer) == {"__cluster_metadata": E.INVALID_REQUEST}
        assert answer.topics[0].error_message == "Creation of internal topic __cluster_metadata is prohibited."
        assert await stage.topic("__cluster_metadata") is None


# -- DeleteTopicsRequestTest -------------------------------------------------------------------------------------------


async def made(stage: SimulatedCluster, admin: Admin, name: str, partitions: int = 1, factor: int = 1) -> bytes:
    answer = await admin.create_topics(topic_req(name, partitions, factor))
    assert errors_of(answer) == {name: E.NONE}
    await exists_everywhere(stage, name, partitions)
    topic_id: bytes = answer.topics[0].topic_id.bytes
    return topic_id


async def test_topic_deletion_cluster_has_offline_partitions(on: Setting) -> None:
    async with on(2) as stage, admin_of(stage.service) as admin:
        given = {"offline": {0: [0]}, "online": {0: [1]}}
        await admin.create_topics(*(topic_req(name, assignment=where) for name, where in given.items()))
        await stage.kill_broker(0)
        await stage.until_cached("offline", 0, leader=-1)
        assert errors_of(await admin.delete_topics("online")) == {"online": E.NONE}
        assert errors_of(await admin.delete_topics("offline")) == {"offline": E.NONE}
        await stage.start_broker(0)
        for name in given:
            await gone_everywhere(stage, name)


async def test_valid_delete_topic_requests(on: Setting) -> None:
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, "topic-1")
        assert errors_of(await admin.delete_topics("topic-1")) == {"topic-1": E.NONE}
        await gone_everywhere(stage, "topic-1")
        await made(stage, admin, "topic-3", 5, 2)
        await made(stage, admin, "topic-4", 1, 2)
        assert errors_of(await admin.delete_topics("topic-3", "topic-4")) == {"topic-3": E.NONE, "topic-4": E.NONE}
        ids = [await made(stage, admin, "topic-7", 3, 2), await made(stage, admin, "topic-6", 1, 2)]
        answer = await admin.delete_topics_by_id(*ids)
        assert errors_of(answer) == {"topic-7": E.NONE, "topic-6": E.NONE}
        assert [each.topic_id.bytes for each in answer.responses] == ids
        for name in ("topic-3", "topic-4", "topic-7", "topic-6"):
            await gone_everywhere(stage, name)


async def test_error_delete_topic_requests(on: Setting) -> None:
    async with on(BROKERS) as stage, admin_of(stage.service) as admin:
        answer = await admin.delete_topics("invalid-topic")
        assert errors_of(answer) == {"invalid-topic": E.UNKNOWN_TOPIC_OR_PARTITION}

        await made(stage, admin, "partial-topic-1")
        answer = await admin.delete_topics("partial-topic-1", "partial-invalid-topic")
        assert errors_of(answer) == {
            "partial-topic-1": E.NONE,
            "partial-invalid-topic": E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        await gone_everywhere(stage, "partial-topic-1")

        valid, invalid = await made(stage, admin, "topic-id-1"), uuid.UUID(int=7).bytes
        answer = await admin.delete_topics_by_id(invalid, valid)
        found = {each.topic_id.bytes: (each.name, each.error_code) for each in answer.responses}
        assert found == {invalid: (None, E.UNKNOWN_TOPIC_ID), valid: ("topic-id-1", E.NONE)}
        await gone_everywhere(stage, "topic-id-1")

        await made(stage, admin, "invalid-timeout", 5, 2)
        answer = await admin.delete_topics("invalid-timeout", timeout_ms=0)
        assert errors_of(answer) == {"invalid-timeout": E.REQUEST_TIMED_OUT}
        await gone_everywhere(stage, "invalid-timeout")


async def test_not_controller_deletes_no_topics(on: Setting) -> None:
    async with on(1) as stage:
        other = await stage.add_controller()
        async with admin_of(other) as admin:
            answer = await admin.delete_topics("not-controller", timeout_ms=1000)
            assert errors_of(answer) == {"not-controller": E.NOT_CONTROLLER}


async def test_delete_topics_versions(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        for version in range(7):
            name = f"topic-{version}"
            await made(stage, admin, name)
            assert errors_of(await admin.delete_topics(name, version=version)) == {name: E.NONE}
            await gone_everywhere(stage, name)


async def test_delete_records_request(on: Setting) -> None:
    """Kafka's name; it deletes topics, and where deletion is disabled it does not matter whether they exist."""
    async with on(1, delete_topic_enable=False) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, "there")
        for name in ("topic-1", "there"):
            for version, code in (
                (6, E.TOPIC_DELETION_DISABLED),
                (3, E.TOPIC_DELETION_DISABLED),
                (2, E.INVALID_REQUEST),
            ):
                assert errors_of(await admin.delete_topics(name, version=version)) == {name: code}
        assert await stage.topic("there") is not None


# -- what Kafka's tests leave out --------------------------------------------------------------------------------------


async def test_topics_that_are_named_twice_are_answered_twice(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        topic_id = await made(stage, admin, "t")
        asked = [("t", bytes(16)), ("t", bytes(16)), (None, topic_id)]
        topics = [{"name": name, "topic_id": each} for name, each in asked]
        answer = await admin.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=10_000)
        assert [(each.name, each.error_code) for each in answer.responses] == [("t", E.NONE)] * 3
        other = await stage.add_controller()
        async with admin_of(other) as standby:
            answer = await standby.create_topics(topic_req("u"), topic_req("u"))
            assert [each.error_code for each in answer.topics] == [E.NOT_CONTROLLER] * 2


async def test_topics_by_name_and_id_at_once_or_by_neither(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        topic_id = await made(stage, admin, "t")
        topics = [{"name": "t", "topic_id": topic_id}, {"name": "u", "topic_id": bytes(16)}]
        answer = await admin.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=10_000)
        assert [(each.name, each.error_code) for each in answer.responses] == [
            ("t", E.INVALID_REQUEST),
            ("u", E.INVALID_REQUEST),
        ]
        assert answer.responses[0].topic_id.bytes == topic_id
        answer = await admin.delete_topics_by_id(NO_TOPIC_ID)
        assert [each.error_code for each in answer.responses] == [E.TOPIC_AUTHORIZATION_FAILED]
        assert await stage.topic("t") is not None


async def test_partitions_are_checked_before_they_are_made_also_without_making_them(on: Setting) -> None:
    async with on(2) as stage, admin_of(stage.service) as admin:
        await admin.create_topics(topic_req("t", 2, 2), topic_req("u"))

        async def grown(name: str, count: int, *replicas: list[int], validate_only: bool = True) -> tuple[int, str]:
            assignments = [{"broker_ids": each} for each in replicas] or None
            topics = [{"name": name, "count": count, "assignments": assignments}]
            more: dict[str, Any] = {"timeout": 10_000, "validate_only": validate_only}
            (result,) = (await admin.ask(ApiKey.CREATE_PARTITIONS, 3, topics=topics, **more)).results
            return result.error_code, result.error_message

        for validate_only in (True, False):
            for code, asked in (
                (E.INVALID_REPLICA_ASSIGNMENT, ("t", 3, [0])),
                (E.INVALID_REPLICA_ASSIGNMENT, ("t", 3, [0, 0])),
                (E.INVALID_REPLICA_ASSIGNMENT, ("t", 3, [0, 7])),
                (E.INVALID_REPLICA_ASSIGNMENT, ("t", 4, [0, 1])),
                (E.INVALID_PARTITIONS, ("t", 2)),
                (E.INVALID_PARTITIONS, ("t", 1)),
                (E.UNKNOWN_TOPIC_OR_PARTITION, ("unknown", 2)),
                (E.UNKNOWN_TOPIC_OR_PARTITION, ("no/body", 2)),
            ):
                found, message = await grown(*asked, validate_only=validate_only)  # type: ignore[arg-type]
                assert (asked, found) == (asked, code)
                assert message
        assert await grown("t", 3, [0, 1]) == (E.NONE, None)
        found = await stage.topic("t")
        assert found is not None
        assert len(found.partitions) == 2
        twice = [{"name": "u", "count": count, "assignments": None} for count in (2, 3)]
        answer = await admin.ask(ApiKey.CREATE_PARTITIONS, 3, topics=twice, timeout=10_000, validate_only=False)
        assert errors_of(answer) == {"u": E.INVALID_REQUEST}
        assert len(answer.results) == 1
        found = await stage.topic("u")
        assert found is not None
        assert len(found.partitions) == 1


async def test_topic_that_is_queued_for_deletion_does_not_grow(on: Setting) -> None:
    """It is so for a moment only, unless it is being reassigned: the controller is made to believe it."""
    async with on(1) as stage, admin_of(stage.service) as admin:
        await made(stage, admin, "t")
        stage.service.shell.owner = None  # the test changes the context
        context = stage.service.shell.context
        context.topics_to_be_deleted["t"] = None
        for validate_only in (True, False):
            answer = await admin.create_partitions({"t": 2}, validate_only=validate_only)
            assert errors_of(answer) == {"t": E.INVALID_TOPIC_EXCEPTION}
            assert answer.results[0].error_message == "The topic is queued for deletion."
        assert errors_of(await admin.create_topics(topic_req("t"))) == {"t": E.TOPIC_ALREADY_EXISTS}
        context.topics_with_deletion_started["t"] = None  # brokers have forgotten it
        assert errors_of(await admin.delete_topics("t")) == {"t": E.UNKNOWN_TOPIC_OR_PARTITION}
        assert errors_of(await admin.create_topics(topic_req("t"))) == {"t": E.TOPIC_ALREADY_EXISTS}


async def test_topic_that_gets_its_leader_late_is_answered_then(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        asked = asyncio.create_task(admin.create_topics(topic_req("t", assignment={0: [1]}), timeout_ms=50_000))
        await until(lambda: "t" in stage.service.shell.context.table.topic_by_name)
        assert not asked.done()
        await stage.start_broker(1)
        assert errors_of(await asked) == {"t": E.NONE}


async def test_answers_that_wait_cost_little(on: Setting) -> None:
    """The state is read seldom, and not again when all is done, however long a client is ready to wait."""
    looked: list[str] = []

    def counted(shell: ControllerShell, name: str) -> bool:
        looked.append(name)
        return has_leaders(shell, name)

    has_leaders = topic_admin._has_leaders
    async with on(1) as stage, admin_of(stage.service) as admin:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(topic_admin, "_has_leaders", counted)
            topics = [topic_req("late", assignment={0: [7]}), *(topic_req(f"t{n}") for n in range(50))]
            answer = await admin.create_topics(*topics, timeout_ms=3_000)
        assert errors_of(answer)["late"] == E.REQUEST_TIMED_OUT
        assert list(errors_of(answer).values()).count(E.NONE) == 50
        assert len(looked) < 51 + 51 + 10
