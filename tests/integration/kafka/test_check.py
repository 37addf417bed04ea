"""``check`` and ``what-if`` on real brokers with their own controller: no false alarm, and what is foretold happens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from aiocontroller.check.check import Report, examine
from aiocontroller.check.findings import Severity
from aiocontroller.check.what_if import Leadership, WhatIf
from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr, TopicPartition
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.cluster_tree import ClusterTree, read_cluster_tree
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.kafka.conftest import KafkaCluster, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
VICTIM = 2


def severe(report: Report, topics: tuple[str, ...]) -> set[tuple[str, str]]:
    """(kind, subject) of what is worse than a notice, about these topics and brokers."""
    return {
        (finding.kind, subject)
        for finding in report.findings
        for subject in finding.subjects
        if Severity[finding.severity.upper()] > Severity.NOTICE
        if subject.rpartition("-")[0] in topics or subject.startswith("broker ")
    }


def led(tree: ClusterTree, topics: tuple[str, ...]) -> dict[TopicPartition, tuple[int, frozenset[int]]]:
    return {
        name: (state.leader if state.leader in tree.live else NO_LEADER, frozenset(state.isr))
        for name, _, state in tree.partitions
        if name.topic in topics and isinstance(state, LeaderAndIsr)
    }


def foretold(found: Mapping[TopicPartition, Leadership], topics: tuple[str, ...]) -> dict[TopicPartition, object]:
    return {name: (each.leader, frozenset(each.isr)) for name, each in found.items() if name.topic in topics}


async def test_a_healthy_cluster_is_healthy_and_a_death_ends_as_foretold(
    stage: PlayedCluster, kafka: KafkaCluster
) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    zk, clock = ours.zk, real_world().clock
    await under_load(stage, kafka, kind="java")
    admin = AdminZkClient(zk)
    await admin.create_topic("alone", {0: (VICTIM,)})
    await admin.create_topic("pair", {0: (1, VICTIM)})
    topics = (*stage.topics, "alone", "pair")

    async def all_led() -> bool:
        return all(leader > 0 for leader, _ in led(await read_cluster_tree(zk), topics).values())

    await until(all_led, "every partition is led")
    healthy = (await examine(zk, clock)).report
    assert severe(healthy, topics) == set()
    assert healthy.controller in (1, 2, 3)

    tried = WhatIf(await read_cluster_tree(zk))
    tried.kill((VICTIM,))
    await asyncio.to_thread(stage.brokers[VICTIM].kill)
    await until(lambda: gone(zk), "its session has expired", within_s=60)

    async def as_foretold() -> bool:
        return led(await read_cluster_tree(zk), topics) == foretold(tried.leaderships(), topics)

    await until(as_foretold, "leaders and ISRs are those foretold", within_s=30)
    found = severe((await examine(zk, clock)).report, topics)
    assert ("offline", "alone-0") in found
    assert ("broker-away", f"broker {VICTIM}") in found
    assert ("lost-with-a-broker", "pair-0") in found
    least = {
        ("at-min-isr", f"{topic}-{partition}") for topic, partition in stage.made()
    }  # two of three, and two are needed
    others = {"offline", "broker-away", "lost-with-a-broker", "under-replicated"}
    assert {each for each in found if each[0] not in others} == least
    await stage.heal()
    await admin.delete_topic("alone")
    await admin.delete_topic("pair")


async def gone(zk: KafkaZkClient) -> bool:
    return VICTIM not in (await read_cluster_tree(zk)).live
