"""What leaders and coordinators are asked is refused as a broker would that leads and coordinates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import coordinator_apis, leader_apis
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.allowing import Allowing
from tests.unit.server.front import TOPIC_ID, Front, front, settle

TOPIC = {"name": "orders"}
PARTITION = {"partition_index": 0}
BATCH = bytes(16) + b"\x02" + bytes(4) + b"\x00\x10" + bytes(40)
"""Of a transaction."""
OTHER_ID = b"\x07" * 16

REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.PRODUCE: {"acks": -1, "topic_data": [TOPIC | {"partition_data": [{"index": 0, "records": b""}]}]},
    ApiKey.FETCH: {
        "replica_id": -1,
        "topics": [{"topic": "orders", "topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}],
    },
    ApiKey.LIST_OFFSETS: {"replica_id": -1, "topics": [TOPIC | {"partitions": [PARTITION | {"timestamp": -1}]}]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": "orders", "partitions": [{"partition": 0}]}]},
    ApiKey.DELETE_RECORDS: {"topics": [TOPIC | {"partitions": [PARTITION | {"offset": 5}]}]},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [TOPIC | {"partition_indexes": [0]}]},
    ApiKey.JOIN_GROUP: {"group_id": "g", "member_id": "me", "protocol_type": "consumer"},
    ApiKey.SYNC_GROUP: {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"},
    ApiKey.HEARTBEAT: {"group_id": "g"},
    ApiKey.LEAVE_GROUP: {"group_id": "g"},
    ApiKey.OFFSET_COMMIT: {"group_id": "g", "topics": [TOPIC | {"partitions": [PARTITION]}]},
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [TOPIC | {"partition_indexes": [0]}],
        "groups": [{"group_id": "g", "topics": [TOPIC | {"partition_indexes": [0]}]}],
    },
    ApiKey.OFFSET_DELETE: {"group_id": "g", "topics": [TOPIC | {"partitions": [PARTITION]}]},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
    ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_topics": [TOPIC | {"partitions": [0]}],
        "transactions": [{"transactional_id": "t", "topics": [TOPIC | {"partitions": [0]}]}],
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "t", "group_id": "g"},
    ApiKey.END_TXN: {"transactional_id": "t"},
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "t",
        "group_id": "g",
        "topics": [TOPIC | {"partitions": [PARTITION]}],
    },
    ApiKey.WRITE_TXN_MARKERS: {"markers": [{"producer_id": 7, "topics": [TOPIC | {"partition_indexes": [0]}]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["t"]},
}
"""One that asks for partition 0 of topic orders, group g or transaction t."""

NOT_LED, NOT_COORDINATED = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, KafkaErrorCode.NOT_COORDINATOR
NO_TOPIC, NO_GROUP = KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, KafkaErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TXN, NO_CLUSTER = (
    KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
UNKNOWN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION

READ, WRITE, DESCRIBE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE
ON_TOPIC, ON_GROUP, ON_TXN = (
    (ResourceType.TOPIC, "orders"),
    (ResourceType.GROUP, "g"),
    (ResourceType.TRANSACTIONAL_ID, "t"),
)
FOR_CLUSTER = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

STEPS: dict[ApiKey, list[tuple[tuple[AclOperation, ResourceType, str], KafkaErrorCode]]] = {
    # each permission in the order in which it is asked for, and the error of one who has those before it only
    ApiKey.PRODUCE: [((WRITE, *ON_TOPIC), NO_TOPIC)],
    ApiKey.FETCH: [((READ, *ON_TOPIC), NO_TOPIC)],
    ApiKey.LIST_OFFSETS: [((DESCRIBE, *ON_TOPIC), NO_TOPIC)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [((DESCRIBE, *ON_TOPIC), NO_TOPIC)],
    ApiKey.DELETE_RECORDS: [((DELETE, *ON_TOPIC), NO_TOPIC)],
    ApiKey.DESCRIBE_PRODUCERS: [((READ, *ON_TOPIC), NO_TOPIC)],
    ApiKey.JOIN_GROUP: [((READ, *ON_GROUP), NO_GROUP)],
    ApiKey.SYNC_GROUP: [((READ, *ON_GROUP), NO_GROUP)],
    ApiKey.HEARTBEAT: [((READ, *ON_GROUP), NO_GROUP)],
    ApiKey.LEAVE_GROUP: [((READ, *ON_GROUP), NO_GROUP)],
    ApiKey.OFFSET_COMMIT: [((READ, *ON_GROUP), NO_GROUP), ((READ, *ON_TOPIC), NO_TOPIC)],
    ApiKey.OFFSET_FETCH: [((DESCRIBE, *ON_GROUP), NO_GROUP)],
    ApiKey.OFFSET_DELETE: [((DELETE, *ON_GROUP), NO_GROUP)],
    ApiKey.DESCRIBE_GROUPS: [((DESCRIBE, *ON_GROUP), NO_GROUP)],
    ApiKey.DELETE_GROUPS: [((DELETE, *ON_GROUP), NO_GROUP)],
    ApiKey.ADD_OFFSETS_TO_TXN: [((WRITE, *ON_TXN), NO_TXN), ((READ, *ON_GROUP), NO_GROUP)],
    ApiKey.END_TXN: [((WRITE, *ON_TXN), NO_TXN)],
    ApiKey.TXN_OFFSET_COMMIT: [
        ((WRITE, *ON_TXN), NO_TXN),
        ((READ, *ON_GROUP), NO_GROUP),
        ((READ, *ON_TOPIC), NO_TOPIC),
    ],
    ApiKey.WRITE_TXN_MARKERS: [(FOR_CLUSTER, NO_CLUSTER)],
    ApiKey.DESCRIBE_TRANSACTIONS: [((DESCRIBE, *ON_TXN), NO_TXN)],
}
AT_LAST = (
    dict.fromkeys(leader_apis._ANSWERS, NOT_LED)
    | dict.fromkeys(coordinator_apis._ANSWERS, NOT_COORDINATED)
    | {ApiKey.WRITE_TXN_MARKERS: UNKNOWN}
)


def versions(it: Front, api: ApiKey) -> Iterator[int]:
    served = it.listener.apis.offered()[api]
    return iter(range(served.min, served.max + 1))


async def ask(it: Front, api: ApiKey, version: int, **changed: Any) -> Any:
    """The answer, decoded."""
    client = await it.connect()
    fields = REQUESTS[api] | changed
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
    await settle()
    answer = cold.decode_response(api, version, client.answer(api, version))
    client.close()
    return answer


def errors(answer: Any) -> list[int]:
    """Every error code in an answer, those that are none only where there is no other."""
    found: list[int] = []

    def visit(entity: Any) -> None:
        for name in getattr(entity, "__dataclass_fields__", ()):
            value = getattr(entity, name)
            if name.endswith("error_code"):
                found.append(int(value))
            for element in value if isinstance(value, tuple) else ():
                visit(element)

    visit(answer)
    return [code for code in found if code] or found


def everything() -> Allowing:
    return Allowing(*(step for steps in STEPS.values() for step, _ in steps), (WRITE, *ON_TXN), (WRITE, *ON_TOPIC))


@pytest.mark.parametrize("api", AT_LAST, ids=lambda api: api.name)
@virtual_time
async def test_an_authorized_client_is_redirected_in_every_version(api: ApiKey) -> None:
    async with front() as it:
        it.topic("orders", 1)
        it.shell.authorizer = everything()
        for version in versions(it, api):
            assert errors(await ask(it, api, version)) == [AT_LAST[api]], version
        assert not it.upstreams


@pytest.mark.parametrize("api", STEPS, ids=lambda api: api.name)
@virtual_time
async def test_refusal_comes_first_in_every_version(api: ApiKey) -> None:
    async with front() as it:
        it.topic("orders", 1)
        for n, (_, code) in enumerate(STEPS[api]):
            it.shell.authorizer = Allowing(*(step for step, _ in STEPS[api][:n]))
            for version in versions(it, api):
                assert errors(await ask(it, api, version)) == [code], version


@pytest.mark.parametrize(
    "api",
    [
        *(api for api in leader_apis._ANSWERS if api is not ApiKey.FETCH),
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
    ],
    ids=lambda api: api.name,
)
@virtual_time
async def test_partition_that_does_not_exist_is_unknown(api: ApiKey) -> None:
    async with front() as it:
        it.shell.authorizer = everything()
        for version in versions(it, api):
            assert errors(await ask(it, api, version)) == [UNKNOWN], version


@virtual_time
async def test_topic_id_that_does_not_exist_is_unknown() -> None:
    async with front() as it:
        it.topic("orders", 1, topic_id=OTHER_ID)
        for version in versions(it, ApiKey.FETCH):
            code = KafkaErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else NOT_LED
            assert errors(await ask(it, ApiKey.FETCH, version)) == [code]


@pytest.mark.parametrize("api", AT_LAST, ids=lambda api: api.name)
@virtual_time
async def test_a_standby_calls_nothing_unknown(api: ApiKey) -> None:
    """What this controller does not know may exist all the same; all the errors make clients look elsewhere."""
    async with front() as it:
        it.shell.channels = None
        for version in versions(it, api):
            [code] = errors(await ask(it, api, version))
            if api is not ApiKey.WRITE_TXN_MARKERS:
                assert code in (AT_LAST[api], KafkaErrorCode.UNKNOWN_TOPIC_ID)
            assert ErrorCode(code).retriable


@virtual_time
async def test_newer_clients_get_the_leaders() -> None:
    async with front() as it:
        await it.broker()
        it.topic("orders", 1)
        for api, version in ((ApiKey.PRODUCE, 10), (ApiKey.PRODUCE, 11), (ApiKey.FETCH, 16), (ApiKey.FETCH, 17)):
            answer = await ask(it, api, version)
            [topic] = answer.responses
            [partition] = topic.partition_responses if api is ApiKey.PRODUCE else topic.partitions
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 5)
            [node] = answer.node_endpoints
            assert (node.node_id, node.host) == (1, "127.0.0.1")


@virtual_time
async def test_transaction_needs_the_right_to_write_to_it() -> None:
    data = [TOPIC | {"partition_data": [{"index": 0, "records": BATCH}]}]
    async with front() as it:
        it.topic("orders", 1)
        for version in range(3, 12):
            it.shell.authorizer = Allowing((WRITE, *ON_TOPIC))
            for transactional_id in ("t", None):
                answer = await ask(it, ApiKey.PRODUCE, version, transactional_id=transactional_id, topic_data=data)
                assert errors(answer) == [NO_TXN]
            it.shell.authorizer = Allowing((WRITE, *ON_TOPIC), (WRITE, *ON_TXN))
            answer = await ask(it, ApiKey.PRODUCE, version, transactional_id="t", topic_data=data)
            assert errors(answer) == [NOT_LED]


@virtual_time
async def test_producer_that_wants_no_answer_sees_its_connection_end() -> None:
    async with front() as it:
        it.topic("orders", 1)
        client = await it.connect()
        body = cold.request(ApiKey.PRODUCE, 9, **(REQUESTS[ApiKey.PRODUCE] | {"acks": 0}))
        client.request(ApiKey.PRODUCE, 9, cold.encode_request(ApiKey.PRODUCE, 9, body))
        await settle()
        assert client.closed
        assert not client.frames


@virtual_time
async def test_internal_topics_take_records_from_administrators_only() -> None:
    async with front() as it:
        it.topic("__consumer_offsets", 1)
        data = [{"name": "__consumer_offsets", "partition_data": [{"index": 0}]}]
        assert errors(await ask(it, ApiKey.PRODUCE, 9, topic_data=data)) == [KafkaErrorCode.INVALID_TOPIC_EXCEPTION]
        topics = [{"name": "__consumer_offsets", "partitions": [PARTITION]}]
        assert errors(await ask(it, ApiKey.DELETE_RECORDS, 2, topics=topics)) == [17]


@virtual_time
async def test_fetch_of_a_session_is_answered_that_there_is_none() -> None:
    async with front() as it:
        it.topic("orders", 1)
        for version in range(7, 18):
            answer = await ask(it, ApiKey.FETCH, version, session_id=8, session_epoch=3)
            assert errors(answer) == [KafkaErrorCode.FETCH_SESSION_ID_NOT_FOUND]
            assert answer.session_id == 0
            assert not answer.responses
            assert (await ask(it, ApiKey.FETCH, version, session_epoch=0)).session_id == 0


@virtual_time
async def test_followers_fetch_for_the_cluster() -> None:
    async with front() as it:
        it.topic("orders", 1)
        for version in range(15):
            it.shell.authorizer = Allowing((READ, *ON_TOPIC))
            assert errors(await ask(it, ApiKey.FETCH, version, replica_id=2)) == [NO_TOPIC]
            it.shell.authorizer = Allowing(FOR_CLUSTER)
            assert errors(await ask(it, ApiKey.FETCH, version, replica_id=2)) == [NOT_LED]
        it.shell.authorizer = Allowing((READ, *ON_TOPIC))
        assert errors(await ask(it, ApiKey.FETCH, 17, replica_state={"replica_id": 2})) == [NO_TOPIC]


@pytest.mark.parametrize(
    "timestamp, since", [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 99), (0, 0), (1_700_000_000_000, 0)]
)
@virtual_time
async def test_offsets_of_timestamps_that_a_version_does_not_know(timestamp: int, since: int) -> None:
    topics = [TOPIC | {"partitions": [PARTITION | {"timestamp": timestamp}]}]
    async with front() as it:
        it.topic("orders", 1)
        for version in versions(it, ApiKey.LIST_OFFSETS):
            known = version >= since or (version == 0 and timestamp >= -2)
            code = NOT_LED if known else KafkaErrorCode.UNSUPPORTED_VERSION
            assert errors(await ask(it, ApiKey.LIST_OFFSETS, version, topics=topics)) == [code]


@virtual_time
async def test_one_partition_that_cannot_be_added_stops_the_transaction() -> None:
    topics = [TOPIC | {"partitions": [0, 9]}]
    async with front() as it:
        it.topic("orders", 1)
        for version in range(6):
            transactions = [{"transactional_id": "t", "topics": topics}]
            answer = await ask(
                it, ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_topics=topics, transactions=transactions
            )
            assert errors(answer) == [KafkaErrorCode.OPERATION_NOT_ATTEMPTED, UNKNOWN]


@virtual_time
async def test_transactions_of_clients_and_of_brokers_are_authorized_differently() -> None:
    api = ApiKey.ADD_PARTITIONS_TO_TXN
    async with front() as it:
        it.topic("orders", 1)
        for version in range(6):
            it.shell.authorizer = Allowing()
            assert errors(await ask(it, api, version)) == [NO_TXN if version < 4 else NO_CLUSTER]
            it.shell.authorizer = Allowing((WRITE, *ON_TXN), FOR_CLUSTER)
            assert errors(await ask(it, api, version)) == [NO_TOPIC if version < 4 else NOT_COORDINATED]


@pytest.mark.parametrize(
    "api", [ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_DELETE, ApiKey.TXN_OFFSET_COMMIT]
)
@virtual_time
async def test_group_without_a_name_is_none(api: ApiKey) -> None:
    async with front() as it:
        it.topic("orders", 1)
        for version in versions(it, api):
            assert errors(await ask(it, api, version, group_id="")) == [KafkaErrorCode.INVALID_GROUP_ID]


@virtual_time
async def test_transaction_without_a_name_is_none() -> None:
    async with front() as it:
        for api in (ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN):
            assert errors(await ask(it, api, 1, transactional_id="")) == [KafkaErrorCode.INVALID_REQUEST]


@virtual_time
async def test_sync_group_must_name_its_protocol() -> None:
    async with front() as it:
        answer = await ask(it, ApiKey.SYNC_GROUP, 5, protocol_name=None)
        assert errors(answer) == [KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL]


@virtual_time
async def test_log_directories_need_the_right_to_describe_the_cluster() -> None:
    api = ApiKey.DESCRIBE_LOG_DIRS
    async with front() as it:
        it.shell.authorizer = Allowing()
        for version in (3, 4):
            client = await it.connect()
            client.request(api, version, cold.encode_request(api, version, cold.request(api, version)))
            await settle()
            answer = cold.decode_response(api, version, client.answer(api, version))
            assert answer.error_code == NO_CLUSTER
            assert not answer.results


@pytest.mark.parametrize("allowed", [True, False])
@virtual_time
async def test_replicas_cannot_be_moved_to_log_directories_here(allowed: bool) -> None:
    api = ApiKey.ALTER_REPLICA_LOG_DIRS
    dirs = [{"path": p, "topics": [TOPIC | {"partitions": n}]} for p, n in (("/a", [0, 1]), ("/b", [2]))]
    async with front() as it:
        it.shell.authorizer = Allowing(
            *[(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)] * allowed,
        )
        for version in range(3):
            client = await it.connect()
            client.request(api, version, cold.encode_request(api, version, cold.request(api, version, dirs=dirs)))
            await settle()
            [topic] = cold.decode_response(api, version, client.answer(api, version)).results
            code = KafkaErrorCode.LOG_DIR_NOT_FOUND if allowed else NO_CLUSTER
            assert [(p.partition_index, int(p.error_code)) for p in topic.partitions] == [(n, code) for n in range(3)]


@pytest.mark.parametrize("api", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH])
@virtual_time
async def test_offsets_are_not_kept_in_zookeeper(api: ApiKey) -> None:
    """Version 0, of clients before Kafka 0.8.2."""
    async with front() as it:
        assert it.listener.apis.offered()[api].min == 1
        client = await it.connect()
        client.request(api, 0, cold.encode_request(api, 0, cold.request(api, 0)))
        await settle()
        assert client.closed


@virtual_time
async def test_names_of_no_length_are_not_read_by_the_ten_thousand() -> None:
    """65,000 groups in 64 KiB held the loop for two seconds."""
    async with front() as it:
        for count, answered in ((1000, True), (1100, False)):
            client = await it.connect()
            groups = cold.request(ApiKey.DESCRIBE_GROUPS, 5, groups=[""] * count)
            client.request(ApiKey.DESCRIBE_GROUPS, 5, cold.encode_request(ApiKey.DESCRIBE_GROUPS, 5, groups))
            await settle()
            assert (bool(client.frames), client.closed) == (answered, not answered)
