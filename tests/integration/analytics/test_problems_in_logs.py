"""Known problems in the server.log of eight releases, in five layouts: each is found by its name, whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from aiocontroller.analytics import batch, schema
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.store import Store, read_parquet

Line = tuple[datetime, str, str]
"""When, what, and by which class."""
BEGIN: Final = datetime(2024, 5, 1, 10, tzinfo=UTC)
CLIENT, COORDINATOR, SERVER = (
    "org.apache.zookeeper.ClientCnxn", "kafka.coordinator.group.GroupCoordinator", "kafka.server.KafkaServer",
)  # fmt: skip
RELEASES: Final = ((0, 10), (0, 11), (1, 1), (2, 0), (2, 3), (2, 8), (3, 0), (3, 9))


def server_log(release: tuple[int, int]) -> list[Line]:
    """A group that rebalances every minute, a pause, and two known bugs; beside them, what happens every day."""
    lines: list[Line] = []

    def say(second: int, text: str, logger: str) -> None:
        lines.append((BEGIN + timedelta(seconds=second), text, logger))

    own, named = ("sessionid = 0x1", "sessionid 0x1") if release < (2, 5) else ("session id = 0x1", "session id 0x1")
    say(1, f"Session establishment complete on server zk/10.0.0.1:2181, {own}, negotiated timeout = 6000", CLIENT)
    say(2, "[KafkaServer id=1] started" if release > (0, 10) else "[Kafka Server 1], started", SERVER)
    verb = "restabilize" if release < (0, 11) else "rebalance"
    state = " in state PreparingRebalance" if release >= (2, 3) else ""
    offsets = " (__consumer_offsets-12)" if release > (0, 10) else ""
    size = " with 3 members" if release >= (2, 8) else ""
    for n in range(25):
        member = f"consumer-billing-1-{n:08x}"
        why = f" (reason: removing member {member} on heartbeat expiration)" if release >= (2, 3) else ""
        if release >= (3, 2):
            why = (
                f" (reason: Removing member {member} on LeaveGroup; client reason: consumer poll timeout has expired.)"
            )
        begun = f"Preparing to {verb} group billing{state} with old generation {n}{offsets}{why}"
        say(10 + 60 * n, f"[GroupCoordinator 1]: {begun}", COORDINATOR)
        say(
            13 + 60 * n,
            f"[GroupCoordinator 1]: Stabilized group billing generation {n + 1}{offsets}{size}",
            COORDINATOR,
        )
    say(1800, f"Client session timed out, have not heard from server in 11013ms for {named}", CLIENT)
    if release < (1, 1):
        say(1801, "zookeeper state changed (Disconnected)", "org.I0Itec.zkclient.ZkClient")
        say(1802, "zookeeper state changed (Expired)", "org.I0Itec.zkclient.ZkClient")
    else:
        say(1802, "[ZooKeeperClient Kafka server] Session expired.", "kafka.zookeeper.ZooKeeperClient")
        for path, second in (
            ("/brokers/ids/1", 1803),
            ("/controller", 1804),
        ):  # the second is an election that was lost
            taken = f"Error while creating ephemeral at {path}, node already exists and owner '7' does not match"
            say(second, f"{taken} current session '8'", "kafka.zk.KafkaZkClient$CheckedEphemeral")
    if release < (2, 8):
        who = "Partition [t,0] on broker 1:" if release < (1, 1) else "[Partition t-0 broker=1]"
        version = "[54]" if release < (2, 1) else "54"
        stale = f"{who} Cached zkVersion {version} not equal to that in zookeeper, skip updating ISR"
        say(1900, stale, "kafka.cluster.Partition")
    return lines


def plain(line: Line) -> str:
    return f"[{line[0]:%Y-%m-%d %H:%M:%S},123] INFO {line[1]} ({line[2]})"


def ecs(line: Line) -> str:
    record = {"@timestamp": f"{line[0]:%Y-%m-%dT%H:%M:%S}.123Z", "log.level": "INFO", "message": line[1]}
    return json.dumps({**record, "log.logger": line[2]})


def json_layout(line: Line) -> str:
    instant = {"epochSecond": int(line[0].timestamp()), "nanoOfSecond": 123_000_000}
    record = {"instant": instant, "thread": "main", "level": "INFO", "loggerName": line[2], "message": line[1]}
    return json.dumps(record)


LAYOUTS: Final[dict[str, Callable[[Line], str]]] = {
    "plain": plain,
    "strimzi": lambda line: f"{line[0]:%Y-%m-%d %H:%M:%S},123 INFO {line[1]} ({line[2]}) [main]",
    "ecs": ecs,
    "json": json_layout,
    "cri": lambda line: f"{line[0]:%Y-%m-%dT%H:%M:%S}.123456789Z stdout F {plain(line)}",
}


def test_problems_are_found_in_each_release_and_layout(spark: Any, tmp_path: Path) -> None:
    expected: dict[str, list[tuple[str, int]]] = {}
    for release in RELEASES:
        found = [("session_lost_to_pause", 1)]
        found += [("broker_id_taken", 1)] if release >= (1, 1) else []
        found += [("stale_zk_version", 1)] if release < (2, 8) else []
        found += [("rebalance_storm", 25)] if release >= (2, 8) else []  # else nobody knows the group's size
        for layout, write in LAYOUTS.items():
            cluster = f"{release[0]}.{release[1]} {layout}"
            (tmp_path / "in" / cluster).mkdir(parents=True)
            lines = (write(line) + "\n" for line in server_log(release))
            (tmp_path / "in" / cluster / "server.log").write_text("".join(lines))
            expected[cluster] = sorted(found)
    manifest = Manifest([{"glob": f"{cluster}/*", "cluster": cluster} for cluster in expected])
    batch.run(spark, [str(tmp_path / "in")], str(tmp_path / "out"), manifest=manifest)
    rows = read_parquet(
        spark, [Store(spark, str(tmp_path / "out")).gold("problems")], schema.GOLD["problems"]
    ).collect()
    for cluster, problems in expected.items():
        assert sorted((row["problem"], row["times"]) for row in rows if row["cluster"] == cluster) == problems, cluster
    assert len(rows) == sum(map(len, expected.values()))
