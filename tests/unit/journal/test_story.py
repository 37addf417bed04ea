"""A partition's story, from records."""

from __future__ import annotations

from typing import Any

from aiocontroller.journal.records import Record
from aiocontroller.journal.story import PartitionStory


def chapters(*records: dict[str, Any]) -> list[str]:
    story = PartitionStory("t", 0)
    made = (Record(1, n, 1, 9, n, **({"kind": "partition"} | fields)) for n, fields in enumerate(records))
    return [chapter.text for record in made if (chapter := story.chapter_of(record)) is not None]


def state(leader: int, isr: list[int], **fields: Any) -> dict[str, Any]:
    mine = {
        "topic": "t",
        "partition": 0,
        "leader": leader,
        "isr": isr,
        "replicas": [1, 2],
        "to_state": "OnlinePartition",
    }
    return mine | fields


def test_a_life() -> None:
    assert chapters(
        {"kind": "elected", "controller_epoch": 1},
        {"kind": "broker", "broker": 1, "detail": "dead"},  # not a replica yet
        state(1, [1, 2], detail="initialized", leader_epoch=0),
        state(1, [1, 2], leader_epoch=0),
        {"kind": "broker", "broker": 1, "detail": "dead"},
        {"kind": "broker", "broker": 7, "detail": "dead"},
        state(1, [1, 2], to_state="OfflinePartition"),
        state(2, [2], leader_epoch=1, detail="OfflinePartitionLeaderElectionStrategy, unclean"),
        state(2, [2, 1], kind="isr", to_state=None, leader_epoch=1),
        state(1, [1], leader_epoch=2, detail="OfflinePartitionLeaderElectionStrategy, complete"),
        state(3, [3], replicas=[3], detail="no name for this"),
        {"kind": "reassigned", "topic": "t", "partition": 0, "replicas": [3], "detail": "cancelled"},
        {"kind": "topic_deleted", "topic": "t"},
    ) == [
        "controller 9 took the role, epoch 1",
        "leader 1, before none; in sync 1,2, before none: it was created (leader epoch 0)",
        "broker 1: dead",
        "it has no leader",
        "leader 2, before 1; in sync 2, before 1,2: its leader was gone, by an unclean election (leader epoch 1)",
        "in sync 2,1, before 2: its leader asked for it (leader epoch 1)",
        "leader 1, before 2; in sync 1, before 2,1: its leader was gone, from outside the ISR with a complete log "
        "(leader epoch 2)",
        "replicas 3, before 1,2; leader 3, before 1; in sync 3, before 1: no name for this",
        "reassignment cancelled: replicas are 3",
        "topic t deleted",
    ]


def test_others_do_not_matter() -> None:
    assert (
        chapters(
            state(1, [1], partition=1),
            state(1, [1], topic="t2"),
            {"kind": "topic_deleted", "topic": "t2"},
            {"kind": "write", "topic": "t", "partition": 0},
            {"kind": "event", "event": "Audit"},
        )
        == []
    )
