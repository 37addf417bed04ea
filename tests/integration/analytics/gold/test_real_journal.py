"""A cluster of real processes, a broker killed and brought back; the pipeline says so, from the journal alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch, summary
from aiocontroller.java import JavaMissingError, find_java
from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_up import Up, until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    running = Up(tmp_path / "data", "--topics", "2", "--partitions", "6")
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()


@pytest.mark.zookeeper
@pytest.mark.slow
def test_a_killed_broker_is_named_with_its_windows_and_nothing_is_violated(spark: Any, up: Up, tmp_path: Path) -> None:
    up.line()

    def status() -> dict[str, Any]:
        return dict(json.loads(aiocontroller("status", "--data", str(up.data), "--json").stdout))

    led = next(b["leaders"] for b in status()["brokers"] if b["id"] == 2)
    assert led > 0
    aiocontroller("cluster", "kill-broker", "2", "--data", str(up.data))
    until(lambda: (s := status())["partitions"]["offline"] == 0 and s["brokers"][1]["leaders"] == 0, 60)
    aiocontroller("cluster", "start-broker", "2", "--data", str(up.data))
    until(lambda: status()["partitions"]["under_replicated"] == 0, 60)
    up.process.send_signal(signal.SIGTERM)
    up.ended()

    out = str(tmp_path / "out")
    batch.run(spark, [str(up.data / "controller" / "journal")], out)
    found = summary.summarise(spark, out)
    deaths = [b for b in found["brokers"] if b["event"] == "died"]
    assert [(b["broker"], b["windows"], b["partitions_led"]) for b in deaths] == [(2, led, led)]
    assert [b["broker"] for b in found["brokers"] if b["event"] == "came_back"] == [2]
    outages = [w for w in found["windows"] if w["kind"] != "under_replicated"]
    assert [(w["kind"], w["cause"], w["broker"], w["windows"], w["still_open"]) for w in outages] == [
        ("dead_leader", "broker_death", 2, led, 0)
    ]
    under = [w for w in found["windows"] if w["kind"] == "under_replicated"]
    assert [(w["cause"], w["broker"], w["partitions"], w["still_open"]) for w in under] == [("broker_death", 2, 12, 0)]
    assert [(f["epoch"], f["brokers"]) for f in found["failovers"]] == [(1, 3)]
    assert (found["violations_count"], found["data_quality"]) == (0, [])
    assert found["clusters"][0]["partitions"] == 12
    words = "\n".join(part for part in summary.sections(found) if isinstance(part, str))
    assert "0 violations of invariants." in words
