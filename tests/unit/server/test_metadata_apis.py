"""Metadata and DescribeCluster, as one more broker answers them."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import CLUSTER_NAME
from aiocontroller.core import events as ev
from aiocontroller.core.context import SickBroker
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import auto_topic_creation, metadata_apis
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.allowing import Allowed, Allowing
from tests.unit.server.front import TOPIC_ID, Front, settle
from tests.unit.server.one_more_broker import (
    BEGUN,
    CLUSTER,
    CREATE,
    DESCRIBE,
    HIDDEN,
    OTHER_ID,
    TOPIC,
    UNKNOWN,
    US,
    WRITE,
    ask,
    front,
    metadata,
    topic_errors,
)


@pytest.mark.parametrize("version", range(13))
@virtual_time
async def test_metadata_tells_what_a_broker_would(version: int) -> None:
    async with front() as it:
        for topics in ((), ("orders",)):
            answer = await metadata(it, version, *topics)
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
                (1, "b1", 9092),
                (2, "b2", 9092),
                (US, "controller", 9090),
            ]
            assert [getattr(b, "rack", None) for b in answer.brokers] == ["r1" if version else None, None, None]
            assert getattr(answer, "cluster_id", "abc") == "abc"
            assert getattr(answer, "controller_id", US) == US
            [topic] = answer.topics
            assert (topic.name, int(topic.error_code)) == ("orders", 0)
            assert [(p.partition_index, p.leader_id, int(p.error_code)) for p in topic.partitions] == [
                (0, 1, 0),
                (1, 2, 0),
                (2, -1, 5),
            ]


@virtual_time
async def test_an_unlisted_sick_broker_is_left_out_as_brokers_leave_it_out() -> None:
    async with front() as it:
        it.context.set_sick(SickBroker(2, 7, unlisted=True))
        assert [b.node_id for b in (await metadata(it, 9)).brokers] == [1, 2, US], "it leads a partition"
        table = it.context.table
        table.set_leadership(table.row("orders", 1), LeaderAndIsr(1, 6, (1,), 3, 1))
        for answer in (await metadata(it, 9), await ask(it, ApiKey.DESCRIBE_CLUSTER, 0)):
            assert [getattr(b, "node_id", None) or b.broker_id for b in answer.brokers] == [1, US]
        it.context.set_sick(None)
        assert [b.node_id for b in (await metadata(it, 9)).brokers] == [1, 2, US]


@virtual_time
async def test_no_topics_are_not_all_topics() -> None:
    async with front() as it:
        for version in range(1, 13):
            assert not (await metadata(it, version, None)).topics


@virtual_time
async def test_endpoints_are_those_of_the_listener_by_which_the_client_came() -> None:
    async with front() as it:
        it.port = (
            await it.network.serve(lambda: it.listener.connection(Endpoint("OTHER", "", 0)), "127.0.0.1", 0)
        ).port
        it.shell.own_entry = lambda: Broker(US, 0, (Endpoint("OTHER", "us", 1),))
        answer = await metadata(it, 9)
        assert [b.host for b in answer.brokers] == ["other1", "other2", "us"]


@virtual_time
async def test_topics_by_id() -> None:
    async with front() as it:
        answer = await metadata(it, 12, TOPIC_ID, OTHER_ID)
        found = {bytes(topic.topic_id.bytes): (topic.name, int(topic.error_code)) for topic in answer.topics}
        assert found == {TOPIC_ID: ("orders", 0), OTHER_ID: (None, KafkaErrorCode.UNKNOWN_TOPIC_ID)}
        it.shell.authorizer = Allowing()
        answer = await metadata(it, 12, TOPIC_ID)
        assert topic_errors(answer) == {None: HIDDEN}
        assert answer.topics[0].topic_id.bytes == TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
@virtual_time
async def test_versions_with_ids_in_answers_take_none_in_requests(version: int) -> None:
    async with front() as it:
        [topic] = (await metadata(it, version, TOPIC_ID)).topics
        assert int(topic.error_code) == KafkaErrorCode.INVALID_REQUEST


@virtual_time
async def test_what_may_not_be_described_is_hidden() -> None:
    async with front() as it:
        it.topic("secret", 1, topic_id=OTHER_ID)
        it.shell.authorizer = Allowing((DESCRIBE, TOPIC, "orders"))
        for version in range(13):
            assert topic_errors(await metadata(it, version)) == {"orders": 0}
            assert topic_errors(await metadata(it, version, "orders", "secret", "absent")) == {
                "orders": 0,
                "secret": HIDDEN,
                "absent": HIDDEN,
            }
        answer = await metadata(it, 12, "secret")
        assert answer.topics[0].topic_id is None
        assert not it.queue


@virtual_time
async def test_topic_that_is_being_deleted_or_made_is_not_there_yet_or_any_more() -> None:
    async with front() as it:
        table = it.context.table
        table.set_topic_deleting(table.topic_by_name["orders"], True)
        fresh = table.add_topic("fresh", OTHER_ID)
        table.add_partition(fresh, 0, ReplicaAssignment((1,)))
        assert topic_errors(await metadata(it, 9)) == {}
        answer = await metadata(it, 9, "orders", "fresh", allow_auto_topic_creation=False)
        assert topic_errors(answer) == {"orders": UNKNOWN, "fresh": KafkaErrorCode.LEADER_NOT_AVAILABLE}


@virtual_time
async def test_authorized_operations_are_sent_on_request() -> None:
    none = -(1 << 31)
    allowed: list[Allowed] = [(DESCRIBE, TOPIC, "orders"), (WRITE, TOPIC, "orders")]
    async with front() as it:
        for version in range(8, 13):
            it.shell.authorizer = Allowing(*allowed)
            fields: dict[str, Any] = {"include_topic_authorized_operations": True}
            if version <= 10:
                fields["include_cluster_authorized_operations"] = True
            answer = await metadata(it, version, "orders", **fields)
            assert answer.topics[0].topic_authorized_operations == 1 << 8 | 1 << 4
            assert getattr(answer, "cluster_authorized_operations", 0) == 0
            it.shell.authorizer = Allowing(*allowed, (DESCRIBE, CLUSTER, CLUSTER_NAME), (CREATE, CLUSTER, CLUSTER_NAME))
            answer = await metadata(it, version, "orders", **fields)
            assert getattr(answer, "cluster_authorized_operations", 1 << 8 | 1 << 5) == 1 << 8 | 1 << 5
            answer = await metadata(it, version, "orders")
            assert answer.topics[0].topic_authorized_operations == none
            assert getattr(answer, "cluster_authorized_operations", none) == none


@virtual_time
async def test_topic_that_is_absent_is_created_as_brokers_have_it() -> None:
    async with front() as it:
        for version in range(13):
            assert topic_errors(await metadata(it, version, f"new{version}")) == {f"new{version}": BEGUN}
            event = await it.event()
            assert isinstance(event, ev.CreateTopics)
            [topic] = event.topics
            assert (topic.name, topic.partitions, topic.replication_factor) == (f"new{version}", -1, -1)
            assert not event.validate_only
            assert topic_errors(await metadata(it, version, f"new{version}")) == {f"new{version}": UNKNOWN}
            assert not it.queue, "it is under way"
            event.reply.answer({f"new{version}": TopicResult(KafkaErrorCode.INVALID_REPLICATION_FACTOR)})
            await metadata(it, version, f"new{version}")
            (await it.event()).reply.answer(KafkaErrorCode.NOT_CONTROLLER)
            assert not it.queue


@virtual_time
async def test_internal_topics_are_created_with_their_own_settings() -> None:
    async with front(**{"offsets.topic.num.partitions": "7", "transaction.state.log.min.isr": "1"}) as it:
        await metadata(it, 9, "__consumer_offsets", "__transaction_state")
        offsets, transactions = (await it.event()).topics
        assert (offsets.partitions, offsets.replication_factor, offsets.configs["cleanup.policy"]) == (7, 3, "compact")
        assert (transactions.partitions, transactions.configs["min.insync.replicas"]) == (50, "1")


@pytest.mark.parametrize("reason", ["not wanted", "brokers do not", "not allowed", "bad name", "all topics"])
@virtual_time
async def test_topic_is_not_created(reason: str) -> None:
    settings = {"auto.create.topics.enable": "false"} if reason == "brokers do not" else {}
    async with front(**settings) as it:
        name = "no/name" if reason == "bad name" else "new"
        code = KafkaErrorCode.INVALID_TOPIC_EXCEPTION if reason == "bad name" else UNKNOWN
        if reason == "not allowed":
            it.shell.authorizer = Allowing((DESCRIBE, TOPIC, name))
            code = HIDDEN
        fields = {"allow_auto_topic_creation": False} if reason == "not wanted" else {}
        expected = {name: code} if reason != "all topics" else {"orders": 0}
        assert topic_errors(await metadata(it, 9, *([name] if reason != "all topics" else []), **fields)) == expected
        assert not it.queue


@pytest.mark.parametrize("by", [(CREATE, CLUSTER, CLUSTER_NAME), (CREATE, TOPIC, "new")])
@virtual_time
async def test_user_with_create_creates_where_a_broker_would(by: Allowed) -> None:
    """Finding 10 of the attack: users with the ACL Create were refused."""
    async with front() as it:
        it.shell.authorizer = Allowing((DESCRIBE, TOPIC, "new"), by)
        assert topic_errors(await metadata(it, 9, "new")) == {"new": BEGUN}
        assert isinstance(await it.event(), ev.CreateTopics)


@virtual_time
async def test_one_client_does_not_have_topics_created_without_end() -> None:
    async with front() as it:
        await metadata(it, 9, *(f"t{n}" for n in range(300)))
        for start in range(0, 2_000, 100):
            await metadata(it, 9, *(f"u{start + n}" for n in range(100)))
        created = []
        while it.queue:
            assert len(it.queue) == 1, "others wait for one such event at most"
            event = await it.event()
            assert len(event.topics) <= auto_topic_creation.MAX_AT_ONCE
            created += [topic.name for topic in event.topics]
            event.reply.answer({})
        assert len(created) == len(set(created)) == auto_topic_creation.MAX_WAITING + auto_topic_creation.MAX_AT_ONCE


@virtual_time
async def test_topics_that_wait_are_forgotten_when_the_term_ends() -> None:
    async with front() as it:
        await metadata(it, 9, "a")
        await metadata(it, 9, "b")
        it.shell.channels = None
        (await it.event()).reply.answer(KafkaErrorCode.NOT_CONTROLLER)
        assert not it.queue


# -- long answers ------------------------------------------------------------------------------------------------------


def large(it: Front, name: str, partitions: int) -> None:
    table = it.context.table
    topic = table.add_topic(name)
    rows = table.add_partitions(topic, dict.fromkeys(range(partitions), ReplicaAssignment((1, 2))))
    isr = [table.isrs.id((1, 2))] * partitions
    one = [1] * partitions
    table.set_leaderships(rows, one, one, isr, [0] * partitions, one, one)


@virtual_time
async def test_others_run_while_a_long_answer_is_made() -> None:
    async with front() as it:
        for n in range(5):
            large(it, f"t{n}", 10_000)
        clients = [await it.connect() for _ in range(3)]
        sleep, in_flight, most = it.world.clock.sleep, 0, 0

        async def counting(delay_s: float) -> None:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            breaths.append(sum(bool(client.frames) for client in clients))
            await sleep(delay_s)
            in_flight -= 1

        breaths: list[int] = []
        it.world.clock.sleep = counting  # type: ignore[method-assign]
        for client in clients:
            client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        await settle()
        assert len(breaths) >= 3 * 50_000 / metadata_apis.SLICE
        assert most == 1, "one such answer after the other"
        for client in clients:
            answer = cold.decode_response(ApiKey.METADATA, 9, client.answer(ApiKey.METADATA, 9))
            assert [len(topic.partitions) for topic in answer.topics] == [3, *[10_000] * 5]


@virtual_time
async def test_topic_deleted_while_its_metadata_is_answered_is_left_out() -> None:
    async with front() as it:
        large(it, "large", 10_000)
        client = await it.connect()
        client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        breaths = 0
        sleep = it.world.clock.sleep

        async def removing(delay_s: float) -> None:
            nonlocal breaths
            breaths += 1
            if breaths == 2:
                it.context.remove_topic(it.context.table.topic_by_name["large"])
            await sleep(delay_s)

        it.world.clock.sleep = removing  # type: ignore[method-assign]
        await settle()
        answer = cold.decode_response(ApiKey.METADATA, 9, client.answer(ApiKey.METADATA, 9))
        assert topic_errors(answer) == {"orders": 0}


@virtual_time
async def test_requests_for_very_many_topics_are_read_in_pieces() -> None:
    async with front() as it:
        answer = await metadata(it, 9, *(f"t{n}" for n in range(5_000)), allow_auto_topic_creation=False)
        assert set(topic_errors(answer).values()) == {UNKNOWN}
        assert len(answer.topics) == 5_000


# -- DescribeCluster ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
@virtual_time
async def test_describe_cluster(version: int) -> None:
    api = ApiKey.DESCRIBE_CLUSTER
    async with front() as it:
        answer = await ask(it, api, version, include_cluster_authorized_operations=True)
        assert (int(answer.error_code), answer.cluster_id, answer.controller_id) == (0, "abc", US)
        assert [(b.broker_id, b.host, b.rack) for b in answer.brokers] == [
            (1, "b1", "r1"),
            (2, "b2", None),
            (US, "controller", None),
        ]
        assert answer.cluster_authorized_operations == sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
        it.shell.authorizer = Allowing()
        answer = await ask(it, api, version, include_cluster_authorized_operations=True)
        assert answer.cluster_authorized_operations == 0
        assert (await ask(it, api, version)).cluster_authorized_operations == -(1 << 31)


@pytest.mark.parametrize("endpoint_type, error", [(1, 0), (2, 114), (3, 115)])
@virtual_time
async def test_cluster_of_another_type_of_endpoint(endpoint_type: int, error: int) -> None:
    async with front() as it:
        answer = await ask(it, ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)
        assert int(answer.error_code) == error
