"""Real brokers die one after the other, in the order of the assignment: the replica with the best remaining log leads.

Kafka's own controller would elect the first live replica, which died first and has the shortest log.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.journal.records import Record, decode_record
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import KafkaCluster, take_over
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

WRITTEN = {1: 100, 2: 150, 3: 200}
"""Broker -> how many records are acknowledged before it dies, since the last death."""
ALLOWED = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
FORBIDDEN = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
_numbers = itertools.count(1)


async def staggered_deaths(stage: PlayedCluster) -> str:
    """Create a topic on 1, 2 and 3, which die in this order while it is written; 1 and 2 return, 3 stays dead.

    Their logs end at 100, 250 and 450; the ISR is broker 3 alone.
    """
    controller = await take_over(stage)
    topic = f"staggered-{next(_numbers)}"
    await AdminZkClient(controller.zk).create_topic(topic, {0: (1, 2, 3)}, configs=FORBIDDEN)
    for broker, count in WRITTEN.items():
        alive = [b.address for number, b in stage.brokers.items() if number >= broker]
        await asyncio.to_thread(write, ",".join(alive), topic, count)
        stage.brokers[broker].kill()
        left = tuple(number for number in WRITTEN if number > broker) or (broker,)
        await until(lambda left=left: in_isr(stage, topic, left), f"the ISR is {left}")  # type: ignore[misc]
    await until(lambda: led_by(stage, topic, -1), "nobody leads")
    for broker in (1, 2):
        await stage.start(stage.brokers[broker])
    return topic


def write(bootstrap: str, topic: str, count: int) -> None:
    """Write records that the whole ISR acknowledges."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    failed: list[Any] = []
    for record in range(count):
        producer.produce(
            topic, str(record).encode(), partition=0, on_delivery=lambda e, _: failed.append(e) if e else None
        )
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def end_of(bootstrap: str, topic: str) -> int:
    """Return the end of the partition's log; -1 while the broker knows no leader."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    except KafkaException:
        return -1
    finally:
        consumer.close()


async def state_of(stage: PlayedCluster, topic: str) -> LeaderAndIsr:
    controller: Any = stage.controller
    (found,) = await controller.zk.get_topic_partition_states([topic], [0])
    assert isinstance(found, LeaderAndIsr)
    return found


async def in_isr(stage: PlayedCluster, topic: str, wanted: tuple[int, ...]) -> bool:
    return set((await state_of(stage, topic)).isr) == set(wanted)


async def led_by(stage: PlayedCluster, topic: str, leader: int) -> bool:
    return (await state_of(stage, topic)).leader == leader


async def check_the_best_log_leads(stage: PlayedCluster, topic: str) -> None:
    """Broker 2 leads with all that it had; of 450 acknowledged records the 200 that only broker 3 had are lost."""
    await until(lambda: led_by(stage, topic, 2), "broker 2 leads")

    async def readable() -> bool:
        return await asyncio.to_thread(end_of, stage.brokers[2].address, topic) == WRITTEN[1] + WRITTEN[2]

    await until(readable, "all that broker 2 had can be read")


def recoveries(folder: Path, topic: str) -> list[Record]:
    files = sorted((folder / "aiocontroller" / "journal").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [r for r in map(decode_record, lines) if r.kind == "recovery" and r.topic == topic]


async def command(*arguments: str, folder: Path) -> tuple[int | None, str, str]:
    """Run aiocontroller with these arguments; return its exit code, output and errors."""
    words = [sys.executable, "-m", "aiocontroller", *arguments, "--data", str(folder / "aiocontroller")]
    child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await asyncio.wait_for(child.communicate(), 60)
    return child.returncode, out.decode(), err.decode()


def reports_epochs(kafka: KafkaCluster) -> bool:
    """Whether brokers tell where epochs end in their logs; without, logs that end alike may still differ anywhere."""
    return number(kafka.version) >= (2, 7)


async def test_a_topic_that_allows_unclean_elections(stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = await staggered_deaths(stage)
    controller: Any = stage.controller
    await AdminZkClient(controller.zk).change_entity_configs("topics", topic, ALLOWED)
    await check_the_best_log_leads(stage, topic)

    async def recorded() -> bool:
        return len(recoveries(tmp_path, topic)) == 2

    await until(recorded, "the journal is on the disk")
    evidence, elected = recoveries(tmp_path, topic)
    assert (evidence.event, elected.event, elected.leader) == ("evidence", "elected", 2)
    assert elected.count == (0 if reports_epochs(kafka) else WRITTEN[1])
    assert elected.brokers == [3]
    assert elected.detail is not None
    of_epoch = " of epoch" if reports_epochs(kafka) else ""
    assert f"broker 2 ends at 250{of_epoch}" in elected.detail
    assert f"broker 1 ends at 100{of_epoch}" in elected.detail


async def test_an_election_by_an_admin_client(stage: PlayedCluster, tmp_path: Path) -> None:
    topic = await staggered_deaths(stage)
    code, out, err = await command("elect", "--unclean", "--topic", topic, folder=tmp_path)
    assert (code, out) == (0, "Elected 1 leader; 0 not needed, 0 failed.\n"), err
    await check_the_best_log_leads(stage, topic)


async def test_an_operator_looks_before_and_chooses(stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = await staggered_deaths(stage)
    code, out, err = await command("recover", "--topic", topic, "--dry-run", "--json", folder=tmp_path)
    assert code == 0, err
    [found] = json.loads(out)["partitions"]
    assert (found["result"], found["leader"], found["unknown"]) == ("would elect", 2, [3])
    assert found["lost_at_most"] == (0 if reports_epochs(kafka) else WRITTEN[1])
    assert [(log["broker"], log["end_offset"], log["in_isr"]) for log in found["logs"]] == [
        (1, 100, False),
        (2, 250, False),
    ]
    assert await led_by(stage, topic, -1)
    code, out, err = await command("recover", "--topic", topic, "--from", "3", folder=tmp_path)
    assert code == 1, err
    assert f"{topic}-0: nobody leads. Broker 3 has not reported how far its log reaches" in out
    code, out, err = await command("recover", "--topic", topic, "--from", "1", "--dry-run", "--json", folder=tmp_path)
    assert json.loads(out)["partitions"][0]["lost_at_most"] == WRITTEN[2] + (0 if reports_epochs(kafka) else WRITTEN[1])
    code, out, err = await command("recover", "--topic", topic, folder=tmp_path)
    assert code == 0, err
    assert f"{topic}-0: broker 2 leads." in out
    await check_the_best_log_leads(stage, topic)
