"""The summary of a run, from journal files as they may be found: complete, open, torn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.journal.reading import journal_files
from aiocontroller.journal.records import Record, encode_records
from aiocontroller.lab.cli.summary import count_events, percentile
from aiocontroller.lab.cli.tail import JournalTail


def handled(seq: int, event: str, queue_us: int, processing_us: int) -> Record:
    return Record(1, seq, 1, 7, 10, "event", event=event, queue_us=queue_us, processing_us=processing_us)


def test_counts_over_several_files(tmp_path: Path) -> None:
    folder = tmp_path / "controller-1" / "journal"
    folder.mkdir(parents=True)
    first = [handled(1, "TopicChange", 5, 100), handled(2, "BrokerChange", 1, 9), Record(1, 3, 1, 7, 10, "write")]
    (folder / "journal-7-1-1-000001.jsonl").write_bytes(encode_records(first))
    second = encode_records([handled(4, "TopicChange", 7, 300)])
    (folder / "_journal-7-1-1-000002.jsonl").write_bytes(second + b'{"v":1,"kind":"event"')
    (folder / "notes.txt").write_text("x")
    (folder / "journal-7-1-0-000001.jsonl").write_bytes(second)  # of an earlier run
    summary = count_events(journal_files(tmp_path, since_us=1))
    assert summary["records"] == 5
    assert summary["events"] == [
        {
            "event": "TopicChange",
            "count": 2,
            "queue_us": {"p50": 5, "max": 7},
            "processing_us": {"p50": 100, "p99": 300, "max": 300},
        },
        {
            "event": "BrokerChange",
            "count": 1,
            "queue_us": {"p50": 1, "max": 1},
            "processing_us": {"p50": 9, "p99": 9, "max": 9},
        },
    ]


def test_a_file_that_was_completed_meanwhile_is_no_error(tmp_path: Path) -> None:
    assert count_events([tmp_path / "_journal-gone.jsonl"]) == {"records": 0, "events": []}


def test_a_folder_that_goes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's folder of a partition whose topic is deleted; the live view looks for journals all the time."""
    journal = tmp_path / "controller" / "journal" / "journal-7-1-1-000001.jsonl"
    partition = tmp_path / "broker-1" / "logs" / "orders-0"
    for folder in (journal.parent, partition):
        folder.mkdir(parents=True)
    journal.write_bytes(b"")
    listed = os.scandir

    def scandir(path: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
        if Path(path) == partition:
            partition.rmdir()
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert journal_files(tmp_path) == [journal]
    assert not partition.exists()


def test_a_tail_gives_each_event_once_over_appending_and_renaming(tmp_path: Path) -> None:
    tail = JournalTail(tmp_path, since_us=1)
    assert tail.new_events() == []
    still_open = tmp_path / "_journal-7-1-1-000001.jsonl"
    line = encode_records([handled(2, "BrokerChange", 1, 9)])
    still_open.write_bytes(
        encode_records([handled(1, "TopicChange", 5, 100), Record(1, 9, 1, 7, 1, "write")]) + line[:9]
    )
    assert [e["event"] for e in tail.new_events()] == ["TopicChange"]
    with still_open.open("ab") as file:
        file.write(line[9:])
    still_open.rename(tmp_path / "journal-7-1-1-000001.jsonl")
    (tmp_path / "journal-7-1-0-000001.jsonl").write_bytes(line)  # of an earlier run
    assert [(e["event"], e["controller"], e["processing_us"]) for e in tail.new_events()] == [("BrokerChange", 7, 9)]
    assert tail.new_events() == []


@pytest.mark.parametrize("q,expected", [(0.0, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_percentiles_by_nearest_rank(q: float, expected: int) -> None:
    assert percentile([4, 1, 3, 2], q) == expected


@given(st.lists(st.integers(), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[int], q: float) -> None:
    assert percentile(values, q) in values
