"""Kafka's logs into bronze: every wording of every release, and every way in which lines may stand in a file."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import bronze, kafka_logs, schema
from aiocontroller.analytics.dataframes import SPARK, computing_by, engine
from aiocontroller.analytics.framing import framing_of
from aiocontroller.analytics.log_reader import read_logs
from aiocontroller.analytics.manifest import Manifest, read_manifest
from aiocontroller.analytics.small.log_lines import LogParser
from aiocontroller.analytics.sources import find_files
from aiocontroller.core.errors import BadInputError
from tests.integration.analytics.log_lines import INVENTED, LINES
from tests.integration.analytics.small_lines import texts_of

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine

COMPARED = [
    name
    for name in schema.EVENTS_BRONZE.names
    if name not in {"v", "seq", "ts", "reference", "joined", *schema.ORIGIN.names}
]


def read(spark: Any, folder: Path, manifest: Manifest | None = None) -> list[Any]:
    """Rows in the order of files, and of lines in them."""
    found = find_files(spark, [str(folder)], manifest=manifest)
    if engine() == SPARK:
        return list(read_logs(spark, found.files).orderBy("file", "seq").collect())
    rows = []
    for file in sorted(found.files, key=lambda file: file.name):
        parser = LogParser(file)
        for fields, text, reason in parser.records(texts_of(file)):
            whole = {**dict.fromkeys(schema.EVENTS_BRONZE.names), **parser.origin, **fields}
            rows.append({**whole, "line": None if reason is None else text, "reason": reason})
    return rows


def utc(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1_000_000)  # type: ignore[arg-type,misc]


def test_every_wording_of_every_release_is_understood(spark: Any, tmp_path: Path) -> None:
    bracketed = [line for line in LINES if line.text.startswith("[")]
    bare = [line for line in LINES if not line.text.startswith("[")]
    assert {line.version for line in LINES} >= {"0.10", "1.0", "1.1", "2.4", "2.6", "2.8", "3.5"}
    (tmp_path / "a-state-change.log").write_text("".join(line.text + "\n" for line in bracketed))
    (tmp_path / "b-state-change.log").write_text("".join(line.text + "\n" for line in bare))
    rows = read(spark, tmp_path)
    assert len(rows) == len(LINES)
    own = {
        "a-state-change.log": 1,
        "b-state-change.log": 0,
    }  # the first writer in the file; lines that name none get it
    for line, row in zip(bracketed + bare, rows, strict=True):
        assert row["reason"] is None, line
        expected = {name: line.row.get(name) for name in COMPARED}
        expected["node"] = line.row.get("node", own[row["file"]])
        if line.row.get("broker") is ...:
            expected["broker"] = own[row["file"]]
        if line.row.get("detail") is ...:
            assert row["detail"] == line.text.split("]" if line.text[0] == "[" else ",", 1)[1].strip(), line
            expected["detail"] = row["detail"]
        assert {name: row[name] for name in COMPARED} == expected, line


def test_every_pattern_is_tested_by_a_line() -> None:
    tried = {next((p for p in kafka_logs.PATTERNS if p.needle in line.text), None) for line in LINES}
    assert [p for p in kafka_logs.PATTERNS if p not in tried] == []


NAMED_BY_CLIENTS = (
    ("[GroupCoordinator 1]: Preparing to rebalance group {} in state Empty with old generation 7 "
     "(__consumer_offsets-3) (reason: a) (kafka.coordinator.group.GroupCoordinator)", "group_rebalance"),
    ("[GroupCoordinator 1]: Stabilized group {} generation 8 (__consumer_offsets-3) with 3 members "
     "(kafka.coordinator.group.GroupCoordinator)", "group_stable"),
    ("[GroupCoordinator 1]: Dynamic member with unknown member id joins group {} in Empty state. Created a new member "
     "id {}-1 (kafka.coordinator.group.GroupCoordinator)", "other"),
    ("[KafkaApi-1] Error when handling request: clientId={}, correlationId=5, api=PRODUCE (kafka.server.KafkaApis)",
     "other"),
)  # fmt: skip


@pytest.mark.parametrize("file", ["server.log", "controller.log"])
def test_no_name_that_a_client_chooses_is_taken_for_a_message(spark: Any, tmp_path: Path, file: str) -> None:
    """Everybody who may use a group could elect controllers and delete topics, in the report."""
    own = "[2018-02-01 20:22:23,264] INFO "
    names = [
        line.text.partition("\n")[0]
        for line in LINES
        if "tabilized group" not in line.text and "reparing to" not in line.text
    ]
    names += [re.sub(r"^.*?(TRACE|INFO|WARN) +(\[[^\]]*\]:? *)?", "", name) for name in names]
    names += [f"a\\n{name}" for name in names] + ["a [Broker id=9] ", "a INFO - Controller 9 epoch 9 "]
    lines = [(kind, name, own + text.replace("{}", name)) for name in names for text, kind in NAMED_BY_CLIENTS]
    assert len(lines) > 1000
    (tmp_path / file).write_text("".join(f"{text}\n" for _, _, text in lines))
    (found,) = find_files(spark, [str(tmp_path)]).files
    assert (found.node, found.cluster) == (1, "default")
    rows = read(spark, tmp_path)
    assert len(rows) == len(lines)
    for row, (kind, name, text) in zip(rows, lines, strict=True):
        assert (row["kind"], row["controller_epoch"], row["topic"]) == (kind, None, None), text
        assert row["node"] in (1, None) if "KafkaApi" in text else row["node"] == 1, text
        if kind != "other" and " in state " not in name and len(name) < 900:
            assert row["detail"] == name, text


def test_unknown_lines_mean_nothing(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("\n".join(INVENTED))
    assert [(r["kind"], r["topic"]) for r in read(spark, tmp_path)] == [("other", None)] * len(INVENTED)


MESSAGE = "[Controller id=4 epoch=2] Changed partition t-0 state from OnlinePartition to OfflinePartition"
TRACE = "kafka.common.SomeException: why\n\tat kafka.a.B(C.scala:1)\nCaused by: x\n\t... 5 more"
WHEN = utc(2024, 3, 18, 5, 33, 9, 123_000)


def docker(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        json.dumps({"log": t + "\n", "stream": "stdout", "time": "2024-03-18T05:33:10.1Z"}, separators=(",", ":"))
        for t in lines
    )


def prefixed(prefix: str) -> Any:
    """``{}`` in it is another number at each line."""
    numbers = itertools.count(100)
    return lambda text: "\n".join(prefix.format(next(numbers)) + line for line in text.split("\n"))


VARIANTS = {
    # name: (how a record's time, level and message stand, what stands before each line, are traces joined)
    "default": ("[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)", None, True),
    "strimzi": ("2024-03-18 05:33:09,123 {level} {message} (state.change.logger) [thread-7]", None, True),
    "logger before": ("2024-03-18 05:33:09.123 {level} state.change.logger:76 - {message}", None, True),
    "iso": ("2024-03-18T05:33:09.123Z {level} {message} (state.change.logger)", None, True),
    "offset": ("[2024-03-18T07:33:09,123+0200] {level} {message} (state.change.logger)", None, True),
    "padded level, thread": ("[2024-03-18 05:33:09,123] {level:5} [main] {message} (state.change.logger)", None, True),
    "level first": ("{level} [2024-03-18 05:33:09,123] {message} (state.change.logger)", None, False),
    "docker": ("[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)", docker, True),
    "docker, bare": ("2024-03-18 05:33:09,123 {level} {message} (state.change.logger)", docker, True),
    "compose": ("[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)", prefixed("kafka-1  | "), True),
    "cri": (
        "[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)",
        prefixed("2024-03-18T05:33:10.{}456789Z stdout F "),
        False,
    ),
    "klog": (
        "[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)",
        prefixed("I0318 05:33:10.123456       1 kafka.go:12] "),
        True,
    ),
    "carriage returns": ("[2024-03-18 05:33:09,123] {level} {message} (state.change.logger)\r", None, True),
}  # fmt: skip


def test_records_are_found_however_they_stand_in_a_file(spark: Any, tmp_path: Path) -> None:
    for number, (name, (layout, wrap, _)) in enumerate(VARIANTS.items()):
        first = layout.format(level="INFO", message=MESSAGE)
        second = layout.format(level="ERROR", message='[Controller id=4 epoch=2] Failed "badly" <x>') + "\n" + TRACE
        text = "\n".join((wrap or str)(record) for record in (first, second, first)) + "\n"
        data = text.encode()
        folder = tmp_path / f"{number:02} {name}"
        folder.mkdir()
        if number % 2:
            (folder / "state-change.log.2024-03-18-05.gz").write_bytes(gzip.compress(data))
        else:
            (folder / "state-change.log").write_bytes(data)
    rows = read(spark, tmp_path)
    for number, (name, (_, _, joined)) in enumerate(VARIANTS.items()):
        mine = [r for r in rows if r["file"].startswith(f"{number:02} ")]
        assert [r["reason"] for r in mine] == [None] * len(mine), name
        continued = [r for r in mine if r["kind"] == "continuation"]
        assert len(mine) - len(continued) == 3, (name, mine)
        first, failed, last = (r for r in mine if r not in continued)
        for row in (first, last):
            got = (row["ts"], row["kind"], row["node"], row["epoch"], row["topic"], row["to_state"])
            assert got == (WHEN, "partition", 4, 2, "t", "OfflinePartition"), name
        assert (failed["ts"], failed["kind"]) == (WHEN, "other"), name
        assert ("Caused by" in failed["detail"]) == joined, name
        assert len(continued) == (0 if joined else 4), name
        assert "badly" in failed["detail"], name


LATER = f"{MESSAGE.replace('t-0', 't-1')} (state.change.logger)"


@pytest.mark.parametrize("remote", [False, True])
def test_records_of_a_layout_that_changes_within_a_file_are_read_or_named(
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path, remote: bool
) -> None:
    """They were taken for stack traces: half of the outages vanished, and availability was called known."""
    if remote and engine() != SPARK:
        pytest.skip("DuckDB reads files of this machine only")
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    head = f"[2024-03-18 05:33:09,123] INFO {MESSAGE} (state.change.logger)\n" * 600
    for name, other in (
        ("bare", "2024-03-18 05:33:09,123 INFO "), ("iso", "[2024-03-18T05:33:09.123Z] INFO "),
        ("date", "18 Mar 2024 05:33:09,123 INFO "), ("level", "INFO [2024/03/18 05:33:09.123] "),
    ):  # fmt: skip
        (folder / name).mkdir()
        (folder / name / "state-change.log").write_text(f"{head}{other}{LATER}\n{TRACE}\n")
    if remote:
        mounted = f"{request.getfixturevalue('viewfs')}/in"
        rows = list(read_logs(spark, find_files(spark, [mounted]).files).orderBy("file", "seq").collect())
    else:
        rows = read(spark, folder)
    unknown = "its time has a form that is not known"
    for name, ts, reason in (
        ("bare", WHEN, None),
        ("iso", WHEN, None),
        ("date", None, unknown),
        ("level", None, unknown),
    ):
        mine = [row for row in rows if row["file"].startswith(name)]
        found = [(row["ts"], row["reason"]) for row in mine if row["partition"] == 1 or row["reason"] is not None]
        assert found == [(ts, reason)], name
        assert [row["ts"] for row in mine if row["topic"] == "t" and row["partition"] == 0] == [WHEN] * 600, name


def test_a_byte_order_mark_is_no_part_of_the_first_record(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(
        f"[2024-03-18 05:33:09,123] INFO {MESSAGE} (state.change.logger)\n" * 30, encoding="utf-8-sig"
    )
    rows = read(spark, tmp_path)
    assert [(row["reason"], row["ts"], row["topic"]) for row in rows] == [(None, WHEN, "t")] * 30


def test_times_without_date_and_of_many_zones(spark: Any, tmp_path: Path) -> None:
    def write(name: str, time: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("".join(f"{one} INFO {MESSAGE} (state.change.logger)\n" for one in time.split("|")))

    write("berlin/1/state-change.log", "[2024-03-18 06:33:09,123]|[2024-07-18 06:33:09,123]")
    write("india/state-change.log", "[2024-03-18 11:03:09,123]")
    write("fixed/state-change.log", "[2024-03-18 00:33:09,123]")
    write("none/state-change.log", "[2024-03-18 05:33:09,123]")
    write("dated/state-change.log.2024-03-18-05", "[05:33:09,123]")
    write("told/state-change.log", "[05:33:09,123000]")
    write("lost/state-change.log", "[05:33:09,123]")
    write("bad/state-change.log", "[2024-03-18 05:33:08,123]|[2024-02-30 05:33:09,123]|[2024-03-18 25:33:09,123]")
    (tmp_path / "cut.log").write_text(
        f"\tat a stack trace that a rotation cut\n[2024-03-18 05:33:09,123] INFO {MESSAGE}\n"
    )
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(
        '[[files]]\nglob = "berlin/*"\ntime_zone = "Europe/Berlin"\ncluster = "b"\nbroker = 77\n'
        '[[files]]\nglob = "india/*"\ntime_zone = "Asia/Kolkata"\n[[files]]\nglob = "fixed/*"\ntime_zone = "-05:00"\n'
        '[[files]]\nglob = "told/*"\ndate = "2024-03-18"\n[[files]]\nglob="*"\nversion="2.4"\n'
    )
    rows = read(spark, tmp_path, read_manifest(manifest))
    by_file: dict[str, list[Any]] = {}
    for row in rows:
        by_file.setdefault(row["file"].rpartition("/")[0] or row["file"], []).append(row)
    assert [r["ts"] for r in by_file["berlin/1"]] == [WHEN, utc(2024, 7, 18, 4, 33, 9, 123_000)]
    assert {r["cluster"] for r in by_file["berlin/1"]} == {"b"}
    assert {r["node"] for r in by_file["berlin/1"]} == {4}, "the line knows better than the manifest"
    for folder in ("india", "fixed", "none", "dated", "told"):
        assert [r["ts"] for r in by_file[folder]] == [WHEN], folder
    assert by_file["told"][0]["reference"] == "told/state-change.log:2024-03-18 05:33:09,123000"
    assert [r["reason"] for r in by_file["lost"]] == ["no date in the line, its file's name or the manifest"]
    assert [r["reason"] for r in by_file["bad"]] == [None, "its time is invalid", "its time is invalid"]
    assert [(r["reason"], r["line"]) for r in by_file["cut.log"]] == [
        ("no time where a record of this file begins", "\tat a stack trace that a rotation cut"), (None, None),
    ]  # fmt: skip
    remarks = {f.name: f.remarks for f in find_files(spark, [str(tmp_path)]).files}
    assert remarks["none/state-change.log"] == ("times without a zone were taken as UTC",)


def test_another_programs_log_is_not_read(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("[2024-03-18 05:33:09,123] INFO GET /index.html 200 (nginx)\n" * 50)
    (tmp_path / "controller.log").write_text("GET /index.html 200\n" * 50)
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 300)
    with pytest.raises(BadInputError, match="3 other files"):
        find_files(spark, [str(tmp_path)])


@pytest.mark.parametrize(
    "text, words",
    [
        ("files = 3", 'expected a list of entries, "files"'),
        ("[[files]]\nbroker = 1", "entry 1 has no glob"),
        ('[[files]]\nglob = "*"\nzone = "UTC"', "entry 1: no such key: zone; there are glob, time_zone, broker"),
        ('[[files]]\nglob = "*"\ntime_zone = "Europe/Berlln"', "time_zone is 'Europe/Berlln', expected a name such as"),
        ('[[files]]\nglob = "*"\nbroker = "one"', "broker is 'one', expected a broker's number"),
        ('[[files]]\nglob = "*"\ndate = "18.3.2024"', "date is '18.3.2024', expected a day"),
        ('[[files]]\nglob = "*"\nsource = "syslog"', "expected journal or controller.log or"),
        ("[[files", "manifest.toml: "),
    ],
)
def test_a_bad_manifest_says_where(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "manifest.toml"
    path.write_text(text)
    with pytest.raises(BadInputError, match="manifest") as error:
        read_manifest(path)
    assert words in str(error.value)


def test_the_first_entry_that_has_a_key_counts_and_json_serves_too(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"files": [{"glob": "a/*", "broker": 1}, {"glob": "*", "broker": 2, "cluster": "c"}]}))
    manifest = read_manifest(path)
    assert manifest.about("a/b/x.log") == {"broker": 1, "cluster": "c"}
    assert manifest.about("x.log") == {"broker": 2, "cluster": "c"}
    assert manifest.unused == []


def test_a_glob_that_fits_no_file_is_an_error(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(f"[2024-03-18 05:33:09,123] INFO {MESSAGE}\n")
    with pytest.raises(BadInputError, match=r"no file name matches b/\*; state-change.log is one"):
        find_files(spark, [str(tmp_path)], manifest=Manifest([{"glob": "b/*"}]))


def test_quarantine_takes_logs_too(spark_itself: Any, tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(f"cut\n[2024-03-18 05:33:09,123] INFO {MESSAGE}\n")
    with computing_by(SPARK):
        records = read_logs(spark_itself, find_files(spark_itself, [str(tmp_path)]).files)
        accepted, quarantine = bronze.accepted(records), bronze.quarantine(records)
    assert [(f.name, f.dataType.simpleString()) for f in accepted.schema] == list(schema.EVENTS_BRONZE)
    assert [(r["line"], r["count"]) for r in quarantine.collect()] == [("cut", 1)]


def test_framing_of_a_head_without_any_time_is_none() -> None:
    assert framing_of(b"no time\nat all\n") is None
