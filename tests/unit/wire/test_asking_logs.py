"""ListOffsets and Fetch, as a controller asks for the ends of logs: against kio in every version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire import cold, fetch, list_offsets
from aiocontroller.wire.apis import ApiKey, UnsupportedApiError
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.primitives import MAX_TAGGED_FIELDS, array_length, string
from tests.unit.wire.generated import int32, int64, names
from tests.unit.wire.test_control_responses import assert_every_cut_is_a_frame_error

VERSIONS = range(list_offsets.VERSIONS.min, list_offsets.VERSIONS.max + 1)
partitions = st.lists(int32, max_size=5, unique=True)
topics = st.dictionaries(names, partitions, max_size=4)
codes = st.sampled_from([0, 0, 0, 1, 3, 6, 56, 74])


# -- ListOffsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(topics=topics, timestamp=st.sampled_from([-1, -2, -3, -4, 0]), replica=int32)
def test_list_offsets_requests(version: int, topics: dict[str, list[int]], timestamp: int, replica: int) -> None:
    expected = cold.request(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=replica,
        isolation_level=0,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "current_leader_epoch": -1, "timestamp": timestamp} for p in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
    )
    body = list_offsets.encode_list_offsets_request(version, topics, timestamp, replica)
    assert body == cold.encode_request(ApiKey.LIST_OFFSETS, version, expected)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(st.dictionaries(names, st.dictionaries(int32, st.tuples(codes, int64, int32), max_size=4), max_size=3))
def test_list_offsets_responses(version: int, topics: dict[str, dict[int, tuple[int, int, int]]]) -> None:
    message = cold.response(
        ApiKey.LIST_OFFSETS,
        version,
        throttle_time=7,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "error_code": code, "offset": offset, "leader_epoch": epoch}
                    for p, (code, offset, epoch) in partitions.items()
                ],
            }
            for topic, partitions in topics.items()
        ],
    )
    body = cold.encode_response(ApiKey.LIST_OFFSETS, version, message)
    assert list_offsets.decode_list_offsets_response(version, body) == {
        TopicPartition(topic, p): list_offsets.ListedOffset(code, offset, epoch if version >= 4 else -1)
        for topic, partitions in topics.items()
        for p, (code, offset, epoch) in partitions.items()
    }
    assert_every_cut_is_a_frame_error(list_offsets.decode_list_offsets_response, version, body)


def test_tagged_fields_of_listed_offsets_are_stepped_over() -> None:
    """A later Kafka may add some, to more partitions than the usual limit of tagged fields."""
    many = MAX_TAGGED_FIELDS + 1
    rows = b"".join(
        p.to_bytes(4, "big") + b"\0\x06" + bytes(8) + b"\0" * 7 + b"\x2a" + bytes(4) + b"\x01\x05\x02hi"
        for p in range(many)
    )
    body = bytes(4) + b"\x02" + string("t", flexible=True) + array_length(many, flexible=True) + rows + b"\0\0"
    got = list_offsets.decode_list_offsets_response(7, body)
    assert len(got) == many
    assert got["t", 7] == (6, 42, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_listed_twice_is_refused(version: int) -> None:
    row = {"partition_index": 3, "error_code": 0, "offset": 1}
    for doubled in ([{"name": "t", "partitions": [row, row]}], [{"name": "t", "partitions": [row]}] * 2):
        message = cold.response(ApiKey.LIST_OFFSETS, version, topics=doubled)
        body = cold.encode_response(ApiKey.LIST_OFFSETS, version, message)
        with pytest.raises(FrameError, match="1 answered twice"):
            list_offsets.decode_list_offsets_response(version, body)


@pytest.mark.parametrize("version", [0, 10])
def test_other_versions_of_list_offsets_are_not_used(version: int) -> None:
    with pytest.raises(UnsupportedApiError, match=rf"LIST_OFFSETS\(2\) version {version}: expected 1 to 9"):
        list_offsets.encode_list_offsets_request(version, {})


# -- Fetch -------------------------------------------------------------------------------------------------------------

questions = st.lists(st.builds(fetch.EpochQuestion, int32, int32, int64), max_size=5)


@settings(max_examples=60, deadline=None)
@given(topics=st.dictionaries(names, questions, max_size=4), replica=int32, max_bytes=st.integers(0, 2**31 - 1))
def test_fetch_requests(topics: dict[str, list[fetch.EpochQuestion]], replica: int, max_bytes: int) -> None:
    fields = {
        "replica_id": replica,
        "max_wait": timedelta(0),
        "min_bytes": 0,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": q.partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": q.offset,
                        "last_fetched_epoch": q.epoch,
                        "log_start_offset": -1,
                        "partition_max_bytes": max_bytes,
                    }
                    for q in questions
                ],
            }
            for topic, questions in topics.items()
        ],
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    expected = cold.request(ApiKey.FETCH, 12, **fields)
    assert fetch.encode_fetch_request(topics, replica, max_bytes) == cold.encode_request(ApiKey.FETCH, 12, expected)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    given: dict[str, Any] = {
        "error_code": draw(codes),
        "high_watermark": draw(int64),
        "last_stable_offset": draw(int64),
        "log_start_offset": draw(int64),
        "preferred_read_replica": draw(int32),
        "records": draw(st.sampled_from([None, b"", b"some records"])),
        "aborted_transactions": draw(
            st.one_of(
                st.none(),
                st.lists(st.fixed_dictionaries({"producer_id": int64, "first_offset": int64}), max_size=2),
            )
        ),
    }
    if draw(st.booleans()):
        given["diverging_epoch"] = {"epoch": draw(int32), "end_offset": draw(int64)}
    if draw(st.booleans()):
        given["current_leader"] = {"leader_id": draw(int32), "leader_epoch": draw(int32)}
    return given


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names, st.dictionaries(int32, answers(), max_size=4), max_size=3), st.sampled_from([0, 70]))
def test_fetch_responses(topics: dict[str, dict[int, dict[str, Any]]], error_code: int) -> None:
    message = cold.response(
        ApiKey.FETCH,
        12,
        throttle_time=7,
        error_code=error_code,
        session_id=0,
        responses=[
            {"topic": topic, "partitions": [{"partition_index": p, **given} for p, given in partitions.items()]}
            for topic, partitions in topics.items()
        ],
    )
    body = cold.encode_response(ApiKey.FETCH, 12, message)
    assert fetch.decode_fetch_response(body) == (
        error_code,
        {
            TopicPartition(topic, p): fetch.EpochEndAnswer(
                given["error_code"],
                given["high_watermark"],
                given["log_start_offset"],
                *given.get("diverging_epoch", {"epoch": -1, "end_offset": -1}).values(),
            )
            for topic, partitions in topics.items()
            for p, given in partitions.items()
        },
    )
    assert_every_cut_is_a_frame_error(lambda version, body: fetch.decode_fetch_response(body), 12, body)


def test_an_epoch_s_end_answered_twice_is_refused() -> None:
    row = {"partition_index": 3, "error_code": 0, "diverging_epoch": {"epoch": 1, "end_offset": 5}}
    for doubled in ([{"topic": "t", "partitions": [row, row]}], [{"topic": "t", "partitions": [row]}] * 2):
        body = cold.encode_response(ApiKey.FETCH, 12, cold.response(ApiKey.FETCH, 12, responses=doubled))
        with pytest.raises(FrameError, match="1 answered twice"):
            fetch.decode_fetch_response(body)


def test_a_diverging_epoch_of_another_size_is_refused() -> None:
    head = bytes(10) + b"\x02\x02t\x02" + bytes(30) + b"\x00" + bytes(4) + b"\x00"
    good = fetch.decode_fetch_response(head + b"\x01\x00\x0d" + bytes(12) + b"\0\0\0")
    assert good.partitions == {("t", 0): (0, 0, 0, 0, 0)}
    with pytest.raises(FrameError, match="diverging epoch: found its end at byte"):
        fetch.decode_fetch_response(head + b"\x01\x00\x0c" + bytes(12) + b"\0\0\0")
