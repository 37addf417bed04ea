"""Rights at the controller: the answers that Kafka's ``KafkaApis`` gives, code by code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, AclPermissionType, ResourceType
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import cold, elect_leaders
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.front import Client, Front, front, settle

Op, E = AclOperation, KafkaErrorCode
CLUSTER = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
IDS = {name: bytes([n]) * 16 for n, name in enumerate(("seen", "mine", "hidden"), 1)}
ME = "User:ANONYMOUS"


def topic(name: str) -> ResourcePattern:
    return ResourcePattern(ResourceType.TOPIC, name)


@asynccontextmanager
async def guarded(
    *acls: tuple[ResourcePattern, Iterable[AclOperation]], is_active: bool = True
) -> AsyncIterator[Front]:
    async with front() as it:
        it.shell.authorizer = AclAuthorizer()
        it.shell.authorizer.replace(
            {
                p: [AccessControlEntry(ME, "*", op, AclPermissionType.ALLOW) for op in operations]
                for p, operations in acls
            }
        )
        if not is_active:
            it.shell.channels = None
        for name, topic_id in IDS.items():
            it.context.table.add_partition(it.context.table.add_topic(name, topic_id), 0, ReplicaAssignment((1,)))
        yield it


async def asked(it: Front, api: ApiKey, version: int, **fields: Any) -> Client:
    client = await it.connect()
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
    await settle()
    return client


def last_answer(client: Client, api: ApiKey, version: int) -> Any:
    return cold.decode_response(api, version, client.answer(api, version))


# -- what the cluster allows -------------------------------------------------------------------------------------------

ON_CLUSTER = [
    (ApiKey.ALTER_PARTITION, 3, Op.CLUSTER_ACTION),
    (ApiKey.CONTROLLED_SHUTDOWN, 3, Op.CLUSTER_ACTION),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, Op.CLUSTER_ACTION),
    (ApiKey.ELECT_LEADERS, 2, Op.ALTER),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, Op.ALTER),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, Op.DESCRIBE),
    (ApiKey.UPDATE_FEATURES, 1, Op.ALTER),
]


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize("api,version,operation", ON_CLUSTER)
@virtual_time
async def test_permission_on_the_cluster(api: ApiKey, version: int, operation: AclOperation, is_active: bool) -> None:
    """Kafka asks for the permission before it asks whether it is the controller."""
    others = [op for op in Op if op > Op.ALL and op != operation]
    if operation == Op.DESCRIBE:
        others = [Op.CLUSTER_ACTION, Op.CREATE]
    async with guarded((CLUSTER, others), (topic("*"), [Op.ALL]), is_active=is_active) as it:
        client = await asked(it, api, version)
        assert last_answer(client, api, version).error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert not it.queue
        it.shell.authorizer.update(CLUSTER, [AccessControlEntry(ME, "*", operation, AclPermissionType.ALLOW)])
        await asked(it, api, version)
        assert len(it.queue) == 1


@virtual_time
async def test_refused_election_is_answered_for_each_partition_too() -> None:
    async with guarded() as it:
        client = await it.connect()
        body = elect_leaders.encode_elect_leaders_request(2, [TopicPartition("t", 0), TopicPartition("t", 1)])
        client.request(ApiKey.ELECT_LEADERS, 2, body)
        await settle()
        answer = elect_leaders.decode_elect_leaders_response(2, client.answer(ApiKey.ELECT_LEADERS, 2))
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        assert {code for code, _ in answer.results.values()} == {E.CLUSTER_AUTHORIZATION_FAILED}
        assert len(answer.results) == 2


@pytest.mark.parametrize("is_active,code", [(True, E.CLUSTER_AUTHORIZATION_FAILED), (False, E.NOT_CONTROLLER)])
@virtual_time
async def test_scram_credentials_check_the_role_first(is_active: bool, code: KafkaErrorCode) -> None:
    async with guarded(is_active=is_active) as it:
        deletions = [{"name": "alice", "mechanism": 1}]
        client = await asked(it, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions)
        [result] = last_answer(client, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0).results
        assert (result.user, result.error_code) == ("alice", code)
        assert not it.queue


# -- topics ------------------------------------------------------------------------------------------------------------


async def create(it: Front, *names: str) -> Client:
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in names]
    return await asked(it, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=1000)


def created(client: Client) -> dict[str, tuple[int, int, int]]:
    return {
        t.name: (t.error_code, t.topic_config_error_code, t.num_partitions)
        for t in last_answer(client, ApiKey.CREATE_TOPICS, 7).topics
    }


@virtual_time
async def test_create_on_each_topic() -> None:
    async with guarded((topic("a"), [Op.CREATE]), (topic("c"), [Op.CREATE, Op.DESCRIBE_CONFIGS])) as it:
        client = await create(it, "a", "b", "c")
        event = await it.event()
        assert [t.name for t in event.topics] == ["a", "c"]
        event.reply.answer({name: TopicResult(0, partitions=2, replication_factor=1) for name in ("a", "c")})
        await settle()
        hidden = E.TOPIC_AUTHORIZATION_FAILED
        assert created(client) == {"a": (0, hidden, -1), "b": (hidden, hidden, -1), "c": (0, 0, 2)}


@virtual_time
async def test_configuration_of_a_created_topic_needs_the_right_to_describe_it() -> None:
    async with guarded((topic("a"), [Op.CREATE, Op.DESCRIBE_CONFIGS]), (topic("b"), [Op.CREATE])) as it:
        topics = [
            {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "cleanup.policy", "value": "compact"}],
            }
            for name in ("a", "b")
        ]
        client = await asked(it, ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=1000)
        (await it.event()).reply.answer(
            {name: TopicResult(0, partitions=1, replication_factor=1) for name in ("a", "b")}
        )
        await settle()
        first, second = last_answer(client, ApiKey.CREATE_TOPICS, 5).topics
        found = {c.name: (c.value, c.config_source) for c in first.configs}
        assert found["cleanup.policy"] == ("compact", 1)
        assert found["retention.ms"] == ("77", 3)  # set for all brokers while they run
        assert found["segment.bytes"] == ("1073741824", 5)
        assert (first.topic_config_error_code, second.topic_config_error_code, second.configs) == (0, 29, ())


@virtual_time
async def test_configurations_of_very_many_topics_are_answered() -> None:
    async with guarded((CLUSTER, [Op.CREATE]), (topic("*"), [Op.DESCRIBE_CONFIGS])) as it:
        names = [f"t{n}" for n in range(101)]
        client = await create(it, *names)
        (await it.event()).reply.answer(dict.fromkeys(names, TopicResult(0, partitions=2, replication_factor=1)))
        await settle()
        assert set(created(client).values()) == {(0, 0, 2)}
        configs = [t.configs for t in last_answer(client, ApiKey.CREATE_TOPICS, 7).topics]
        assert len(configs[0]) > 30
        assert all(each == configs[0] for each in configs)


@virtual_time
async def test_create_on_the_cluster_allows_every_topic() -> None:
    async with guarded((CLUSTER, [Op.CREATE])) as it:
        await create(it, "a", "b")
        assert [t.name for t in (await it.event()).topics] == ["a", "b"]


@virtual_time
async def test_topics_named_twice_and_kafkas_own_are_refused() -> None:
    async with guarded((CLUSTER, [Op.CREATE])) as it:
        client = await create(it, "a", "a", "__cluster_metadata")
        assert {name: code for name, (code, _, _) in created(client).items()} == {
            "a": E.INVALID_REQUEST,
            "__cluster_metadata": E.INVALID_REQUEST,
        }
        assert not it.queue


@virtual_time
async def test_alter_on_each_topic_that_grows() -> None:
    async with guarded((topic("a"), [Op.ALTER])) as it:
        topics = [{"name": name, "count": 3, "assignments": None} for name in ("a", "b", "c", "c")]
        client = await asked(it, ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=1000)
        event = await it.event()
        assert [t.topic for t in event.topics] == ["a"]
        event.reply.answer({"a": TopicResult(0)})
        await settle()
        found = {r.name: r.error_code for r in last_answer(client, ApiKey.CREATE_PARTITIONS, 3).results}
        assert found == {"a": 0, "b": E.TOPIC_AUTHORIZATION_FAILED, "c": E.INVALID_REQUEST}


@virtual_time
async def test_delete_by_name() -> None:
    async with guarded((topic("mine"), [Op.DELETE]), (topic("gone"), [Op.DELETE])) as it:
        client = await asked(it, ApiKey.DELETE_TOPICS, 4, topic_names=["mine", "hidden", "gone", "no"], timeout=1000)
        event = await it.event()
        assert event.topics == ("mine", "gone")
        event.reply.answer({"mine": TopicResult(0), "gone": TopicResult(E.UNKNOWN_TOPIC_OR_PARTITION)})
        await settle()
        found = {r.name: r.error_code for r in last_answer(client, ApiKey.DELETE_TOPICS, 4).responses}
        denied = E.TOPIC_AUTHORIZATION_FAILED  # whether there is such a topic or not
        assert found == {"mine": 0, "hidden": denied, "gone": E.UNKNOWN_TOPIC_OR_PARTITION, "no": denied}


@virtual_time
async def test_delete_by_id_tells_the_name_only_with_the_right_to_describe() -> None:
    async with guarded((topic("mine"), [Op.DELETE]), (topic("seen"), [Op.DESCRIBE])) as it:
        ids = [*IDS.values(), b"\x09" * 16]
        topics = [{"name": None, "topic_id": each} for each in ids]
        client = await asked(it, ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=1000)
        event = await it.event()
        assert event.topics == (IDS["mine"],)
        event.reply.answer({IDS["mine"]: TopicResult(0, name="mine")})
        await settle()
        found = [
            (r.topic_id.bytes, r.name, r.error_code) for r in last_answer(client, ApiKey.DELETE_TOPICS, 6).responses
        ]
        assert found == [
            (IDS["seen"], "seen", E.TOPIC_AUTHORIZATION_FAILED),
            (IDS["mine"], "mine", 0),
            (IDS["hidden"], None, E.TOPIC_AUTHORIZATION_FAILED),
            (b"\x09" * 16, None, E.UNKNOWN_TOPIC_ID),
        ]


@pytest.mark.parametrize("version,code", [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
@virtual_time
async def test_deletion_that_is_disabled_is_disabled_for_all(version: int, code: KafkaErrorCode) -> None:
    async with guarded() as it:
        it.shell.policy = msgspec.structs.replace(it.shell.policy, delete_topic_enable=False)
        client = await asked(it, ApiKey.DELETE_TOPICS, version, topic_names=["mine"], timeout=1000)
        assert [r.error_code for r in last_answer(client, ApiKey.DELETE_TOPICS, version).responses] == [code]


@pytest.mark.parametrize(
    "api,fields",
    [
        (ApiKey.CREATE_TOPICS, {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 1}]}),
        (ApiKey.CREATE_PARTITIONS, {"topics": [{"name": "a", "count": 3, "assignments": None}]}),
        (ApiKey.DELETE_TOPICS, {"topic_names": ["a"]}),
    ],
)
@virtual_time
async def test_topics_check_the_role_first(api: ApiKey, fields: dict[str, Any]) -> None:
    async with guarded(is_active=False) as it:
        client = await asked(it, api, 2, timeout=1000, **fields)
        answer = last_answer(client, api, 2)
        results = getattr(answer, "topics", None) or getattr(answer, "results", None) or answer.responses
        assert [r.error_code for r in results] == [E.NOT_CONTROLLER]
        assert not it.queue


@virtual_time
async def test_error_of_the_whole_request_is_answered_for_each_topic() -> None:
    async with guarded((topic("a"), [Op.CREATE])) as it:
        client = await create(it, "a", "b")
        event = await it.event()
        assert isinstance(event, ev.CreateTopics)
        event.reply.answer(E.NOT_CONTROLLER)
        await settle()
        assert {name: code for name, (code, _, _) in created(client).items()} == {
            "a": E.NOT_CONTROLLER,
            "b": E.NOT_CONTROLLER,
        }
