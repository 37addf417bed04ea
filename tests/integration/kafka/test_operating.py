"""An operator's work on a live Kafka 3.9 cluster: taken over, administered through us, given back clean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import Release, TakeOver
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.request_content import Released
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
US = 1_000_001


@pytest.fixture(autouse=True)
def _jars() -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)


async def ask(service: Service, make: Callable[[Reply], Request]) -> Any:
    """Send a command; a long timeout, since moving replicas takes time."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(make(Reply(answer.set_result)))
    return await asyncio.wait_for(answer, 60)


def administer(address: str) -> None:
    """Send all requests to our own address: what we do ourselves, what we answer, and what we refer to brokers."""
    admin = AdminClient({"bootstrap.servers": address})
    cluster = admin.describe_cluster(request_timeout=20).result(30)
    assert cluster.controller.id == US
    assert sorted(node.id for node in cluster.nodes) == [1, 2, 3, US]

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    added = UserScramCredentialUpsertion("alice, the first", info, b"secret", b"salt")
    gone = UserScramCredentialDeletion("unknown", ScramMechanism.SCRAM_SHA_512)
    results = admin.alter_user_scram_credentials([added, gone], request_timeout=20)
    results["alice, the first"].result(30)
    with pytest.raises(KafkaException, match="does not exist"):
        results["unknown"].result(30)
    described = admin.describe_user_scram_credentials(["alice, the first"], request_timeout=20)
    (found,) = described["alice, the first"].result(30).scram_credential_infos  # a broker reads what we wrote
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)

    for node in (1, US):
        resource = ConfigResource(ResourceType.BROKER, str(node))
        settings = admin.describe_configs([resource], request_timeout=20)[resource].result(30)
        assert bool(settings) == (node == 1)
    groups = admin.list_consumer_groups(request_timeout=20).result(30)
    assert not groups.errors


def touch(bootstrap: str, *topics: str) -> None:
    """Produce to topics that were not created; do not wait for those without a leader."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 1500})
    for topic in topics:
        producer.produce(topic, b"1")
    producer.flush(2)


async def naming_us(cluster: Cluster) -> list[tuple[str, int]]:
    topics = await cluster.zk.get_all_topics_in_cluster(watch=False)
    found = (await cluster.zk.get_topic_assignments(topics, watch=False)).found
    return [(a.topic, n) for a in found for n, r in a.partitions.items() if US in r.replicas]


async def test_taken_over_administered_lost_regained_and_given_back(
    world: World, zk_connect: str, tmp_path: Path
) -> None:
    defaults = {"num.partitions": "4", "default.replication.factor": "2", "offsets.topic.num.partitions": "1"}
    brokers = RealKafkaCluster(3, zk_connect, tmp_path, overrides=defaults)
    await brokers.start_async()
    try:
        async with running(world, zk_connect) as cluster:
            first = await cluster.add_controller(zookeeper_session_timeout_ms=10_000)
            await until(lambda: first.controller.election.holder)
            assert await ask(first, lambda reply: TakeOver(reply=reply)) == []
            await until(lambda: len(first.shell.context.live) == 3)
            await asyncio.to_thread(administer, f"{first.endpoints[0].host}:{first.endpoints[0].port}")

            cluster.crash_controller(first)  # until its session expires, brokers take it for a broker
            await asyncio.to_thread(touch, brokers.bootstrap, "a", "b", "c")

            async def led_by_kafka() -> bool:
                holder = await cluster.zk.get_controller(watch=False)
                states = await cluster.zk.get_topic_partition_states(
                    [t for t in "abc" for _ in range(4)], [*range(4)] * 3
                )
                led = sum(isinstance(state, LeaderAndIsr) for state in states)
                return getattr(holder, "controller_id", US) != US and led == 12

            await until(led_by_kafka, "Kafka's own controller elects", 60)
            assert await naming_us(cluster)  # half of twelve partitions, by chance; none in 4096 runs

            second = await cluster.add_controller()
            await until(lambda: second.controller.election.holder)
            assert await ask(second, lambda reply: TakeOver(reply=reply)) == []
            epoch = second.shell.context.epoch
            # At once: giving it back has to wait for the replicas to be moved.
            assert await ask(second, lambda reply: Release(reply=reply)) == Released(epoch)
            assert await naming_us(cluster) == []
            await asyncio.to_thread(touch, brokers.bootstrap, "d", "e")

            async def led_again() -> bool:
                states = await cluster.zk.get_topic_partition_states([*"ddddeeee"], [*range(4)] * 2)
                return all(isinstance(state, LeaderAndIsr) and len(state.isr) == 2 for state in states)

            await until(led_again, "Kafka goes on", 60)
            assert await naming_us(cluster) == []
    finally:
        brokers.kill()
