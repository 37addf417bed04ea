"""Kafka's own command-line tools do their work through us."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from tests.integration.kafka.command_line import CommandLine
from tests.integration.kafka.conftest import KafkaCluster, take_over

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TOPIC = "by-tools"


def described(tools: CommandLine) -> dict[int, dict[str, str]]:
    """Return what kafka-topics --describe says of each partition."""
    lines = tools.run("topics", "--describe", "--topic", TOPIC).splitlines()
    rows = [dict(cell.split(": ", 1) for cell in line.split("\t") if ": " in cell) for line in lines]
    return {int(row["Partition"]): row for row in rows if "Partition" in row}


def work(tools: CommandLine) -> None:
    tools.run(
        "topics", "--create", "--topic", TOPIC, "--replica-assignment", "1:2,2:3", "--config", "retention.ms=60000"
    )
    tools.run("topics", "--alter", "--topic", TOPIC, "--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    assert [row["Replicas"] for row in described(tools).values()] == ["1,2", "2,3", "3,1"]

    plan = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [3, 1]}]}
    file = tools.file("plan.json", json.dumps(plan))
    tools.run("reassign-partitions", "--reassignment-json-file", file, "--execute")
    while not tools.verified(file):
        pass  # the test's own timeout ends this
    assert (described(tools)[0]["Replicas"], described(tools)[0]["Leader"]) == ("3,1", "1")

    one = tools.file("one.json", json.dumps({"partitions": [{"topic": TOPIC, "partition": 0}]}))
    tools.elect_preferred(one)
    assert described(tools)[0]["Leader"] == "3"

    entity = ("--entity-type", "topics", "--entity-name", TOPIC)
    tools.run("configs", "--alter", *entity, "--add-config", "max.message.bytes=123456")
    assert "max.message.bytes=123456" in tools.run("configs", "--describe", *entity)

    tools.run("topics", "--delete", "--topic", TOPIC)
    while TOPIC in tools.run("topics", "--list").splitlines():
        pass


async def test_kafkas_own_tools_work_through_us(stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path) -> None:
    await take_over(stage)
    await asyncio.to_thread(
        work, CommandLine(kafka.version, stage.bootstrap, tmp_path, zookeeper=kafka.zookeeper.address)
    )
