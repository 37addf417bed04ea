"""The oldest complete files are deleted, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiocontroller.journal.segments import expire
from tests.unit.journal.stage import ManualClock, file_journal, names, until


def only_complete(directory: Path) -> list[str]:
    (path,) = directory.glob("journal-7-*.jsonl")
    return path.read_text().splitlines()


def some_segments(directory: Path) -> list[str]:
    """Of three processes, by age; each file has 10 bytes."""
    directory.mkdir()
    made = ["journal-9-8-50-000001.jsonl", "journal-7-10-70-000001.jsonl", "journal-7-9-70-000002.jsonl"]
    for name in (*made, "_journal-9-1-20-000001.jsonl", "journal-1-1-1-1.jsonl", "journal-1-1-1-000001.jsonl.gz", "a"):
        (directory / name).write_bytes(b"123456789\n")
    (directory / "journal-1-1-1-000002.jsonl").mkdir()
    (directory / "journal-1-1-1-000003.jsonl").symlink_to(directory / "a")
    return made


@pytest.mark.parametrize("limit, kept", [(30, 3), (29, 2), (20, 2), (10, 1), (9, 0), (0, 0)])
def test_the_oldest_complete_segments_are_deleted_and_nothing_else(tmp_path: Path, limit: int, kept: int) -> None:
    made = some_segments(tmp_path / "j")
    before = set(names(tmp_path / "j"))
    assert expire(tmp_path / "j", limit) == 3 - kept
    assert before - set(names(tmp_path / "j")) == set(made[: 3 - kept])


def test_a_segment_that_cannot_be_deleted_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = some_segments(tmp_path / "j")
    unlink = os.unlink

    def refuse(path: str) -> None:
        if path.endswith(made[0]):
            raise PermissionError(errno.EPERM, "not permitted", path)
        if path.endswith(made[1]):
            unlink(path)  # another process was faster
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(PermissionError, match=made[0]):
        expire(tmp_path / "j", 5)
    assert set(made) & set(names(tmp_path / "j")) == {made[0]}


def test_a_segment_that_goes_while_all_are_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes may share a folder."""
    made = some_segments(tmp_path / "j")
    listed = os.scandir

    @contextlib.contextmanager
    def and_then_deleted(directory: Path) -> Iterator[list[os.DirEntry[str]]]:
        with listed(directory) as entries:
            found = list(entries)
        os.unlink(directory / made[0])
        yield found

    monkeypatch.setattr(os, "scandir", and_then_deleted)
    assert expire(tmp_path / "j", 0) == 2
    assert not set(made) & set(names(tmp_path / "j"))


async def test_a_journal_stays_within_its_limit_while_it_is_written(tmp_path: Path, clock: ManualClock) -> None:
    some_segments(tmp_path / "j")
    journal = file_journal(tmp_path / "j", clock, retention_bytes=25)
    await journal.start()
    assert journal.statistics().expired == 2  # one was left open by a process that died
    for number in range(3):
        journal.append("event", partition=number)  # a line has more than 25 bytes
        await journal.flush()
        await until(lambda: bool(clock.timers))
        clock.advance(300)
        await until(lambda number=number: journal.statistics().expired == 5 + number)
    journal.append("event", partition=3)
    await journal.close()
    assert [r["partition"] for r in map(json.loads, only_complete(tmp_path / "j"))] == [3]


async def test_own_segments_outlive_those_of_a_process_that_began_with_a_fast_clock(
    tmp_path: Path, clock: ManualClock
) -> None:
    earlier = tmp_path / "j" / f"journal-9-8-{clock.wall_time_us() + 3_600_000_000}-000001.jsonl"
    earlier.parent.mkdir()
    earlier.write_bytes(1_000 * b"\n")
    journal = file_journal(tmp_path / "j", clock, retention_bytes=1_000)
    await journal.start()
    journal.append("event")
    await journal.flush()
    await until(lambda: bool(clock.timers))
    clock.advance(300)
    await until(lambda: journal.statistics().expired == 1)
    assert not earlier.exists()
    assert len(only_complete(tmp_path / "j")) == 1
    await journal.close()
