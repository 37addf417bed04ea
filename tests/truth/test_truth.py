"""What ``analyze`` makes of the logs of real clusters, against what ZooKeeper showed: ``scripts/test -m truth``, long.

Ends with a table of recall, precision, causes, deaths and bounds for each release and controller, and fails below
1.0, 1.0, 95 %, all and 99 %.  ``docs/pipeline.md`` publishes it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.lab.cluster.real_kafka import kafka_missing, release
from tests.truth.comparing import compared
from tests.truth.judging import TABLES, judged

pytestmark = [pytest.mark.truth, pytest.mark.kafka, pytest.mark.timeout(3600)]
RELEASES = ("3.9", "2.8", "3.0")


@pytest.mark.parametrize("controller", ["kafka", "aiocontroller"])
@pytest.mark.parametrize("version", RELEASES)
def test_an_analysis_tells_what_happened(version: str, controller: str, tmp_path: Path, record_property: Any) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("confluent_kafka")
    missing = kafka_missing(release(version))
    if missing:
        pytest.skip(missing)
    from tests.truth.play import play

    truth = asyncio.run(play(version, controller, tmp_path))
    gold = analysed(tmp_path / "logs", tmp_path / "analysis")
    figures = compared(truth, gold["windows"], gold["incidents"])
    record_property("truth", figures.row(truth["version"], controller))
    sys.stdout.write(f"\n{figures.words(f'{version}, {controller}')}\n")
    judged(truth, gold)


def analysed(logs: Path, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Gold of the logs, whose times are this machine's."""
    from aiocontroller.analytics.job import Job, perform

    manifest = out.with_suffix(".json")
    manifest.write_text(json.dumps({"files": [{"glob": "*", "time_zone": time.strftime("%z")[:3] + ":00"}]}))
    perform(Job((str(logs),), str(out), manifest=str(manifest)), lambda words: None)
    import pyarrow.parquet as parquet

    return {name: parquet.read_table(out / "gold" / name).to_pylist() for name in TABLES}
