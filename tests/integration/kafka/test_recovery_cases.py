"""Difficult cases of recovery by evidence (docs/recovery.md), on real brokers of any release."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.kafka.acknowledged import states_of
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.storms.power_loss import cut_off
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.codec import MULTI
from tests.integration.kafka.conftest import KafkaCluster
from tests.integration.kafka.recovery_steps import (
    CONFIGS,
    TIMEOUT,
    created,
    die,
    in_isr,
    led_by,
    read,
    readable,
    recovered,
    start,
    with_strategy,
    write,
)
from tests.integration.kafka.releases import number
from tests.integration.kafka.test_unclean_recovery import recoveries

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(400)]


async def test_a_log_that_lost_its_end_does_not_lead_before_a_better_one(stage: PlayedCluster) -> None:
    """Under Kafka's own controller broker 1 would lead with 80 records, and 2 and 3 would be cut to match."""
    with_strategy(stage, "Balanced")
    _, topic = await created(stage)
    await write(stage, topic, 100)
    for broker, isr in ((2, (1, 3)), (3, (1,))):
        await die(stage, topic, broker, *isr)
    await write(stage, topic, 100)
    await die(stage, topic, 1, 1)
    cut_off(stage.brokers[1], f"{topic}-0", 0.6)
    await start(stage, 2, 3)
    assert await led_by(stage, topic, -1)
    await start(stage, 1)
    await until(lambda: led_by(stage, topic, 2, 3), "a complete log leads")
    await until(lambda: in_isr(stage, topic, (1, 2, 3)), "all have joined")
    await readable(stage, topic, 2, 100)


async def test_logs_that_end_within_a_transaction(stage: PlayedCluster, tmp_path: Path) -> None:
    """Its records count, and its coordinator aborts it after its timeout."""
    _, topic = await created(stage)

    def begun() -> Producer:
        addresses = ",".join(broker.address for broker in stage.brokers.values())
        made = Producer({"bootstrap.servers": addresses, "transactional.id": topic, "transaction.timeout.ms": 60_000})
        made.init_transactions(60)
        made.begin_transaction()
        return made

    producer = await asyncio.to_thread(begun)

    def add(count: int) -> None:
        failed: list[Any] = []
        for value in range(count):
            producer.produce(topic, str(value), partition=0, on_delivery=lambda e, _: failed.append(e) if e else None)
        assert producer.flush(60) == 0
        assert not failed, failed[:3]

    await asyncio.to_thread(add, 30)
    await die(stage, topic, 1, 2, 3)
    await asyncio.to_thread(add, 20)
    await die(stage, topic, 2, 3)
    await asyncio.to_thread(add, 10)
    await die(stage, topic, 3, 3)
    await start(stage, 1, 2)
    found = await recovered(tmp_path, topic)
    assert (found["result"], found["leader"], found["unknown"]) == ("elected", 2, [3]), found
    assert [(log["broker"], log["end_offset"]) for log in found["logs"]] == [(1, 30), (2, 50)]
    await start(stage, 3)  # it may be the coordinator
    await readable(stage, topic, 2, 51)  # 50 records, and the marker of the abort
    values = await asyncio.to_thread(read, stage.brokers[2].address, topic, 51, "read_committed")
    assert values == []


async def test_a_compacted_log_counts_as_far_as_it_reaches(stage: PlayedCluster, tmp_path: Path) -> None:
    """Broker 2 has compacted its log, and has no more records than broker 1; but its log reaches further."""
    _, topic = await created(
        stage, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="100"
    )

    def same_keys(count: int) -> None:
        alive = ",".join(broker.address for broker in stage.brokers.values() if broker.running)
        producer = Producer({"bootstrap.servers": alive, "acks": "all", "batch.num.messages": 5})
        for value in range(count):
            producer.produce(topic, str(value), key=str(value % 3), partition=0)
        assert producer.flush(60) == 0

    await asyncio.to_thread(same_keys, 30)
    await die(stage, topic, 1, 2, 3)
    await asyncio.to_thread(same_keys, 60)
    await asyncio.to_thread(same_keys, 3)  # makes the segment before it one that may be compacted

    async def compacted() -> bool:
        return len(await asyncio.to_thread(read, stage.brokers[2].address, topic, 93)) < 30

    await until(compacted, "broker 2 has compacted its log")
    await die(stage, topic, 2, 3)
    await asyncio.to_thread(same_keys, 7)
    await die(stage, topic, 3, 3)
    await start(stage, 1, 2)
    found = await recovered(tmp_path, topic)
    assert (found["result"], found["leader"]) == ("elected", 2), found
    assert [(log["broker"], log["end_offset"]) for log in found["logs"]] == [(1, 30), (2, 93)]
    await readable(stage, topic, 2, 93)


def move(bootstrap: str, topic: str, replicas: list[int]) -> None:
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as KafkaPythons

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answers = admin.alter_partition_reassignments({KafkaPythons(topic, 0): replicas})
        assert not any(answers.values()), answers
    finally:
        admin.close()


async def test_a_replica_that_is_being_moved_is_asked_and_the_move_goes_on(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    if number(kafka.version) < (2, 4):
        pytest.skip("no reassignments by AlterPartitionReassignments")
    controller, topic = await created(stage, (1, 2), follower_replication_throttled_replicas="*")
    admin = AdminZkClient(controller.zk)
    await write(stage, topic, 500)
    await die(stage, topic, 2, 1)
    await write(stage, topic, 500)
    await admin.change_entity_configs("brokers", "3", {"follower.replication.throttled.rate": "1"})
    await asyncio.to_thread(move, stage.brokers[1].address, topic, [1, 3])

    async def moving() -> bool:
        found = (await controller.zk.get_topic_assignments([topic], watch=False)).found
        return bool(found) and found[0].partitions[0].adding == (3,)

    await until(moving, "broker 3 is being added")
    await die(stage, topic, 1, 1)
    await start(stage, 2)
    found = await recovered(tmp_path, topic)
    assert found["result"] == "elected", found
    ends = {log["broker"]: log["end_offset"] for log in found["logs"]}
    assert ends[2] == 500
    assert set(ends) == {2, 3}
    assert ends[found["leader"]] == max(ends.values())
    await admin.change_entity_configs("brokers", "3", {})
    await admin.change_entity_configs("topics", topic, CONFIGS)
    await start(stage, 1)

    async def moved() -> bool:
        found = (await controller.zk.get_topic_assignments([topic], watch=False)).found
        return not found[0].partitions[0].being_reassigned

    await until(moved, "the move has ended")
    await until(lambda: in_isr(stage, topic, (1, 3)), "both are in sync")
    await readable(stage, topic, 3, max(ends.values()))


async def test_a_broker_that_does_not_answer_is_named_and_the_others_decide(
    stage: PlayedCluster, tmp_path: Path
) -> None:
    _, topic = await created(stage)
    await write(stage, topic, 100)
    await die(stage, topic, 1, 2, 3)
    await write(stage, topic, 100)
    await die(stage, topic, 2, 3)
    await die(stage, topic, 3, 3)
    await start(stage, 1, 2)
    stage.freeze(2)
    try:
        found = await recovered(tmp_path, topic, "--dry-run")
    finally:
        stage.thaw(2)
    logs = {log["broker"]: log for log in found["logs"]}
    assert (found["result"], found["leader"], found["unknown"]) == ("would elect", 1, [3]), found
    assert logs[2]["error"] == "it has not answered in time"
    found = await recovered(tmp_path, topic)
    assert (found["result"], found["leader"]) == ("elected", 2), found
    await readable(stage, topic, 2, 200)


async def test_an_awaited_broker_that_does_not_answer_is_waited_for(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """Broker 2 was eligible and hangs, beyond its session or not; broker 3, the last in-sync one, has less."""
    if number(kafka.version) < (3, 7):
        pytest.skip("no eligible replicas, so the ISR alone is awaited")
    with_strategy(stage, "Balanced")
    controller, topic = await created(stage, min_insync_replicas="2")
    await write(stage, topic, 100)
    await die(stage, topic, 1, 2, 3)
    await write(stage, topic, 100)
    await die(stage, topic, 2, 3)
    await die(stage, topic, 3, 3)
    cut_off(stage.brokers[3], f"{topic}-0", 0.6)
    await start(stage, 1, 2)
    assert await led_by(stage, topic, -1)
    stage.freeze(2)
    try:
        await start(stage, 3)

        async def waits() -> bool:
            if (await recovery_status(controller))["waiting_for"].get(f"{topic}-0") == [2]:
                return True  # its session has expired
            return any(r.replicas and 3 in r.replicas and 2 not in r.replicas for r in recoveries(tmp_path, topic))

        await until(waits, "broker 3 could lead, and broker 2 has not told where its log ends")
        assert await led_by(stage, topic, -1)
    finally:
        stage.thaw(2)
    await until(lambda: led_by(stage, topic, 2), "the complete log leads")
    await until(lambda: in_isr(stage, topic, (1, 2, 3)), "all have joined")
    await readable(stage, topic, 2, 200)


PARTITIONS = 50


async def waiting_for_broker_3(stage: PlayedCluster) -> tuple[OurController, str]:
    """Make leaderless partitions: the last ISR member is dead, and broker 2 has more than broker 1; a broker is the
    controller."""
    controller, topic = await created(stage, partitions=PARTITIONS)
    await write(stage, topic, 5, PARTITIONS)
    await die(stage, topic, 1, 2, 3)
    await write(stage, topic, 5, PARTITIONS)
    await die(stage, topic, 2, 3)
    await die(stage, topic, 3, 3)
    await start(stage, 1, 2)
    await controller.give()
    with_strategy(stage, "Aggressive", **{TIMEOUT: "2000"})
    return controller, topic


async def test_a_controller_that_is_killed_while_it_asks_leaves_the_rest_to_the_next(stage: PlayedCluster) -> None:
    """It is killed before any election, then again once some partitions are led; in between a broker is controller.

    That broker would elect broker 1 where it may; so here the controller's strategy decides.
    """
    controller, topic = await waiting_for_broker_3(stage)

    async def led() -> list[int]:
        return [state.leader for state in await states_of(controller.zk, topic) if state.leader != -1]

    async def all_led() -> bool:
        return len(await led()) == PARTITIONS

    async def asks() -> bool:
        return bool((await recovery_status(controller))["asked"])

    await controller.take()
    stage.freeze(1)  # this makes the questions take two seconds
    try:
        await until(asks, "the controller asks")
        await controller.kill()
    finally:
        stage.thaw(1)
    assert await led() == []
    await controller.restore()
    await until(led, "some partition is led")
    await controller.kill()
    await controller.restore()
    await until(all_led, "every partition is led")
    assert set(await led()) == {2}
    await readable(stage, topic, 2, 10)


SMALL_TRANSACTIONS = (
    "from aiocontroller.cli import main; from aiocontroller.zookeeper import writes; writes.MAX_OPS = 20; main()"
)


async def test_a_controller_that_is_killed_in_the_middle_of_the_elections_leaves_the_rest_to_the_next(
    stage: PlayedCluster, kafka: KafkaCluster
) -> None:
    """ZooKeeper gets the first transaction and not the second; then a broker is controller for a while."""
    controller, topic = await waiting_for_broker_3(stage)
    elections: list[int] = []  # of each transaction

    def first_alone(link: int, xid: int, opcode: int, frame: bytes) -> Do:
        ours = frame.count(f"/brokers/topics/{topic}/partitions/".encode())  # beside those of other topics
        if opcode == MULTI and ours and b'"leader":2,' in frame:
            elections.append(ours)
        return Do.HOLD if len(elections) == 2 else Do.PASS

    async def led() -> int:
        return sum(state.leader != -1 for state in await states_of(controller.zk, topic))

    async def all_led() -> bool:
        return await led() == PARTITIONS

    async def first_led() -> bool:
        return len(elections) == 2 and await led() == elections[0]  # a read amid the transaction may find fewer

    usual, proxy = controller.program, await FaultProxy(kafka.zookeeper.port).start()
    try:
        proxy.on_request = first_alone
        controller.program = usual._replace(command=(sys.executable, "-c", SMALL_TRANSACTIONS))
        await controller.take_through(proxy.address)
        await until(first_led, "the partitions of the first transaction are led")
        await controller.kill()
    finally:
        controller.program = usual
        await proxy.close()
    assert len(elections) == 2
    await controller.restore()
    await until(all_led, "every partition is led")
    assert await led_by(stage, topic, 2)
    await readable(stage, topic, 2, 10)


async def recovery_status(controller: OurController) -> dict[str, Any]:
    """Return what its ``/status`` says of recoveries."""

    def ask() -> dict[str, Any]:
        ready = msgspec.json.decode((controller.folder / READY_FILE).read_bytes(), type=ControllerReady)
        with urllib.request.urlopen(f"{ready.http}/status", timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())["recovery"]
            return found

    return await asyncio.to_thread(ask)


async def test_kafkas_tools_refuse_a_topic_that_has_kip_966s_setting(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path
) -> None:
    """So the strategy is a property of the controller, even for single topics; a topic's own setting is ignored."""
    if number(kafka.version) < (2, 3):
        pytest.skip("no incremental changes of settings")
    controller, topic = await created(stage)
    admin = AdminZkClient(controller.zk)
    await write(stage, topic, 5)
    await asyncio.to_thread(keep_for_a_minute, stage.bootstrap, topic)
    await admin.change_entity_configs("topics", topic, CONFIGS | {"unclean.recovery.strategy": "Aggressive"})
    with pytest.raises(KafkaException, match=r"unclean\.recovery\.strategy"):
        await asyncio.to_thread(keep_for_a_minute, stage.bootstrap, topic)
    await die(stage, topic, 1, 2, 3)
    await die(stage, topic, 2, 3)
    await die(stage, topic, 3, 3)
    await start(stage, 1, 2)
    found = await recovered(tmp_path, topic, "--dry-run")
    assert found["result"] == "would elect", found
    await start(stage, 3)
    await until(lambda: in_isr(stage, topic, (1, 2, 3)), "all have joined")
    await admin.change_entity_configs("topics", topic, CONFIGS)
    await asyncio.to_thread(keep_for_a_minute, stage.bootstrap, topic)


def keep_for_a_minute(bootstrap: str, topic: str) -> None:
    """Set the topic's retention to a minute, as Kafka's tools do.  Raises KafkaException."""
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(30)


# -- on brokers of their own -------------------------------------------------------------------------------------------
