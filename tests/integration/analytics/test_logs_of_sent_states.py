"""A state in a request is what a controller had read, and not what it wrote: lines of a cluster of Kafka 2.4.1.

Before protocol 2.7, brokers write ISRs to ZooKeeper themselves, and controllers learn of it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch

OURS = 1000001
"""The id of aiocontroller in these terms; it left no log."""


def at(time: str, text: str, level: str = "TRACE", logger: str = "state.change.logger") -> str:
    return f"[2026-11-29 13:{time}] {level} {text} ({logger})\n"


def state(partition: str, by: int, leader: int, epoch: int, isr: str, version: int, replicas: str) -> str:
    """The state of a partition in a request; ``by`` is the controller epoch in it."""
    topic, _, number = partition.rpartition("-")
    return (
        f"LeaderAndIsrPartitionState(topicName='{topic}', partitionIndex={number}, controllerEpoch={by}, "
        f"leader={leader}, leaderEpoch={epoch}, isr=[{isr}], zkVersion={version}, replicas=[{replicas}], "
        "addingReplicas=[], removingReplicas=[], isNew=false)"
    )


def sent(time: str, term: int, to: int, partition: str, of: str) -> str:
    become = f"Sending become-leader LeaderAndIsr request {of} to broker {to} for partition {partition}"
    return at(time, f"[Controller id=1 epoch={term}] {become}")


def received(time: str, broker: int, controller: int, term: int, of: str) -> str:
    by = f"correlation id 3 from controller {controller} epoch {term}"
    return at(time, f"[Broker id={broker}] Received LeaderAndIsr request {of} {by}")


def written(time: str, broker: int, partition: str, isr: str, version: int) -> str:
    text = f"[Partition {partition} broker={broker}] ISR updated to [{isr}] and zkVersion updated to [{version}]"
    return at(time, text, "INFO", "kafka.cluster.Partition")


def elected(time: str, term: int, partition: str, leader: int, epoch: int, isr: str, version: int, by: int = 1) -> str:
    of = f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({isr}), zkVersion={version})"
    moved = f"Changed partition {partition} from OnlinePartition to OnlinePartition with state {of}"
    return at(time, f"[Controller id={by} epoch={term}] {moved}")


def learned_late() -> Mapping[str, str]:
    """What was taken for 172 violations, each kind of it at one partition.

    ``java-11-2``: broker 1 writes version 76 while the next controller, which has read 75, sends that.
    ``java-8-3``: the same, and the controller sends its own epoch, 85, in a state that it has not written (it removed
    broker 3, which was not in the ISR); the next controller reads the state with 84, the leader's ISR and version 72.
    ``died-0``: two threads of broker 1 log in the reverse order, first a request with version 6.
    """
    java_8 = {"partition": "java-8-3", "leader": 1, "epoch": 47, "replicas": "1, 2, 3"}
    java_11 = {"partition": "java-11-2", "by": 90, "leader": 1, "epoch": 51, "replicas": "3, 1, 2"}
    read_8, sent_8 = (state(by=by, isr="1", version=71, **java_8) for by in (84, 85))
    then_8 = state(by=84, isr="1, 2", version=72, **java_8)
    read_11, then_11 = (state(isr=isr, version=version, **java_11) for isr, version in (("1, 2", 75), ("1, 2, 3", 76)))
    before = state("died-0", 58, 1, 3, "1, 2", 3, "1, 3, 2")
    after = state("died-0", 58, 1, 5, "1, 3", 6, "1, 3")
    broker_1 = [
        received("50:28,161", 1, OURS, 58, before),
        received("50:28,499", 1, OURS, 58, after),
        written("50:28,500", 1, "died-0", "1,2,3", 4),
        received("51:32,723", 1, OURS, 84, read_8),
        sent("51:38,950", 85, 1, "java-8-3", read_8),
        written("51:39,025", 1, "java-8-3", "1,2", 72),
        sent("51:39,034", 85, 1, "java-8-3", sent_8),
        received("51:39,038", 1, 1, 85, sent_8),
        received("51:40,116", 1, OURS, 86, then_8),
        received("52:00,387", 1, OURS, 92, read_11),
        written("52:10,215", 1, "java-11-2", "1,2,3", 76),
        sent("52:10,367", 93, 1, "java-11-2", read_11),
        received("52:10,387", 1, 1, 93, read_11),
        received("52:12,028", 1, OURS, 94, then_11),
    ]
    broker_2 = [
        received("51:39,053", 2, 1, 85, sent_8),
        received("51:40,123", 2, OURS, 86, then_8),
        received("52:10,389", 2, 1, 93, read_11),
        received("52:12,036", 2, OURS, 94, then_11),
    ]
    return {f"broker-{number}": "".join(lines) for number, lines in ((1, broker_1), (2, broker_2))}


def write(folder: Path, logs: Mapping[str, str]) -> None:
    """``broker.log`` of each broker: these clusters write all loggers to one file."""
    for broker, text in logs.items():
        (folder / broker).mkdir(parents=True)
        (folder / broker / "broker.log").write_text(text)


def analysed(spark: Any, folder: Path, logs: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    write(folder / "in", logs)
    batch.run(spark, [str(folder / "in")], str(folder / "out"))
    return {
        name: [row.asDict() for row in spark.read.parquet(f"{folder}/out/gold/{name}").collect()]
        for name in ("violations", "windows")
    }


def test_a_state_that_a_controller_sends_late_violates_nothing(spark: Any, tmp_path: Path) -> None:
    found = analysed(spark, tmp_path, learned_late())
    assert [(v["topic"], v["invariant"], v["words"]) for v in found["violations"]] == []
    # From the first request with the state, whoever sends it again, to the leader's line, whoever sends an older one.
    under = {w["topic"]: (w["start_us"], w["end_us"]) for w in found["windows"] if w["kind"] == "under_replicated"}
    assert under.keys() == {"java-8", "java-11", "died"}
    assert [round(us / 1e3) % 100_000 for us in under["java-11"]] == pytest.approx([20_387, 30_215], abs=1)


def test_a_state_that_a_controller_writes_late_is_found(spark: Any, tmp_path: Path) -> None:
    """Each partition's last line is a write, or proves one: it has a new leader epoch."""
    lines = [
        written("00:01,000", 1, "older-0", "1,2", 72),
        elected("00:02,000", 5, "older-0", 1, 47, "1", 71),
        elected("00:01,000", 5, "asked-0", 1, 46, "1", 71),
        elected("00:02,000", 5, "asked-0", 1, 47, "1, 2", 72),
        written("00:01,000", 1, "leader-0", "1", 71),
        elected("00:02,000", 5, "leader-0", 1, 47, "1, 2", 72),
        # a controller that was deposed wrote on; up to 2.1 nothing prevents that
        received("00:02,000", 1, 1, 5, state("deposed-0", 5, 1, 46, "1, 2", 71, "1, 2")),
        received("00:03,000", 1, OURS, 6, state("deposed-0", 4, 1, 47, "1", 72, "1, 2")),
        # in a request only, as when a replica is removed from the ISR
        received("00:02,000", 1, 1, 5, state("grown-0", 5, 1, 46, "1", 71, "1, 2")),
        received("00:02,500", 1, 1, 5, state("grown-0", 5, 1, 47, "1, 2", 72, "1, 2")),
        elected("00:01,000", 5, "back-0", 1, 47, "1", 71),
        elected("00:02,000", 5, "back-0", 1, 46, "1", 72),
        sent("00:02,100", 5, 3, "fenced-0", state("fenced-0", 5, 3, 48, "3", 72, "1, 3")),
    ]
    successor = elected("00:02,000", 6, "fenced-0", 3, 47, "1, 3", 71, by=2)
    found = analysed(spark, tmp_path, {"broker-1": "".join(lines), "broker-2": successor})["violations"]
    assert {(v["topic"], v["invariant"], v["words"]) for v in found} == {
        ("older", "I2", "version 71 of the state after 72"),
        ("asked", "I3", "ISR [1,2] after [1], which no leader asked for"),
        ("leader", "I3", "ISR [1,2] after [1], which no leader asked for"),
        ("deposed", "I2", "controller epoch 4 in the state after 5"),
        ("grown", "I3", "ISR [1,2] after [1], which no leader asked for"),
        ("back", "I2", "leader epoch 46 after 47"),
        ("fenced", "I1", "controller epoch 5 wrote version 72 of the state, after epoch 6 had version 71"),
        ("fenced", "I2", "leader epoch 47 after 48"),
    }


def test_an_isr_that_its_leader_has_not_logged_yet_is_the_leaders(spark: Any, tmp_path: Path) -> None:
    """A controller that has just read the state knows the ISR before the leader's line, or without any."""
    states = [state("t-0", 5, 1, 46, isr, version, "1, 2") for isr, version in (("1", 71), ("1, 2", 72))]
    lines = [
        received("00:01,000", 1, OURS, 5, states[0]),
        received("00:01,500", 1, OURS, 6, states[1]),
        written("00:01,501", 1, "t-0", "1,2", 72),
    ]
    for name, kept in (("reversed", lines), ("unlogged", lines[:-1])):
        assert analysed(spark, tmp_path / name, {"broker-1": "".join(kept)})["violations"] == []


def test_a_deposed_controller_that_learns_of_an_isr_has_written_nothing(spark: Any, tmp_path: Path) -> None:
    """The state's leader, broker 3, has left no log; ``fenced-0`` above has a new leader epoch."""
    learned = sent("00:02,100", 5, 3, "t-0", state("t-0", 6, 3, 47, "1, 3", 72, "1, 3"))
    successor = elected("00:02,000", 6, "t-0", 3, 47, "3", 71, by=2)
    assert analysed(spark, tmp_path, {"broker-1": learned, "broker-2": successor})["violations"] == []
