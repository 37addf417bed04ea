"""Kafka's own Admin, all of it, on a cluster whose controller is a broker and on one where it is ours: the same.

``AllOfAdmin.java`` calls every method for what succeeds and for what is refused, and says itself if it forgot one.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, kafka_missing
from tests.admin_answers.table import INTERNAL_TOPICS, make_topics
from tests.admin_answers.two_clusters import CONTROLLER, FIRST, Cluster, TwoClusters
from tests.authorization.principals import PLAINTEXT, SASL_PLAINTEXT
from tests.java import java_program

PROGRAM = Path(__file__).parent / "java" / "AllOfAdmin.java"
TIMEOUT_S = 400

OTHERWISE = {
    "describeCluster.nodes": ("[1, 2]", "[1, 1000001, 2]", "the controller is a node of its own"),
    "describeCluster.controller": ("2", "1000001", "the controller has an id of its own"),
}
"""Calls of which the two may tell different things: Kafka's, ours, and why."""

pytestmark = [
    pytest.mark.admin_answers,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoClusters]:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    stage = TwoClusters(tmp_path_factory.mktemp("all-of-admin"), DEFAULT_VERSION, [FIRST, CONTROLLER])
    try:
        await stage.start()
        for cluster in (stage.kafka, stage.ours):
            await make_topics(cluster, dict(INTERNAL_TOPICS))
        yield stage
    finally:
        await stage.stop()


def results(cluster: Cluster) -> dict[str, str]:
    """What each call came to.  Any node of the cluster is asked."""
    listeners = [
        ",".join(f"127.0.0.1:{ports[name]}" for ports in cluster.ports.values()) for name in (PLAINTEXT, SASL_PLAINTEXT)
    ]
    run = subprocess.run(
        [*java_program(PROGRAM), *listeners], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert run.returncode == 0, f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    lines = [line.partition("\t") for line in run.stdout.splitlines() if "\t" in line]
    found = {name: plain(cluster, text) for name, _, text in lines}
    assert len(found) == len(lines), "two calls have the same name"
    return found


def plain(cluster: Cluster, text: str) -> str:
    """Without ports, which each side has for itself."""
    for node, ports in cluster.ports.items():
        for port in ports.values():
            text = text.replace(f"127.0.0.1:{port}", f"node {node}")
    return text


async def test_admin_gets_the_same(stage: TwoClusters) -> None:
    kafka, ours = await asyncio.gather(*(asyncio.to_thread(results, each) for each in (stage.kafka, stage.ours)))
    assert kafka.pop("never called") == ours.pop("never called") == "[]"
    assert "never" not in kafka, kafka["never"]
    assert "never" not in ours, ours["never"]
    different = {
        name: (kafka.get(name), ours.get(name))
        for name in dict.fromkeys((*kafka, *ours))
        if kafka.get(name) != ours.get(name)
    }
    for name, (theirs, own, _) in OTHERWISE.items():
        if different.pop(name, None) != (theirs, own):
            different[name] = theirs, own
    lines = [f"{name}\n    Kafka {theirs}\n    ours  {own}" for name, (theirs, own) in different.items()]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
    assert len(kafka) > 90
    for what in ("numPartitions", "replicationFactor", "topicId", "config"):
        for topic in "ab":
            assert not ours[f"createTopics.{what} {topic}"].startswith("!"), "created, and described in the answer"
    assert sum(text.startswith("!") for text in kafka.values()) < len(kafka) / 2
