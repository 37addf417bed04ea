"""Administrators' real clients create, expand and delete topics through the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.net.ports import World
from tests.integration.controller.harness import Cluster, running, until


@pytest.fixture
async def cluster(world: World, zk_connect: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three simulated brokers, which serve Metadata, and an active controller."""
    async with running(world, zk_connect) as cluster:
        brokers = []
        for broker in (1, 2, 3):
            folder = tmp_path / str(broker)
            folder.mkdir()
            brokers.append(SimulatedBroker(BrokerConfig(broker, zk_connect, folder), world))
        tasks = [asyncio.create_task(broker.run()) for broker in brokers]
        service = await cluster.add_controller()
        await until(lambda: len(service.shell.context.live) == 3)
        await until(lambda: all(broker.metadata.controller_id == service.shell.id for broker in brokers))
        cluster.bootstrap = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)  # type: ignore[attr-defined]
        yield cluster
        await cluster.stop_controller(service)
        for broker in brokers:
            broker.stop(controlled=False)
        await asyncio.gather(*tasks)


async def ask(cluster: Cluster, request: Callable[[AdminClient], dict[str, Any]]) -> dict[str, int]:
    """Send one admin request; topic -> error code, 0 for success."""

    def in_thread() -> dict[str, int]:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # type: ignore[attr-defined]
        codes = {}
        for topic, future in request(admin).items():
            try:
                future.result(20)
                codes[topic] = 0
            except KafkaException as error:
                codes[topic] = error.args[0].code()
        return codes

    return await asyncio.to_thread(in_thread)


async def test_a_real_client_creates_expands_and_deletes_a_topic(cluster: Cluster) -> None:
    new = [NewTopic("t", 4, 3, config={"retention.ms": "1000"}), NewTopic("bad name!", 1, 1), NewTopic("u", 1, 9)]
    codes = await ask(cluster, lambda admin: admin.create_topics(new, request_timeout=15))
    assert codes == {"t": 0, "bad name!": 17, "u": 38}
    states = await cluster.states("t", 4)
    assert all(s is not None and s.leader > 0 and len(s.isr) == 3 for s in states)
    assert (await cluster.zk.get_topic_configs(["t"]))["t"] == {"retention.ms": "1000"}

    codes = await ask(cluster, lambda admin: admin.create_topics([NewTopic("t", 1, 1)], request_timeout=15))
    assert codes == {"t": 36}
    codes = await ask(cluster, lambda admin: admin.create_partitions([NewPartitions("t", 6)], request_timeout=15))
    assert codes == {"t": 0}
    assert all(s is not None and s.leader > 0 for s in await cluster.states("t", 6))
    codes = await ask(cluster, lambda admin: admin.create_partitions([NewPartitions("t", 2)], request_timeout=15))
    assert codes == {"t": 37}

    codes = await ask(cluster, lambda admin: admin.delete_topics(["t", "unknown"], operation_timeout=10))
    assert codes == {"t": 0, "unknown": 3}

    async def gone() -> bool:  # if brokers are slow, it is answered once the deletion has begun
        return await cluster.zk.get_all_topics_in_cluster(watch=False) == []

    await until(gone, "the topic is deleted")

    who = "User:ANONYMOUS at 127.0.0.1 asks"
    texts = [event.text for event in (await cluster.active()).controller.story.chronicle.events]
    asked = [
        f'{who} to create topics t, "bad name!", u',
        f"{who} to create topic t",
        f"{who} for more partitions of topic t",
        f"{who} for more partitions of topic t",
        f"{who} to delete topics t, unknown",
    ]
    texts = [text for text in texts if text.startswith(who)]
    assert len(texts) == len(asked)
    assert all(text.startswith(start) for text, start in zip(texts, asked, strict=True)), texts
    assert texts[0].startswith(f"{asked[0]}: 4 partitions created, in ")


async def test_validate_only_creates_nothing(cluster: Cluster) -> None:
    codes = await ask(cluster, lambda admin: admin.create_topics([NewTopic("t", 2, 2)], validate_only=True))
    assert codes == {"t": 0}
    assert await cluster.zk.get_all_topics_in_cluster(watch=False) == []


async def test_brokers_defaults_where_the_request_names_none(cluster: Cluster) -> None:
    """Simulated brokers do not report their settings: Kafka's own defaults are used."""
    codes = await ask(cluster, lambda admin: admin.create_topics([NewTopic("t", -1, -1)], request_timeout=15))
    assert codes == {"t": 0}
    (state,) = await cluster.states("t", 1)
    assert state is not None
    assert len(state.isr) == 1


async def test_given_replicas_may_be_on_brokers_that_are_down(cluster: Cluster) -> None:
    """As with Kafka, brokers must be registered only when a topic grows; without a leader the request times out."""
    ours = (await cluster.active()).shell.id
    given = {"t": [[9, 1]], "u": [[9]], "v": [[1, ours]]}
    new = [NewTopic(topic, 1, replica_assignment=replicas) for topic, replicas in given.items()]
    codes = await ask(cluster, lambda admin: admin.create_topics(new, operation_timeout=1, request_timeout=15))
    assert codes == {"t": 0, "u": 7, "v": 39}
    (state,) = await cluster.states("t", 1)
    assert state is not None
    assert (state.leader, state.isr) == (1, (1,))
    assert await cluster.states("u", 1) == [None]
    grown = [NewPartitions("t", 2, [[9, 1]])]
    codes = await ask(cluster, lambda admin: admin.create_partitions(grown, request_timeout=15))
    assert codes == {"t": 39}
