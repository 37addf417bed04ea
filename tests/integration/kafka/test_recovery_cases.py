"""Difficult cases of recovery by evidence (docs/recovery.md), on real brokers of any release."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import shutil
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.lab.kafka.acknowledged import states_of, write_acknowledged
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster, cluster_on
from aiocontroller.lab.storms.power_loss import cut_off
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.codec import MULTI
from tests.integration.kafka.conftest import SETTINGS, KafkaCluster, take_over
from tests.integration.kafka.releases import number
from tests.integration.kafka.test_log_recovery import command, end_of, recoveries

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(400)]

STRATEGY, TIMEOUT = "aiocontroller.unclean.recovery.strategy", "aiocontroller.unclean.recovery.timeout.ms"
CONFIGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
_numbers = itertools.count(1)


def with_strategy(stage: PlayedCluster, strategy: str, **more: str) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    ours.properties = {**ours.properties, STRATEGY: strategy, **more}


async def in_isr(stage: PlayedCluster, topic: str, isr: Sequence[int]) -> bool:
    """Whether every partition has this ISR, in any order."""
    controller: Any = stage.controller
    states = await states_of(controller.zk, topic)
    return bool(states) and all(set(state.isr) == set(isr) for state in states)


async def led_by(stage: PlayedCluster, topic: str, *leaders: int) -> bool:
    """Whether every partition is led by one of these; -1 is no leader."""
    controller: Any = stage.controller
    states = await states_of(controller.zk, topic)
    return bool(states) and all(state.leader in leaders for state in states)


async def created(
    stage: PlayedCluster, replicas: Sequence[int] = (1, 2, 3), partitions: int = 1, **configs: str
) -> tuple[OurController, str]:
    """Create a topic under aiocontroller, led by the first of these replicas, with all of them in sync."""
    controller = await take_over(stage)
    topic = f"recovery-{next(_numbers)}"
    assignment = dict.fromkeys(range(partitions), tuple(replicas))
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    await AdminZkClient(controller.zk).create_topic(topic, assignment, configs=CONFIGS | dotted)
    await until(lambda: in_isr(stage, topic, tuple(replicas)), "every replica is in sync")
    return controller, topic


async def write(stage: PlayedCluster, topic: str, count: int, partitions: int = 1) -> None:
    """Write this many records to each partition, acknowledged by the ISR."""
    alive = ",".join(broker.address for broker in stage.brokers.values() if broker.running)
    await asyncio.to_thread(write_acknowledged, alive, topic, dict.fromkeys(range(partitions), count))


async def die(stage: PlayedCluster, topic: str, broker: int, *isr: int) -> None:
    """Kill the broker, and wait for this ISR; if it is the broker's alone, there is no leader."""
    stage.brokers[broker].kill()
    await until(lambda: in_isr(stage, topic, isr), f"the ISR is {isr}")
    if isr == (broker,):
        await until(lambda: led_by(stage, topic, -1), "nobody leads")


async def start(stage: PlayedCluster, *brokers: int) -> None:
    """Return when they answer: on a busy machine that is seconds after they have registered."""
    for broker in brokers:
        await stage.start(stage.brokers[broker])
        address = stage.brokers[broker].address
        await until(functools.partial(asyncio.to_thread, answers, address), f"broker {broker} answers")


def answers(address: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


async def readable(stage: PlayedCluster, topic: str, broker: int, end: int) -> None:
    async def reached() -> bool:
        return await asyncio.to_thread(end_of, stage.brokers[broker].address, topic) == end

    await until(reached, f"{topic} can be read up to {end}")


async def recovered(folder: Path, topic: str, *more: str) -> dict[str, Any]:
    """Return what ``recover`` says of partition 0."""
    code, out, err = await command("recover", "--topic", topic, "--json", *more, folder=folder)
    assert out, (code, err)
    found: dict[str, Any] = json.loads(out)["partitions"][0]
    return found


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


def read(bootstrap: str, topic: str, end: int, isolation: str = "read_uncommitted") -> list[bytes]:
    """Return what a consumer reads from partition 0 up to this offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": isolation})
    try:
        place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        consumer.assign([place])
        found: list[bytes] = []
        for _ in range(600):
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
            [at] = consumer.position([place])
            if at.offset >= end:
                return found
        raise AssertionError(f"read up to {at.offset} of {end}")
    finally:
        consumer.close()


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

OWN = SETTINGS | {"replica.lag.time.max.ms": "30000"}
"""A follower stays in sync, however busy the machine is."""


async def test_records_deleted_by_retention_are_no_reason_for_an_older_log(
    kafka_version: str, zk_connect: str, tmp_path: Path
) -> None:
    """Broker 2 is in sync with an empty log; broker 1 left long ago and still has the beginning of what was deleted."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    settings = OWN | {"log.retention.check.interval.ms": "500"}
    cluster = RealKafkaCluster(2, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            with_strategy(stage, "Balanced")
            controller, topic = await created(stage, (1, 2))
            await write(stage, topic, 20)
            await die(stage, topic, 1, 2)
            await write(stage, topic, 20)
            admin, folder = AdminZkClient(controller.zk), stage.brokers[2].data_dir / "logs" / f"{topic}-0"
            await admin.change_entity_configs("topics", topic, CONFIGS | {"retention.ms": "1"})

            async def emptied() -> bool:
                return [file.name for file in folder.glob("*.log")] == [f"{40:020}.log"]

            await until(emptied, "broker 2 has deleted its records")
            await admin.change_entity_configs("topics", topic, CONFIGS)
            await die(stage, topic, 2, 2)
            await start(stage, 1, 2)
            await until(lambda: led_by(stage, topic, 1, 2), "a log leads")
            assert await led_by(stage, topic, 2)
            await until(lambda: in_isr(stage, topic, (1, 2)), "both are in sync")
            await write(stage, topic, 5)
            await readable(stage, topic, 2, 45)
    finally:
        cluster.kill()


async def test_an_isr_member_whose_log_directory_has_failed_is_awaited_by_name(
    kafka_version: str, zk_connect: str, tmp_path: Path
) -> None:
    """It is live, but cannot answer; an operator has to decide."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    settings = OWN | {"replica.high.watermark.checkpoint.interval.ms": "1000"}  # it writes, and so notices
    cluster = RealKafkaCluster(2, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    for broker in cluster.brokers.values():
        broker.overrides["log.dirs"] = ",".join(str((broker.data_dir / name).resolve()) for name in ("one", "two"))
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            with_strategy(stage, "Balanced")
            _, topic = await created(stage, (1, 2))
            await write(stage, topic, 20)
            await die(stage, topic, 2, 1)
            await write(stage, topic, 20)
            broker = stage.brokers[1]
            [folder] = [broker.data_dir / d for d in ("one", "two") if (broker.data_dir / d / f"{topic}-0").is_dir()]
            shutil.move(folder, tmp_path / "taken-away")
            folder.write_text("no directory")
            await until(lambda: led_by(stage, topic, -1), "nobody leads")
            await start(stage, 2)

            async def recovery(*more: str) -> dict[str, Any] | None:
                found = await recovered(tmp_path, topic, *more)
                return None if found["result"] == "failed" else found  # broker 2 has just started

            found = await until(lambda: recovery("--dry-run"), "broker 2 tells how far its log reaches")
            assert (found["result"], found["leader"], found["unknown"]) == ("would elect", 2, [1]), found
            assert "broker 1 has not answered (its log directory has failed; it was in the last ISR" in found["detail"]
            assert await led_by(stage, topic, -1)
            found = await until(recovery, "broker 2 leads")
            assert (found["result"], found["leader"], found["lost_at_most"]) == ("elected", 2, 0), found
            await readable(stage, topic, 2, 20)
    finally:
        cluster.kill()


@pytest.mark.parametrize("strategy", ["None", "Aggressive"])
async def test_an_authorizer_that_refuses_the_questions_is_named(
    kafka_version: str, zk_connect: str, tmp_path: Path, strategy: str
) -> None:
    """A principal may be allowed to control brokers, but not to read the topic."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    if number(kafka_version) < (2, 7):
        pytest.skip("only the ends of logs are asked for, for which Describe suffices, and Write implies Describe")
    rights = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    cluster = RealKafkaCluster(3, zk_connect, tmp_path, version=kafka_version, overrides=OWN | rights)
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000, properties=rights) as stage:
            with_strategy(stage, strategy, **{TIMEOUT: "5000"})
            _, topic = await created(stage)
            await write(stage, topic, 20)
            await asyncio.to_thread(forbid_reading, stage.bootstrap, topic)
            for broker, isr in ((3, (1, 2)), (2, (1,)), (1, (1,))):
                await die(stage, topic, broker, *isr)
            await start(stage, 2, 3)

            async def refused() -> bool:
                found = await recovered(tmp_path, topic, "--dry-run")
                assert found["result"] == "failed", found
                errors = {log["error"] for log in found["logs"]}
                return len(found["logs"]) == 2 and errors == {"it answers TOPIC_AUTHORIZATION_FAILED"}

            await until(refused, "both have started and refuse")
            await start(stage, 1)
            await until(lambda: led_by(stage, topic, 1), "the ISR's member leads as in Kafka, or when the time is up")
            await until(lambda: in_isr(stage, topic, (1, 2, 3)), "all have joined")
    finally:
        cluster.kill()


def forbid_reading(bootstrap: str, topic: str) -> None:
    """Allow everyone to write the topic, so that no one may read it."""
    anybody = ("User:*", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    allow = AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *anybody)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls([allow]).values():
        made.result(30)
