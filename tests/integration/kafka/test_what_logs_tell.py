"""A broker's death under Kafka's own controller: what the pipeline finds in the brokers' logs, and what we saw."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from tests.integration.cli.program import aiocontroller
from tests.integration.kafka.conftest import KafkaCluster
from tests.integration.kafka.releases import number
from tests.integration.kafka.test_operating import touch

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]
PARTITIONS, REPLICAS = 4, 2
"""The number that the cluster gives to topics that are created on demand."""
LOG_CLOCK_US = 1000
NEARLY_US = 5_000_000
"""The largest difference between what we saw by polling and what the controller logged, on a busy machine."""


def windows_of(out: Path) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    return list(parquet.read_table(out / "gold" / "windows").to_pylist())


@pytest.mark.parametrize("victim_is", ["another broker", "the controller"])
async def test_windows_from_kafkas_logs_are_what_zookeeper_showed(
    stage: PlayedCluster, kafka: KafkaCluster, tmp_path: Path, victim_is: str
) -> None:
    topic = f"seen-in-logs-of-{victim_is.split()[1]}"
    pytest.importorskip("pyspark")
    controller = stage.controllers["aiocontroller"]
    assert isinstance(controller, OurController)

    async def states() -> list[LeaderAndIsr]:
        found = await controller.zk.get_topic_partition_states([topic] * PARTITIONS, range(PARTITIONS))
        return [state for state in found if isinstance(state, LeaderAndIsr)]

    async def whole() -> bool:
        return [len(state.isr) for state in await states()] == [REPLICAS] * PARTITIONS

    await asyncio.to_thread(touch, stage.bootstrap, topic)
    await until(whole, "the topic has leaders")
    active = await controller.holder()
    victim = next(broker for broker in stage.brokers if (broker == active) == (victim_is == "the controller"))
    led = {p for p, state in enumerate(await states()) if state.leader == victim}
    assert led
    seen: dict[int, tuple[int, int]] = {}

    async def moved() -> bool:
        for p, state in enumerate(await states()):
            if p in led and state.leader not in (-1, victim):
                seen.setdefault(p, (state.leader, time.time_ns() // 1000))
        return seen.keys() == led

    killed_us = time.time_ns() // 1000
    stage.brokers[victim].kill()
    await until(moved, "Kafka's controller has moved its partitions")
    successor = await controller.holder()

    logs = [str(broker.log) for broker in stage.brokers.values()]
    manifest, out = tmp_path / "manifest.json", tmp_path / "analysis"
    manifest.write_text(json.dumps({"files": [{"glob": "*", "time_zone": time.strftime("%z")[:3] + ":00"}]}))
    done = await asyncio.to_thread(
        aiocontroller,
        *("analyze", *logs, "--manifest", str(manifest), "--out", str(out), "--json"),
        timeout_s=900,
    )
    summary = json.loads(done.stdout)
    assert [b["event"] for b in summary["brokers"] if b["broker"] == victim][-1] == "died"
    assert summary["violations"] == []
    # From 2.3 on a new controller first takes the dead broker from the ISR, which leaves no leader.
    shrinks_first = victim == active and number(kafka.version) >= (2, 3)
    kind = "no_leader" if shrinks_first else "dead_leader"
    lost = [w for w in windows_of(out) if w["topic"] == topic and w["kind"] == kind and w["cause"] != "creation"]
    cause = "broker_death" if victim != active else "controller_failover"
    assert {w["partition"]: (w["cause"], w["broker"], w["leader_after"]) for w in lost} == {
        p: (cause, victim, leader) for p, (leader, _) in seen.items()
    }
    # Topics of other tests have incidents, too, such as one whose only replica was on this broker.
    incident = max((i for i in summary["incidents"] if i["broker"] == victim), key=lambda each: each["onset_us"])
    what = "broker and controller" if victim == active else "broker"
    assert (incident["what"], incident["broker"], incident["partitions"] >= len(led)) == (what, victim, True)
    assert abs(incident["onset_us"] - killed_us) <= incident["onset_error_us"] + LOG_CLOCK_US, incident
    if victim == active:
        assert (incident["controller_before"], incident["controller_after"]) == (victim, successor), incident
    for window in lost:
        assert killed_us - LOG_CLOCK_US <= window["start_us"] <= window["end_us"], window
        assert abs(window["end_us"] - seen[window["partition"]][1]) <= NEARLY_US, window
