"""The truth suite's short form: logs of real clusters that it recorded (``tests/truth``), against what happened."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from aiocontroller.analytics import batch
from aiocontroller.analytics.summary import summarise
from tests.truth.judging import TABLES, judged

RECORDED = Path(__file__).parents[2] / "truth" / "recorded"


def test_recorded_runs_are_reported_as_they_were(spark: Any, tmp_path: Path, record_property: Any) -> None:
    """Kills of the controller's broker, of another, of both; a hang, a bounce, a reassignment, a deletion, an unclean
    election, a rolling restart and a ZooKeeper that stood still; Kafka 3.9, 3.0 and 2.8 with their own controllers, and
    3.9 with ours, which is killed alone and with a broker.  Of 3.0 and ours, ZooKeeper is also cut off until every
    session has ended."""
    found = batch.run(spark, [str(RECORDED)], str(tmp_path))
    release_of = {file.cluster: file.name.split("/")[0] for file in found.files}
    recorded = sorted(folder.name for folder in RECORDED.iterdir())
    assert sorted(release_of.values()) == recorded  # told apart by their cluster ids
    _counts_what_was_read(spark, tmp_path)
    gold: dict[str, list[dict[str, Any]]] = {
        name: [row.asDict(recursive=True) for row in spark.read.parquet(f"{tmp_path}/gold/{name}").collect()]
        for name in TABLES
    }
    for cluster, release in sorted(release_of.items(), key=lambda pair: pair[1]):
        of = {name: [row for row in rows if row["cluster"] == cluster] for name, rows in gold.items()}
        truth = json.loads((RECORDED / release / "truth.json").read_text())
        figures = judged(truth, of)
        record_property("truth", figures.row(truth["version"], truth["office"]))
        sys.stdout.write(f"\n{figures.words(release)}\n")


def _counts_what_was_read(spark: Any, out: Path) -> None:
    """Silver has rows that follow from several lines, which counted as records, too."""
    lines = {
        path.relative_to(RECORDED): gzip.decompress(path.read_bytes()).count(b"\n") for path in RECORDED.rglob("*.gz")
    }
    rows = spark.read.parquet(f"{out}/gold/data_quality").collect()
    counted = {Path(row["file"]): row["records"] + row["quarantined"] for row in rows}
    assert counted == {path: count for path, count in lines.items() if count}
    assert summarise(spark, str(out))["records"] == sum(row["records"] for row in rows)
