"""``up --kafka``: real brokers under this controller, with the same commands as simulated ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from aiocontroller.cli.finding import find_controller
from aiocontroller.lab.cluster.migrating import Mode
from aiocontroller.lab.cluster.real_kafka import LATEST_PATCH, KafkaMissingError, kafka_missing, release
from aiocontroller.lab.cluster.supervisor import ClusterOptions, ClusterSupervisor, CommandError, send_command
from tests.integration.controller.harness import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture
def options(tmp_path: Path) -> ClusterOptions:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    return ClusterOptions(
        data_dir=tmp_path,
        kafka="3.9",
        brokers=2,
        topics=1,
        partitions=2,
        replication_factor=2,
        broker_session_timeout_ms=2000,
        controller_properties={"zookeeper.session.timeout.ms": "2000"},
    )


def produced(bootstrap: str) -> int:
    """Produce a record that all replicas acknowledge; return its offset."""
    acknowledged: list[int | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000})
    producer.produce("topic-0", b"1", partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    return acknowledged[0] or 0


async def test_real_brokers_obey_the_commands(options: ClusterOptions) -> None:
    async with ClusterSupervisor(options) as cluster:

        async def send(command: str, broker: int | None = None) -> Any:
            return await asyncio.to_thread(send_command, options.data_dir, command, broker=broker)

        with pytest.raises(CommandError, match="migration mode: found no KRaft controller"):
            await cluster.execute("restart-broker", 1, Mode.MIGRATION)
        with pytest.raises(CommandError, match="the KRaft controller does not run"):
            await send("stop-kraft-controller")

        async def controller() -> int:
            return getattr(await cluster.zk.get_controller(watch=False), "controller_id", -1)

        assert await controller() == 1_000_001
        assert await asyncio.to_thread(produced, cluster.bootstrap) == 0

        await send("kill-broker", 2)
        await send("start-broker", 2)  # its registration stays until its session expires
        assert cluster.snapshot().brokers[2].running

        await send("kill-controller")

        async def a_broker_rules() -> bool:
            return await controller() in (1, 2)

        await until(a_broker_rules, "a broker takes the role", 30)
        await send("start-controller")

        async def deposed() -> bool:
            return await controller() == 1_000_001

        await until(deposed, "the role is taken back", 30)
        assert find_controller(options.data_dir).id == 1_000_001  # takeover and release find it there
        assert "controlled way" in (await send("stop-broker", 2))["done"]
        assert await asyncio.to_thread(produced, cluster.bootstrap) == 1
    assert not any(process.running for process in cluster.snapshot().brokers.values())
    assert "shut down completed" in (options.data_dir / "broker-1" / "broker.log").read_text()


def test_versions_have_short_names() -> None:
    assert release("3.9") == LATEST_PATCH["3.9"]
    assert release("3.7.2") == "3.7.2"
    for wrong in ("4.0.0", "3", "newest"):
        with pytest.raises(KafkaMissingError, match=f"found '{wrong}', expected one of 2.2, 2.4"):
            release(wrong)
