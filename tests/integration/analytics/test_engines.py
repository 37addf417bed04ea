"""DuckDB and Spark compute the same tables, row by row, and a machine without Java needs no more than DuckDB."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import batch, journal_reader, schema, stream
from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.job import SPARK_FROM_BYTES, Job, _engine_for
from aiocontroller.analytics.lines import read_lines
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.small.journal_lines import journal_line
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.small.translate import NotCarriedError
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import Store
from aiocontroller.core.errors import BadInputError
from aiocontroller.journal.records import encode_records
from tests.integration.analytics.gold.test_tables import quiet_life
from tests.integration.analytics.log_lines import LINES
from tests.integration.analytics.test_journals import ODD_LINES, WHOLE, write
from tests.integration.analytics.test_logs_of_operations import deletion_and_reassignment
from tests.integration.analytics.test_logs_of_sent_states import learned_late
from tests.integration.analytics.test_logs_of_sent_states import write as write_logs
from tests.integration.analytics.test_missing_records import ON_SPARK, UNKNOWN
from tests.integration.analytics.test_recorded import RECORDED
from tests.integration.analytics.test_report import journal as write_journal
from tests.integration.analytics.test_topics_created_again import created_again
from tests.integration.analytics.test_truth import logs_of_each_release, simulated

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine


def every_fixture(folder: Path) -> list[dict[str, Any]]:
    """Journals and logs of all tests in one folder, each kind a cluster of its own; returns the manifest's entries."""
    journals = simulated()
    entries = logs_of_each_release(journals, folder)
    for number, journal in enumerate(journals, 1):
        write(
            folder / "journals" / f"journal-{journal[0].node}-{number}-{number}-000001.jsonl", encode_records(journal)
        )
    entries.append({"glob": "journals/*", "cluster": "journals"})
    odd = [piece for pieces in ODD_LINES for piece in pieces]
    write(folder / "odd" / "journal-7-1-1-000001.jsonl", encode_records([WHOLE]), *odd)
    write(folder / "odd" / "journal-7-1-1-000002.jsonl", encode_records([WHOLE]))  # once more
    entries.append({"glob": "odd/*", "cluster": "odd"})
    for name, bracketed in (("bracketed", True), ("bare", False)):
        lines = [line.text for line in LINES if line.text.startswith("[") == bracketed]
        write(folder / name / "state-change.log", "\n".join(lines).encode() + b"\n")
        entries.append({"glob": f"{name}/*", "cluster": name})
    deletion_and_reassignment(folder / "operations")
    entries.append({"glob": "operations/*", "cluster": "operations"})
    created_again(folder / "again")
    entries.append({"glob": "again/*", "cluster": "again"})
    as_json(folder / "operations", folder / "json")
    entries.append({"glob": "json/*", "cluster": "json"})
    write_logs(folder / "sent", learned_late())
    entries.insert(0, {"glob": "sent/*", "cluster": "sent", "time_zone": "UTC"})
    write_journal(folder / "life", quiet_life())
    entries.append({"glob": "life/*", "cluster": "life"})
    for recorded in sorted(RECORDED.iterdir()):
        shutil.copytree(recorded, folder / "recorded" / recorded.name)
        entry = {"glob": f"recorded/{recorded.name}/*", "cluster": f"recorded {recorded.name}", "time_zone": "UTC"}
        entries.insert(0, entry)  # before the zones of brokers of the same numbers
    for case in ON_SPARK:
        case(folder / case.__name__)
        entries.insert(0, {"glob": f"{case.__name__}/*", "cluster": case.__name__, "time_zone": "UTC"})
    return entries


_PLAIN = re.compile(r"\[(?P<time>.{19}),(?P<ms>\d{3})\] (?P<level>\w+) (?P<message>.*) \((?P<logger>\S+)\)")


def as_json(plain: Path, folder: Path) -> None:
    """The same logs as log4j2's JsonLayout writes them, and as its template for ECS does within Docker's."""
    for path in plain.rglob("*.log"):
        objects = []
        for line in path.read_text().splitlines():
            head = re.fullmatch(
                r"\[(?P<time>.{19}),(?P<ms>\d{3})\] (?P<level>\w+) (?P<message>.*) \((?P<logger>\S+)\)", line
            )
            assert head is not None, line
            at = datetime.fromisoformat(head["time"]).replace(tzinfo=UTC)
            if path.name == "controller.log":
                instant = {"epochSecond": int(at.timestamp()), "nanoOfSecond": int(head["ms"]) * 1_000_000}
                made = {"instant": instant, "level": head["level"], "loggerName": head["logger"]}
                objects.append(json.dumps(made | {"message": head["message"]}))
            else:
                iso = f"{head['time'].replace(' ', 'T')}.{head['ms']}Z"
                made = {"@timestamp": iso, "log.level": head["level"], "log.logger": head["logger"]}
                text = json.dumps(made | {"message": head["message"]}) + "\n"
                objects.append(json.dumps({"log": text, "stream": "stdout", "time": iso}, separators=(",", ":")))
        write(folder / path.relative_to(plain), "\n".join(objects).encode() + b"\n")


def rows(session: Any, out: Path, table: str) -> list[tuple[Any, ...]]:
    names = schema.GOLD[table].names
    found = session.read.schema(schema.GOLD[table].ddl).parquet(f"{out}/gold/{table}").collect()
    return sorted((tuple(row[name] for name in names) for row in found), key=repr)


def silver(session: Any, out: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """Clocks, and events without their position: that depends on how Spark cuts files."""
    store = Store(session, str(out))
    clocks, events = (store.read(table, [0]) for table in (stream.CLOCKS, stream.SILVER))
    names = [name for name in schema.EVENTS.names if name != "seq"]
    return {
        "clocks": Counter(tuple(map(str, row)) for row in clocks.collect()),
        "events": Counter(tuple(map(str, row)) for row in events.select(*names).collect()),
    }


def assert_equal(by_duckdb: Counter[Any], by_spark: Counter[Any], table: str) -> None:
    """Compares rows, and shows the first that differ: pytest's own difference of 100,000 rows takes hours."""
    differing = [f"DuckDB alone: {row}" for row in list((by_duckdb - by_spark).elements())[:5]]
    differing += [f"Spark alone: {row}" for row in list((by_spark - by_duckdb).elements())[:5]]
    assert not differing, "\n".join([table, *differing])


def test_both_engines_give_equal_tables_of_every_fixture(spark: Any, tmp_path: Path) -> None:
    entries = every_fixture(tmp_path / "in")
    batch.run(spark, [str(tmp_path / "in")], str(tmp_path / "spark"), manifest=Manifest(entries))
    with computing_by(DUCKDB):
        small = SmallSession()
        batch.run(small, [str(tmp_path / "in")], str(tmp_path / "duckdb"), manifest=Manifest(entries))
        of_small = {table: rows(small, tmp_path / "duckdb", table) for table in SORTED_BY}
        silver_of_small = silver(small, tmp_path / "duckdb")
        by_spark = {table: rows(small, tmp_path / "spark", table) for table in SORTED_BY}
        silver_of_spark = silver(small, tmp_path / "spark")
    for table in silver_of_small:
        assert_equal(silver_of_small[table], silver_of_spark[table], table)
    for table in SORTED_BY:
        assert_equal(Counter(map(repr, of_small[table])), Counter(map(repr, by_spark[table])), table)
        # The same types in the files, for other programs that read them.
        kinds = [
            field.dataType.simpleString() for field in spark.read.parquet(f"{tmp_path}/duckdb/gold/{table}").schema
        ]
        assert kinds == [field.dataType for field in schema.GOLD[table]], table
    assert all(of_small[table] for table in SORTED_BY)
    at, known = (schema.GOLD["availability"].names.index(name) for name in ("name", "availability"))
    assert all(case in UNKNOWN for case in ON_SPARK)
    unknown = {row[at] for row in of_small["availability"] if row[known] is None}
    assert unknown >= {case.__name__ for case in ON_SPARK}
    # What the layout of the logs is makes no difference.
    at, place = (schema.GOLD["windows"].names.index(name) for name in ("cluster", "evidence"))
    counts = {
        cluster: [
            (*row[:at], *row[at + 1 : place], len(row[place])) for row in of_small["windows"] if row[at] == cluster
        ]
        for cluster in ("operations", "json")
    }
    assert counts["operations"] == counts["json"] != []


def test_odd_lines_of_journals_are_judged_as_spark_judges_them(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "journal-7-1-1-000001.jsonl", *(piece for pieces in ODD_LINES for piece in pieces))
    lines = read_lines(spark, find_files(spark, [str(tmp_path)]).files)
    by_spark = journal_reader.journal_records(lines).select(*schema.JOURNAL.names, "joined", "line", "reason").collect()
    expected = [row.asDict() for row in by_spark]
    rows = []
    for row in lines.orderBy("position").collect():
        for fields, text, reason in journal_line(row["value"]):
            line = None if reason is None else text[: schema.SAMPLE_CHARACTERS].replace("\0", "␀")
            rows.append({**dict.fromkeys(schema.JOURNAL.names), **fields, "line": line, "reason": reason})
    assert len(rows) == len(expected)
    assert [r["reason"] for r in rows] == [r["reason"] for r in expected]
    assert [r["line"] for r in rows] == [r["line"] for r in expected]
    assert [r for r in rows if r["reason"] is None] == [r for r in expected if r["reason"] is None]


JOURNAL = "".join(
    f'{{"v":1,"seq":{n},"epoch":1,"node":1,"ts":{1_700_000_000_000_000 + n},"kind":"event","event":"Startup",'
    f'"queue_us":{n},"processing_us":1}}\n'
    for n in range(1, 50)
)


def test_a_machine_without_java_and_pyspark_analyzes_what_is_little(tmp_path: Path) -> None:
    (tmp_path / "journal-1-1-1-000001.jsonl").write_text(JOURNAL)
    out, page = str(tmp_path / "out"), str(tmp_path / "p.html")
    program = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"  # importing it fails
        "from aiocontroller.cli.root import run\n"
        f"run(['analyze', {str(tmp_path)!r}, '--out', {out!r}, '--report', {page!r}])"
    )
    nowhere = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "computed by DuckDB in this process: 49 records" in done.stderr
    assert "49 records." in done.stdout
    assert (tmp_path / "p.html").stat().st_size > 1000


def test_the_engine_is_chosen_by_size_and_by_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiocontroller.analytics.job._spark_is_running", lambda: False)
    monkeypatch.setattr("aiocontroller.analytics.job.master_is_configured", lambda: False)
    little, out = (str(tmp_path),), str(tmp_path / "out")
    (tmp_path / "journal-1-1-1-000001.jsonl").write_text(JOURNAL)
    assert _engine_for(Job(little, out)) == "duckdb"
    assert _engine_for(Job(little, out, engine="spark")) == "spark"
    assert _engine_for(Job(little, out, master="local[1]")) == "spark"
    assert _engine_for(Job(little, out, follow=True)) == "spark"
    assert _engine_for(Job(("hdfs://h/logs",), out)) == "spark"
    with (tmp_path / "journal-1-1-1-000002.jsonl").open("wb") as large:
        large.truncate(SPARK_FROM_BYTES)
    assert _engine_for(Job(little, out)) == "spark"
    assert _engine_for(Job(little, out, engine="duckdb")) == "duckdb"
    for impossible in ({"master": "local[1]"}, {"follow": True}):
        with pytest.raises(BadInputError, match="--engine duckdb computes in this process: "):
            _engine_for(Job(little, out, engine="duckdb", **impossible))  # type: ignore[arg-type]


def test_what_one_engine_began_the_other_refuses_by_name(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "journal-1-1-1-000001.jsonl").write_text(JOURNAL)
    with computing_by(DUCKDB):
        batch.run_incremental(SmallSession(), [str(tmp_path / "in")], str(tmp_path / "out"))
    (tmp_path / "in" / "journal-1-1-1-000002.jsonl").write_text(JOURNAL.replace('"seq":', '"seq":1'))
    with pytest.raises(BadInputError, match="found tables computed by DuckDB, but this run uses Spark"):
        batch.run_incremental(spark, [str(tmp_path / "in")], str(tmp_path / "out"))
    with computing_by(DUCKDB):
        batch.run_incremental(SmallSession(), [str(tmp_path / "in")], str(tmp_path / "out"))


def test_a_function_that_is_missing_is_named() -> None:
    with computing_by(DUCKDB):
        session = SmallSession()
        frame = session.createDataFrame([(1,)], "a int")
        with pytest.raises(NotCarriedError, match="the DuckDB engine has no function soundex_of"):
            frame.selectExpr("soundex_of(a) AS b")
