"""The administrators' messages: each side reads what the other wrote, in every version, null lists included."""

from __future__ import annotations

import pytest

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.wire import admin_messages as wire
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from tests.unit.wire.generated import versions

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
@pytest.mark.parametrize("partitions", [None, (), (A0, A1, B0)])
def test_elect_leaders_request(version: int, partitions: tuple[TopicPartition, ...] | None) -> None:
    election_type = 1 if version >= 1 else 0
    body = wire.encode_elect_leaders_request(version, partitions, election_type)
    assert wire.decode_elect_leaders_request(version, body) == wire.ElectLeadersRequest(partitions, election_type)


def test_elect_leaders_version_0_cannot_say_unclean() -> None:
    with pytest.raises(ValueError, match="found election type 1"):
        wire.encode_elect_leaders_request(0, None, 1)


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elect_leaders_response(version: int) -> None:
    results = {A0: (0, ""), A1: (84, "needless"), B0: (3, "none such")}
    body = wire.encode_elect_leaders_response(version, 41, results)
    expected = wire.ElectLeadersResponse(41 if version >= 1 else 0, results)
    assert wire.decode_elect_leaders_response(version, body) == expected


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_alter_partition_reassignments(version: int) -> None:
    targets = {A0: (3, 1), A1: None, B0: ()}
    body = wire.encode_alter_partition_reassignments_request(version, targets)
    assert wire.decode_alter_partition_reassignments_request(version, body) == targets
    results = {A0: (0, ""), A1: (85, "no reassignment is in progress"), B0: (39, "empty")}
    answer = wire.encode_alter_partition_reassignments_response(version, 0, results)
    got = wire.decode_alter_partition_reassignments_response(version, answer)
    assert got == wire.AlterPartitionReassignmentsResponse(0, "", results)
    answer = wire.encode_alter_partition_reassignments_response(version, 41, {}, error_message="not here")
    assert wire.decode_alter_partition_reassignments_response(version, answer) == (
        wire.AlterPartitionReassignmentsResponse(41, "not here", {})
    )


@pytest.mark.parametrize("version", versions(ApiKey.LIST_PARTITION_REASSIGNMENTS))
@pytest.mark.parametrize("partitions", [None, (), (A0, A1, B0)])
def test_list_partition_reassignments(version: int, partitions: tuple[TopicPartition, ...] | None) -> None:
    body = wire.encode_list_partition_reassignments_request(version, partitions)
    assert wire.decode_list_partition_reassignments_request(version, body) == partitions
    under_way = {A0: ReplicaAssignment((3, 1, 2), (3,), (2,)), B0: ReplicaAssignment((1,), (), ())}
    answer = wire.encode_list_partition_reassignments_response(version, 0, under_way)
    got = wire.decode_list_partition_reassignments_response(version, answer)
    assert got == wire.ListPartitionReassignmentsResponse(0, "", under_way)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_FEATURES))
def test_update_features(version: int) -> None:
    body = wire.encode_update_features_request(version, {"f": 3, "g": 0})
    assert wire.decode_update_features_request(version, body) == {"f": 3, "g": 0}
    answer = wire.encode_update_features_response(version, 0, {"f": (42, "not supported"), "g": (0, "")})
    assert wire.decode_update_features_response(version, answer) == (0, {"f": (42, "not supported"), "g": (0, "")})


@pytest.mark.parametrize(
    "decode",
    [
        wire.decode_elect_leaders_request,
        wire.decode_alter_partition_reassignments_request,
        wire.decode_list_partition_reassignments_request,
        wire.decode_update_features_request,
    ],
)
def test_garbled_bodies_are_frame_errors(decode: object) -> None:
    for body in (b"", b"\x00", b"\x7f" * 30):
        with pytest.raises(FrameError):
            decode(0, body)  # type: ignore[operator]
