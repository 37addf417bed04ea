"""DescribeQuorum: the only partition of the metadata log, from its leader."""

from __future__ import annotations

import pytest

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.quorum import (
    DescribedQuorum,
    QuorumReplica,
    decode_describe_quorum_response,
    encode_describe_quorum_request,
)

_API = ApiKey.DESCRIBE_QUORUM


def response(version: int, partitions: int, error_code: int = 0) -> bytes:
    replica = {"replica_id": 3000, "log_end_offset": 7, "last_caught_up_timestamp": 9}
    partition = {
        "partition_index": 0,
        "leader_id": 3000,
        "leader_epoch": 4,
        "high_watermark": 6,
        "current_voters": [replica],
        "observers": [replica | {"replica_id": 1}],
    }
    topics = [{"topic_name": "__cluster_metadata", "partitions": [partition] * partitions}]
    return cold.encode_response(_API, version, cold.response(_API, version, error_code=error_code, topics=topics))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_quorum_is_described_by_its_leader(version: int) -> None:
    request = cold.decode_request(_API, version, encode_describe_quorum_request(version))
    assert [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics] == [
        ("__cluster_metadata", [0])
    ]
    caught_up = 9 if version else -1
    expected = DescribedQuorum(0, 3000, 4, 6, (QuorumReplica(3000, 7, caught_up),), (QuorumReplica(1, 7, caught_up),))
    assert decode_describe_quorum_response(version, response(version, 1)) == expected


def test_an_error_has_no_quorum_and_other_partitions_are_refused() -> None:
    assert decode_describe_quorum_response(1, response(1, 0, error_code=31)) == DescribedQuorum(31)
    with pytest.raises(FrameError, match="found 2 partitions, expected one"):
        decode_describe_quorum_response(1, response(1, 2))
