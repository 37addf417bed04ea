"""Damaged, lost and foreign files of the tables are named, with the remedy."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by
from aiocontroller.analytics.fingerprints import CHANGED
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.report import write_report
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.store import Store
from aiocontroller.analytics.summary import summarise
from aiocontroller.core.errors import BadInputError
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history
from tests.integration.analytics.stores import everything, published


@pytest.mark.parametrize("damaged", ["runs/*/_commits/0.json", "snapshots/1.json"])
def test_file_of_the_store_that_was_cut_off_is_named(out: Path, again: list[str], damaged: str) -> None:
    """It ended in a traceback of the JSON parser."""
    (file,) = out.glob(damaged)
    file.write_text(file.read_text()[:9])
    with (
        computing_by(DUCKDB),
        pytest.raises(BadInputError, match=f"{file.name}: found no JSON object, expected one of ours"),
    ):
        batch.run_incremental(cast(Any, SmallSession()), again, str(out))


@pytest.mark.parametrize("foreign, missing", [("runs/*/_commits/0.json", "id"), ("snapshots/1.json", "run")])
def test_file_of_another_program_in_the_store_is_named(out: Path, again: list[str], foreign: str, missing: str) -> None:
    with computing_by(DUCKDB):
        (file,) = out.glob(foreign)
        file.write_text('{"version": 1}')
        for run in (batch.run_incremental, batch.run):
            if run is batch.run_incremental or "snapshots" in foreign:
                with pytest.raises(BadInputError, match=f"{file.name}: found no {missing}, .* expected a file of ours"):
                    run(cast(Any, SmallSession()), again, str(out))
    assert not (out / "process.lock").exists()


def test_commit_without_its_files_is_named(out: Path, again: list[str]) -> None:
    """It has an id, a batch and parts, so it was taken for ours, and ended in a KeyError."""
    with computing_by(DUCKDB):
        (file,) = out.glob("runs/*/_commits/0.json")
        commit = json.loads(file.read_text())
        for key in ("files", "seen"):
            file.write_text(json.dumps({name: value for name, value in commit.items() if name != key}))
            with pytest.raises(BadInputError, match=f"0.json: found no {key} in it, expected a file of ours"):
                batch.run_incremental(cast(Any, SmallSession()), again, str(out))


@pytest.mark.parametrize(
    "damaged, changed",
    [
        ("runs/*/_commits/0.json", {"parts": [[0]]}),
        ("runs/*/_commits/0.json", {"files": ["a"]}),
        ("runs/*/_commits/0.json", {"seen": {"c": {"p": [[1]]}}}),
        ("runs/*/_commits/0.json", {"lacks": True}),
        ("runs/*/_commits/0.json", {"lacks": [{"file": "x"}]}),
        ("runs/*/_commits/0.json", {"remarks": None}),
        ("runs/*/_commits/0.json", {"engine": "another"}),
        ("runs/*/_commits/0.json", {"batch": -1}),
        ("runs/*/_commits/0.json", {"batch": 5}),
        ("runs/*/_commits/0.json", {"parts": []}),
        ("runs/*/_commits/0.json", {"parts": [[7, 0]]}),
        ("runs/*/_files/0.json", {"tables": True}),
        ("runs/*/_files/0.json", {"tables": {"bronze/events": 1e300}}),
        ("runs/*/_files/0.json", {"tables": {"bronze/events": {"part": []}}}),
        ("snapshots/1.json", {"gold": True}),
        ("snapshots/1.json", {"gold": "runs/../../elsewhere"}),
        ("snapshots/1.json", {"run": "../.."}),
        ("snapshots/1.json", {"batches": "\ud800"}),
        ("snapshots/1.json", {"tables": []}),
    ],
)
def test_value_of_another_kind_in_the_store_is_named(
    out: Path, again: list[str], damaged: str, changed: dict[str, Any]
) -> None:
    """They ended in TypeErrors, some of them after hours of computing."""
    (file,) = out.glob(damaged)
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with computing_by(DUCKDB), pytest.raises(BadInputError, match=f"{file.name}: found .*, expected a file of ours"):
        batch.run_incremental(cast(Any, SmallSession()), again, str(out))


@pytest.mark.parametrize("what", ["link", "folder", "no text"])
@pytest.mark.parametrize(
    "damaged", ["runs/*/_commits/0.json", "runs/*/_files/0.json", "runs/*/_run.json", "snapshots/1.json"]
)
def test_file_of_the_store_that_cannot_be_read_is_named(out: Path, again: list[str], damaged: str, what: str) -> None:
    (file,) = out.glob(damaged)
    file.unlink()
    if what == "link":
        file.symlink_to("nowhere")
    elif what == "folder":
        file.mkdir()
    else:
        file.write_bytes(b"\xff\xfe{}")
    with computing_by(DUCKDB), pytest.raises(BadInputError, match=f"{file.name}: (found a folder|cannot be read)"):
        batch.run_incremental(cast(Any, SmallSession()), again, str(out))


@pytest.mark.parametrize("lost", ["runs/*/_commits", "runs/*/_run.json", "runs/*"])
def test_tables_whose_commits_are_lost_are_not_begun_anew_in_silence(
    out: Path, again: list[str], journal: Path, lost: str
) -> None:
    """Only what was given then was in the tables, and nobody said so."""
    (folder,) = out.glob(lost)
    shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    with computing_by(DUCKDB):
        session = cast(Any, SmallSession())
        with pytest.raises(
            BadInputError, match=r"found no commit of ours there, .*: give all input again without --incr"
        ):
            batch.run_incremental(session, [str(journal)], str(out))
        batch.run(session, again, str(out))
        batch.run_incremental(session, again, str(out))


def test_file_of_others_beside_our_tables_stays(out: Path, again: list[str]) -> None:
    (run,) = (out / "runs").iterdir()
    for folder in (run, run / "silver", run / "silver/facts/tallies"):
        (folder / "notes.txt").write_text("mine")
    with computing_by(DUCKDB):
        for run_it in (batch.run_incremental, batch.run):
            run_it(cast(Any, SmallSession()), again, str(out))
    assert (run / "silver/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["².json", "01.json", "-3.json", "x.json"])
def test_names_that_are_almost_numbers_are_those_of_others(out: Path, again: list[str], name: str) -> None:
    (run,) = (out / "runs").iterdir()
    for folder in (out / "snapshots", run / "_commits", run / "_files"):
        (folder / name).write_text("mine")
    with computing_by(DUCKDB):
        batch.run_incremental(cast(Any, SmallSession()), again, str(out))
    assert (out / "snapshots" / name).read_text() == "mine"


@pytest.mark.parametrize("by", [DUCKDB, SPARK])
def test_folder_of_any_name_holds_tables_and_reports_and_its_damaged_tables_are_named_with_the_remedy(
    request: pytest.FixtureRequest, tmp_path: Path, journal: Path, by: str
) -> None:
    """A backslash in ``--out`` ended DuckDB; a half-written or missing file ended in a traceback of the engine.

    Both in one, since a batch takes Spark ten seconds of a processor.
    """
    session: Any = SmallSession() if by == DUCKDB else request.getfixturevalue("spark_itself")
    out = tmp_path / "a\\b [x] {y,z} ? *"
    with computing_by(by):
        batch.run(session, [str(journal)], str(out))
        (journal / "journal-7-1-1-000002.jsonl").write_bytes(b"".join(lines(history([4], topics=1))))
        (run,) = (out / "runs").iterdir()
        whole = everything(run)
        tables = [
            "silver/timeline",
            "bronze/events",
            *(f"silver/facts/{each.name}" for each in (run / "silver/facts").iterdir()),
        ]
        assert len(tables) > 4
        for table in tables if by == DUCKDB else tables[:2]:
            folder = run / table / "batch=0"
            part = next(folder.rglob("[!._]*.parquet"))
            content = part.read_bytes()
            for damaged in (b"", content[:4], content[:-9], content[:-1]) if by == DUCKDB else (content[:-1],):
                part.write_bytes(damaged)
                found = f"found {len(damaged):,} bytes, expected {len(content):,}"
                with pytest.raises(BadInputError, match=f"{part.name}: {found}: give all input again without --incr"):
                    batch.run_incremental(session, [str(journal)], str(out))
            part.write_bytes(content[:-9] + bytes(9))  # as after a power loss
            with pytest.raises(BadInputError, match=f"{part.name}: found half a Parquet file, .* without --incr"):
                batch.run_incremental(session, [str(journal)], str(out))
            part.write_bytes(content)
            folder.rename(tmp_path / "away")
            with pytest.raises(
                BadInputError, match=f"{part.name}: found no file there, expected one of .* without --i"
            ):
                batch.run_incremental(session, [str(journal)], str(out))
            (tmp_path / "away").rename(folder)
        assert everything(run) == whole
        if by == DUCKDB:  # the remedy helps
            part.unlink()
            (journal / "journal-7-1-1-000002.jsonl").rename(tmp_path / "later")
            batch.run(session, [str(journal)], str(out))
            (tmp_path / "later").rename(journal / "journal-7-1-1-000002.jsonl")
        batch.run_incremental(session, [str(journal)], str(out))  # what was never damaged goes on
        assert summarise(session, str(out))["records"] > 0
        write_report(session, str(out), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000


def several_files(out: Path) -> Path:
    """Makes three files of a table's one, as Spark writes tables; returns the one in the middle."""
    (run,) = (out / "runs").iterdir()
    (part,) = (run / "silver/facts/tallies/batch=0").glob("*.parquet")
    rows = pq.read_table(part)
    third = rows.num_rows // 3
    assert third
    for number in range(3):
        length = third if number < 2 else None
        pq.write_table(rows.slice(number * third, length), part.with_name(f"part-0000{number}.parquet"))
    part.unlink()
    written = run / "_files" / "0.json"
    tables = json.loads(written.read_text())
    tables["tables"]["silver/facts/tallies"] = {
        path.name: path.stat().st_size for path in part.parent.glob("*.parquet")
    }
    written.write_text(json.dumps(tables))
    return part.with_name("part-00001.parquet")


def test_lost_file_of_a_table_of_several_is_named(out: Path, again: list[str], journal: Path) -> None:
    """The tables were computed without the rows of that file, and called complete."""
    part = several_files(out)
    session = cast(Any, SmallSession())
    with computing_by(DUCKDB):
        batch.run_incremental(session, again, str(out))  # they are what was written
        part.unlink()
        (journal / "journal-7-1-1-000002.jsonl").write_bytes(b"".join(lines(history([4], topics=1))))
        with pytest.raises(
            BadInputError, match=f"{part.name}: found no file there, expected one of [0-9,]+ bytes: give"
        ):
            batch.run_incremental(session, [*again, str(journal)], str(out))


def test_file_of_others_within_a_table_is_named(out: Path, again: list[str]) -> None:
    """A copy of a file counted its rows twice."""
    (part,) = out.glob("runs/*/silver/facts/tallies/batch=0/*.parquet")
    copy = part.with_name("copy of it.parquet")
    shutil.copy(part, copy)
    with computing_by(DUCKDB):
        with pytest.raises(BadInputError, match=r"copy of it\.parquet: found a file that this program did not write"):
            batch.run_incremental(cast(Any, SmallSession()), again, str(out))
        copy.unlink()
        (files,) = out.glob("runs/*/_files/0.json")
        files.unlink()
        with pytest.raises(BadInputError, match=r"_files/0\.json: found no file there, expected one of ours: give all"):
            batch.run_incremental(cast(Any, SmallSession()), again, str(out))


@pytest.mark.parametrize("damage", ["lost", "cut off", "doubled"])
def test_damaged_table_for_readers_is_named_and_made_anew(
    out: Path, again: list[str], tmp_path: Path, damage: str
) -> None:
    session = cast(Any, SmallSession())
    with computing_by(DUCKDB):
        before = summarise(session, str(out))
        (part,) = (out / "gold" / "incidents").glob("*.parquet")
        if damage == "lost":
            part.unlink()
        elif damage == "cut off":
            part.write_bytes(part.read_bytes()[:-1])
        else:
            shutil.copy(part, part.with_name("copy.parquet"))
        what = {"lost": f"{part.name}: found no file there", "cut off": f"{part.name}: found [0-9,]+ bytes, expected"}
        words = f"incidents/{what.get(damage, 'copy.parquet: found a file that this program did not write')}"
        for reader in (
            lambda: summarise(session, str(out)),
            lambda: write_report(session, str(out), tmp_path / "page.html"),
        ):
            with pytest.raises(BadInputError, match=f"{words}.*: give the same input again with --incremental"):
                reader()
        messages: list[str] = []
        batch.run_incremental(session, again, str(out), messages.append)
        assert [words for words in messages if "making the gold tables anew" in words]
        assert summarise(session, str(out)) == before


def test_damaged_tables_on_another_file_system_are_named(spark_itself: Any, tmp_path: Path, viewfs: str) -> None:
    """Half-written files were found on this machine only, lost ones nowhere."""
    with computing_by(SPARK):
        store = Store(spark_itself, f"{viewfs}/out/tables")
        with store.writing():
            store.begin()
            rows = spark_itself.createDataFrame([(n, n % 2) for n in range(9)], "id long, day long")
            store.append("bronze/events", 0, rows, "day")
            store.write("silver/timeline", 0, rows.repartition(3))
            store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
            published(store, spark_itself, 1, "first")
            store.refuse_damaged([0])
            local = tmp_path / "out" / "tables"
            parts = sorted(local.glob("runs/*/silver/timeline/batch=0/*.parquet"))
            assert len(parts) == 3
            of_a_day = next(local.glob("runs/*/bronze/events/batch=0/day=1/*.parquet"))
            (of_gold,) = local.glob("runs/*/gold/*/a/*.parquet")
            for part in (parts[1], of_a_day, of_gold):
                content = part.read_bytes()
                crc = part.with_name(f".{part.name}.crc")
                crc.unlink(missing_ok=True)
                for damaged in (content[:-9], None):
                    part.unlink()
                    if damaged is not None:
                        part.write_bytes(damaged)
                    what = "no file there" if damaged is None else f"{len(damaged):,} bytes, expected {len(content):,}"
                    with pytest.raises(BadInputError, match=f"{part.name}: found {what}"):
                        store.gold("a") if part is of_gold else store.refuse_damaged([0])
                    part.write_bytes(content)
            store.refuse_damaged([0])
            store.gold("a")


@pytest.mark.parametrize("foreign", ["folder", "link"])
def test_foreign_gold_in_our_folder_is_named_and_left_untouched(
    tmp_path: Path, out: Path, again: list[str], foreign: str
) -> None:
    """Nothing said that the tables were elsewhere; a link of somebody else's was replaced."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with computing_by(DUCKDB):
        session = cast(Any, SmallSession())
        messages: list[str] = []
        batch.run_incremental(session, again, str(out), messages.append)
        assert not [words for words in messages if "untouched" in words]
        (out / "gold").unlink()
        if foreign == "link":
            (out / "gold").symlink_to(elsewhere)
        else:
            (out / "gold").mkdir()
            (out / "gold" / "precious").write_text("mine")
        for run in (batch.run_incremental, batch.run):
            messages.clear()
            run(session, again, str(out), messages.append)
            (words,) = [words for words in messages if "untouched" in words]
            assert words.startswith(f"{out}/gold: found what this program did not make")
            tables = Path(words.rpartition(" in ")[2])
            assert tables == Path(Store(session, str(out)).gold("windows")).parent
            assert (tables / "windows").is_dir()
    if foreign == "link":
        assert (out / "gold").readlink() == elsewhere
    else:
        assert everything(out / "gold") == {"precious": b"mine"}


@pytest.mark.parametrize("name", ["_aiocontroller.json", "runs", "snapshots"])
def test_what_stands_in_the_way_within_the_store_is_named(
    tmp_path: Path, out: Path, again: list[str], name: str
) -> None:
    with computing_by(DUCKDB):
        if name.endswith(".json"):
            (out / name).unlink()
            (out / name).mkdir()
        else:
            (out / name).rename(tmp_path / "away")
            (out / name).write_text("mine")
        with pytest.raises(BadInputError, match=f"out/{name}: found a f"):
            batch.run(cast(Any, SmallSession()), again, str(out))


def test_files_that_a_run_from_scratch_lost_are_named(tmp_path: Path, journal: Path) -> None:
    """A log that has grown makes all tables anew, and a journal that was deleted meanwhile was missing in silence."""
    log, out = tmp_path / "logs" / "server.log", str(tmp_path / "out")
    log.parent.mkdir()
    line = "[2024-03-18 05:33:09,123] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n"
    log.write_text(line)
    told: list[str] = []
    with computing_by(DUCKDB):
        session = cast(Any, SmallSession())
        for _ in range(2):
            batch.run_incremental(session, [str(journal), str(log.parent)], out, told.append)
            log.write_text(log.read_text() + line)
        assert not any(batch.GONE in words for words in told)
        (gone,) = journal.iterdir()
        gone.unlink()
        batch.run_incremental(session, [str(log.parent)], out, told.append)
        assert Store(session, out).remarks()[batch.GONE] == [gone.name]
    assert f"{batch.GONE}: 1 file, {gone.name} for example" in told


def test_files_edited_in_place_make_all_tables_anew(tmp_path: Path, journal: Path) -> None:
    """Such a file kept its size and its time, and counted as nothing new."""
    log, out = tmp_path / "logs" / "server.log", str(tmp_path / "out")
    log.parent.mkdir()
    log.write_text("[2024-03-18 05:33:09,123] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n")
    (segment,) = journal.iterdir()
    inputs = [str(journal), str(log.parent)]

    def edit(file: Path, old: bytes, new: bytes) -> None:
        before = file.stat()
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    def again(manifest: Manifest | None = None) -> list[str]:
        told: list[str] = []
        batch.run_incremental(session, inputs, out, told.append, manifest=manifest)
        return told

    with computing_by(DUCKDB):
        session = cast(Any, SmallSession())
        again()
        assert "nothing new" in again()
        edit(log, b"05:33:09,123", b"05:33:08,123")
        assert f"{CHANGED}: 1 file, server.log for example" in again()
        assert "nothing new" in again()
        edit(segment, b'"duration_us":2}', b'"duration_us":3}')
        assert f"{CHANGED}: 1 file, {segment.name} for example" in again()
        with segment.open("ab") as more:
            more.write(segment.read_bytes().splitlines(keepends=True)[-1])
        assert not any("anew" in words for words in again())  # it has only grown
        moved = Manifest([{"glob": "server.log", "time_zone": "Asia/Kolkata"}])
        assert f"{CHANGED}: 1 file, server.log for example" in again(moved)
        rows = session.read.parquet(*Store(session, out).published_batches("bronze/events")).where(
            "source <> 'journal'"
        )
        assert [row.ts // 1_000_000 % 86_400 for row in rows.collect()] == [(5 - 5) * 3600 + (33 - 30) * 60 + 8]
