"""What brokers and clients meet at the controller's port, on the network in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire import alter_partition, cold, elect_leaders, messages
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from aiocontroller.wire.frames import decode_response_header, request_frame
from tests.unit.server.front import framed, front, settle, warnings

TOPIC_ID = bytes(range(16))


# -- ApiVersions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
@virtual_time
async def test_api_versions_tells_what_is_served(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, version, messages.encode_api_versions_request(version, "test", "1"))
        await settle()
        answer = messages.decode_api_versions_response(version, client.answer(ApiKey.API_VERSIONS, version))
        assert answer.error_code == 0
        assert answer.versions == it.listener.apis.offered()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
@virtual_time
async def test_api_versions_of_an_unknown_version_is_answered_in_the_oldest_layout(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        frame = version.to_bytes(2, "big", signed=True)
        client.send(
            (14).to_bytes(4, "big") + b"\x00\x12" + frame + (5).to_bytes(4, "big") + b"\x00\x02me" + b"\x00\x00"
        )
        await settle()
        assert client.correlation_ids() == [5]
        answer = messages.decode_api_versions_response(0, client.frames[0][4:])
        assert answer.error_code == KafkaErrorCode.UNSUPPORTED_VERSION == 35
        assert answer.versions == {ApiKey.API_VERSIONS: VersionRange(0, 4)}
        assert not client.closed, "the client may go on with a version that it was answered"


@virtual_time
async def test_api_versions_of_a_client_without_a_usable_name_is_an_invalid_request() -> None:
    async with front() as it:
        for name, version in (("", "1"), ("a", "1 of 2"), ("-a", "1")):
            client = await it.connect()
            client.request(ApiKey.API_VERSIONS, 3, messages.encode_api_versions_request(3, name, version))
            await settle()
            answer = messages.decode_api_versions_response(3, client.answer(ApiKey.API_VERSIONS, 3))
            assert (answer.error_code, answer.versions) == (KafkaErrorCode.INVALID_REQUEST, {})


@virtual_time
async def test_requests_of_a_login_outside_of_one_are_refused() -> None:
    async with front() as it:
        fields: dict[str, Any]
        for api, fields in (
            (ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}),
            (ApiKey.SASL_AUTHENTICATE, {"auth_bytes": b"\0admin\0secret"}),
        ):
            client = await it.connect()
            client.request(api, 1, cold.encode_request(api, 1, cold.request(api, 1, **fields)))
            await settle()
            answer = cold.decode_response(api, 1, client.answer(api, 1))
            assert int(answer.error_code) == KafkaErrorCode.ILLEGAL_SASL_STATE == 34
            assert not client.closed


@virtual_time
async def test_api_versions_holds_what_brokers_offer_but_nothing_between_controllers_and_brokers() -> None:
    between = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
    of_kraft = {ApiKey.DESCRIBE_QUORUM}
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        answer = messages.decode_api_versions_response(0, client.answer(ApiKey.API_VERSIONS, 0))
        assert set(SUPPORTED) - set(answer.versions) == between | of_kraft
        for api, versions in answer.versions.items():
            assert versions.max == SUPPORTED[ApiKey(api)].max


# -- order and round trips ---------------------------------------------------------------------------------------------


def alter_partition_body(version: int) -> bytes:
    topic = TOPIC_ID if version >= 2 else "t"
    change = AlterPartition(topic, 4, 9, (1, 2), 17, 0)
    return alter_partition.encode_alter_partition_request(
        version, alter_partition.AlterPartitionRequest(2, 77, (change,))
    )


@pytest.mark.parametrize("version", range(4))
@virtual_time
async def test_alter_partition_there_and_back(version: int) -> None:
    topic = TOPIC_ID if version >= 2 else "t"
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ALTER_PARTITION, version, alter_partition_body(version))
        event = await it.event()
        assert (event.broker, event.broker_epoch, event.version) == (2, 77, version)
        assert event.partitions == (AlterPartition(topic, 4, 9, (1, 2), 17, 0),)
        event.reply.answer([AlterPartitionResult(topic, 4, 0, LeaderAndIsr(1, 9, (1, 2), 3, 18, 0))])
        await settle()
        answer = alter_partition.decode_alter_partition_response(
            version, client.answer(ApiKey.ALTER_PARTITION, version)
        )
        assert answer.error_code == 0
        (result,) = answer.results
        assert (result.topic, result.partition, result.error_code) == (topic, 4, 0)
        assert result.leadership is not None
        assert (result.leadership.leader, result.leadership.isr, result.leadership.partition_epoch) == (1, (1, 2), 18)


@pytest.mark.parametrize("version", range(4))
@virtual_time
async def test_controlled_shutdown_there_and_back(version: int) -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(version, 2, 77)
        client.request(ApiKey.CONTROLLED_SHUTDOWN, version, body)
        event = await it.event()
        assert (event.broker, event.broker_epoch) == (2, 77 if version >= 2 else -1)
        event.reply.answer([TopicPartition("t", 0), TopicPartition("t", 3), TopicPartition("u", 1)])
        await settle()
        answer = messages.decode_controlled_shutdown_response(
            version, client.answer(ApiKey.CONTROLLED_SHUTDOWN, version)
        )
        assert answer.error_code == 0
        assert sorted(answer.remaining) == [("t", 0), ("t", 3), ("u", 1)]


@virtual_time
async def test_producer_ids_there_and_back() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, messages.encode_allocate_producer_ids_request(0, 2, 77))
        (await it.event()).reply.answer((5000, 1000))
        await settle()
        answer = messages.decode_allocate_producer_ids_response(0, client.answer(ApiKey.ALLOCATE_PRODUCER_IDS, 0))
        assert (answer.error_code, answer.first, answer.count) == (0, 5000, 1000)


@virtual_time
async def test_one_request_is_under_way_and_answers_leave_in_order() -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        for _ in range(3):
            client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, body)
        client.request(ApiKey.API_VERSIONS, 0)
        for answered in range(3):
            await settle()
            assert len(it.queue) == 1
            assert client.correlation_ids() == list(range(1, answered + 1))
            (await it.event()).reply.answer([])
        await settle()
        assert client.correlation_ids() == [1, 2, 3, 4]


@virtual_time
async def test_preempted_requests_are_answered_not_controller() -> None:
    async with front() as it:
        clients = [await it.connect() for _ in range(3)]
        clients[0].request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        clients[1].request(ApiKey.ALTER_PARTITION, 3, alter_partition_body(3))
        clients[2].request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, messages.encode_allocate_producer_ids_request(0, 2, 77))
        await settle()
        it.queue.clear_and_put(ev.Expire())
        await settle()
        (first,), (second,), (third,) = (client.frames for client in clients)
        shutdown = messages.decode_controlled_shutdown_response(
            3, decode_response_header(ApiKey.CONTROLLED_SHUTDOWN, 3, first)[1]
        )
        altered = alter_partition.decode_alter_partition_response(
            3, decode_response_header(ApiKey.ALTER_PARTITION, 3, second)[1]
        )
        producer_ids = messages.decode_allocate_producer_ids_response(
            0, decode_response_header(ApiKey.ALLOCATE_PRODUCER_IDS, 0, third)[1]
        )
        assert {shutdown.error_code, altered.error_code, producer_ids.error_code} == {KafkaErrorCode.NOT_CONTROLLER}


@virtual_time
async def test_answer_to_a_client_that_has_gone_is_dropped() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        event = await it.event()
        client.close()
        await settle()
        event.reply.answer([])


@virtual_time
async def test_second_answer_to_a_request_is_not_taken_for_one_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front() as it:
        taken: list[KafkaRequest] = []
        monkeypatch.setattr(it.listener.apis, "handle", taken.append)
        client = await it.connect()
        for _ in range(2):
            client.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        await settle()
        assert len(taken) == 1
        taken[0].respond(b"first")
        await settle()
        assert len(taken) == 2
        taken[0].respond(b"late")
        await settle()
        assert len(client.correlation_ids()) == 1
        taken[1].respond(b"second")
        await settle()
        assert len(client.correlation_ids()) == 2


@virtual_time
async def test_answer_that_comes_after_the_connection_was_closed_is_not_written() -> None:
    """uvloop raises when a closed transport is written to, and the handler that answers would pay for it."""

    class Strict(asyncio.Transport):
        closed = False

        def close(self) -> None:
            self.closed = True

        def writelines(self, list_of_data: Any) -> None:
            assert not self.closed

        def pause_reading(self) -> None: ...

        def resume_reading(self) -> None: ...

    async with front() as it:
        transport = Strict()
        connection = it.listener.connection()
        connection.connection_made(transport)
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        connection.data_received(b"".join(request_frame(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "me", body)))
        event = await it.event()
        connection.close()
        assert transport.closed
        event.reply.answer([])


# -- bad input ---------------------------------------------------------------------------------------------------------


BAD = {
    "too long": ((200 * 1024 * 1024).to_bytes(4, "big"), "found a length of 209715200 bytes"),
    "negative length": (b"\xff\xff\xff\xfe", "found a length of -2 bytes"),
    "empty": (framed(b""), "API key, version and correlation id: found 0 bytes left"),
    "header cut short": (framed(b"\x00\x38\x00\x03"), "API key, version and correlation id: found 4 bytes left"),
    "client id cut short": (framed(b"\x00\x38\x00\x03\x00\x00\x00\x01\x00\x63me"), "client id"),
    "unknown API": (
        framed(b"\x03\xe7\x00\x00\x00\x00\x00\x01\x00\x02me"),
        "API key 999 (version 0): no API has this key",
    ),
    "AlterPartition of a version to come": (
        b"".join(request_frame(ApiKey.ALTER_PARTITION, 4, 1, "me", b"\x00" * 20)),
        "ALTER_PARTITION(56) version 4: expected 0 to 3",
    ),
    "AlterPartition cut short": (
        b"".join(request_frame(ApiKey.ALTER_PARTITION, 3, 1, "me", b"\x00\x00\x00\x02")),
        "AlterPartition",
    ),
    "what controllers say to brokers": (
        b"".join(request_frame(ApiKey.LEADER_AND_ISR, 7, 1, "me", b"\x00" * 20)),
        "LEADER_AND_ISR(4) version 7 is not served here",
    ),
    "half an envelope": (
        b"".join(request_frame(ApiKey.ENVELOPE, 0, 1, "me", b"\x00")),
        "Envelope request",
    ),
}


@pytest.mark.parametrize("name", BAD)
@virtual_time
async def test_bad_input_costs_its_connection_and_no_other(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, complaint = BAD[name]
    async with front() as it:
        bad, good = await it.connect(), await it.connect()
        good.request(ApiKey.CONTROLLED_SHUTDOWN, 3, messages.encode_controlled_shutdown_request(3, 2, 77))
        waiting = await it.event()
        bad.send(data)
        await settle()
        assert bad.closed
        assert bad.frames == []
        (line,) = warnings(caplog)
        assert line.startswith("Closing the connection from ")
        assert complaint.lower().replace("_", "") in line.lower().replace("_", ""), line
        assert not good.closed
        waiting.reply.answer([])
        good.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert good.correlation_ids() == [1, 2]
        assert len(it.queue) == 0


@virtual_time
async def test_request_may_arrive_byte_by_byte() -> None:
    async with front() as it:
        client = await it.connect()
        body = messages.encode_controlled_shutdown_request(3, 2, 77)
        for byte in b"".join(request_frame(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "me", body)):
            client.send(bytes([byte]))
        await settle()
        assert (await it.event()).broker == 2


@virtual_time
async def test_close_ends_every_connection_after_what_was_answered() -> None:
    async with front() as it:
        await it.broker()
        clients = [await it.connect() for _ in range(3)]
        clients[0].request(ApiKey.API_VERSIONS, 0)
        clients[1].request(ApiKey.ELECT_LEADERS, 2, elect_leaders.encode_elect_leaders_request(2, None))
        clients[2].close()
        await settle()
        it.listener.close()
        await settle()
        assert all(client.closed for client in clients)
        assert clients[0].correlation_ids() == [1]
        assert it.listener.connections == {}
