"""The tail's offsets: every whole line once, whatever is appended and renamed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from aiocontroller.analytics import tail
from aiocontroller.analytics.tail import JournalTailReader

OPEN, COMPLETE = "_journal-1-2-33-000001.jsonl", "journal-1-2-33-000001.jsonl"


def reader(folder: Path) -> JournalTailReader:
    return JournalTailReader({"folders": json.dumps([str(folder)])})


def read(tail_of: JournalTailReader, start: dict[str, int]) -> tuple[list[str], dict[str, int]]:
    end = tail_of.latestOffset(start, None)
    return [row[0] for part in tail_of.partitions(start, end) for row in tail_of.read(part)], end


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file = tmp_path / OPEN
    file.write_text("a\nb")
    lines, end = read(reader(tmp_path), {})
    assert lines == ["a"]
    assert read(reader(tmp_path), end) == ([], end)
    with file.open("a") as more:
        more.write("c\n")
    assert read(reader(tmp_path), end)[0] == ["bc"]


def test_a_completed_segment_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / OPEN).write_text("a\n")
    tail_of = reader(tmp_path)
    end = tail_of.latestOffset({}, None)
    (tmp_path / OPEN).rename(tmp_path / COMPLETE)
    (part,) = tail_of.partitions({}, end)
    assert list(tail_of.read(part)) == [("a", COMPLETE, "journal", "default", "1-33", 33)]
    assert read(tail_of, end)[0] == []


def test_much_is_read_in_several_batches_cut_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "BYTES_AT_ONCE", 10)
    (tmp_path / COMPLETE).write_text("1234\n" * 3 + "a line that is longer than a batch may be\n" + "x\n")
    (tmp_path / "journal-1-2-33-000002.jsonl").write_text("y\n")
    lines, offset, batches = list[str](), dict[str, int](), 0
    while (step := read(reader(tmp_path), offset))[0]:
        lines += step[0]
        offset, batches = step[1], batches + 1
    assert [line for line in lines if line != "y"] == ["1234"] * 3 + ["a line that is longer than a batch may be", "x"]
    assert lines.count("y") == 1
    assert batches > 2


def test_what_comes_after_the_target_waits(tmp_path: Path) -> None:
    (tmp_path / COMPLETE).write_text("a\n")
    tail_of = reader(tmp_path)
    tail_of.prepareForTriggerAvailableNow()
    with (tmp_path / COMPLETE).open("a") as more:
        more.write("b\n")
    lines, end = read(tail_of, {})
    assert lines == ["a"]
    assert read(tail_of, end)[0] == []


def test_other_files_and_empty_ones_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / COMPLETE).write_text("")
    (tmp_path / "my-journal-notes.jsonl").write_text("x\n")
    assert read(reader(tmp_path), {})[0] == []


class Query:
    """A query that ends with ``error``, or by itself."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.stopped = False

    def awaitTermination(self) -> None:  # Spark's name
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped = True


def followed(*errors: Exception | None) -> tuple[tail.Following, list[Query], Any]:
    """A follower whose queries end with these errors, one after the other; the queries it has started; its store."""
    started: list[Query] = []
    left = list(errors)

    def start() -> Any:
        started.append(Query(left.pop(0)))
        return started[-1]

    store = SimpleNamespace(unlocked=0)
    store.unlock = lambda: setattr(store, "unlocked", store.unlocked + 1)
    return tail.Following(start, store), started, store


LATE = StreamingQueryException(f"[STREAM_FAILED] Query terminated with exception: {tail.WORKER_LATE}. SQLSTATE: XXKST")


def test_a_worker_that_starts_late_is_started_again() -> None:
    following, started, store = followed(LATE, LATE, None)
    following.wait()
    assert len(started) == 3
    assert started[-1].stopped
    assert store.unlocked == 1


def test_a_worker_that_never_starts_is_an_error() -> None:
    following, started, store = followed(*[LATE] * tail.STARTS)
    with pytest.raises(StreamingQueryException):
        following.wait()
    assert len(started) == tail.STARTS
    assert store.unlocked == 1


def test_other_errors_end_it_at_once() -> None:
    following, started, store = followed(StreamingQueryException("the disk is full"), None)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        following.wait()
    assert len(started) == 1
    assert store.unlocked == 1
