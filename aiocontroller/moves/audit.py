"""Records what a command does to a cluster: who, what, when, with which result; a line of JSON each.

Each line is on disk before the action that it announces, so a command that was killed finds here what the cluster does
not know: where replicas were, and which settings throttles have replaced.  The file is locked while a command uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.core.unreadable_json import UNREADABLE_JSON
from aiocontroller.net.ports import Clock

BEGINNING = b'{"at_ms":'
"""How each record of this program begins."""


class InUseError(AioControllerError):
    """Another process uses this file; ``pid`` is its id, if the file names it and it runs on this machine."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"{path}: process {pid or 'unknown'} works by this file already")
        self.pid = pid


class NotWrittenError(AioControllerError):
    """A record could not be written to disk; the message names the file."""


class AuditFile:
    """Records of one file, in order."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open and lock the file; BadInputError if it holds anything else, InUseError while another process has it."""
        self.path = path
        self._clock = clock
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInputError(f"{path}: {error.strerror}") from None
        try:
            text = path.read_bytes()
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUseError(path, _holder(_records(path, text))) from None
            text = path.read_bytes()  # the last holder may have written before it released the lock
            self.records = _records(path, text)
            torn = len(text) - (text.rfind(b"\n") + 1)
            if torn:
                os.ftruncate(self._file, len(text) - torn)
        except BaseException:
            os.close(self._file)
            raise

    def write(self, what: str, **fields: Any) -> None:
        """Append a record, whole or not at all, and wait for the disk; NotWrittenError."""
        at = self._clock.wall_time_us() // 1000
        record = {"at_ms": at, "who": _who(), "pid": os.getpid(), "what": what, **fields}
        line = msgspec.json.encode(record) + b"\n"
        size = os.fstat(self._file).st_size
        try:
            while line:  # a disk that fills up accepts a part first
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise NotWrittenError(f"{self.path}: {error.strerror}") from None
        self.records.append(record)

    def belongs_to(self, cluster_id: str | None) -> None:
        """Record the cluster of this file; BadInputError if it is of another.  None: the id is unknown."""
        check_cluster(self.path, self.records, cluster_id)
        if cluster_id is not None and not any(record["what"] == "cluster" for record in self.records):
            self.write("cluster", id=cluster_id)

    def close(self) -> None:
        """Release the file to other processes."""
        os.close(self._file)


class NoRecords:
    """Records nothing: where nothing is done, or where what was done is only taken back."""

    def write(self, what: str, **fields: Any) -> None:
        """See ``AuditFile``."""


def audit_of(plan: Path) -> Path:
    """Return the default audit file of a plan."""
    return plan.with_name(plan.name + ".moves.jsonl")


def check_cluster(path: Path, records: Sequence[Mapping[str, Any]], cluster_id: str | None) -> None:
    """BadInputError if the records are of another cluster, which may have topics and brokers of the same names."""
    known = next((record.get("id") for record in records if record["what"] == "cluster"), None)
    if None not in (known, cluster_id) and known != cluster_id:
        raise BadInputError(
            f"{path}: found the record of cluster {known}, expected one of {cluster_id}: name another file by --audit"
        )


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a file that may be in use or missing; BadInputError for a file that holds anything else."""
    try:
        return _records(path, path.read_bytes())
    except FileNotFoundError:
        return []


def _records(path: Path, text: bytes) -> list[dict[str, Any]]:
    """Parse all whole lines: if a crash tore the last one, the action that it announces was not begun."""
    found = []
    whole = text[: text.rfind(b"\n") + 1]
    if not whole and not BEGINNING.startswith(text[: len(BEGINNING)]):
        raise BadInputError(f"{path}, line 1: found another beginning, expected a record of this program")
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = msgspec.json.decode(line, type=dict[str, Any])
        except UNREADABLE_JSON as error:
            raise BadInputError(f"{path}, line {number}: {error}; expected a record of this program") from None
        if not isinstance(record.get("what"), str):
            raise BadInputError(f"{path}, line {number}: found no 'what', expected a record of this program")
        found.append(record)
    return found


def _holder(records: list[dict[str, Any]]) -> int | None:
    """Return the process that wrote last; None if it was on another machine, or if its id is not a valid one."""
    last = records[-1] if records else {}
    pid, who = last.get("pid"), last.get("who")
    ours = isinstance(who, str) and who.endswith(f"@{socket.gethostname()}")
    return pid if ours and isinstance(pid, int) and 1 < pid < 2**31 else None


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
