"""The output folder: other people's data stays untouched, readers see whole snapshots, a crash leaves the last one."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by
from aiocontroller.analytics.files import Files, HadoopFiles, LocalFiles
from aiocontroller.analytics.report import write_report
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import Store
from aiocontroller.analytics.summary import summarise
from aiocontroller.core.errors import BadInputError
from aiocontroller.data_folder import FolderInUseError, FolderLock
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history
from tests.integration.analytics.kills import left_by_kills
from tests.integration.analytics.test_recorded import RECORDED


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "journal-7-1-1-000001.jsonl").write_bytes(b"".join(lines(history([1, 2, 3], topics=2))))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``in`` of a journal, and ``out`` of the tables that DuckDB made of it; they stay as they are."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "in").mkdir()
    (folder / "in" / "journal-7-1-1-000001.jsonl").write_bytes(b"".join(lines(history([1, 2, 3], topics=2))))
    with computing_by(DUCKDB):
        batch.run(cast(Any, SmallSession()), [str(folder / "in")], str(folder / "out"))
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy of the tables of ``made``."""
    shutil.copytree(made / "out", tmp_path / "out", symlinks=True)
    return tmp_path / "out"


@pytest.fixture
def again(made: Path) -> list[str]:
    """The inputs of ``out``."""
    return [str(made / "in")]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
        said: list[str] = []
        batch.run_incremental(session, again, str(out), said.append)
        assert [words for words in said if "making the gold tables anew" in words]
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
        said: list[str] = []
        batch.run_incremental(session, again, str(out), said.append)
        assert not [words for words in said if "untouched" in words]
        (out / "gold").unlink()
        if foreign == "link":
            (out / "gold").symlink_to(elsewhere)
        else:
            (out / "gold").mkdir()
            (out / "gold" / "precious").write_text("mine")
        for run in (batch.run_incremental, batch.run):
            said.clear()
            run(session, again, str(out), said.append)
            (words,) = [words for words in said if "untouched" in words]
            assert words.startswith(f"{out}/gold: found what this program did not make")
            tables = Path(words.rpartition(" in ")[2])
            assert tables == Path(Store(session, str(out)).gold("windows")).parent
            assert (tables / "windows").is_dir()
    if foreign == "link":
        assert (out / "gold").readlink() == elsewhere
    else:
        assert everything(out / "gold") == {"precious": b"mine"}


def test_lock_of_a_running_process_is_no_unknown_file(tmp_path: Path, journal: Path) -> None:
    for folder in (journal, journal / "node-2"):
        FolderLock(folder, "--data").acquire()
    (journal / "node-3").mkdir()
    (journal / "node-3" / "process.lock").write_text("somebody's notes\n")
    with computing_by(DUCKDB):
        found = find_files(cast(Any, SmallSession()), [str(journal)])
    assert found.unknown == ("node-3/process.lock",)


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


@pytest.mark.parametrize("present", [("gold",), ("runs", "other"), ("snapshots",), ("bronze", "gold", "silver")])
def test_folder_of_another_owner_is_refused_by_name_and_left_untouched(
    spark: Any, tmp_path: Path, journal: Path, present: tuple[str, ...]
) -> None:
    out = tmp_path / "lake"
    for name in present:
        (out / name).mkdir(parents=True)
        (out / name / "precious").write_text(name)
    before = everything(out)
    for run in (batch.run, batch.run_incremental):
        with pytest.raises(BadInputError, match=rf"{out}: found .*{'|'.join(present)}.* nothing was touched"):
            run(spark, [str(journal)], str(out))
        assert everything(out) == before


def test_neighbours_of_the_tables_stay_and_the_marker_names_the_run_that_made_the_folder(
    spark: Any, tmp_path: Path, journal: Path
) -> None:
    """``lake/bronze`` and ``lake/silver`` used to be deleted, whoever owned them."""
    out = tmp_path / "lake"
    for name in ("bronze", "silver", "notes"):
        (out / name).mkdir(parents=True)
        (out / name / "precious").write_text(name)
    before = everything(out)
    for _ in range(2):
        batch.run(spark, [str(journal)], str(out))
    marker = json.loads((out / "_aiocontroller.json").read_text())
    first, _ = sorted(path.name for path in (out / "runs").iterdir())
    assert (marker["owner"], marker["run"]) == ("aiocontroller analyze", first)
    assert json.loads((out / "runs" / first / "_run.json").read_text())["run"] == first
    assert before.items() <= everything(out).items()
    assert pq.read_table(out / "gold" / "windows").num_rows >= 0


@pytest.mark.parametrize(
    "marker, words",
    [
        ({"owner": "somebody", "layout": 8}, "found owner 'somebody', expected 'aiocontroller analyze'"),
        ({"owner": "aiocontroller analyze", "layout": 99}, "found tables of layout 99, expected 8"),
        ("no object", "found owner None"),
    ],
)
def test_folder_of_another_owner_or_version_is_refused(spark: Any, tmp_path: Path, marker: Any, words: str) -> None:
    (tmp_path / "_aiocontroller.json").write_text(json.dumps(marker))
    with pytest.raises(BadInputError, match=words):
        Store(spark, str(tmp_path))


def test_file_in_place_of_the_folder_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BadInputError, match="found a file, expected a folder"):
        Store(spark, str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "mine"


def test_one_process_at_a_time_writes(spark: Any, tmp_path: Path, journal: Path) -> None:
    store = Store(spark, str(tmp_path / "out"))
    with store.writing(), pytest.raises(FolderInUseError, match="give another folder by --out"):
        batch.run(spark, [str(journal)], str(tmp_path / "out"))


def published(store: Store, spark: Any, value: int, commit: str) -> None:
    drafts = store.draft(("a", "b"), value)
    for folder in drafts.values():
        spark.createDataFrame([(value,)], "id long").write.parquet(folder)
    store.publish(drafts, {"id": commit, "parts": [[0, 0]]})


def value(folder: Path | str) -> int:
    return int(pq.read_table(str(folder)).column(0)[0].as_py())


def test_all_tables_change_at_once_and_readers_keep_what_they_have_open(spark: Any, tmp_path: Path) -> None:
    store = Store(spark, str(tmp_path / "out"))
    store.lock()
    store.begin()
    published(store, spark, 1, "first")
    first = store.gold("a")
    assert value(tmp_path / "out/gold/a") == value(first) == 1
    published(store, spark, 2, "second")
    assert [value(tmp_path / "out/gold" / name) for name in "ab"] == [2, 2]
    assert value(first) == 1  # for those who read it now
    published(store, spark, 3, "third")
    assert not Path(first).exists()
    again = Store(spark, str(tmp_path / "out"))
    assert again.published() == "third"
    files = again.snapshot()["tables"]["a"]  # type: ignore[index]
    assert files == {path.name: path.stat().st_size for path in Path(again.gold("a")).glob("part-*")}
    store.unlock()


def test_run_that_ends_half_way_leaves_the_last_tables(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = Store(spark, str(out))
    with store.writing():
        store.begin()
        store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
        published(store, spark, 1, "first")
    before = everything(out)

    def fails() -> None:
        with store.writing():
            store.begin()
            spark.createDataFrame([(9,)], "id long").write.parquet(store.of_batch("bronze/events", 0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert everything(out) == before
    # A process that was killed cannot tidy up; what it left stands in nobody's way and goes with the next run.
    store.lock()
    store.begin()
    left = Path(store.in_run("."))
    store.unlock()
    assert Store(spark, str(out)).published() == "first"
    with store.writing():
        store.begin()
        store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
        published(store, spark, 2, "second")
    assert not left.exists()
    assert value(out / "gold/a") == 2


def test_only_what_carries_the_mark_is_deleted(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = Store(spark, str(out))
    with store.writing():
        for number in (1, 2, 3, 4):
            store.begin()
            if number == 1:
                for name in ("backup", "000000-deadbeef"):
                    (out / "runs" / name).mkdir()
                    (out / "runs" / name / "precious").write_text("mine")
                (out / "runs" / "000000-feedbeef").symlink_to(tmp_path)
                # A copy of a run, under another name.
                (out / "runs" / "000000-c0ffee00").mkdir()
                marker = Path(store.in_run("_run.json")).read_text()
                (out / "runs" / "000000-c0ffee00" / "_run.json").write_text(marker)
            store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
            published(store, spark, number, str(number))
    kept = {path.name.split("-")[0] for path in (out / "runs").iterdir()}
    assert kept == {"backup", "000000", "000003", "000004"}
    assert (out / "runs/000000-deadbeef/precious").read_text() == "mine"
    assert (out / "runs/000000-c0ffee00/_run.json").exists()
    assert tmp_path.exists()


def test_folder_that_is_no_link_of_ours_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = Store(spark, str(out))
    with store.writing():
        store.begin()
        (out / "gold").mkdir()
        (out / "gold/precious").write_text("mine")
        store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
        published(store, spark, 1, "first")
    assert (out / "gold/precious").read_text() == "mine"
    assert value(store.gold("a")) == 1


def test_files_of_this_machine_keep_the_contract(tmp_path: Path) -> None:
    keeps_the_contract(LocalFiles(tmp_path / "out"))


def test_files_of_hadoop_keep_the_contract(spark_itself: Any, tmp_path: Path) -> None:
    keeps_the_contract(HadoopFiles(spark_itself, f"file://{tmp_path}/out"))


def test_another_file_system_of_hadoop_keeps_the_contract(spark_itself: Any, viewfs: str) -> None:
    """``test_incremental`` has journals and tables there."""
    keeps_the_contract(HadoopFiles(spark_itself, f"{viewfs}/out/contract"))


def test_logs_of_two_clusters_on_another_file_system_are_distinguished(
    spark_itself: Any, tmp_path: Path, viewfs: str
) -> None:
    """Plain logs were looked through on this machine's disks only: elsewhere two clusters became one."""
    for release, folder in (("3.9", "a b"), ("2.8", "c%20d")):
        for packed in (RECORDED / release / "logs" / "broker-1").glob("*.gz"):
            plain = tmp_path / "in" / folder / packed.name.removesuffix(".gz")
            plain.parent.mkdir(parents=True, exist_ok=True)
            plain.write_bytes(gzip.decompress(packed.read_bytes()))
    cut = tmp_path / "in" / "a b" / "state-change.log"
    cut.write_bytes(cut.read_bytes()[:-1])
    with computing_by(SPARK):
        found = find_files(spark_itself, [f"{viewfs}/in"])
    assert [(lack.file, lack.at_end) for lack in found.lacks] == [("a b/state-change.log", True)]
    by_folder = {file.name.split("/")[0]: file.cluster for file in found.files}
    assert len(found.files) == 6
    assert by_folder == {"a b": "RFdfHY2XTqOdVV1zfat4PA", "c%20d": "ccSFCcxtTSa-4hDuJUckWg"}


def test_folders_of_others_on_another_file_system_stay(spark_itself: Any, tmp_path: Path, viewfs: str) -> None:
    """Refused by name where they are in the way; neighbours, and what carries no mark of ours, are never deleted."""
    out = tmp_path / "out" / "lake"
    (out / "gold").mkdir(parents=True)
    (out / "gold" / "precious").write_text("mine")
    before = everything(out)
    with computing_by(SPARK):
        with pytest.raises(BadInputError, match=r"lake: found gold, .* nothing was touched"):
            Store(spark_itself, f"{viewfs}/out/lake")
        assert everything(out) == before
        (out / "gold" / "precious").rename(out / "precious")
        (out / "gold").rmdir()
        for name in ("bronze", "silver"):
            (out / name).mkdir()
            (out / name / "precious").write_text(name)
        store = Store(spark_itself, f"{viewfs}/out/lake")
        with store.writing():
            for number in (1, 2, 3, 4):
                store.begin()
                if number == 1:
                    for name in ("backup", "000000-deadbeef"):
                        (out / "runs" / name).mkdir()
                        (out / "runs" / name / "precious").write_text(name)
                store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
                published(store, spark_itself, number, str(number))
    precious = {str(path.parent.relative_to(out)): path.read_text() for path in out.rglob("precious")}
    assert precious == {
        ".": "mine", "bronze": "bronze", "silver": "silver", "runs/backup": "backup",
        "runs/000000-deadbeef": "000000-deadbeef",
    }  # fmt: skip
    kept = {path.name.split("-")[0] for path in (out / "runs").iterdir()}
    assert kept == {"backup", "000000", "000003", "000004"}
    marker = out / "_aiocontroller.json"
    (out / f".{marker.name}.crc").unlink()
    marker.write_text(json.dumps({"owner": "somebody"}))
    with computing_by(SPARK), pytest.raises(BadInputError, match="found owner 'somebody'"):
        Store(spark_itself, f"{viewfs}/out/lake")


_STEPS = [(Store, name) for name in ("forget", "append", "write", "commit", "draft", "begin")]
_OF_FILES = ("write_new", "delete_tree", "link")


def test_kill_at_any_step_of_a_fresh_run_leaves_the_last_tables(
    spark: Any, tmp_path: Path, out: Path, journal: Path
) -> None:
    (journal / "journal-8-1-2-000001.jsonl").write_bytes(b"".join(lines(history([4], topics=1))))

    def run(folder: Path) -> dict[str, Any]:
        batch.run(spark, [str(journal)], str(folder))
        return summarise(spark, str(folder))

    before = summarise(spark, str(out))
    steps = [*_STEPS, *((LocalFiles, name) for name in _OF_FILES)]
    left = left_by_kills(lambda: run(out), out, tmp_path / "left", steps, wanted=lambda call: call % 9 == 1)
    after = summarise(spark, str(left[-1]))
    assert after["records"] > before["records"]
    found = [summarise(spark, str(folder)) for folder in left]
    changed = next(number for number, counts in enumerate(found) if counts["records"] != before["records"])
    assert changed > 4
    assert found == [before] * changed + [after] * (len(left) - changed)  # from there on it tidies up
    for folder in (left[changed // 2], left[changed - 1], left[-1]):
        assert run(folder) == after


def test_kill_at_any_step_on_another_file_system_leaves_the_last_tables(
    spark_itself: Any, tmp_path: Path, viewfs: str
) -> None:
    out = tmp_path / "out"

    def run(number: int, name: str) -> None:
        store = Store(spark_itself, f"{viewfs}/out/{name}")
        with store.writing():
            store.begin()
            store.write("bronze/events", 0, spark_itself.createDataFrame([(number,)], "id long"))
            store.commit({"batch": 0, "parts": [[0, 0]], "seen": {}, "files": {}})
            published(store, spark_itself, number, str(number))

    def totals(name: str) -> list[int]:
        store = Store(spark_itself, f"{viewfs}/out/{name}")
        return [value(store.gold(name).replace(viewfs, str(tmp_path))) for name in "ab"]

    with computing_by(SPARK):
        run(1, "tables")
        steps = [*_STEPS, *((HadoopFiles, name) for name in _OF_FILES)]
        left = [
            f"left/{folder.name}"
            for folder in left_by_kills(lambda: run(2, "tables"), out / "tables", out / "left", steps)
        ]
        found = [totals(name) for name in left]
        changed = found.index([2, 2])
        assert changed > 4
        assert found == [[1, 1]] * changed + [[2, 2]] * (len(left) - changed)  # from there on it tidies up
        for name in (left[changed // 2], left[changed]):
            run(3, name)
            assert totals(name) == [3, 3]


def keeps_the_contract(files: Files) -> None:
    assert files.names() == []
    assert not files.exists("a/x.json")
    files.write_new("a/x.json", "ü")
    assert files.read("a/x.json") == "ü"
    with pytest.raises(FileExistsError):
        files.write_new("a/x.json", "another")
    assert files.read("a/x.json") == "ü"
    files.write_new("a/day=1 [x]/y", "üü")
    files.write_new("a/_z/y", "y")
    assert files.sizes("a") == {"x.json": 2, "day=1 [x]/y": 4}
    assert files.sizes("b") == {}
    files.write_new("top.json", "1")
    assert [name for name in files.names() if not name.startswith(".")] == ["a", "top.json"]
    assert [name for name in files.names("a") if not name.startswith(".")] == ["_z", "day=1 [x]", "x.json"]
    with pytest.raises(NotADirectoryError):
        files.names("top.json")
    files.delete_tree("a")
    files.delete_tree("top.json")
    files.delete_tree("never there")
    assert [name for name in files.names() if not name.startswith(".")] == []


def test_process_that_is_killed_frees_the_folder(spark: Any, tmp_path: Path) -> None:
    held = (
        "import os, sys, pathlib\n"
        "from aiocontroller.data_folder import FolderLock\n"
        "FolderLock(pathlib.Path(sys.argv[1]), '--out').acquire()\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", held, str(tmp_path)], check=False).returncode == 9
    with Store(spark, str(tmp_path)).writing():
        pass
