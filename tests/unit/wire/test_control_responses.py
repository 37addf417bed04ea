"""The answers to LeaderAndIsr, UpdateMetadata and StopReplica: what kio writes is read, damage is a FrameError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.leader_and_isr import decode_leader_and_isr_response
from aiocontroller.wire.stop_replica import decode_stop_replica_response
from aiocontroller.wire.update_metadata import decode_update_metadata_response
from tests.unit.wire.generated import versions


def assert_every_cut_is_a_frame_error(decode: Any, version: int, body: bytes) -> None:
    for cut in range(len(body)):
        with pytest.raises(FrameError, match=rf"version {version} re(quest|sponse), byte"):
            decode(version, body[:cut])
    with pytest.raises(FrameError, match="found 1 bytes more"):
        decode(version, body + b"\0")


codes = st.sampled_from([0, 0, 0, 11, 56])


@pytest.mark.parametrize("version", versions(ApiKey.LEADER_AND_ISR))
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0, 11]),
    st.dictionaries(st.binary(min_size=16, max_size=16), st.lists(st.tuples(st.integers(0, 9), codes)), max_size=3),
)
def test_leader_and_isr_answers(version: int, error_code: int, topics: dict[bytes, list[tuple[int, int]]]) -> None:
    names = {topic_id: topic_id.hex() for topic_id in topics}
    message = cold.response(
        ApiKey.LEADER_AND_ISR,
        version,
        error_code=error_code,
        topics=[
            {
                "topic_id": topic_id,
                "partition_errors": [{"partition_index": p, "error_code": code} for p, code in partitions],
            }
            for topic_id, partitions in topics.items()
        ],
        partition_errors=[
            {"topic_name": names[topic_id], "partition_index": p, "error_code": code}
            for topic_id, partitions in topics.items()
            for p, code in partitions
        ],
    )
    body = cold.encode_response(ApiKey.LEADER_AND_ISR, version, message)
    got = decode_leader_and_isr_response(version, body)
    assert got.error_code == error_code
    assert got.partitions == tuple(
        (topic_id if version >= 5 else names[topic_id], p, code)
        for topic_id, partitions in topics.items()
        for p, code in partitions
        if code
    )
    assert_every_cut_is_a_frame_error(decode_leader_and_isr_response, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.STOP_REPLICA))
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "ü" * 70]), st.integers(0, 9), codes), max_size=4))
def test_stop_replica_answers(version: int, partitions: list[tuple[str, int, int]]) -> None:
    message = cold.response(
        ApiKey.STOP_REPLICA,
        version,
        error_code=0,
        partition_errors=[{"topic_name": t, "partition_index": p, "error_code": code} for t, p, code in partitions],
    )
    body = cold.encode_response(ApiKey.STOP_REPLICA, version, message)
    got = decode_stop_replica_response(version, body)
    assert (got.error_code, got.partitions) == (0, tuple(partitions))
    assert [tuple(f) for f in got.failed()] == [(t, p) for t, p, code in partitions if code]
    assert_every_cut_is_a_frame_error(decode_stop_replica_response, version, body)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_METADATA))
def test_update_metadata_answers(version: int) -> None:
    body = cold.encode_response(
        ApiKey.UPDATE_METADATA, version, cold.response(ApiKey.UPDATE_METADATA, version, error_code=77)
    )
    assert decode_update_metadata_response(version, body) == 77
    assert_every_cut_is_a_frame_error(decode_update_metadata_response, version, body)


def test_tagged_fields_on_a_partition_are_stepped_over() -> None:
    """A later Kafka may add some; the fast look at all partitions together must not hide an error behind them."""
    topic = b"i" * 16 + b"\x03" + b"\0\0\0\x01\0\0\x01\x05\x02hi" + b"\0\0\0\x02\0\x0b\0" + b"\0"
    got = decode_leader_and_isr_response(7, b"\0\0\x02" + topic + b"\0")
    assert got.partitions == ((b"i" * 16, 2, 11),)
