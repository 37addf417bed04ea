"""Logs are compared before a replica leads, on clusters of other settings than the shared one's."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import cluster_on
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import SETTINGS
from tests.integration.kafka.recovery_steps import (
    CONFIGS,
    TIMEOUT,
    created,
    die,
    in_isr,
    led_by,
    readable,
    recovered,
    start,
    with_strategy,
    write,
)
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(400)]

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
