"""A real broker that is configured for the migration to KRaft forwards its clients' requests to us in envelopes.

We have the role until a KRaft controller claims it, and serve its clients as Kafka's own controller would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.lab.cluster.embedded_zookeeper import free_port
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, RealKafkaBroker, kafka_missing
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.asking import Asking
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture
async def cluster(world: World, zk_connect: str, tmp_path: Path) -> AsyncIterator[tuple[Cluster, RealKafkaBroker]]:
    missing = kafka_missing(DEFAULT_VERSION)
    if missing:
        pytest.skip(missing)
    overrides = {
        "zookeeper.metadata.migration.enable": "true",
        "controller.quorum.voters": f"3000@127.0.0.1:{free_port()}",  # no quorum: the migration does not begin
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "true",
    }
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller()
        await cluster.active()
        broker = RealKafkaBroker(1, zk_connect, tmp_path / "broker", overrides=overrides)
        try:
            await broker.start_async()
            await until(lambda: 1 in service.shell.context.live, "the broker is live", 60)
            # Deletions wait for it, and the broker repeats requests that are not answered within 5 s.
            survey = service.controller.guard.survey
            await until(lambda: not survey.unanswered, "the broker has reported its settings", 60)
            yield cluster, broker
        finally:
            broker.kill()


async def ask(broker: RealKafkaBroker, api: ApiKey, version: int, **fields: Any) -> Any:
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = Asking(reader, writer)
    try:
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        return cold.decode_response(api, version, await asyncio.wait_for(client.request(api, version, body), 60))
    finally:
        client.close()
        await writer.wait_closed()


async def test_broker_forwards_what_its_clients_ask_of_the_controller(cluster: tuple[Cluster, RealKafkaBroker]) -> None:
    ours, broker = cluster
    new = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name, **new} for name in ("orders", "bad/name")]

    async def created() -> Any:
        """Create a topic, retrying: a broker that has just started may not know its controller yet."""
        answer = await ask(broker, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=20_000, validate_only=False)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        return answer if codes.get("orders") in (E.NONE, E.TOPIC_ALREADY_EXISTS) else None

    answer = await until(created, "a topic is created through the broker", 60)
    first, second = answer.topics
    assert (first.name, first.error_code, first.num_partitions) == ("orders", E.NONE, 2)
    assert len(first.configs) > 30
    assert (second.name, second.error_code) == ("bad/name", E.INVALID_TOPIC_EXCEPTION)
    assert await ours.leaders("orders", 2) == [1, 1]

    grown = [{"name": "orders", "count": 3, "assignments": None}]
    answer = await ask(broker, ApiKey.CREATE_PARTITIONS, 3, topics=grown, timeout=20_000, validate_only=False)
    assert [(each.name, each.error_code) for each in answer.results] == [("orders", E.NONE)]

    ops = [{"name": "retention.ms", "config_operation": 0, "value": "1234"}]
    resources = [{"resource_type": 2, "resource_name": "orders", "configs": ops}]
    answer = await ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    assert [each.error_code for each in answer.responses] == [E.NONE]
    assert (await ours.zk.get_topic_configs(["orders"]))["orders"] == {"retention.ms": "1234"}

    deleted = [{"name": "orders", "topic_id": bytes(16)}]
    asked_s = time.monotonic()
    answer = await ask(broker, ApiKey.DELETE_TOPICS, 6, topics=deleted, timeout=20_000)
    took_s = time.monotonic() - asked_s
    assert [(each.name, each.error_code) for each in answer.responses] == [("orders", E.NONE)], f"after {took_s:.1f} s"

    async def auto_created() -> bool:
        topics = [{"name": "asked-for"}]
        await ask(broker, ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        return await ours.leaders("asked-for", 1) == [1]

    await until(auto_created, "a topic is created because a client asks for it", 60)
