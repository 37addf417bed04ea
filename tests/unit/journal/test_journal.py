"""The journal: what is in a line, when a file gets its final name, what a crash or a full disk leaves behind."""

from __future__ import annotations

import ast
import asyncio
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

import aiocontroller
from aiocontroller.journal.journal import MemoryJournal, NullJournal
from aiocontroller.journal.records import Record, decode_record, encode_records
from aiocontroller.journal.segments import Segment, SegmentName, SegmentWriter, adopt_leftovers
from aiocontroller.journal.writer import HANGS_AFTER_S, LINGER_S
from aiocontroller.metrics import Metrics
from tests.unit.journal.stage import ManualClock, file_journal, lines, names, until


def test_a_record_holds_what_was_given_and_nothing_else(clock: ManualClock) -> None:
    journal = MemoryJournal(7, clock)
    journal.epoch = 3
    journal.append("partition_state", topic="t", partition=0, from_state="NewPartition", isr=(1, 2), code=0)
    assert json.loads(journal.content()) == {
        "v": 1, "seq": 1, "epoch": 3, "node": 7, "ts": 1_700_000_000_000_001, "kind": "partition_state",
        "topic": "t", "partition": 0, "from_state": "NewPartition", "isr": [1, 2], "code": 0,
    }  # fmt: skip


def test_a_line_decodes_to_its_record_and_a_torn_one_does_not(clock: ManualClock) -> None:
    journal = MemoryJournal(7, clock)
    journal.append("event", event="BrokerChange", queue_us=5, processing_us=70)
    (line,) = journal.content().splitlines()
    assert decode_record(line) == journal.records[0]
    assert decode_record(line[:-1] + b',"from_the_future":1}') == journal.records[0]
    with pytest.raises(msgspec.DecodeError):
        decode_record(line[:-4])


def test_an_unknown_field_costs_no_record(clock: ManualClock) -> None:
    journal = MemoryJournal(7, clock)
    journal.append("event", tpoic="t", code=3)
    assert journal.records[0].detail == {"tpoic": "t", "code": 3}


def test_all_callers_use_fields_that_exist() -> None:
    wrong = []
    for path in sorted(Path(aiocontroller.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and re.fullmatch(r"(.*\.)?_?journal\.append", ast.unparse(call.func)):
                names = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
                wrong += [f"{path.name}:{call.lineno} {name}" for name in names - set(Record.__struct_fields__)]
    assert wrong == []


def _endless() -> list[object]:
    knot: list[object] = []
    knot.append(knot)
    return knot


@pytest.mark.parametrize("detail", ["\ud800", _endless()], ids=["surrogate", "endless"])
def test_what_json_cannot_hold_becomes_a_record_that_says_so(clock: ManualClock, detail: object) -> None:
    journal = MemoryJournal(7, clock)
    journal.append("first")
    journal.append("event", detail=detail)
    journal.append("last")
    decoded = [decode_record(line) for line in journal.content().splitlines()]
    assert [(r.seq, r.kind) for r in decoded] == [(1, "first"), (2, "unencodable"), (3, "last")]


def test_objects_without_json_form_are_written_as_they_print() -> None:
    line = encode_records([Record(1, 1, 0, 7, 0, "event", detail={"error": KeyError("x")})])
    assert json.loads(line)["detail"] == {"error": "KeyError('x')"}


def test_the_null_journal_takes_everything() -> None:
    journal = NullJournal()
    journal.append("event", topic="t")
    assert not journal.enabled
    assert journal.pending == 0


async def test_files_are_open_under_a_hidden_name_and_complete_under_the_final_one(
    tmp_path: Path, clock: ManualClock
) -> None:
    journal = file_journal(tmp_path / "new", clock)
    start_us = clock.wall_us
    await journal.start()
    journal.append("event")
    await journal.flush()
    assert names(tmp_path / "new") == [f"_journal-7-0-{start_us}-000001.jsonl"]
    assert len(lines(tmp_path / "new")) == 1  # durable already
    await journal.close()
    await journal.close()
    assert names(tmp_path / "new") == [f"journal-7-0-{start_us}-000001.jsonl"]
    journal.append("late")
    assert journal.statistics().dropped == 1


async def test_a_busy_journal_lingers_unless_a_task_waits(tmp_path: Path, clock: ManualClock) -> None:
    """What comes right after a write waits for LINGER_S with whatever else comes; a flush ends the wait."""
    journal = file_journal(tmp_path, clock)
    await journal.start()

    async def until_written(count: int) -> None:
        async with asyncio.timeout(10):
            while journal.statistics().written < count:
                await asyncio.sleep(0.001)

    journal.append("event")
    await until_written(1)
    journal.append("event")
    await asyncio.sleep(0.02)
    assert (journal.statistics().written, journal.pending) == (1, 1)
    journal.append("event")
    clock.advance(LINGER_S)
    await until_written(3)
    journal.append("event")
    await journal.flush()
    assert journal.statistics().written == 4
    await journal.close()


async def test_its_statistics_are_metrics(tmp_path: Path, clock: ManualClock) -> None:
    metrics = Metrics()
    journal = file_journal(tmp_path, clock, metrics=metrics)
    await journal.start()
    journal.append("event")
    await journal.flush()
    values = metrics.snapshot()
    assert (values["aiocontroller_journal_written"], values["aiocontroller_journal_dropped"]) == (1, 0)
    await journal.close()


async def test_same_clock_same_bytes(tmp_path: Path) -> None:
    contents = []
    for run in ("a", "b"):
        journal = file_journal(tmp_path / run, ManualClock())
        await journal.start()
        for i in range(2000):
            journal.epoch = i // 700
            journal.append("event", event="TopicChange", partition=i, isr=(1, 2, 3))
        await journal.close()
        contents.append({p.name: p.read_bytes() for p in (tmp_path / run).iterdir()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3  # one for each epoch


async def test_nothing_is_lost_or_reordered_over_rotations(tmp_path: Path, clock: ManualClock) -> None:
    journal = file_journal(tmp_path, clock, rotate_bytes=20_000)
    journal.append("before start")
    await journal.start()
    for burst in range(20):
        for i in range(150):
            journal.epoch = burst // 5
            journal.append("event", partition=i)
        if burst % 3 == 0:
            await journal.flush()
    await journal.close()
    assert [r["seq"] for r in lines(tmp_path)] == list(range(1, 3002))
    statistics = journal.statistics()
    assert (statistics.written, statistics.dropped, statistics.pending) == (3001, 0, 0)
    assert statistics.segments == len(names(tmp_path)) > 5
    for path in tmp_path.iterdir():
        epochs = {json.loads(line)["epoch"] for line in path.read_text().splitlines()}
        assert epochs == {int(path.name.split("-")[2])}


async def test_a_quiet_segment_is_completed_by_time(tmp_path: Path, clock: ManualClock) -> None:
    journal = file_journal(tmp_path, clock, rotate_s=300)
    await journal.start()
    journal.append("event")
    await journal.flush()
    clock.advance(299)
    assert names(tmp_path)[0].startswith("_")
    clock.advance(2)
    await until(lambda: names(tmp_path)[0].startswith("journal-"))
    journal.append("event")
    await journal.close()
    assert [name[-12:] for name in names(tmp_path)] == ["000001.jsonl", "000002.jsonl"]


async def test_what_a_crashed_process_left_is_completed_and_what_is_in_use_stays(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "_journal-1-4-99-000002.jsonl").write_text('{"v":1,"seq":1')
    (tmp_path / "_journal-1-4-99-000003.jsonl").write_text("")
    (tmp_path / "_other.jsonl").write_text("mine")
    holder = open(tmp_path / "_journal-2-4-99-000001.jsonl", "w")  # noqa: SIM115  # held over the whole test
    holder.write("x\n")
    holder.flush()
    fcntl.flock(holder, fcntl.LOCK_EX)
    journal = file_journal(tmp_path, clock)
    await journal.start()
    await journal.close()
    holder.close()
    assert names(tmp_path) == ["_journal-2-4-99-000001.jsonl", "_other.jsonl", "journal-1-4-99-000002.jsonl"]
    assert adopt_leftovers(tmp_path) == ["journal-2-4-99-000001.jsonl"]


def test_a_killed_process_leaves_its_records_and_its_file_can_be_completed(tmp_path: Path) -> None:
    program = """
import asyncio, os, signal, sys
from pathlib import Path
from aiocontroller.journal.writer import FileJournal
from aiocontroller.net.real import real_world

async def main():
    journal = FileJournal(Path(sys.argv[1]), 7, world=real_world())
    await journal.start()
    for i in range(1000):
        journal.append("event", partition=i)
    await journal.flush()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    (name,) = adopt_leftovers(tmp_path)
    assert len((tmp_path / name).read_text().splitlines()) == 1000


async def test_a_refusing_disk_is_logged_once_counted_and_loses_nothing_when_it_comes_back(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "journal"
    journal = file_journal(directory, clock)
    await journal.start()
    directory.rmdir()
    journal.append("event", partition=1)
    for attempt in range(1, 4):
        await until(lambda attempt=attempt: journal.statistics().failures == attempt and bool(clock.timers))
        await journal.flush()  # returns though nothing could be written
        journal.append("event", partition=1 + attempt)
        if attempt == 3:
            directory.mkdir()
        clock.advance(60)
    await until(lambda: journal.pending == 0)
    await journal.close()
    assert [r["partition"] for r in lines(directory)] == [1, 2, 3, 4]
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert str(directory) in errors[0].getMessage()


@pytest.mark.timeout(60)
def test_only_open_segments_are_adopted_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    others = ["_journal-notes.jsonl", "_journal-1-1-5-000001.jsonl", "_journal-1-1-5-000002.jsonl",
              "_journal-1-1-5-000003.jsonl", "_journal-1-1-5-000004.jsonl.jsonl"]  # fmt: skip
    (tmp_path / others[0]).write_text("mine")
    os.mkfifo(tmp_path / others[1])
    (tmp_path / others[2]).symlink_to(others[0])
    (tmp_path / others[3]).mkdir()
    (tmp_path / others[4]).touch()
    (tmp_path / "_journal-1-1-5-000005.jsonl").write_text("{}\n")
    assert adopt_leftovers(tmp_path) == ["journal-1-1-5-000005.jsonl"]
    assert sorted(names(tmp_path)) == [*sorted(others), "journal-1-1-5-000005.jsonl"]


async def test_memory_is_bounded_while_the_disk_refuses(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "journal"
    journal = file_journal(directory, clock, max_pending_when_failing=10)
    await journal.start()
    directory.rmdir()
    journal.append("event")
    await until(lambda: journal.statistics().failures == 1)
    for _ in range(50):
        journal.append("event")
    assert journal.pending <= 11
    async with asyncio.timeout(5):
        await journal.close()
    statistics = journal.statistics()
    assert (statistics.written, statistics.dropped, statistics.pending) == (0, 51, 0)


class HungDisk:
    """Each sync waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go, self.syncing = threading.Event(), threading.Event()
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.syncing.set()
        assert self.let_go.wait(30)


async def test_no_task_waits_for_a_hung_disk(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HungDisk(monkeypatch)
    journal = file_journal(tmp_path, clock, max_pending_when_failing=10)
    await journal.start()
    journal.append("event")
    await until(disk.syncing.is_set)
    waiting = asyncio.create_task(journal.flush())
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(HANGS_AFTER_S)
    await asyncio.wait_for(waiting, 10)
    await asyncio.wait_for(journal.flush(), 10)
    for _ in range(50):
        journal.append("event")
    assert journal.pending == 11
    disk.let_go.set()
    await until(lambda: journal.statistics().written == 1)
    clock.advance(LINGER_S)
    await until(lambda: journal.pending == 0)
    await journal.close()
    assert [r.getMessage().split(": ", 1)[1] for r in caplog.records if r.levelno >= logging.ERROR] == [
        "no write succeeded within 10 s: the disk hangs; up to 10 records wait in memory"
    ]
    assert "is writable again; 40 records were dropped" in caplog.text


async def test_closing_gives_up_on_a_disk_that_hangs(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HungDisk(monkeypatch)
    journal = file_journal(tmp_path, clock)
    await journal.start()
    journal.append("event")
    await until(disk.syncing.is_set)
    journal.append("event")
    closing = asyncio.create_task(journal.close(1.5))
    await asyncio.sleep(0)
    clock.advance(1.5)
    await asyncio.wait_for(closing, 10)
    assert "closed with 2 records that could not be written: the disk did not answer within 1.5 s" in caplog.text
    assert journal.statistics().dropped == 2
    disk.let_go.set()


async def test_another_thread_rescues_what_a_blocked_loop_left(tmp_path: Path, clock: ManualClock) -> None:
    journal = file_journal(tmp_path, clock)
    await journal.start()
    for number in range(1000):
        journal.append("event", partition=number)
    thread = threading.Thread(target=journal.rescue, args=(10,))
    thread.start()
    thread.join(10)  # the loop does nothing meanwhile
    assert [r["partition"] for r in lines(tmp_path)] == list(range(1000))
    assert names(tmp_path)[0].startswith("journal-")


def test_a_write_that_fails_half_way_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = Segment(tmp_path, SegmentName(1, 1, 1, 1))
    segment.write(b"one\n")
    real_write = os.write
    answers = [lambda fd, data: real_write(fd, bytes(data)[:3])]

    def full(fd: int, data: memoryview) -> int:
        if answers:
            return answers.pop()(fd, data)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        segment.write(b"second\n")
    monkeypatch.undo()
    segment.write(b"third\n")
    segment.complete()
    assert (tmp_path / SegmentName(1, 1, 1, 1).complete).read_text() == "one\nthird\n"


def test_a_file_taken_away_before_its_lock_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, 1, 1, 1 << 20)
    real_flock = fcntl.flock
    taken = []

    def slow_flock(fd: int, operation: int) -> None:
        if not taken:
            taken.append(tmp_path / "_journal-1-0-1-000001.jsonl")
            taken[0].unlink()
        real_flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", slow_flock)
    writer.write([Record(1, 1, 0, 1, 0, "event")])
    writer.complete()
    assert names(tmp_path) == ["journal-1-0-1-000002.jsonl"]


async def test_a_deleted_file_is_noticed_and_another_is_begun(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = file_journal(tmp_path, clock)
    await journal.start()
    journal.append("first")
    await journal.flush()
    next(tmp_path.iterdir()).unlink()
    journal.append("second")
    await journal.flush()
    assert journal.statistics().deleted == 1
    await journal.close()
    assert [line["kind"] for line in lines(tmp_path)] == ["second"]
    assert len([r for r in caplog.records if "the open file was deleted" in r.message]) == 1


async def test_a_deleted_folder_is_noticed_and_used_again_when_it_is_back(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data" / "journal"
    journal = file_journal(directory, clock)
    await journal.start()
    journal.append("first")
    await journal.flush()
    shutil.rmtree(tmp_path / "data")
    journal.append("second")
    await journal.flush()  # returns though it could not be written
    assert journal.statistics().failures == 1
    assert journal.statistics().deleted == 1
    assert ["file was deleted" in r.message for r in caplog.records] == [False, True]
    directory.mkdir(parents=True)

    def written() -> bool:
        clock.advance(60)  # whenever it is tried again
        return journal.pending == 0

    await until(written)
    await journal.close()
    assert [line["kind"] for line in lines(directory)] == ["second"]


async def test_a_file_deleted_before_its_end_is_noticed(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = file_journal(tmp_path, clock)
    await journal.start()
    journal.append("first")
    await journal.flush()
    next(tmp_path.iterdir()).unlink()
    await journal.close()
    assert journal.statistics().deleted == 1
    assert "the open file was deleted" in caplog.text
