"""What operators do to a healthy cluster, as Kafka 3.0 logs it: nothing of it is an outage or a violation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiocontroller.analytics import batch

STATE = "leaderRecoveryState=RECOVERED, zkVersion={version}"


def line(second: float, text: str) -> str:
    return f"[2024-05-01 10:{int(second // 60):02}:{second % 60:06.3f}] ".replace(".", ",") + f"INFO {text}\n"


def by_controller(second: float, text: str) -> str:
    return line(second, f"[Controller id=1 epoch=1] {text} (state.change.logger)")


def online(second: float, partition: str, leader: int, isr: str, version: int = 0, before: str = "New") -> str:
    return by_controller(
        second,
        f"Changed partition {partition} from {before}Partition to OnlinePartition with state "
        f"LeaderAndIsr(leader={leader}, leaderEpoch={version}, isr=List({isr}), {STATE.format(version=version)})",
    )


def removed(second: float, partition: str, leader: int, isr: str, version: int, replica: int) -> str:
    return by_controller(
        second,
        f"Partition {partition} state changed to (Leader:{leader},ISR:{isr},LeaderRecoveryState:RECOVERED,"
        f"LeaderEpoch:{version},ZkVersion:{version},ControllerEpoch:1) after removing replica {replica} from the ISR "
        "as part of transition to OfflineReplica",
    )


def write(logs: Path, state_changes: list[str], controller: list[str]) -> None:
    logs.mkdir(parents=True)
    elected = "[Controller id=1] 1 successfully elected as the controller. Epoch incremented to 1 and epoch zk version"
    begun = line(0.5, f"{elected} is now 1 (kafka.controller.KafkaController)")
    (logs / "state-change.log").write_text("".join(state_changes))
    (logs / "controller.log").write_text("".join([begun, *controller]))


def analysed(spark: Any, folder: Path) -> dict[str, list[Any]]:
    batch.run(spark, [str(folder / "in")], str(folder / "out"))
    read = spark.read.parquet
    names = ("windows", "violations", "availability", "completeness")
    return {name: [row.asDict() for row in read(f"{folder}/out/gold/{name}").collect()] for name in names}


def deletion_and_reassignment(logs: Path) -> None:
    moved = (
        "[Controller id=1 epoch=1] Sending become-leader LeaderAndIsr request LeaderAndIsrPartitionState("
        "topicName='moved', partitionIndex=0, controllerEpoch=1, leader=1, leaderEpoch={epoch}, isr=[1, 2, 3], "
        "zkVersion={epoch}, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false) "
        "to broker {broker} for partition moved-0 (state.change.logger)"
    )
    state_changes = [
        *(online(1, f"gone-{n}", 1, "1, 2") for n in range(2)),
        online(1.1, "moved-0", 1, "1, 2, 3"),
        online(1.2, "kept-0", 1, "1, 2"),
        *(line(3 + broker / 100, moved.format(epoch=1, broker=broker)) for broker in (1, 2)),
        line(3.1, moved.format(epoch=2, broker=1)),
        *(removed(5 + n / 10, f"gone-{n}", 1, "1", 1, 2) for n in range(2)),
        *(removed(5.5 + n / 10, f"gone-{n}", -1, "1", 2, 1) for n in range(2)),
        # A new topic takes the name, and is deleted as well.
        online(8, "gone-0", 2, "2, 1"),
        removed(20, "gone-0", -1, "2", 1, 2),
        online(58, "kept-0", 2, "1, 2", 1, before="Online"),
    ]
    done = "[Topic Deletion Manager 1] Deletion of topic gone successfully completed"
    controller = [line(at, f"{done} (kafka.controller.TopicDeletionManager)") for at in (6, 21)]
    write(logs, state_changes, controller)


def test_deletion_and_reassignment_of_healthy_topics(spark: Any, tmp_path: Path) -> None:
    """A deleted topic's partitions were without a leader for ever; a reassignment violated I3 fourteen times."""
    deletion_and_reassignment(tmp_path / "in")
    found = analysed(spark, tmp_path)
    assert found["violations"] == []
    deletions = [row for row in found["windows"] if row["topic"] == "gone" and row["kind"] == "no_leader"]
    assert [row["cause"] for row in deletions] == ["deletion"] * 3
    assert all(row["end_us"] is not None for row in found["windows"] if row["topic"] == "gone")
    (cluster,) = [row for row in found["availability"] if row["level"] == "cluster"]
    assert cluster["unavailable_us"] == 0
    assert cluster["availability"] == 1.0


def test_leader_that_writes_its_isr_while_the_controller_changes_violates_nothing(spark: Any, tmp_path: Path) -> None:
    """Up to protocol 2.6 leaders write ISRs themselves, also after the next controller has read the state."""
    controller, leader = tmp_path / "in" / "2", tmp_path / "in" / "1"
    state = "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0)"
    changed = "Changed partition t-0 from {before} to OnlinePartition with state " + state
    by_epoch = "[Controller id=2 epoch={epoch}] {text} (state.change.logger)"
    write(
        controller,
        [
            line(1, by_epoch.format(epoch=1, text=changed.format(before="NewPartition"))),
            line(9.1, by_epoch.format(epoch=2, text=changed.format(before="OnlinePartition"))),
        ],
        [line(9, "[Controller id=2] 2 successfully elected as the controller. Epoch incremented to 2 and epoch zk "
                 "version is now 2 (kafka.controller.KafkaController)")],
    )  # fmt: skip
    leader.mkdir()
    updated = "[Partition t-0 broker=1] ISR updated to [1] and zkVersion updated to [1] (kafka.cluster.Partition)"
    (leader / "server.log").write_text(line(8.95, updated))
    assert analysed(spark, tmp_path)["violations"] == []


def test_a_request_is_of_its_senders_term_and_not_of_the_states(spark: Any, tmp_path: Path) -> None:
    """Up to 2.5 brokers log the states in requests.  A controller without a log took over twice; in its second term the
    state that it sent still bore the epoch of the first one."""
    state = "PartitionState(controllerEpoch=1, leader=1, leaderEpoch=0, isr={isr}, zkVersion={version}, replicas=1,2, "
    state += "isNew=false)"
    sent = "correlation id 1 from controller 9 epoch {epoch} for partition t-0 (state.change.logger)"
    received = f"[Broker id=1] Received LeaderAndIsr request {state} {sent}"
    line_start = (
        f"[Controller id=1 epoch=2] Sending become-leader LeaderAndIsr request {state} to broker 1 for partition t-0"
    )
    elected = "1 successfully elected as the controller. Epoch incremented to 2 and epoch zk version is now 2"
    lines_of_one = [
        line(1, received.format(isr="1,2", version=0, epoch=1)),
        line(2, f"[Controller id=1] {elected} (kafka.controller.KafkaController)"),
        line(2.1, f"{line_start.format(isr='1,2', version=0)} (state.change.logger)"),
        line(6, "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"),
        line(7, received.format(isr="1", version=1, epoch=3)),
        line(7.1, "[Controller id=1] Resigned (kafka.controller.KafkaController)"),
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "server.log").write_text("".join(lines_of_one))
    found = analysed(spark, tmp_path)
    assert found["violations"] == []
    terms = {row["name"]: row["words"].split(" (")[0] for row in found["completeness"] if row["what"] == "term"}
    assert terms == {
        "1": "no record of controller 9 in epoch 1",
        "2": "recorded by controller 1",
        "3": "no record of controller 9 in epoch 3",
    }
    (under,) = [row for row in found["windows"] if row["kind"] == "under_replicated"]
    assert under["end_us"] is None


def test_a_leader_that_logs_its_isr_late_is_not_leader_again(spark: Any, tmp_path: Path) -> None:
    """A starved broker logged version 1 of the state after the controller had elected another leader by version 2; the
    other one's death then was an outage of the former leader, without a cause."""
    write(
        tmp_path / "in" / "3",
        [
            online(1, "t-0", 2, "2"),
            online(8.855, "t-0", 1, "2, 1", 2, before="Online"),
            online(18.2, "t-0", 2, "2", 3, before="Offline"),
        ],
        [line(18, "[Controller id=1] Broker failure callback for 1 (kafka.controller.KafkaController)")],
    )
    leader = tmp_path / "in" / "2"
    leader.mkdir()
    updated = "[Partition t-0 broker=2] ISR updated to 2,1 and version updated to [1] (kafka.cluster.Partition)"
    (leader / "server.log").write_text(line(9.019, updated))
    found = analysed(spark, tmp_path)
    assert found["violations"] == []
    (lost,) = [row for row in found["windows"] if row["kind"] == "dead_leader"]
    assert (lost["leader_before"], lost["broker"], lost["cause"]) == (1, 1, "broker_death")


def test_a_topic_that_is_created_again_begins_with_its_first_version(spark: Any, tmp_path: Path) -> None:
    """Its leaders' lines about low versions are not late."""
    write(
        tmp_path / "in" / "1",
        [
            online(1, "t-0", 1, "1, 2", 7),
            removed(5, "t-0", -1, "2", 8, 1),
            online(8, "t-0", 1, "1, 2"),
        ],
        [line(6, "[Topic Deletion Manager 1] Deletion of topic t successfully completed "
                 "(kafka.controller.TopicDeletionManager)")],
    )  # fmt: skip
    broker = tmp_path / "in" / "2"
    broker.mkdir()
    updated = "[Partition t-0 broker=1] ISR updated to 1 and version updated to [1] (kafka.cluster.Partition)"
    (broker / "server.log").write_text(line(9, updated))
    analysed(spark, tmp_path)
    churn = spark.read.parquet(f"{tmp_path}/out/gold/churn").where("broker = 1").collect()
    assert [(row["leader_changes"], row["isr_changes"]) for row in churn] == [(0, 1)]
