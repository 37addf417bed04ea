"""DescribeLogDirs in every version: what brokers have on directories that work."""

from __future__ import annotations

import pytest

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.log_dirs import decode_describe_log_dirs_response, encode_describe_log_dirs_request

KEY = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = range(5)


def folder(code: int, *partitions: tuple[int, int, bool]) -> dict[str, object]:
    own = [
        {"partition_index": n, "partition_size": size, "offset_lag": 0, "is_future_key": future}
        for n, size, future in partitions
    ]
    return {"error_code": code, "log_dir": "/d", "topics": [{"name": "t", "partitions": own}]}


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_are_those_of_working_directories(version: int) -> None:
    answer = cold.response(
        KEY, version, error_code=0, results=[folder(0, (0, 70, False), (1, 5, True)), folder(56, (2, 9, False))]
    )
    body = cold.encode_response(KEY, version, answer)
    assert decode_describe_log_dirs_response(version, body) == (0, {TopicPartition("t", 0): 70})
    with pytest.raises(FrameError):
        decode_describe_log_dirs_response(version, body[:-3])


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_a_refusal_has_a_code(version: int) -> None:
    body = cold.encode_response(KEY, version, cold.response(KEY, version, error_code=31, results=[]))
    assert decode_describe_log_dirs_response(version, body) == (31, {})


@pytest.mark.parametrize("version", VERSIONS)
def test_all_or_some_are_asked_about(version: int) -> None:
    everything = cold.decode_request(KEY, version, encode_describe_log_dirs_request(version, None))
    assert everything.topics is None
    some = [TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 3)]
    asked = cold.decode_request(KEY, version, encode_describe_log_dirs_request(version, some))
    assert [(t.topic, tuple(t.partitions)) for t in asked.topics] == [("t", (1, 3)), ("u", (0,))]
