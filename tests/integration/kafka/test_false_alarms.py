"""A short form of the false-alarm suite (``aiocontroller storm alarms``), which docs/early-detection.md describes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from aiocontroller.lab.cluster.load.clients import kept_its_word
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, archive_classes, kafka_missing
from aiocontroller.lab.kafka.alarm_cases import Case, Fault
from aiocontroller.lab.storms.alarms import Options, storm

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]


async def test_a_stopped_broker_is_one_alarm_that_hides_no_death_and_loses_no_record(tmp_path: Path) -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    archive_classes()
    case = Case(Fault.PAUSE, 8.0)
    options = Options([case], [0.0], ["java"], 6, DEFAULT_VERSION, {})
    report = await storm(options, tmp_path, Console(file=io.StringIO()))
    assert report.unfinished == ""
    assert kept_its_word(report.verdicts), report.verdicts
    (outcome,) = report.outcomes
    assert outcome.alarms >= 1
    assert outcome.moves == 1, "the leaders that a false alarm moves stay where they are"
    assert 0 < outcome.outside_after_s < outcome.outside_s
    assert outcome.detected_s < case.seconds / 2, "the death was noticed while the other broker still stood"
    assert outcome.lost == 0
