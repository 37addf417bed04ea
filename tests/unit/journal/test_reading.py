"""Journals below a folder."""

from __future__ import annotations

from pathlib import Path

from aiocontroller.journal.reading import decoded, journal_files, lines


def test_segments_of_all_controllers_in_order(tmp_path: Path) -> None:
    for folder, name in (
        ("b", "journal-1-0-50-000000.jsonl"),
        ("a", "_journal-1-0-70-000001.jsonl"),
        ("a", "journal-1-0-70-000000.jsonl"),
        ("a", "other.jsonl"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_bytes(b"x\ny")
    names = [path.name for path in journal_files(tmp_path)]
    assert names == ["journal-1-0-50-000000.jsonl", "journal-1-0-70-000000.jsonl", "_journal-1-0-70-000001.jsonl"]
    assert [path.name for path in journal_files(tmp_path, since_us=60)] == names[1:]
    assert list(lines([tmp_path / "gone", *journal_files(tmp_path, since_us=60)])) == [b"x\n", b"y"] * 2


def test_a_torn_line_is_no_record() -> None:
    assert decoded(b'{"v":1,"seq":1') is None
    assert decoded(b"\xff\xfe") is None
    record = decoded(b'{"v":1,"seq":1,"epoch":0,"node":1,"ts":5,"kind":"x"}')
    assert record is not None
    assert record.ts == 5
