"""Which files are read, of which cluster each is, and what is said of those that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, computing_by, engine
from aiocontroller.analytics.lines import read_lines
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.sources import find_files
from aiocontroller.analytics.store import Store
from aiocontroller.core.errors import BadInputError
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history
from tests.integration.analytics.small_lines import texts_of


def server_log(broker: int, cluster: str | None = None, lines: int = 3, marker: str = "") -> bytes:
    log = [f"[2024-05-01 10:00:00,000] INFO Cluster ID = {cluster} (kafka.server.KafkaServer)"] if cluster else []
    log += [
        f"[2024-05-01 10:00:{n % 60:02d},{n % 1000:03d}] INFO [KafkaServer id={broker}] started {marker}{n} "
        "(kafka.server.KafkaServer)"
        for n in range(lines)
    ]
    return "".join(f"{line}\n" for line in log).encode()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def lines_of(spark: Any, folder: Path) -> dict[str, int]:
    files = find_files(spark, [str(folder)]).files
    if engine() == DUCKDB:
        return {file.name: sum(map(bool, texts_of(replace(file, framing=None)))) for file in files}
    rows = read_lines(spark, files).groupBy("file").count().collect()
    return {row["file"]: row["count"] for row in rows}


PACKINGS: list[tuple[str, Callable[[bytes], bytes]]] = [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)]


@pytest.mark.parametrize("suffix, pack", PACKINGS)
def test_packed_files_are_read(spark: Any, tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / f"server.log{suffix}").write_bytes(pack(server_log(1, lines=50)))
    assert lines_of(spark, tmp_path) == {f"server.log{suffix}": 50}


@pytest.mark.parametrize("suffix, pack", PACKINGS)
def test_damaged_file_is_read_as_far_as_it_goes_and_one_line_of_the_report(
    spark: Any, tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    """One corrupt .gz used to end everything with a traceback of Java's."""

    def text() -> bytes:
        return b"".join(server_log(1, lines=1, marker=os.urandom(40).hex()) for _ in range(30_000))

    packed = bytearray(pack(text()))
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(64)
    (tmp_path / f"a-server.log{suffix}").write_bytes(packed)
    (tmp_path / f"b-server.log{suffix}").write_bytes(pack(text())[: len(packed) // 3])
    (tmp_path / "c-server.log").write_bytes(server_log(2))
    found = find_files(spark, [str(tmp_path)])
    remarks = [words for words in found.remarks() if words.startswith("damaged: ")]
    counts = lines_of(spark, tmp_path)
    # Arrow writes zstd without checksums, so there only what is cut off is noticed; the rest is for the quarantine.
    assert len(remarks) == (1 if suffix == ".zst" else 2)
    assert counts["c-server.log"] == 3
    assert counts[f"a-server.log{suffix}"] > 0
    assert 0 < counts[f"b-server.log{suffix}"] < 30_000


def test_what_is_no_packed_file_is_named(spark: Any, tmp_path: Path) -> None:
    for name in ("server.log.gz", "controller.log.bz2", "journal-1-1-1-000001.jsonl.zst"):
        (tmp_path / name).write_bytes(b"\x00garbage" * 100)
    (tmp_path / "server.log").write_bytes(server_log(1))
    found = find_files(spark, [str(tmp_path)])
    assert [file.name for file in found.files] == ["server.log"]
    assert sorted(name for name, _ in found.unreadable) == [
        "controller.log.bz2",
        "journal-1-1-1-000001.jsonl.zst",
        "server.log.gz",
    ]
    assert all(words.startswith("not read: ") for words in found.remarks() if "UTC" not in words)


def test_nothing_that_can_be_read_is_an_error_that_names_a_file(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "server.log.gz").write_bytes(b"garbage")
    with pytest.raises(BadInputError, match=r"can be read; server\.log\.gz, for example: Not a gzipped file"):
        find_files(spark, [str(tmp_path)])


def test_file_that_may_not_be_read_is_named(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.log").write_bytes(server_log(1))
    (tmp_path / "gone.log").symlink_to("/proc/self/mem")  # it is listed, and reading it fails
    found = find_files(spark, [str(tmp_path)])
    assert [file.name for file in found.files] == ["server.log"]
    assert [name for name, _ in found.unreadable] == ["gone.log"]


def test_links_are_followed_once_and_those_that_lead_nowhere_are_named(spark: Any, tmp_path: Path) -> None:
    """Folders behind links were left out without a word, and so were links to files that are gone."""
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    for folder in (logs / "broker-1", outside / "broker-2"):
        folder.mkdir(parents=True)
        (folder / "server.log").write_bytes(server_log(int(folder.name[-1])))
    (logs / "a-link-to-1").symlink_to(logs / "broker-1")
    (logs / "broker-2").symlink_to(outside / "broker-2")
    (logs / "broker-1" / "above").symlink_to(logs)
    (logs / "broker-2" / "controller.log").symlink_to(outside / "gone")
    (logs / "broker-2" / "itself").symlink_to(outside / "broker-2" / "itself")
    found = find_files(spark, [str(logs)])
    assert [file.name for file in found.files] == ["broker-1/server.log", "broker-2/server.log"]
    assert [name for name, _ in found.unreadable] == ["broker-2/controller.log", "broker-2/itself"]
    assert [lack.words for lack in found.lacks][:1] == [
        "broker-2/controller.log cannot be read: No such file or directory"
    ]


def test_folder_that_may_not_be_read_is_named(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for broker in (1, 2):
        (tmp_path / f"broker-{broker}").mkdir()
        (tmp_path / f"broker-{broker}" / "server.log").write_bytes(server_log(broker))

    def refuse(folder: Path) -> Any:
        if folder.name == "broker-2":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", refuse)  # root may read everything
    found = find_files(spark, [str(tmp_path)])
    assert [file.name for file in found.files] == ["broker-1/server.log"]
    assert found.unreadable == (("broker-2", "Permission denied"),)


def test_archives_and_tables_are_no_logs(spark: Any, tmp_path: Path) -> None:
    """Both hold lines of logs: an archive was read as one log, and so were the tables of an earlier run."""
    log = tmp_path / "server.log"
    log.write_bytes(server_log(1))
    for name, how in (("logs.tar", "w"), ("logs.tar.gz", "w:gz")):
        with tarfile.open(tmp_path / name, how) as archive:
            archive.add(log, "broker-1/server.log")
    lines = pa.table({"detail": server_log(1).decode().splitlines()})
    pq.write_table(lines, tmp_path / "server.log.parquet", compression="none", use_dictionary=False)
    tables = Store(spark, str(tmp_path / "out"))
    with tables.writing():
        tables.begin()
        (tmp_path / "out" / "runs" / "server.log").write_bytes(server_log(2))
        (tmp_path / "out" / "server.log").write_bytes(server_log(3))
        found = find_files(spark, [str(tmp_path)])
    assert [file.name for file in found.files] == ["out/server.log", "server.log"]
    assert found.unreadable == tuple((name, "an archive of files: unpack it") for name in ("logs.tar", "logs.tar.gz"))
    assert found.unknown == ("server.log.parquet",)


def rotated(log: Path) -> None:
    log.rename(log.with_name("server.log.1"))
    log.write_bytes(server_log(1, lines=3))


@pytest.mark.parametrize(
    "change, words",
    [
        (Path.unlink, "broker-1/server.log: it was deleted or renamed while being read"),
        (rotated, "broker-1/server.log: it became shorter while being read"),
    ],
)
def test_file_that_is_replaced_while_it_is_read_is_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], words: str
) -> None:
    """A rotation in mid-run ended in a traceback, or lines were left out silently."""

    def find(*arguments: Any, **options: Any) -> Any:
        found = find_files(*arguments, **options)
        change(log)
        return found

    log = tmp_path / "in" / "broker-1" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(server_log(1, lines=100))
    journal = tmp_path / "in" / "journal-7-1-1-000001.jsonl"
    journal.write_bytes(b"".join(lines(history([1, 2, 3], topics=2))))
    monkeypatch.setattr(batch, "find_files", find)
    for run in (batch.run, batch.run_incremental):
        with pytest.raises(BadInputError, match=f"{words}, as by log rotation: run the command again"):
            run(spark, [str(tmp_path / "in")], str(tmp_path / "out"))
        assert not list((tmp_path / "out" / "snapshots").glob("*"))
        log.write_bytes(server_log(1, lines=100))


def test_file_that_grows_while_it_is_read_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*arguments: Any, **options: Any) -> Any:
        found = find_files(*arguments, **options)
        with log.open("ab") as more:
            more.write(server_log(1, marker="more"))
        return found

    log = tmp_path / "in" / "server.log"
    log.parent.mkdir()
    log.write_bytes(server_log(1))
    (tmp_path / "in" / "other-server.log.gz").write_bytes(gzip.compress(server_log(2, lines=500))[:-40])
    monkeypatch.setattr(batch, "find_files", find)
    with computing_by(DUCKDB):
        for run in (batch.run, batch.run_incremental):
            run(cast(Any, SmallSession()), [str(tmp_path / "in")], str(tmp_path / "out"))


def test_line_ends_in_names_are_escaped(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "of\nbroker\t1"
    folder.mkdir()
    for name in ("server.log", "server.log.2", "new\nline.log"):
        (folder / name).write_bytes(server_log(1, marker=f"{name.encode().hex()}-"))
    found = find_files(spark, [str(tmp_path)])
    names = {f"of\\x0abroker\\x091/{name}" for name in ("new\\x0aline.log", "server.log", "server.log.2")}
    assert {file.name for file in found.files} == set(lines_of(spark, tmp_path)) == names
    assert ["number 1 is missing" in lack.words for lack in found.lacks] == [True]


def test_files_that_begin_alike_and_go_on_apart_are_both_read(spark: Any, tmp_path: Path) -> None:
    """The same first 64 KB used to make one of them a copy: 50,000 bytes were lost."""
    beginning = server_log(1, lines=900)
    assert len(beginning) > 64 << 10
    (tmp_path / "a-server.log").write_bytes(beginning + server_log(1, lines=500, marker="a"))
    (tmp_path / "b-server.log").write_bytes(beginning + server_log(1, lines=400, marker="b"))
    (tmp_path / "c-server.log").write_bytes(beginning + server_log(1, lines=300, marker="a"))
    (tmp_path / "d-server.log.gz").write_bytes(gzip.compress(beginning + server_log(1, lines=450, marker="a")))
    found = find_files(spark, [str(tmp_path)])
    assert [file.name for file in found.files] == ["a-server.log", "b-server.log"]
    assert found.copies == (("c-server.log", "a-server.log"), ("d-server.log.gz", "a-server.log"))


def test_logs_of_two_clusters_are_distinguished_by_the_ids_that_they_state(spark: Any, tmp_path: Path) -> None:
    """They used to become one cluster: 192 violations, 94 windows that never were."""
    for cluster in ("berlin", "paris"):
        for broker in (1, 2):
            folder = tmp_path / cluster / f"broker-{broker}"
            folder.mkdir(parents=True)
            stated = f"{cluster}_Id-0000000000" if broker == 1 else None
            (folder / "server.log").write_bytes(server_log(broker, stated, marker=cluster))
            (folder / "controller.log").write_bytes(server_log(broker, marker=f"{cluster} c"))
    found = find_files(spark, [str(tmp_path)])
    assert {file.cluster for file in found.files} == {"berlin_Id-0000000000", "paris_Id-0000000000"}
    for file in found.files:
        assert file.cluster.partition("_")[0] == file.name.partition("/")[0]


def test_file_that_may_be_of_either_cluster_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_bytes(server_log(1, "AAAAAAAAAAAAAAAAAAAAAA"))
    (tmp_path / "b-server.log").write_bytes(server_log(1, "BBBBBBBBBBBBBBBBBBBBBB"))
    (tmp_path / "state-change.log").write_bytes(server_log(1, marker="x"))
    with pytest.raises(BadInputError, match=r"2 clusters \(A+, B+\), and state-change\.log may be from either"):
        find_files(spark, [str(tmp_path)])
    manifest = Manifest([{"glob": "state-change.log", "cluster": "AAAAAAAAAAAAAAAAAAAAAA"}])
    found = find_files(spark, [str(tmp_path)], manifest=manifest)
    assert [file.cluster[0] for file in found.files] == ["A", "B", "A"]


def test_one_cluster_keeps_its_plain_name(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_bytes(server_log(1, "AAAAAAAAAAAAAAAAAAAAAA"))
    (tmp_path / "b-server.log").write_bytes(server_log(2))
    assert {file.cluster for file in find_files(spark, [str(tmp_path)]).files} == {"default"}


def test_spark_names_a_path_that_is_not_utf_8_and_duckdb_reads_it(spark: Any, tmp_path: Path) -> None:
    """Spark ended with a traceback of Py4J's."""
    folder = tmp_path / "in" / b"of-\xff".decode(errors="surrogateescape")
    folder.mkdir(parents=True)
    (folder / "server.log").write_bytes(server_log(1))
    (folder / "server.log.gz").write_bytes(gzip.compress(server_log(2)))
    reason = "its path is not UTF-8, which Spark needs; DuckDB can read it (--engine duckdb)"
    if engine() == DUCKDB:
        assert len(find_files(spark, [str(folder)]).files) == 2
    else:
        with pytest.raises(BadInputError, match=re.escape(f"of-\\xff can be read; server.log, for example: {reason}")):
            find_files(spark, [str(folder)])
    (tmp_path / "in" / "server.log").write_bytes(server_log(3))
    found = find_files(spark, [str(tmp_path / "in")])
    others = {"of-\\xff/server.log", "of-\\xff/server.log.gz"}
    assert found.names() == {"server.log", *others}
    assert dict(found.unreadable) == ({} if engine() == DUCKDB else dict.fromkeys(others, reason))
