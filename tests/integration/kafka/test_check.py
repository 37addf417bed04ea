"""``check``, ``what-if`` and ``rehearse`` on real brokers with their own controller: no false alarm, predictions come
true, and nothing is written."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from aiocontroller.check.check import CheckReport, examine
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
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
VICTIM = 2


def severe(report: CheckReport, topics: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return (kind, subject) of findings worse than a notice, about these topics and brokers."""
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


def foretold(
    found: Mapping[TopicPartition, Leadership], topics: tuple[str, ...]
) -> dict[TopicPartition, tuple[int, frozenset[int]]]:
    return {name: (each.leader, frozenset(each.isr)) for name, each in found.items() if name.topic in topics}


def leaders(found: Mapping[TopicPartition, tuple[int, frozenset[int]]]) -> dict[TopicPartition, int]:
    return {name: leader for name, (leader, _) in found.items()}


@pytest.fixture
async def admin(stage: PlayedCluster) -> AsyncIterator[AdminZkClient]:
    """It deletes the topics that a test has made, since later ones share the cluster."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    admin = AdminZkClient(ours.zk)
    before = await admin.list_topics()
    yield admin
    await stage.heal()
    for topic in await admin.list_topics():
        if topic not in (*before, *stage.topics) and not topic.startswith("__"):
            await admin.delete_topic(topic)


async def test_a_healthy_cluster_is_healthy_and_a_death_ends_as_foretold(
    stage: PlayedCluster, kafka: KafkaCluster, admin: AdminZkClient
) -> None:
    zk, clock = admin.zk, real_world().clock
    await under_load(stage, kafka, kind="java")
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

    # Up to 2.2 the successor of a dead controller leaves its broker in the ISRs of others (KAFKA-3143).
    isrs_shrink = healthy.controller != VICTIM or number(kafka.version) >= (2, 3)

    async def as_foretold() -> bool:
        found = led(await read_cluster_tree(zk), topics), foretold(tried.leaderships(), topics)
        return found[0] == found[1] if isrs_shrink else leaders(found[0]) == leaders(found[1])

    await until(as_foretold, "leaders and ISRs are those foretold", within_s=30)
    found = severe((await examine(zk, clock)).report, topics)
    assert ("offline", "alone-0") in found
    assert ("broker-away", f"broker {VICTIM}") in found
    assert ("lost-with-a-broker", "pair-0") in found or not isrs_shrink
    least = {
        ("at-min-isr", f"{topic}-{partition}") for topic, partition in stage.made()
    }  # two of three are left, and two are needed
    others = {"offline", "broker-away", "lost-with-a-broker", "under-replicated"}
    assert {each for each in found if each[0] not in others} == least or not isrs_shrink


async def gone(zk: KafkaZkClient) -> bool:
    return VICTIM not in (await read_cluster_tree(zk)).live


MINUTE_S = 60.0
"""Seconds of processor time: on a busy machine elapsed time would show little."""


async def test_each_command_takes_less_than_a_minute_and_changes_nothing(
    kafka: KafkaCluster, tmp_path: Path, admin: AdminZkClient
) -> None:
    """Checks the commands on brokers with Kafka's own controller: check, which asks for settings, what-if, rehearse."""
    zk = admin.zk
    await admin.create_topic("still", {0: (1, 2), 1: (2, 3), 2: (3, 1)})

    async def all_led() -> bool:
        leaders = [leader for leader, _ in led(await read_cluster_tree(zk), ("still",)).values()]
        return len(leaders) == 3 and min(leaders) > 0

    await until(all_led, "every partition is led")
    before, file = await versions(zk), tmp_path / "tree.json"
    tree = await read_cluster_tree(zk)
    assert tree.holder is not None
    assert tree.holder.controller_id in tree.live

    async def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "aiocontroller", *arguments, "--zookeeper", kafka.zookeeper.address]
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=PIPE, stderr=PIPE)
        used_s = processor_s()
        out, err = await process.communicate()
        assert processor_s() - used_s < MINUTE_S
        assert process.returncode in (0, 3, 4), err.decode()
        return out.decode()

    checked = json.loads(await run("check", "--json", "--save-tree", str(file)))
    assert checked["controller"] == tree.holder.controller_id
    of_brokers = {"settings-differ", "settings-not-told", "takeover-changes", "takeover-needs"}
    assert not {finding["kind"] for finding in checked["findings"]} & of_brokers
    assert "Nothing was written." in await run("what-if", "--kill", str(VICTIM))
    rehearsed = await run("rehearse")
    assert f"{len(tree.live)} registered; {len(tree.partitions)} partitions." in rehearsed
    assert "Verdict: no violation. Nothing was written." in rehearsed
    assert await versions(zk) == before


def processor_s() -> float:
    """Return the processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def versions(zk: KafkaZkClient) -> dict[str, int]:
    """Return every znode with the zxid of its last change, except those that brokers change when a follower is late and
    those in which controllers announce themselves."""
    found, paths = dict[str, int](), ["/"]
    while paths:
        reads = await zk.client.get_many(paths)
        found |= {path: reads.mzxid(at) for at, path in enumerate(paths)}
        below = await zk.client.children_many(paths)
        paths = [
            f"{path.rstrip('/')}/{name}"
            for path, names in zip(paths, below.names, strict=True)
            for name in names or ()
            if (path, name) != ("/", "zookeeper")
        ]
    others = ("isr_change_notification/", "aiocontroller_instances/")
    return {p: at for p, at in found.items() if not p.endswith("/state") and not any(each in p for each in others)}
