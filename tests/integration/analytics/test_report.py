"""The report of a whole run: journal, tables, page.  ``test_page.py`` looks at pages in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.report import write_report
from aiocontroller.analytics.report.gather import gather
from tests.integration.analytics.gold.build import Controller, lines
from tests.integration.analytics.gold.test_tables import quiet_life

pytestmark = pytest.mark.timeout(300)


def journal(folder: Path, controller: Controller) -> None:
    folder.mkdir()
    (folder / "readme.txt").write_text("not ours")
    name = f"journal-{controller.node}-1-{controller.start_us}-000001.jsonl"
    torn = b'{"v":1,"seq":99999,"epo'
    (folder / name).write_bytes(b"".join(lines(controller.records)) + torn)


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with ``out`` and ``report.html`` of a day in which broker 1 died."""
    folder = tmp_path_factory.mktemp("report")
    journal(folder / "in", quiet_life())
    batch.run(spark, [str(folder / "in")], str(folder / "out"))
    write_report(spark, str(folder / "out"), folder / "sub" / "report.html")
    return folder


def test_what_is_gathered_is_what_gold_says(spark: Any, made: Path) -> None:
    content = gather(spark, str(made / "out"))
    (cluster,) = content.clusters
    windows = spark.read.parquet(f"{made}/out/gold/windows")
    without = windows.where("kind <> 'under_replicated' AND cause NOT IN ('creation', 'deletion')")
    assert [row["duration_us"] for row in cluster.windows] == sorted(
        (row["duration_us"] for row in without.collect()), reverse=True
    )
    assert max(cluster.without_leader) >= 2  # "waits" and "single" had no leader at the same time
    assert cluster.without_leader[0] == 0
    assert [row["event"] for row in cluster.life][:2] == ["died", "came_back"]
    assert cluster.elections == 1
    assert dict(cluster.failovers[0]["phases"]) == {"read": 700, "elect": 300}
    assert content.quarantined == 1
    assert content.quarantine[0]["line"].startswith('{"v":1,"seq":99999')


def test_the_page_names_the_broker_its_gaps_and_the_torn_line(made: Path) -> None:
    html = re.sub(r"<script.*?</script>", "", (made / "sub" / "report.html").read_text(), flags=re.DOTALL)
    assert "Brokers died once: broker 1 at" in html
    assert "No invariant was violated" in html
    assert "1 line could not be read" in html
    assert re.search(r"not read: neither a journal nor a Kafka log</th><td class=\"n\">1</td><td[^>]*>readme.txt", html)


def test_a_folder_whose_name_is_not_utf_8_is_read_and_shown(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in" / b"\xff".decode(errors="surrogateescape")
    folder.parent.mkdir()
    journal(folder, quiet_life())
    batch.run(spark, [str(tmp_path / "in")], str(tmp_path / "out"))
    write_report(spark, str(tmp_path / "out"), tmp_path / "report.html")
    assert "\\xff/readme.txt" in (tmp_path / "report.html").read_text()
