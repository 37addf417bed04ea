"""Reads ZooKeeper's transaction log from the folders of its servers.

Each entry has the session that wrote, the zxid, the time and the operations, including the checks of a multi.  So the
history of a real run is as complete and ordered as that of a simulated one, without an observer at run time.

Format (ZooKeeper 3.6 to 3.9, ``FileTxnLog``): a header of 16 bytes that begins with ``ZKLG``; then for each entry a
checksum (8 bytes), the length (4), the entry and ``B``; zeros after the last entry.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aiocontroller.lab.zookeeper.jute import Reader

MAGIC = b"ZKLG"
HEADER_BYTES = 16
EPOCH_BITS = 32
CREATE, DELETE, SET_DATA, CHECK, MULTI, CREATE2 = 1, 2, 5, 13, 14, 15
ERROR = -1
CREATE_SESSION, CLOSE_SESSION = -10, -11

_FRAME = struct.Struct(">qi")
_ENTRY = struct.Struct(">qiqqi")


class Change(NamedTuple):
    """A change of one znode; ``kind`` is CREATE, SET_DATA, DELETE or CHECK (without the checked version)."""

    kind: int
    path: str
    data: bytes | None = None
    version: int = 0
    ephemeral: bool = False


class Transaction(NamedTuple):
    """``session`` is the session that wrote or ended; ``time_ms`` is the server's time since 1970."""

    zxid: int
    session: int
    time_ms: int
    kind: int
    changes: tuple[Change, ...]


def read_transactions(folders: Sequence[Path], after_zxid: int = 0) -> list[Transaction]:
    """Return all committed transactions, in order; ``folders`` are the servers' data folders (with ``version-2``).

    With several servers, a transaction counts as committed if at least two servers have it or a later one of the same
    leader: a dead leader may have logged a proposal that was never committed.
    """
    found: dict[int, bytes] = {}
    held: Counter[int] = Counter()
    for folder in folders:
        here = {zxid: entry for log in _logs(folder) for zxid, entry in _entries(log, after_zxid)}
        found.update(here)
        held.update(here.keys())
    last: dict[int, int] = {}
    for zxid in (zxid for zxid, count in held.items() if count > 1 or len(folders) == 1):
        last[zxid >> EPOCH_BITS] = max(zxid, last.get(zxid >> EPOCH_BITS, 0))
    return [_decode(found[zxid]) for zxid in sorted(found) if zxid <= last.get(zxid >> EPOCH_BITS, 0)]


def _logs(folder: Path) -> list[Path]:
    return sorted((folder / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))


def _entries(log: Path, after_zxid: int) -> Iterator[tuple[int, bytes]]:
    """Yield complete entries; the last one may still be being written."""
    content = log.read_bytes()
    if content[:4] != MAGIC:
        return
    at = HEADER_BYTES
    while at + _FRAME.size <= len(content):
        _, length = _FRAME.unpack_from(content, at)
        end = at + _FRAME.size + length
        if length < _ENTRY.size or end >= len(content) or content[end] != ord("B"):
            return
        zxid = _ENTRY.unpack_from(content, at + _FRAME.size)[2]
        if zxid > after_zxid:
            yield zxid, content[at + _FRAME.size : end]
        at = end + 1


def _decode(entry: bytes) -> Transaction:
    session, _, zxid, time_ms, kind = _ENTRY.unpack_from(entry)
    body = Reader(entry[_ENTRY.size :])
    if kind == CLOSE_SESSION:
        changes = tuple(Change(DELETE, path) for path in body.strings())
    elif kind == MULTI:
        parts = [(body.int32(), body.buffer() or b"") for _ in range(body.int32())]
        # a refused multi is logged with the operations before the refused one, as they were requested
        refused = any(part == ERROR for part, _ in parts)
        changes = () if refused else tuple(change for part, data in parts for change in _changes(part, Reader(data)))
    else:
        changes = tuple(_changes(kind, body))
    return Transaction(zxid, session, time_ms, kind, changes)


def _changes(kind: int, body: Reader) -> Iterator[Change]:
    """Yield the changes of an operation; none for sessions, refusals and ACLs."""
    if kind in (CREATE, CREATE2):
        path, data = body.string(), body.buffer()
        for _ in range(body.int32()):
            body.int32(), body.string(), body.string()
        yield Change(CREATE, path, data, 0, body.boolean())
    elif kind == SET_DATA:
        yield Change(SET_DATA, body.string(), body.buffer(), body.int32())
    elif kind == DELETE:
        yield Change(DELETE, body.string())
    elif kind == CHECK:
        yield Change(CHECK, body.string())
