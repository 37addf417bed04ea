"""Elections, reassignments and features by request: what becomes of the bytes, and of each kind of answer."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.request_content import ElectionType, ScramUpsertion
from aiocontroller.server.controller_apis import SERVED
from aiocontroller.wire import admin_messages as wire
from aiocontroller.wire import cold, elect_leaders, reassignments
from aiocontroller.wire.apis import ApiKey

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NOT_CONTROLLER = KafkaErrorCode.NOT_CONTROLLER


def ask(api: ApiKey, version: int, body: bytes) -> tuple[Any, list[bytes]]:
    """The event, and where the body of its answer will stand."""
    answers: list[bytes] = []
    served = SERVED[api]
    assert version in range(served.versions.min, served.versions.max + 1)
    event = served.event(version, body, Reply(lambda result: answers.append(served.encode(version, result))))
    return event, answers


@pytest.mark.parametrize("version", range(3))
def test_elections_there_and_back(version: int) -> None:
    kind = 1 if version else 0
    event, answers = ask(
        ApiKey.ELECT_LEADERS, version, elect_leaders.encode_elect_leaders_request(version, (A0, A1), kind)
    )
    assert isinstance(event, ev.ReplicaLeaderElection)
    assert (event.partitions, event.election_type) == ((A0, A1), ElectionType(kind))
    results = {A0: (KafkaErrorCode.NONE, ""), A1: (KafkaErrorCode.ELECTION_NOT_NEEDED, "as it is")}
    event.reply.answer(results)
    assert elect_leaders.decode_elect_leaders_response(version, answers[0]) == elect_leaders.ElectLeadersResponse(
        0, results
    )


@pytest.mark.parametrize("version", range(3))
def test_elections_that_are_preempted_are_refused_for_each_partition(version: int) -> None:
    event, answers = ask(ApiKey.ELECT_LEADERS, version, elect_leaders.encode_elect_leaders_request(version, (A0, A1)))
    event.preempt()
    got = elect_leaders.decode_elect_leaders_response(version, answers[0])
    assert got == elect_leaders.ElectLeadersResponse(0, {A0: (NOT_CONTROLLER, ""), A1: (NOT_CONTROLLER, "")})


@pytest.mark.parametrize("version", range(3))
def test_elections_of_all_that_are_preempted_are_refused_as_a_whole(version: int) -> None:
    event, answers = ask(ApiKey.ELECT_LEADERS, version, elect_leaders.encode_elect_leaders_request(version, None))
    assert event.partitions is None
    event.preempt()
    got = elect_leaders.decode_elect_leaders_response(version, answers[0])
    assert got == elect_leaders.ElectLeadersResponse(NOT_CONTROLLER if version else 0, {})


@pytest.mark.parametrize("partitions", [None, (A0,)])
def test_election_of_an_unknown_kind_elects_no_leader(partitions: tuple[TopicPartition, ...] | None) -> None:
    """A broker's handler fails over it, and answers so."""
    event, answers = ask(ApiKey.ELECT_LEADERS, 2, elect_leaders.encode_elect_leaders_request(2, partitions, 7))
    assert isinstance(event, ev.ReplicaLeaderElection)
    assert event.partitions == ()
    event.reply.answer({})
    got = elect_leaders.decode_elect_leaders_response(2, answers[0])
    assert got == elect_leaders.ElectLeadersResponse(-1, {A0: (-1, "")} if partitions else {})


def test_reassignments_there_and_back() -> None:
    targets = {A0: (2, 3), A1: None}
    body = reassignments.encode_alter_partition_reassignments_request(0, targets)
    event, answers = ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
    assert isinstance(event, ev.ApiPartitionReassignment)
    assert event.targets == targets
    results = {A0: (KafkaErrorCode.NONE, ""), A1: (KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "none")}
    event.reply.answer(results)
    got = reassignments.decode_alter_partition_reassignments_response(0, answers[0])
    assert got == reassignments.AlterPartitionReassignmentsResponse(0, "", results)


def test_reassignments_that_are_preempted_are_refused_as_a_whole() -> None:
    event, answers = ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        reassignments.encode_alter_partition_reassignments_request(0, {A0: (1,)}),
    )
    event.preempt()
    got = reassignments.decode_alter_partition_reassignments_response(0, answers[0])
    assert (got.error_code, got.results) == (NOT_CONTROLLER, {})


@pytest.mark.parametrize("partitions", [None, (), (A0,)])
def test_listing_there_and_back(partitions: tuple[TopicPartition, ...] | None) -> None:
    body = reassignments.encode_list_partition_reassignments_request(0, partitions)
    event, answers = ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body)
    assert isinstance(event, ev.ListPartitionReassignments)
    assert event.partitions == partitions
    ongoing = {A0: ReplicaAssignment((3, 1), (3,), (1,))}
    event.reply.answer(ongoing)
    assert reassignments.decode_list_partition_reassignments_response(0, answers[0]).ongoing == ongoing


def test_listing_that_is_preempted_is_refused() -> None:
    event, answers = ask(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassignments.encode_list_partition_reassignments_request(0, None)
    )
    event.preempt()
    assert reassignments.decode_list_partition_reassignments_response(0, answers[0]).error_code == NOT_CONTROLLER


@pytest.mark.parametrize("version", range(2))
def test_features_there_and_back(version: int) -> None:
    body = wire.encode_update_features_request(version, {"f": 2})
    event, answers = ask(ApiKey.UPDATE_FEATURES, version, body)
    assert event.updates == {"f": 2}
    event.reply.answer({"f": (KafkaErrorCode.INVALID_REQUEST, "no")})
    assert wire.decode_update_features_response(version, answers[0]) == (0, {"f": (42, "no")})


def test_scram_credentials_there_and_back() -> None:
    set_ = wire.ScramChange("alice", 1, 4096, b"salt", b"salted")
    body = wire.encode_alter_user_scram_credentials_request(0, [("bob", 2)], [set_])
    librdkafkas = body + b"\x00"
    assert ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, librdkafkas)[0].deletions == (("bob", 2),)
    event, answers = ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
    assert isinstance(event, ev.AlterUserScramCredentials)
    assert event.deletions == (("bob", 2),)
    assert event.upsertions == (ScramUpsertion("alice", 1, 4096, b"salt", b"salted"),)
    assert "salted" not in repr(event)  # events are logged when a handler fails
    results = {"alice": (KafkaErrorCode.NONE, ""), "bob": (KafkaErrorCode.RESOURCE_NOT_FOUND, "none")}
    event.reply.answer(results)
    assert wire.decode_alter_user_scram_credentials_response(0, answers[0]) == results


def test_scram_changes_that_are_preempted_are_refused_for_each_user() -> None:
    set_ = wire.ScramChange("alice", 1, 4096, b"salt", b"salted")
    body = wire.encode_alter_user_scram_credentials_request(0, [("bob", 2), ("alice", 2)], [set_])
    event, answers = ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
    event.preempt()
    got = wire.decode_alter_user_scram_credentials_response(0, answers[0])
    assert got == {"bob": (NOT_CONTROLLER, ""), "alice": (NOT_CONTROLLER, "")}


@pytest.mark.parametrize("api", SERVED)
def test_every_api_refuses_on_a_standby(api: ApiKey) -> None:
    """Its own form of NOT_CONTROLLER, in every version, to a request that asks for nothing."""
    for version in range(SERVED[api].versions.min, SERVED[api].versions.max + 1):
        body = cold.encode_request(api, version, cold.request(api, version))
        event, answers = ask(api, version, body)
        event.preempt()
        cold.decode_response(api, version, answers[0])
