"""The output folder: other people's data stays untouched, readers see whole snapshots, a crash leaves the last one."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by
from aiocontroller.analytics.files import Files, HadoopFiles, LocalFiles
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import LAYOUT, Store
from aiocontroller.analytics.summary import summarise
from aiocontroller.core.errors import BadInputError
from aiocontroller.data_folder import FolderInUseError, FolderLock
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history
from tests.integration.analytics.kills import left_by_kills
from tests.integration.analytics.stores import everything, published, value
from tests.integration.analytics.test_recorded import RECORDED


def test_lock_of_a_running_process_is_no_unknown_file(tmp_path: Path, journal: Path) -> None:
    for folder in (journal, journal / "node-2"):
        FolderLock(folder, "--data").acquire()
    (journal / "node-3").mkdir()
    (journal / "node-3" / "process.lock").write_text("somebody's notes\n")
    with computing_by(DUCKDB):
        found = find_files(cast(Any, SmallSession()), [str(journal)])
    assert found.unknown == ("node-3/process.lock",)


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
        ({"owner": "aiocontroller analyze", "layout": 99}, f"found tables of layout 99, expected {LAYOUT}"),
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
