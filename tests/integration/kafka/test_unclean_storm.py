"""A short form of the storm of unclean elections (``aiocontroller storm unclean``), on real brokers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, archive_classes, kafka_missing
from aiocontroller.lab.storms.kafka import OURS
from aiocontroller.lab.storms.unclean import Options, storm

pytestmark = [pytest.mark.kafka, pytest.mark.slow_kafka, pytest.mark.timeout(400)]
TRIALS = 4


async def test_the_best_log_leads_every_partition(tmp_path: Path) -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    archive_classes()
    report = await storm(Options(3, TRIALS, DEFAULT_VERSION, {}), tmp_path, Console(file=io.StringIO()))
    assert report.unfinished == ""
    assert report.ok
    assert len(report.trials) == 2 * TRIALS
    assert sum(trial.lost for trial in report.of(OURS)) < sum(trial.lost for trial in report.trials) / 2
