"""The two tables against Kafka's rows, written once more here: state by state, what it may come from."""

from __future__ import annotations

import pytest

from aiocontroller.core.states import (
    VALID_PREVIOUS_PARTITION_STATES,
    VALID_PREVIOUS_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)

# from -> to; "x" where Kafka allows it, in Kafka's numbering of the states.
PARTITION_ROWS = {
    #                            New Onl Off Non
    "NewPartition":             ". x x .",
    "OnlinePartition":          ". x x .",
    "OfflinePartition":         ". x x x",
    "NonExistentPartition":     "x . . .",
}  # fmt: skip
REPLICA_ROWS = {
    #                            New Onl Off Sta Suc Ine Non
    "NewReplica":                ". x x . . . .",
    "OnlineReplica":             ". x x . . . .",
    "OfflineReplica":            ". x x x . x .",
    "ReplicaDeletionStarted":    ". . . . x x .",
    "ReplicaDeletionSuccessful": ". . . . . . x",
    "ReplicaDeletionIneligible": ". x x . . . .",
    "NonExistentReplica":        "x . . . . . .",
}  # fmt: skip


@pytest.mark.parametrize("before", PartitionState)
@pytest.mark.parametrize("after", PartitionState)
def test_partition_table(before: PartitionState, after: PartitionState) -> None:
    allowed = PARTITION_ROWS[before.name].split()[list(PartitionState).index(after)] == "x"
    assert (before in VALID_PREVIOUS_PARTITION_STATES[after]) is allowed


@pytest.mark.parametrize("before", ReplicaState)
@pytest.mark.parametrize("after", ReplicaState)
def test_replica_table(before: ReplicaState, after: ReplicaState) -> None:
    allowed = REPLICA_ROWS[before.name].split()[list(ReplicaState).index(after)] == "x"
    assert (before in VALID_PREVIOUS_REPLICA_STATES[after]) is allowed


def test_states_have_kafkas_byte_values() -> None:
    assert [int(s) for s in PartitionState] == [0, 1, 2, 3]
    assert [int(s) for s in ReplicaState] == [1, 2, 3, 4, 5, 6, 7]
