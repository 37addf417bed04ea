"""The small cold messages: each side reads what the other wrote, in every version; AlterPartition as kio writes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.serial import entity_reader

from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.wire import cold, messages
from aiocontroller.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    decode_alter_partition_request,
    decode_alter_partition_response,
    encode_alter_partition_request,
    encode_alter_partition_response,
)
from aiocontroller.wire.apis import SUPPORTED, ApiKey, UnsupportedApiError, VersionRange
from aiocontroller.wire.errors import FrameError
from tests.unit.wire.generated import versions

# -- ApiVersions -------------------------------------------------------------------------------------------------------

OFFERED = {ApiKey.ALTER_PARTITION: VersionRange(0, 3), ApiKey.API_VERSIONS: VersionRange(0, 4)}


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions(version: int) -> None:
    request = messages.encode_api_versions_request(version, "aiocontroller", "1")
    assert cold.decode_request(ApiKey.API_VERSIONS, version, request)
    answer = messages.encode_api_versions_response(version, OFFERED)
    assert messages.decode_api_versions_response(version, answer) == messages.ApiVersions(0, OFFERED)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_that_are_too_new_get_the_oldest_layout(version: int) -> None:
    answer = messages.answer_api_versions_request(version, b"of another form", OFFERED)
    assert answer == bytes.fromhex("0023 00000001 001200000004")
    assert entity_reader(load_response_schema(18, 0))(answer, 0)[1] == len(answer)
    got = messages.decode_api_versions_response(4, answer)
    assert got.error_code == 35
    assert got.versions[18] == VersionRange(0, 4)


def test_features_and_migration_of_a_peer() -> None:
    peer = cold.response(
        ApiKey.API_VERSIONS,
        4,
        api_keys=[{"api_key": 999, "min_version": 1, "max_version": 2}],
        supported_features=[{"name": "metadata.version", "min_version": 0, "max_version": 21}],
        zk_migration_ready=True,
    )
    got = messages.decode_api_versions_response(4, cold.encode_response(ApiKey.API_VERSIONS, 4, peer))
    expected = messages.ApiVersions(0, {999: VersionRange(1, 2)}, True, (("metadata.version", 0, 21),))
    assert got == expected


# -- ControlledShutdown, AllocateProducerIds ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CONTROLLED_SHUTDOWN))
def test_controlled_shutdown(version: int) -> None:
    request = messages.encode_controlled_shutdown_request(version, 2, 77)
    got = messages.decode_controlled_shutdown_request(version, request)
    assert (got.broker, got.broker_epoch) == (2, 77 if version >= 2 else -1)
    left = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
    answer = messages.encode_controlled_shutdown_response(version, 0, left)
    assert messages.decode_controlled_shutdown_response(version, answer).remaining == left
    answer = messages.encode_controlled_shutdown_response(version, 77)
    assert messages.decode_controlled_shutdown_response(version, answer).error_code == 77


def test_allocate_producer_ids() -> None:
    got = messages.decode_allocate_producer_ids_request(0, messages.encode_allocate_producer_ids_request(0, 2, 77))
    assert (got.broker, got.broker_epoch) == (2, 77)
    answer = messages.encode_allocate_producer_ids_response(0, 0, 3000, 1000)
    assert messages.decode_allocate_producer_ids_response(0, answer) == messages.AllocateProducerIdsResponse(
        0, 3000, 1000
    )


# -- Metadata ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
@pytest.mark.parametrize("topics", [None, ("a", "b")])
def test_metadata_requests(version: int, topics: tuple[str, ...] | None) -> None:
    got = messages.decode_metadata_request(version, messages.encode_metadata_request(version, topics))
    assert got.topics == topics
    assert got.allow_auto_topic_creation == (version < 4)


def test_metadata_asks_for_nothing_with_an_empty_list_since_version_1() -> None:
    body = messages.encode_metadata_request(1, ())
    assert messages.decode_metadata_request(1, body).topics == ()


def test_metadata_by_id() -> None:
    message = cold.request(ApiKey.METADATA, 12, topics=[{"topic_id": b"i" * 16, "name": None}])
    body = cold.encode_request(ApiKey.METADATA, 12, message)
    assert messages.decode_metadata_request(12, body).topics == (b"i" * 16,)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_responses(version: int) -> None:
    partition = messages.MetadataPartition(0, 1, 4 if version >= 7 else -1, (1, 2), (1,), (2,) if version >= 5 else ())
    answer = messages.MetadataResponse(
        (messages.MetadataBroker(1, "h", 9092, "r" if version >= 1 else None),),
        (
            messages.MetadataTopic("t", b"i" * 16 if version >= 10 else bytes(16), (partition,)),
            messages.MetadataTopic("gone", error_code=3, is_internal=version >= 1),
        ),
        1 if version >= 1 else -1,
        "cluster" if version >= 2 else None,
    )
    body = messages.encode_metadata_response(version, answer)
    assert messages.decode_metadata_response(version, body) == answer


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_a_topic_without_a_name(version: int) -> None:
    answer = messages.MetadataResponse((), (messages.MetadataTopic(None, error_code=100),))
    body = messages.encode_metadata_response(version, answer)
    assert messages.decode_metadata_response(version, body).topics[0].name == (None if version >= 12 else "")


# -- AlterPartition ----------------------------------------------------------------------------------------------------

int32 = st.integers(-(2**31), 2**31 - 1)
isrs = st.lists(st.integers(0, 9), max_size=4, unique=True).map(tuple) | st.just(tuple(range(130)))


def topics_of(version: int) -> st.SearchStrategy[str | bytes]:
    return st.binary(min_size=16, max_size=16) if version >= 2 else st.sampled_from(["a", "ü", "n" * 130])


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_alter_partition_requests_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    recovery = st.integers(0, 1) if version >= 1 else st.just(0)
    change = st.builds(AlterPartition, topics_of(version), int32, int32, isrs, int32, recovery)
    changes = data.draw(st.lists(change, max_size=4, unique_by=lambda c: c.topic))
    message = cold.request(
        ApiKey.ALTER_PARTITION,
        version,
        broker_id=3,
        broker_epoch=5,
        topics=[
            {
                "topic_name": c.topic,
                "topic_id": c.topic,
                "partitions": [
                    {
                        "partition_index": c.partition,
                        "leader_epoch": c.leader_epoch,
                        "new_isr": c.isr,
                        "new_isr_with_epochs": [{"broker_id": b, "broker_epoch": -1} for b in c.isr],
                        "leader_recovery_state": c.recovery_state,
                        "partition_epoch": c.partition_epoch,
                    }
                ],
            }
            for c in changes
        ],
    )
    body = cold.encode_request(ApiKey.ALTER_PARTITION, version, message)
    got = decode_alter_partition_request(version, body)
    expected = AlterPartitionRequest(3, 5, tuple(changes))
    if version < 2 or all(any(c.topic) for c in changes):  # type: ignore[arg-type]
        assert encode_alter_partition_request(version, expected) == body
    assert got == expected
    assert_every_cut_is_a_frame_error(decode_alter_partition_request, version, body)
    assert decode_alter_partition_request(version, body + b"\0") == decode_alter_partition_request(version, body)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_alter_partition_answers_as_kio_writes_them(version: int, data: st.DataObject) -> None:
    recovery = st.integers(0, 1) if version >= 1 else st.just(0)
    held = st.builds(LeaderAndIsr, int32, int32, isrs, st.just(0), int32, recovery)
    good = st.builds(AlterPartitionResult, topics_of(version), int32, st.just(0), held)
    bad = st.builds(AlterPartitionResult, topics_of(version), int32, st.sampled_from([3, 74, 95]))
    results = data.draw(st.lists(good | bad, max_size=4, unique_by=lambda r: r.topic))
    nothing = LeaderAndIsr(0, 0, (), 0, 0)
    message = cold.response(
        ApiKey.ALTER_PARTITION,
        version,
        error_code=41,
        topics=[
            {
                "topic_name": r.topic,
                "topic_id": r.topic,
                "partitions": [
                    {
                        "partition_index": r.partition,
                        "error_code": r.error_code,
                        "leader_id": (r.leadership or nothing).leader,
                        "leader_epoch": (r.leadership or nothing).leader_epoch,
                        "isr": (r.leadership or nothing).isr,
                        "leader_recovery_state": (r.leadership or nothing).recovery_state,
                        "partition_epoch": (r.leadership or nothing).partition_epoch,
                    }
                ],
            }
            for r in results
        ],
    )
    body = cold.encode_response(ApiKey.ALTER_PARTITION, version, message)
    assert encode_alter_partition_response(version, 41, results) == body
    assert decode_alter_partition_response(version, body) == AlterPartitionResponse(41, tuple(results))
    assert_every_cut_is_a_frame_error(decode_alter_partition_response, version, body)
    with pytest.raises(FrameError, match="found 1 bytes more"):
        decode_alter_partition_response(version, body + b"\0")


def test_tagged_fields_in_an_alter_partition_request_are_stepped_over() -> None:
    change = AlterPartition(b"i" * 16, 1, 2, (1, 2), 3)
    body = encode_alter_partition_request(3, AlterPartitionRequest(1, 1, (change,)))
    for end in (-1, -2, -3, -3 - 4 - 1 - 1):  # of the request, the topic, the partition, the second broker
        cut = len(body) + end
        assert body[cut] == 0
        tagged = body[:cut] + b"\x01\x07\x02hi" + body[cut + 1 :]
        assert decode_alter_partition_request(3, tagged).partitions == (change,)


def test_a_topic_appears_once_in_an_answer() -> None:
    results = [AlterPartitionResult(topic, n, 3) for n, topic in enumerate(["a", "b", "a"])]
    got = decode_alter_partition_response(1, encode_alter_partition_response(1, 0, results))
    assert [(r.topic, r.partition) for r in got.results] == [("a", 0), ("a", 2), ("b", 1)]


def assert_every_cut_is_a_frame_error(decode: Any, version: int, body: bytes) -> None:
    for cut in range(min(len(body), 300)):
        with pytest.raises(FrameError, match=rf"ALTER_PARTITION\(56\) version {version} re"):
            decode(version, body[:cut])


def test_unknown_versions() -> None:
    assert SUPPORTED[ApiKey.ALTER_PARTITION].max == 3
    with pytest.raises(UnsupportedApiError, match=r"ALTER_PARTITION\(56\) version 4"):
        decode_alter_partition_request(4, b"")
