"""Topics that are deleted while the log of the controller that completes it is missing: brokers' logs prove it.

A broker logs the partitions that an UpdateMetadata request names as deleted.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from tests.integration.analytics.test_logs_of_operations import line, online, removed, write

END_S = 95
"""``leaderless`` judges what has been so for a minute when the records end."""


def told(second: float, broker: int, *partitions: str, offsets: int = 0) -> str:
    what = f"Removed {offsets} offsets associated with deleted partitions: {', '.join(partitions)}."
    return line(second, f"[GroupCoordinator {broker}]: {what} (kafka.coordinator.group.GroupCoordinator)")


def told_in_trace(second: float, broker: int, partition: str) -> str:
    return line(
        second,
        f"[Broker id={broker}] Deleted partition {partition} from metadata cache in response to UpdateMetadata request "
        "sent by controller 1 epoch 1 with correlation id 3 (state.change.logger)",
    )


def received(second: float, partition: str, version: int) -> str:
    """As up to 2.5; ``partition`` is the first one of its topic."""
    return line(
        second,
        "[Broker id=3] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=3, "
        f"leaderEpoch={version}, isr=2,3, zkVersion={version}, replicas=2,3, isNew={str(not version).lower()}) "
        f"correlation id 1 from controller 1 epoch 1 for partition {partition} (state.change.logger)",
    )


def isr_by_leader(second: float, partition: str, isr: str, version: int) -> str:
    text = f"[Partition {partition} broker=3] ISR updated to {isr} and version updated to {version}"
    return line(second, f"{text} (kafka.cluster.Partition)")


def taken_down(second: float, partition: str, version: int = 1) -> list[str]:
    """Of a controller that begins a deletion: brokers know of it before."""
    return [
        removed(second, partition, 1, "1", version, 2),
        removed(second + 0.1, partition, -1, "1", version + 1, 1),
    ]


MANY = [f"many-{n}" for n in range(5000)]
DELETED = {
    # partition: the second when each of its lives ends
    "a-1-2-0": [5.3],
    "a-1-2-10": [5.4],
    "x.y_z-0": [5.3],
    "lagging-0": [5.3],
    "again-0": [5.3, 9.3],
    "retried-0": [5.3],
    "many-4999": [5.1],
    "traced-0": [5.1],
    "by-leader-0": [5.1],
    "completed-0": [7],
    "requested-0": [5.1],
}
ALIVE = ("x.y_z-0", "lagging-0", "by-leader-0", "requested-0", "kept-0")


def deletions(logs: Path) -> None:
    """Controller 1 dies during all deletions but one; those after it keep journals, which are not given."""
    created = [*DELETED, "kept-0", "moved-0", "lost-0"]
    of_controller = [online(1, key, 1, "1, 2") for key in created if key != "requested-0"]
    of_controller += [
        *taken_down(5.2, "a-1-2-0"), *taken_down(5.3, "a-1-2-10"),
        *taken_down(5.2, "x.y_z-0"), online(8, "x.y_z-0", 1, "1, 2"),
        *taken_down(5.2, "lagging-0"), online(8, "lagging-0", 1, "1, 2"),
        *taken_down(5.2, "again-0"), online(8, "again-0", 1, "1, 2"), *taken_down(9.2, "again-0"),
        *taken_down(5.2, "retried-0"),
        *taken_down(5.2, "completed-0"),
        removed(5.2, "lost-0", -1, "1", 1, 2),
        online(END_S, "kept-0", 2, "1, 2", 1, before="Online"),
    ]  # fmt: skip
    done = "[Topic Deletion Manager 1] Deletion of topic completed successfully completed"
    write(logs / "1", of_controller, [line(7, f"{done} (kafka.controller.TopicDeletionManager)")])
    every = [key for key in DELETED if not key.startswith(("many", "traced"))]
    moved = "Deleted log for partition moved-0 in /data/moved-0.5c1b-delete. (kafka.log.LogManager)"
    of_broker = {
        2: [
            told(5.1, 2, *every, offsets=12),
            told(5.1, 2, *MANY),
            told(9.15, 2, "again-0"),
            line(6, moved),
        ],
        3: [
            told(5.25, 3, *(key for key in every if key != "lagging-0")),
            isr_by_leader(15, "by-leader-0", "3,1", 5),  # of a topic created since by a controller with a journal
            told(8.2, 3, "lagging-0"),  # handled late: it is of the life before
            told(9.17, 3, "again-0"),
            *(told(second, 3, "retried-0") for second in (14, 70)),  # by each new controller
        ],
    }
    for broker, lines in of_broker.items():
        (logs / str(broker)).mkdir()
        (logs / str(broker) / "server.log").write_text("".join(lines))
    (logs / "2" / "state-change.log").write_text(told_in_trace(5.1, 2, "traced-0"))
    requests = [received(second, "requested-0", version) for second, version in ((1, 0), (2, 3), (8, 0), (10, 1))]
    (logs / "3" / "state-change.log").write_text("".join(requests))


@pytest.fixture(scope="module")
def found(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("deletions")
    deletions(folder / "in")
    batch.run(spark, [str(folder / "in")], str(folder / "out"))
    out = folder / "out"
    (silver,) = out.glob("runs/*/silver")
    tables = {"events": silver, "windows": out / "gold", "violations": out / "gold"}
    return {
        name: [row.asDict() for row in spark.read.parquet(str(where / name)).collect()]
        for name, where in tables.items()
    }


def test_each_life_of_a_deleted_partition_ends_once(found: dict[str, list[Any]]) -> None:
    begun_us = min(row["ts_us"] for row in found["events"] if row["kind"] == "elected") - 500_000
    ends = defaultdict(list)
    for row in found["events"]:
        if row["to_state"] == "NonExistentPartition":
            ends[f"{row['topic']}-{row['partition']}"].append(round((row["ts_us"] - begun_us) / 1e6, 3))
    assert {key: sorted(times) for key, times in ends.items()} == DELETED


def test_deletion_is_no_outage(found: dict[str, list[Any]]) -> None:
    """Such partitions had no leader for ever, although a member of their ISR could lead."""
    assert [(row["invariant"], row["topic"]) for row in found["violations"]] == [("leaderless", "lost")]
    open_ = {row["topic"] for row in found["windows"] if row["end_us"] is None}
    assert open_ == {"lost"}
    without_leader = [row for row in found["windows"] if row["kind"] == "no_leader" and row["topic"] != "lost"]
    assert {row["cause"] for row in without_leader} == {"deletion"}


def test_topic_created_again_lives(found: dict[str, list[Any]]) -> None:
    last = {}
    for row in sorted(found["events"], key=lambda row: (row["ts_us"], row["to_state"] is not None, row["seq"])):
        if row["kind"] in ("partition", "isr"):
            last[f"{row['topic']}-{row['partition']}"] = row
    assert [key for key in ALIVE if (last[key]["leader"] or -1) < 0] == []
    assert last["requested-0"]["leader_epoch"] == 1
