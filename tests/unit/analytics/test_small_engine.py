"""What DuckDB would answer otherwise than Spark, the reference."""

from __future__ import annotations

import gc
import itertools
import os
import re
import subprocess
import sys
import time
import weakref
import zlib
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from aiocontroller.analytics.dataframes import DUCKDB, F, computing_by
from aiocontroller.analytics.small import bronze
from aiocontroller.analytics.small.journal_lines import journal_line
from aiocontroller.analytics.small.log_lines import _row
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.sources import find_files
from benchmarks.pipeline import write_journal


@pytest.mark.parametrize("numbers", [[], [None]])
def test_aggregates_of_nothing_are_empty_and_not_null(numbers: list[None]) -> None:
    """Half of the brokers' logs, or an empty journal, leaves groups like these."""
    with computing_by(DUCKDB):
        found = (
            SmallSession()
            .createDataFrame([(number,) for number in numbers], "number int")
            .agg(
                F.expr("sort_array(collect_set(if(number > 0, number, NULL)))").alias("distinct_ones"),
                F.expr("collect_list(number)").alias("all_of_them"),
                F.expr("count_if(number > 0)").alias("count"),
            )
        )
        assert found.collect() == [{"distinct_ones": [], "all_of_them": [], "count": 0}]


def test_an_expression_is_counted_where_it_is_not_null() -> None:
    """``==`` of a column is an expression, so each of them was taken for the text ``*``."""
    with computing_by(DUCKDB):
        numbers = SmallSession().createDataFrame([(1,), (2,), (None,)], "number int")
        found = numbers.agg(
            F.count(F.when(F.col("number") > 1, 1)).alias("large"),
            F.count("number").alias("known"),
            F.count("*").alias("every"),
        )
        assert found.collect() == [{"large": 1, "known": 2, "every": 3}]


@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63, 7, None])
def test_a_sum_beyond_64_bits_is_the_largest_number(number: int | None) -> None:
    with computing_by(DUCKDB):
        summed = (
            SmallSession().createDataFrame([(number,), (number,)], "number long").agg(F.expr("sum(number) AS total"))
        )
        expected = None if number is None else max(1 - 2**63, min(2**63 - 1, 2 * number))
        assert summed.collect() == [{"total": expected}]


@pytest.mark.parametrize("many", range(2, 60))
def test_percentiles_between_equal_values_are_that_value(many: int) -> None:
    """Interpolated they would be 499.99…, which is 499 as a whole number; Spark returns the value itself."""
    with computing_by(DUCKDB):
        rows = [(500,) for _ in range(many)]
        least = F.percentile(F.col("number"), F.lit(0.01)).cast("long")
        assert SmallSession().createDataFrame(rows, "number long").agg(least.alias("least")).collect() == [
            {"least": 500}
        ]


@pytest.mark.parametrize("name", ["x[1]", "st*r", "w?y", "it's", 'a "100%" {b,c}', "[!a]", "[a-z]", "back\\slash [x]"])
def test_a_folder_of_any_name_is_read_and_no_other(name: str, tmp_path: Path) -> None:
    with computing_by(DUCKDB):
        session = SmallSession()
        for folder, number in ((name, 1), ("x1", 2), ("star", 2), ("way", 2), ("b", 2), ("c", 2)):
            session.createDataFrame([(number,)], "number int").write.parquet(str(tmp_path / folder / "table"))
        assert session.read.parquet(str(tmp_path / name / "table")).collect() == [{"number": 1}]


def test_an_interrupted_query_is_an_interruption_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def execute(self, sql: str) -> None:
            raise RuntimeError("Query interrupted")  # as DuckDB says it at Ctrl-C

    session = SmallSession()
    monkeypatch.setattr(session, "_connection", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        session.run("SELECT 1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it stands for a full disk")
def test_a_full_disk_is_an_operating_error() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        SmallSession().run("COPY (SELECT 1) TO '/dev/full' (FORMAT parquet, USE_TMP_FILE false)")


@pytest.mark.parametrize("number", ["1e999", "-1e999", '{"a":1e999}', "1" * 400])
def test_a_number_that_no_computer_holds_rejects_its_record_and_ends_nothing(number: str) -> None:
    text = f'{{"v":1,"seq":{number},"epoch":1}}'
    ((fields, rejected, reason),) = journal_line(text)
    assert rejected == text
    assert reason == "not JSON, or a field of another type than the journal's"
    assert "seq" not in fields
    ((fields, _, _),) = journal_line(f'{{"v":1,"detail":{number}}}')
    assert fields["detail"] == number  # of a text's field the JSON is kept as it stands


@pytest.mark.parametrize("separator", [None, "\n[", "\n20"])
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 1000])
def test_texts_are_cut_alike_however_the_file_is_read(
    separator: str | None, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "one\r\ntwo\rthree\n\n[four\n20é\n\r\n[\n2\n200\r"
    (tmp_path / "log").write_bytes(text.encode() + b"\xc3")  # cut within a character
    monkeypatch.setattr(bronze, "_PIECE_BYTES", piece_bytes)
    whole = text + "\N{REPLACEMENT CHARACTER}"
    expected = re.split(r"\r\n|\r|\n", whole) if separator is None else whole.split(separator)
    assert list(bronze._texts(str(tmp_path / "log"), separator)) == expected


def test_a_log_without_line_ends_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lost its power leaves megabytes of NULs."""
    (tmp_path / "log").write_bytes(bytes(5000))
    looked_at: list[int] = []

    class Ends:
        def split(self, text: str) -> list[str]:
            looked_at.append(len(text))
            return re.split("\n", text)

    monkeypatch.setattr(bronze, "_PIECE_BYTES", 10)
    monkeypatch.setattr(bronze, "_LINES", Ends())
    assert list(bronze._texts(str(tmp_path / "log"), None)) == ["\0" * 5000]
    assert sum(looked_at) == 5000


def test_pandas_is_not_imported_before_it_is_needed() -> None:
    program = """if True:
        import sys
        import pyarrow as pa
        from aiocontroller.analytics.small import bronze
        bronze._leave_pandas_out()
        table = pa.table({"a": [1]})
        assert "pandas" not in sys.modules
        assert table.to_pandas()["a"][0] == 1"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_session_ends_with_its_last_user() -> None:
    """Its tables would stay in memory."""
    with computing_by(DUCKDB):
        session = SmallSession()
        session.createDataFrame([(1,)], "number int").agg(F.expr("count_if(number > 0)")).collect()
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_sets_of_arrays_are_sparks() -> None:
    """In the order in which elements come first; the quick ways for what most rows hold change no answer."""
    arrays = [None, *(list(each) for length in range(4) for each in itertools.product((1, 2, None), repeat=length))]
    pairs = [(one, other) for one in arrays for other in arrays]
    columns = [pa.array(list(side), pa.list_(pa.int32())) for side in zip(*pairs, strict=True)]
    with computing_by(DUCKDB):
        found = (
            SmallSession()
            .createDataFrame(pa.table(columns, ["a", "b"]), "a array<int>, b array<int>")
            .selectExpr("a", "b", "array_union(a, b) AS either", "array_except(a, b) AS first_alone")
        )
        rows = found.collect()
    assert len(rows) == len(pairs)
    for row in rows:
        a, b = row["a"], row["b"]
        some = a is not None and b is not None
        assert row["either"] == (list(dict.fromkeys(a + b)) if some else None), row
        alone = list(dict.fromkeys(n for n in a if n is not None and n not in b)) if some else None
        assert row["first_alone"] == alone, row  # Spark keeps a null


@pytest.mark.timeout(300)
def test_two_processes_share_the_pieces_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    pieces = [f"{n}" * 50_000 for n in range(9)]
    seen: list[str] = []
    packed = bronze._each(zlib.compress, [piece.encode() for piece in pieces], bronze.ALONE_BELOW_BYTES)
    assert [zlib.decompress(each).decode() for each in packed] == pieces
    assert bronze._each(seen.append, pieces, bronze.ALONE_BELOW_BYTES - 1) == [None] * 9
    assert seen == pieces, "this process alone does what is little"
    with pytest.raises(ValueError, match="invalid literal"):
        bronze._each(int, ["1", "2", "no number", "4"], bronze.ALONE_BELOW_BYTES)


@pytest.mark.timeout(300)
def test_files_read_by_two_processes_give_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(bronze, "_SLICE_BYTES", 100_000)
    (tmp_path / "in").mkdir()
    write_journal(tmp_path / "in", 3_000, 50)
    line = "[2024-05-01 10:00:00,{:03}] INFO Registered broker {} at path /brokers/ids/1 (kafka.zk.KafkaZkClient)\n"
    (tmp_path / "in" / "server.log").write_text("".join(line.format(n // 2, n) for n in range(2_000)))
    with computing_by(DUCKDB):
        files = find_files(cast(Any, SmallSession()), [str(tmp_path / "in")]).files
    tables = {}
    for where, alone_below in (("one", 1 << 40), ("two", 0)):
        monkeypatch.setattr(bronze, "ALONE_BELOW_BYTES", alone_below)
        bronze.write(files, *(f"{tmp_path}/{where}/{name}" for name in ("events", "odd", "quarantine")))
        read = f"FROM read_parquet('{tmp_path}/{where}/events/**/*.parquet', hive_partitioning = false)"
        tables[where] = duckdb.execute(f"SELECT * {read} ORDER BY file, seq").fetchall()
    assert len(tables["one"]) == 5_000
    assert tables["one"] == tables["two"]


def test_rows_of_python_become_tables_at_once() -> None:
    """One statement for each row took a minute for ten thousand of them."""
    session = SmallSession()
    columns = "a int, b long, c string, d double, e boolean, f array<int>, g array<string>"
    rows = [(1, 2**62, "x", 0.5, True, [1, None], ["y", None]), (None,) * 7]
    assert [tuple(row.asDict().values()) for row in session.createDataFrame(rows, columns).collect()] == rows
    assert session.createDataFrame([], columns).columns == ["a", "b", "c", "d", "e", "f", "g"]
    statements: list[str] = []
    run = session.run
    session.run = lambda sql: statements.append(sql) or run(sql)  # type: ignore[method-assign,func-returns-value]
    assert session.createDataFrame([(n,) for n in range(100_000)], "n long").count() == 100_000
    assert len(statements) == 3


def test_sums_beyond_64_bits_are_the_largest_number_also_in_results() -> None:
    session = SmallSession()
    most = 2**63 - 1
    with computing_by(DUCKDB):
        rows = session.createDataFrame(
            [("a", most), ("a", most), ("b", -most), ("b", -most), ("c", 1)], "k string, n long"
        )
        found = rows.groupBy("k").agg(F.expr("sum(n)").alias("n")).orderBy("k").collect()
    assert [tuple(row.asDict().values()) for row in found] == [("a", most), ("b", -most), ("c", 1)]


@pytest.mark.parametrize(
    "fragment",
    [
        "[ReplicaFetcher Error sending fetch request ",
        "[ReplicaFetcher replicaId=1, leaderId=2 Connection to node 2 (",
        "[ReplicaFetcher replicaId=1, leaderId=2 Node 2 disconnected",
        "Preparing to rebalance group ",
        "Stabilized group a generation 1 ",
    ],
)
def test_a_line_that_a_client_made_up_takes_no_minutes(fragment: str) -> None:
    """A client may choose its group's name, of 32 KB, which brokers log.  Some took minutes a line."""
    began_s = time.process_time()
    ending = {"[": " disconnected.", "P": " reparing to re", "S": " Stabilized group "}
    assert _row(fragment * (64_000 // len(fragment)) + ending[fragment[0]]) == {}
    assert time.process_time() - began_s < 5
