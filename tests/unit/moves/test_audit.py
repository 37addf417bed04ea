"""A record of what was done: on the disk before it is done, locked, and readable after a crash within a line."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from pathlib import Path

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.moves.audit import AuditFile, InUseError, NotWrittenError, read_records
from aiocontroller.net.real import RealClock


def test_records_are_lines_of_who_what_and_when(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, RealClock())
    audit.write("begin", before=[("t", 0, (1, 2))])
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert record["what"] == "begin"
    assert record["pid"] == os.getpid()
    assert "@" in record["who"]
    assert record["at_ms"] > 1_700_000_000_000
    audit.close()
    again = AuditFile(path, RealClock())
    assert [each["what"] for each in again.records] == ["begin"]
    again.write("end")
    assert [each["what"] for each in read_records(path)] == ["begin", "end"]
    again.close()


def test_a_torn_line_announced_nothing_that_was_done(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"what":"begin"}\n{"what":"thro')
    assert [each["what"] for each in read_records(path)] == ["begin"]
    audit = AuditFile(path, RealClock())
    audit.write("move")
    assert [each["what"] for each in read_records(path)] == ["begin", "move"]
    audit.close()


def test_one_process_at_a_time_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, RealClock())
    with pytest.raises(InUseError, match="process unknown works by this file already"):
        AuditFile(path, RealClock())
    audit.write("begin")
    with pytest.raises(InUseError) as error:
        AuditFile(path, RealClock())
    assert error.value.pid == os.getpid()
    audit.close()
    AuditFile(path, RealClock()).close()


@pytest.mark.parametrize("pid, host", [(7, "elsewhere"), (0, ""), (-1, ""), (1, ""), (2**40, ""), ("7", "")])
def test_a_number_that_names_no_process_of_this_machine_is_nobodys(tmp_path: Path, pid: object, host: str) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, RealClock())
    audit.write("open", pid=pid, who=f"somebody@{host or socket.gethostname()}")
    with pytest.raises(InUseError, match="process unknown works by this file already"):
        AuditFile(path, RealClock())
    audit.close()


def test_a_full_disk_takes_a_record_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, RealClock())
    audit.write("begin")
    before, (_, hard) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))  # a part of a record fits
        with pytest.raises(NotWrittenError, match=r"audit\.jsonl: File too large"):
            audit.write("move", text="x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    audit.write("move")
    assert (
        [each["what"] for each in read_records(path)] == [each["what"] for each in audit.records] == ["begin", "move"]
    )
    audit.close()


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\xff\n",
        b'{"what": "\xff"}\n',
        b"[1]\n",
        b'{"at": 1}\n',
        b"retention.ms=1\n",
        b"retention.ms=1",
        b'{"a":' + b"[" * 100_000 + b"\n",
    ],
)
def test_another_file_is_refused_and_stays_as_it_is(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(text)
    with pytest.raises(BadInputError, match=r"server\.properties, line 1: .*expected a record of this program"):
        AuditFile(path, RealClock())
    assert path.read_bytes() == text


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no/audit: No such file or directory"):
        AuditFile(tmp_path / "no" / "audit", RealClock())
    assert read_records(tmp_path / "none") == []


def test_a_file_is_of_one_cluster(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, RealClock())
    for cluster_id in (None, "one", None, "one"):
        audit.belongs_to(cluster_id)
    assert [each["id"] for each in read_records(path)] == ["one"]
    with pytest.raises(
        BadInputError, match=r"audit\.jsonl: found the record of cluster one, expected one of two: .* --audit"
    ):
        audit.belongs_to("two")
    audit.close()
