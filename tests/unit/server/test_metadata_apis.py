"""Metadata, DescribeCluster, FindCoordinator and InitProducerId, as one more broker answers them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, AllowAll, ResourceType
from aiocontroller.core import events as ev
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.server import cluster_reader, metadata_apis, topic_creation
from aiocontroller.server.find_coordinator import java_hash, partition_for
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.zookeeper.kafka_zk_client import TopicAssignments
from aiocontroller.zookeeper.znodes import SOFTWARE, ControllerZNode
from tests.unit.server.allowing import Allowed, Allowing
from tests.unit.server.front import TOPIC_ID, Front, settle
from tests.unit.server.front import front as any_front
from tests.virtual_time import virtual_time

DESCRIBE, CREATE, WRITE = AclOperation.DESCRIBE, AclOperation.CREATE, AclOperation.WRITE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
OTHER_ID = b"\x07" * 16
US = 1_000_001
UNKNOWN, HIDDEN = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
BEGUN = KafkaErrorCode.LEADER_NOT_AVAILABLE
NOT_FOUND = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE


@asynccontextmanager
async def front(**settings: str) -> AsyncIterator[Front]:
    """Brokers 1 (with a rack) and 2, topic orders with partitions led by 1, 2 and the dead 3."""

    async def broker_settings(shell: Any, defaults: Mapping[str, str]) -> Mapping[str, str]:
        return {**defaults, "auto.create.topics.enable": "true", **settings}

    async def cluster_id() -> str:
        return "abc"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_creation, "broker_settings", broker_settings)
        async with any_front() as it:
            it.shell.zk = SimpleNamespace(get_cluster_id=cluster_id)
            for number, rack in ((1, "r1"), (2, None)):
                at = (Endpoint("PLAINTEXT", f"b{number}", 9092), Endpoint("OTHER", f"other{number}", 9099))
                it.context.add_brokers([Broker(number, 7, at, rack)])
            it.topic("orders", 1, 2, 3)
            yield it


async def ask(it: Front, api: ApiKey, version: int, **fields: Any) -> Any:
    client = await it.connect()
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
    await settle()
    answer = cold.decode_response(api, version, client.answer(api, version))
    client.close()
    return answer


async def metadata(it: Front, version: int, *topics: str | bytes | None, **fields: Any) -> Any:
    """Of these topics; of none with None alone; of all without any."""
    asked: Any = [{"name": t} if isinstance(t, str) else {"topic_id": t, "name": None} for t in topics if t is not None]
    if not topics and version:
        asked = None
    return await ask(it, ApiKey.METADATA, version, topics=asked, **fields)


def told(answer: Any) -> dict[str | None, int]:
    return {topic.name: int(topic.error_code) for topic in answer.topics}


# -- Metadata ----------------------------------------------------------------------------------------------------------


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
        assert told(answer) == {None: HIDDEN}
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
            assert told(await metadata(it, version)) == {"orders": 0}
            assert told(await metadata(it, version, "orders", "secret", "absent")) == {
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
        assert told(await metadata(it, 9)) == {}
        answer = await metadata(it, 9, "orders", "fresh", allow_auto_topic_creation=False)
        assert told(answer) == {"orders": UNKNOWN, "fresh": KafkaErrorCode.LEADER_NOT_AVAILABLE}


@virtual_time
async def test_authorized_operations_are_told_to_those_who_ask() -> None:
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
            assert told(await metadata(it, version, f"new{version}")) == {f"new{version}": BEGUN}
            event = await it.event()
            assert isinstance(event, ev.CreateTopics)
            [topic] = event.topics
            assert (topic.name, topic.partitions, topic.replication_factor) == (f"new{version}", -1, -1)
            assert not event.validate_only
            assert told(await metadata(it, version, f"new{version}")) == {f"new{version}": UNKNOWN}
            assert not it.queue, "it is under way"
            event.reply.answer({f"new{version}": ev.TopicResult(KafkaErrorCode.INVALID_REPLICATION_FACTOR)})
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
        assert told(await metadata(it, 9, *([name] if reason != "all topics" else []), **fields)) == expected
        assert not it.queue


@pytest.mark.parametrize("by", [(CREATE, CLUSTER, CLUSTER_NAME), (CREATE, TOPIC, "new")])
@virtual_time
async def test_user_with_create_creates_where_a_broker_would(by: Allowed) -> None:
    """Finding 10 of the attack: users with the ACL Create were refused."""
    async with front() as it:
        it.shell.authorizer = Allowing((DESCRIBE, TOPIC, "new"), by)
        assert told(await metadata(it, 9, "new")) == {"new": BEGUN}
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
            assert len(event.topics) <= topic_creation.MAX_AT_ONCE
            created += [topic.name for topic in event.topics]
            event.reply.answer({})
        assert len(created) == len(set(created)) == topic_creation.MAX_WAITING + topic_creation.MAX_AT_ONCE


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
    pids = table.add_partitions(topic, dict.fromkeys(range(partitions), ReplicaAssignment((1, 2))))
    isr = [table.isrs.id((1, 2))] * partitions
    one = [1] * partitions
    table.set_leaderships(pids, one, one, isr, [0] * partitions, one, one)


@virtual_time
async def test_others_run_while_a_long_answer_is_made() -> None:
    async with front() as it:
        for n in range(5):
            large(it, f"t{n}", 10_000)
        clients = [await it.connect() for _ in range(3)]
        sleep, under_way, most = it.world.clock.sleep, 0, 0

        async def counting(delay_s: float) -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            breaths.append(sum(bool(client.frames) for client in clients))
            await sleep(delay_s)
            under_way -= 1

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
async def test_topic_that_goes_while_it_is_told_of_is_told_of_no_more() -> None:
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
        assert told(answer) == {"orders": 0}


@virtual_time
async def test_requests_for_very_many_topics_are_read_in_pieces() -> None:
    async with front() as it:
        answer = await metadata(it, 9, *(f"t{n}" for n in range(5_000)), allow_auto_topic_creation=False)
        assert set(told(answer).values()) == {UNKNOWN}
        assert len(answer.topics) == 5_000


# -- out of office -----------------------------------------------------------------------------------------------------


class Znodes:
    """What a controller out of office reads: broker 1, topic orders."""

    def __init__(self, partitions: int = 2) -> None:
        self.reads = 0
        self.partitions = partitions

    async def get_cluster_id(self) -> str:
        return "abc"

    async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
        assert not watch
        self.reads += 1
        return [Broker(1, 7, (Endpoint("PLAINTEXT", "b1", 9092),))], []

    async def get_controller(self, *, watch: bool) -> Any:
        return ControllerZNode(controller_id=1, owner_session=1, created_ms=0, version=1)

    async def get_all_topics_in_cluster(self, *, watch: bool) -> list[str]:
        return ["orders"]

    async def get_topic_assignments(self, topics: list[str], *, watch: bool) -> TopicAssignments:
        found = TopicAssignments()
        if "orders" in topics:
            partitions = dict.fromkeys(range(self.partitions), ReplicaAssignment((1,)))
            found.found.append(TopicAssignment("orders", TOPIC_ID, partitions))
        return found

    async def get_topic_partition_states(self, topics: list[str], partitions: list[int]) -> list[Any]:
        return [LeaderAndIsr(1, 3, (1,), 2, 0) for _ in topics]


@pytest.mark.parametrize("why", ["out of office", "loading"])
@virtual_time
async def test_out_of_office_clients_are_told_what_zookeeper_says_and_go_elsewhere(why: str) -> None:
    """A controller that has just won knows no topics yet: they are not unknown for that, and it is one of the nodes.

    Brokers have told clients who it is; one that did not name itself would be dropped by them (librdkafka: "Broker
    handle destroyed without termination"), with what they had asked.
    """
    ours = [(1_000_001, "controller")] if why == "loading" else []
    async with front() as it:
        zk = it.shell.zk = Znodes()
        it.shell.context = ControllerContext(4, 4)
        if why == "out of office":
            it.shell.channels = None
        for version in range(13):
            for topics in ((), ("orders", "absent")):
                answer = await metadata(it, version, *topics)
                assert [(b.node_id, b.host) for b in answer.brokers] == [(1, "b1"), *ours]
                controller = 1_000_001 if ours else 1
                assert getattr(answer, "controller_id", controller) == controller
                assert told(answer) == {"orders": 0} | ({"absent": UNKNOWN} if topics else {})
                assert [p.leader_id for p in answer.topics[0].partitions] == [1, 1]
        assert not it.queue
        assert zk.reads > 1


@pytest.mark.parametrize("listener", ["PLAINTEXT", "OTHER"])
@virtual_time
async def test_standing_by_clients_are_sent_to_the_other_aiocontroller(listener: str) -> None:
    """It was told as -1, so that administrators' tools found no controller.

    Under a listener that its address is not of, a live broker stands for it, as brokers are told.
    """
    at = Endpoint("OTHER", "other1", 9099)

    class InOffice(Znodes):
        async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
            return [Broker(1, 7, (Endpoint("PLAINTEXT", "b1", 9092), at))], []

        async def get_controller(self, *, watch: bool) -> Any:
            return ControllerZNode(US + 1, 1, 0, 1, software=SOFTWARE, address="PLAINTEXT://second:9090")

    async with front() as it:
        it.shell.zk = InOffice()
        it.shell.channels = None
        if listener == "OTHER":
            it.port = (await it.network.serve(lambda: it.listener.connection(at), "127.0.0.1", 0)).port
        host = "other1" if listener == "OTHER" else "second"
        for version in range(1, 13):
            answer = await metadata(it, version)
            assert (answer.brokers[-1].node_id, answer.brokers[-1].host) == (US + 1, host)
            assert answer.controller_id == US + 1
        told_of = await ask(it, ApiKey.DESCRIBE_CLUSTER, 0)
        assert told_of.controller_id == US + 1


@pytest.mark.parametrize("address", ["", "nonsense", "PLAINTEXT://a:1,OTHER://b:2"])
@virtual_time
async def test_standing_by_a_controller_without_an_address_is_no_node(address: str) -> None:
    class InOffice(Znodes):
        async def get_controller(self, *, watch: bool) -> Any:
            return ControllerZNode(US + 1, 1, 0, 1, software=SOFTWARE, address=address)

    async with front() as it:
        it.shell.zk = InOffice()
        it.shell.channels = None
        answer = await metadata(it, 9)
        assert (answer.controller_id, [b.node_id for b in answer.brokers]) == (-1, [1])


@virtual_time
async def test_out_of_office_zookeeper_is_not_read_for_each_request() -> None:
    async with front() as it:
        zk = it.shell.zk = Znodes()
        it.shell.channels = None
        clients = [await it.connect() for _ in range(20)]
        body = cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None))
        for client in clients:
            client.request(ApiKey.METADATA, 9, body)
        await settle()
        assert all(client.frames for client in clients)
        assert zk.reads == 1


@virtual_time
async def test_out_of_office_a_large_cluster_is_not_read_for_a_client() -> None:
    async with front() as it:
        it.shell.zk = Znodes(cluster_reader.MAX_PARTITIONS + 1)
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        await settle()
        assert client.closed


@virtual_time
async def test_out_of_office_a_silent_zookeeper_costs_the_connection() -> None:
    class Silent(Znodes):
        async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
            await asyncio.get_running_loop().create_future()

    async with front() as it:
        it.shell.zk = Silent()
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        await asyncio.sleep(cluster_reader.WITHIN_S + 1)
        assert client.closed


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


# -- FindCoordinator ---------------------------------------------------------------------------------------------------


def test_keys_are_hashed_as_java_does() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99_162_322
    assert java_hash("\U0001f600") == 1_772_899
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_for("polygenelubricants", 50) == 0


def of(answer: Any, version: int) -> list[tuple[int, int, str]]:
    found = answer.coordinators if version >= 4 else [answer]
    return [(int(each.error_code), each.node_id, each.host) for each in found]


async def find(it: Front, version: int, key: str, kind: int = 0) -> list[tuple[int, int, str]]:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version:
        fields["key_type"] = kind
    return of(await ask(it, ApiKey.FIND_COORDINATOR, version, **fields), version)


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinator_leads_the_partition_of_its_key(version: int) -> None:
    async with front() as it:
        it.topic("__consumer_offsets", 1, 2, 3, topic_id=OTHER_ID)
        it.topic("__transaction_state", 2, topic_id=b"\x08" * 16)
        for key in ("a", "b", "c"):
            leader = (1, 2, None)[partition_for(key, 3)]
            expected = (0, leader, f"b{leader}") if leader else (NOT_FOUND, -1, "")
            assert await find(it, version, key) == [expected]
            if version:
                assert await find(it, version, key, 1) == [(0, 2, "b2")]
        assert not it.queue


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinators_topic_is_created_when_first_asked_for(version: int) -> None:
    async with front() as it:
        assert await find(it, version, "a") == [(NOT_FOUND, -1, "")]
        event = await it.event()
        assert [topic.name for topic in event.topics] == ["__consumer_offsets"]
        event.reply.answer({})
        if version:
            assert await find(it, version, "a", 1) == [(NOT_FOUND, -1, "")]
            assert [topic.name for topic in (await it.event()).topics] == ["__transaction_state"]


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinator_is_told_to_those_who_may_describe(version: int) -> None:
    async with front() as it:
        it.shell.authorizer = Allowing()
        assert await find(it, version, "a") == [(30, -1, "")]
        if version:
            assert await find(it, version, "a", 1) == [(53, -1, "")]
            assert await find(it, version, "a", 9) == [(42, -1, "")]
            assert await find(it, version, "a", 2) == [(31 if version == 6 else 42, -1, "")]
        assert not it.queue
        it.shell.authorizer = AllowAll()
        if version:
            assert await find(it, version, "a", 2) == [(15 if version == 6 else 42, -1, "")]


@virtual_time
async def test_many_coordinators_at_once() -> None:
    async with front() as it:
        it.topic("__consumer_offsets", 1, topic_id=OTHER_ID)
        it.shell.authorizer = Allowing((DESCRIBE, ResourceType.GROUP, "a"))
        answer = await ask(it, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a", "b"], key_type=0)
        assert [each.key for each in answer.coordinators] == ["a", "b"]
        assert of(answer, 4) == [(0, 1, "b1"), (30, -1, "")]


# -- InitProducerId ----------------------------------------------------------------------------------------------------


async def init(it: Front, version: int, **fields: Any) -> tuple[int, int, int]:
    answer = await ask(it, ApiKey.INIT_PRODUCER_ID, version, **fields)
    return int(answer.error_code), answer.producer_id, answer.producer_epoch


async def allocate(it: Front, *results: Any) -> None:
    for result in results:
        event = await it.event()
        assert isinstance(event, ev.AllocateProducerIds)
        assert event.own
        event.reply.answer(result)


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].max + 1))
@virtual_time
async def test_idempotent_producers_get_ids_of_our_own_block(version: int) -> None:
    async with front() as it:
        blocks = asyncio.create_task(allocate(it, (5_000, 2), (9_000, 1_000)))
        found = [await init(it, version) for _ in range(4)]
        assert found == [(0, 5_000, 0), (0, 5_001, 0), (0, 9_000, 0), (0, 9_001, 0)]
        await blocks


@virtual_time
async def test_producers_that_wait_share_one_block() -> None:
    async with front() as it:
        clients = [await it.connect() for _ in range(5)]
        body = cold.encode_request(22, 0, cold.request(ApiKey.INIT_PRODUCER_ID, 0))
        for client in clients:
            client.request(ApiKey.INIT_PRODUCER_ID, 0, body)
        await settle()
        assert len(it.queue) == 1
        await allocate(it, (0, 1_000))
        await settle()
        ids = [cold.decode_response(22, 0, client.answer(ApiKey.INIT_PRODUCER_ID, 0)).producer_id for client in clients]
        assert sorted(ids) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("why", ["no block", "out of office"])
@virtual_time
async def test_producer_tries_again_when_there_is_no_block(why: str) -> None:
    async with front() as it:
        blocks = None
        if why == "out of office":
            it.shell.channels = None
        else:
            blocks = asyncio.create_task(allocate(it, KafkaErrorCode.NOT_CONTROLLER))
        assert await init(it, 4) == (KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        if blocks is not None:
            await blocks


@pytest.mark.parametrize(
    "allowed, code",
    [
        ((), KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (((AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME),), 14),
        (((WRITE, TOPIC, "any"),), 14),
    ],
)
@virtual_time
async def test_who_may_have_a_producer_id(allowed: tuple[Allowed, ...], code: int) -> None:
    async with front() as it:
        it.shell.channels = None
        it.shell.authorizer = Allowing(*allowed)
        assert await init(it, 4) == (code, -1, -1)


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].max + 1))
@virtual_time
async def test_transactional_producers_are_sent_to_their_coordinator(version: int) -> None:
    seconds = {"transaction_timeout": 60_000}
    async with front() as it:
        assert (await init(it, version, transactional_id="t", **seconds))[0] == KafkaErrorCode.NOT_COORDINATOR
        assert (await init(it, version, transactional_id="", **seconds))[0] == KafkaErrorCode.INVALID_REQUEST
        assert (await init(it, version, transactional_id="t"))[0] == KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT
        if version >= 3:
            answer = await init(it, version, transactional_id="t", producer_id=7, **seconds)
            assert answer[0] == KafkaErrorCode.INVALID_REQUEST
        it.shell.authorizer = Allowing()
        assert (await init(it, version, transactional_id="t", **seconds))[0] == 53
