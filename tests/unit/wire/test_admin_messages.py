"""The administrators' messages: each side reads what the other wrote, in every version, null lists included."""

from __future__ import annotations

import pytest

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.wire import admin_messages as wire
from aiocontroller.wire import cold, elect_leaders, reassignments
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from tests.unit.wire.generated import versions

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
@pytest.mark.parametrize("partitions", [None, (), (A0, A1, B0)])
def test_elect_leaders_request(version: int, partitions: tuple[TopicPartition, ...] | None) -> None:
    election_type = 1 if version >= 1 else 0
    body = elect_leaders.encode_elect_leaders_request(version, partitions, election_type)
    assert elect_leaders.decode_elect_leaders_request(version, body) == elect_leaders.ElectLeadersRequest(
        partitions, election_type
    )


def test_elect_leaders_version_0_cannot_say_unclean() -> None:
    with pytest.raises(ValueError, match="found election type 1"):
        elect_leaders.encode_elect_leaders_request(0, None, 1)


@pytest.mark.parametrize("version", versions(ApiKey.ELECT_LEADERS))
def test_elect_leaders_response(version: int) -> None:
    results = {A0: (0, ""), A1: (84, "needless"), B0: (3, "none such")}
    body = elect_leaders.encode_elect_leaders_response(version, 41, results)
    expected = elect_leaders.ElectLeadersResponse(41 if version >= 1 else 0, results)
    assert elect_leaders.decode_elect_leaders_response(version, body) == expected


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_alter_partition_reassignments(version: int) -> None:
    targets = {A0: (3, 1), A1: None, B0: ()}
    body = reassignments.encode_alter_partition_reassignments_request(version, targets)
    assert reassignments.decode_alter_partition_reassignments_request(version, body) == targets
    results = {A0: (0, ""), A1: (85, "no reassignment is in progress"), B0: (39, "empty")}
    answer = reassignments.encode_alter_partition_reassignments_response(version, 0, results)
    got = reassignments.decode_alter_partition_reassignments_response(version, answer)
    assert got == reassignments.AlterPartitionReassignmentsResponse(0, "", results)
    answer = reassignments.encode_alter_partition_reassignments_response(version, 41, {}, error_message="not here")
    assert reassignments.decode_alter_partition_reassignments_response(version, answer) == (
        reassignments.AlterPartitionReassignmentsResponse(41, "not here", {})
    )


@pytest.mark.parametrize("version", versions(ApiKey.LIST_PARTITION_REASSIGNMENTS))
@pytest.mark.parametrize("partitions", [None, (), (A0, A1, B0)])
def test_list_partition_reassignments(version: int, partitions: tuple[TopicPartition, ...] | None) -> None:
    body = reassignments.encode_list_partition_reassignments_request(version, partitions)
    assert reassignments.decode_list_partition_reassignments_request(version, body) == partitions
    ongoing = {A0: ReplicaAssignment((3, 1, 2), (3,), (2,)), B0: ReplicaAssignment((1,), (), ())}
    answer = reassignments.encode_list_partition_reassignments_response(version, 0, ongoing)
    got = reassignments.decode_list_partition_reassignments_response(version, answer)
    assert got == reassignments.ListPartitionReassignmentsResponse(0, "", ongoing)


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_FEATURES))
def test_update_features(version: int) -> None:
    body = wire.encode_update_features_request(version, {"f": 3, "g": 0})
    assert wire.decode_update_features_request(version, body) == {"f": 3, "g": 0}
    answer = wire.encode_update_features_response(version, 0, {"f": (42, "not supported"), "g": (0, "")})
    assert wire.decode_update_features_response(version, answer) == (0, {"f": (42, "not supported"), "g": (0, "")})


@pytest.mark.parametrize(
    "decode",
    [
        elect_leaders.decode_elect_leaders_request,
        reassignments.decode_alter_partition_reassignments_request,
        reassignments.decode_list_partition_reassignments_request,
        wire.decode_update_features_request,
    ],
)
def test_garbled_bodies_are_frame_errors(decode: object) -> None:
    for body in (b"", b"\x00", b"\x7f" * 30):
        with pytest.raises(FrameError):
            decode(0, body)  # type: ignore[operator]


def test_success_of_a_whole_reassignment_request_has_an_empty_text() -> None:
    """As Kafka's has; null stands beside errors without words."""
    for api, encode in (
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassignments.encode_alter_partition_reassignments_response),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, reassignments.encode_list_partition_reassignments_response),
    ):
        messages = [cold.decode_response(api, 0, encode(0, code, {})).error_message for code in (0, 41)]
        assert messages == ["", None]
