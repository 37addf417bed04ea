"""Copies of a log that have lines in common, in whatever way they were made: each line is read once."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, cast

import pytest

from aiocontroller.analytics.dataframes import DUCKDB, computing_by
from aiocontroller.analytics.reading import chunks
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.analytics.source_files import Found
from aiocontroller.analytics.sources import find_files

LOG = [
    f"[2024-05-01 10:{n // 60:02}:{n % 60:02},{n % 7:03}] INFO [KafkaServer id=1] line {n // 2} (kafka.server.Server)\n"
    for n in range(600)
]


def found_in(folder: Path) -> tuple[list[str], Found]:
    """The lines that are read, in the order of their files, and what was found."""
    with computing_by(DUCKDB):
        found = find_files(cast(Any, SmallSession()), [str(folder)])
    data = b"".join(piece for file in found.files for piece in chunks(cast(Any, None), file.path))
    return data.decode().splitlines(keepends=True), found


def test_the_end_of_one_log_that_begins_another_is_read_once(tmp_path: Path) -> None:
    """It was read twice, and what followed was called a gap or a violation."""
    (tmp_path / "a-server.log").write_text("".join(LOG[:400])[:-20])  # cut off within a line
    (tmp_path / "b-server.log.gz").write_bytes(gzip.compress("".join(LOG[200:500]).encode()))
    (tmp_path / "c-server.log").write_text("".join(LOG[450:]))
    lines, found = found_in(tmp_path)
    assert lines == LOG
    assert found.remarks()["overlaps with b-server.log.gz, where its end is read"] == ["a-server.log"]
    assert found.remarks()["overlaps with c-server.log, where its end is read"] == ["b-server.log.gz"]
    assert not found.lacks


def test_a_log_that_lies_within_another_is_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_text("".join(LOG))
    (tmp_path / "b-server.log").write_text("".join(LOG[200:500])[30:-20])  # cut off at both ends
    (tmp_path / "c-server.log").write_text("".join(LOG[300:]))
    lines, found = found_in(tmp_path)
    assert lines == LOG
    assert found.copies == (("b-server.log", "a-server.log"), ("c-server.log", "a-server.log"))


@pytest.mark.parametrize("line", [0, 150, 199])
def test_copies_that_differ_are_named_and_read_once(tmp_path: Path, line: int) -> None:
    """Both were read whole, without a word."""
    other = LOG[200:]
    other[line] = other[line].replace("INFO", "WARN") + "\tat a.Trace(A.scala:1)\n"
    (tmp_path / "a-server.log").write_text("".join(LOG[:400]))
    (tmp_path / "b-server.log").write_text("".join(other))
    lines, found = found_in(tmp_path)
    assert sorted(lines) == sorted([*LOG, *other[line].splitlines(keepends=True)])
    assert not found.copies
    (lack,) = found.lacks
    assert lack.words == (
        "a-server.log and b-server.log are copies of one log that differ: only a-server.log has 1 record, and only "
        "b-server.log has 1 record; the 199 that both have were read once"
    )
    assert not lack.known


def test_a_copy_that_lacks_lines_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "a-server.log.gz").write_bytes(gzip.compress("".join(LOG).encode()))
    (tmp_path / "b-server.log").write_text("".join([*LOG[:200], *LOG[250:]]))
    lines, found = found_in(tmp_path)
    assert lines == LOG
    assert found.copies == (("b-server.log", "a-server.log.gz"),)
    (lack,) = found.lacks
    assert lack.words == (
        "a-server.log.gz and b-server.log are copies of one log that differ: only a-server.log.gz has 50 records; the "
        "550 that both have were read once"
    )
    assert lack.known


def test_a_line_stands_as_often_as_in_the_copy_that_has_it_most_often(tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_text("".join([*LOG[:300], *LOG[299:]]))
    (tmp_path / "b-server.log").write_text("".join([*LOG[:100], *LOG[99:200], *LOG[250:]]))
    lines, _ = found_in(tmp_path)
    assert lines == [*LOG[:300], *LOG[299:], LOG[99]]


def test_a_copy_is_compared_with_what_is_read_of_a_log_that_goes_on_in_another(tmp_path: Path) -> None:
    (tmp_path / "a-server.log").write_text("".join(LOG[:400]))
    (tmp_path / "b-server.log").write_text("".join(LOG[200:]))
    (tmp_path / "c-server.log").write_text("".join([*LOG[50:100], *LOG[120:150]]))
    lines, found = found_in(tmp_path)
    assert lines == LOG
    assert found.copies == (("c-server.log", "a-server.log"),)


def test_files_without_a_line_in_common_are_read_whole(tmp_path: Path) -> None:
    """As where a clock was set back: their times overlap."""
    other = [line.replace("line", "word") for line in LOG[200:]]
    (tmp_path / "a-server.log").write_text("".join(LOG[:400]))
    (tmp_path / "b-server.log").write_text("".join(other))
    lines, found = found_in(tmp_path)
    assert lines == LOG[:400] + other
    assert not found.lacks


def test_files_that_only_follow_each_other_are_read_whole(tmp_path: Path) -> None:
    """The same line may stand twice within a millisecond, at the end of one file and the beginning of the next."""
    (tmp_path / "server.log.1").write_text("".join(LOG[:300]))
    (tmp_path / "server.log").write_text("".join(LOG[299:]))
    lines, _ = found_in(tmp_path)
    assert len(lines) == len(LOG) + 1
