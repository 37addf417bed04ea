"""ZooKeeper's wire format for the bulk path, packed and unpacked by hand.

Every number is big-endian.  A *body* is opcode + payload; the connection prepends length and xid.  A multi (and a
multiRead) is a sequence of (type int, done bool, err int) headers, each followed by the operation or its result, and
ends with (-1, true, -1).  aiozk's ``Part`` classes build one object per number (23 to 58 times slower, measured), so
they serve single operations only.

Every ``parse_…`` raises BadReplyError for truncated bytes, and no other error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import add
from struct import Struct
from struct import error as struct_error
from typing import Any

import msgspec

from aiocontroller.zookeeper.errors import BadReplyError, Code
from aiocontroller.zookeeper.from_aiozk import ConnectRequest, ConnectResponse, Stat

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA = 1, 2, 3, 4, 5
GET_ACL, GET_CHILDREN, SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 6, 8, 9, 11, 12, 13, 14, 15
MULTI_READ, SET_WATCHES, SASL, GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER = 22, 101, 102, 103, 104
REMOVE_WATCHES, SET_WATCHES2, ADD_WATCH = 18, 105, 106
READ_OPCODES = frozenset(
    (
        EXISTS,
        GET_DATA,
        GET_ACL,
        GET_CHILDREN,
        SYNC,
        GET_CHILDREN2,
        MULTI_READ,
        SET_WATCHES,
        REMOVE_WATCHES,
        SET_WATCHES2,
        ADD_WATCH,
        GET_EPHEMERALS,
        GET_ALL_CHILDREN_NUMBER,
    )
)
"""Operations that may be sent again after a lost connection."""

EPHEMERAL, SEQUENTIAL = 1, 2
PERSISTENT_RECURSIVE, ANY_WATCH = 1, 3
"""The mode of AddWatch, and the type of RemoveWatches."""

MAX_DATA_BYTES = 1_040_000
"""Limit for one znode: leaves room for the path and the multi below servers' ``jute.maxbuffer``, 1,048,575."""

STAT_BYTES = 68
STAT_MZXID, STAT_VERSION, STAT_OWNER, STAT_CHILDREN, STAT_PZXID = 8, 32, 44, 56, 60
"""Offsets inside a Stat."""

_INT = Struct(">i")
_LONG = Struct(">q")
_OP_AND_LENGTH = Struct(">i?ii")
_RESULT = Struct(">i?i")
_STAT = Struct(">qqqqiiiqiiq")
_STAT_NAMES = tuple(name for name, _ in Stat.parts)
_END_OF_MULTI = _RESULT.pack(-1, True, -1)

pack_int = _INT.pack
unpack_int = _INT.unpack_from
unpack_long = _LONG.unpack_from


class Check(msgspec.Struct, frozen=True):
    """The znode's version must be ``version`` (-1: it must exist)."""

    path: str
    version: int = -1


class Create(msgspec.Struct, frozen=True):
    """A new znode; ``acl`` None means the client's default."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequential: bool = False
    acl: Sequence[Any] | None = None


class SetData(msgspec.Struct, frozen=True):
    """Set the data if the znode's version is ``version`` (-1: any)."""

    path: str
    data: bytes | None
    version: int = -1


class Delete(msgspec.Struct, frozen=True):
    """Delete the znode if its version is ``version`` (-1: any)."""

    path: str
    version: int = -1


Op = Check | Create | SetData | Delete


class OpResult(msgspec.Struct, frozen=True):
    """The result of one operation of a multi.

    ``code`` is 0 if applied; in a failed multi it is 0 before the failed operation, the reason at it, and
    RUNTIME_INCONSISTENCY (-2) after it.  SetData and Create set ``stat``; Create sets ``path``, as named by the server.
    """

    code: int
    stat: Any = None
    path: str | None = None

    @property
    def version(self) -> int:
        """The znode's version after the operation; -1 where the result has no stat."""
        return int(self.stat.version) if self.stat is not None else -1


def ustring(text: str) -> bytes:
    """A string of ZooKeeper's protocol: its length in bytes, then UTF-8."""
    raw = text.encode()
    return pack_int(len(raw)) + raw


def buffer(data: bytes | None) -> bytes:
    """Bytes of ZooKeeper's protocol, after their length; -1 for None."""
    return pack_int(-1) if data is None else pack_int(len(data)) + data


def framed(message: bytes) -> bytes:
    """A message (xid, opcode and payload; of the handshake the payload alone) behind its length."""
    return pack_int(len(message)) + message


def text(raw: bytes) -> str:
    """Decode a name from the server; never raises for invalid UTF-8 (which servers do not accept)."""
    return raw.decode("utf-8", "replace")


@contextmanager
def reading(subject: str, payload: bytes) -> Iterator[None]:
    """Raises BadReplyError if the bytes of ``subject`` are truncated."""
    try:
        yield
    except (struct_error, IndexError) as error:
        raise BadReplyError(f"{subject} has {len(payload)} bytes and ends too early") from error


def encode_acl(acl: Sequence[Any]) -> bytes:
    """A vector of aiozk ACLs."""
    parts = [pack_int(len(acl))]
    parts += [pack_int(entry.perms) + ustring(entry.id.scheme) + ustring(entry.id.id) for entry in acl]
    return b"".join(parts)


def connect_frame(seen_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The first frame of a connection, length included."""
    return framed(
        ConnectRequest(
            protocol_version=0,
            last_seen_zxid=seen_zxid,
            timeout=timeout_ms,
            session_id=session_id,
            password=password,
            read_only=False,
        ).serialize()
    )


def decode_connect_reply(payload: bytes) -> tuple[int, int, bytes]:
    """(session timeout in ms, session id, password); id 0 means that the requested session is gone."""
    with reading("the answer to the handshake", payload):
        reply = ConnectResponse.deserialize(payload)
        return reply.timeout, reply.session_id, reply.password or b""


def path_and_watch(opcode: int, path: str, watch: bool) -> bytes:
    """The body of exists, getData, getChildren2."""
    raw = path.encode()
    return b"%b%b%b%b" % (pack_int(opcode), pack_int(len(raw)), raw, b"\1" if watch else b"\0")


def multi_read(raw_paths: Sequence[bytes]) -> bytes:
    """A multiRead of getData, one for each path, without watches."""
    lengths = list(map(len, raw_paths))
    heads = {length: _OP_AND_LENGTH.pack(GET_DATA, False, -1, length) for length in set(lengths)}
    parts = list(map(add, map(heads.__getitem__, lengths), raw_paths))
    return b"".join((pack_int(MULTI_READ), b"\0".join(parts), b"\0" if parts else b"", _END_OF_MULTI))


def check_op(path: str, version: int) -> bytes:
    """A check of a multi: the znode must have this version."""
    raw = path.encode()
    return _OP_AND_LENGTH.pack(CHECK, False, -1, len(raw)) + raw + pack_int(version)


def multi_set(
    check: bytes | None, raw_paths: Sequence[bytes], datas: Sequence[bytes], versions: Sequence[int]
) -> bytes:
    """A multi of an optional check and of SetData; each distinct length, data and version is packed once."""
    lengths = list(map(len, raw_paths))
    heads = {length: _OP_AND_LENGTH.pack(SET_DATA, False, -1, length) for length in set(lengths)}
    buffers = {data: pack_int(len(data)) + data for data in set(datas)}
    packed = {version: pack_int(version) for version in set(versions)}
    rows = zip(
        map(heads.__getitem__, lengths),
        raw_paths,
        map(buffers.__getitem__, datas),
        map(packed.__getitem__, versions),
        strict=True,
    )
    return b"".join((pack_int(MULTI), check or b"", *chain.from_iterable(rows), _END_OF_MULTI))


def encode_op(op: Op, raw: bytes, acl_of: Callable[[bytes], bytes], *, with_stat: bool) -> bytes:
    """One operation of a multi; ``raw`` is its full path; ``with_stat`` makes a Create return the Stat.

    ``acl_of`` encodes the ACL of a Create without one.
    """
    if isinstance(op, SetData):
        return _OP_AND_LENGTH.pack(SET_DATA, False, -1, len(raw)) + raw + buffer(op.data) + pack_int(op.version)
    if isinstance(op, Create):
        opcode = CREATE2 if with_stat else CREATE
        flags = (EPHEMERAL if op.ephemeral else 0) | (SEQUENTIAL if op.sequential else 0)
        acl = acl_of(raw) if op.acl is None else encode_acl(op.acl)
        return _OP_AND_LENGTH.pack(opcode, False, -1, len(raw)) + raw + buffer(op.data) + acl + pack_int(flags)
    opcode = DELETE if isinstance(op, Delete) else CHECK
    return _OP_AND_LENGTH.pack(opcode, False, -1, len(raw)) + raw + pack_int(op.version)


def multi(encoded_ops: Sequence[bytes]) -> bytes:
    """The body of a multi of operations that are encoded already."""
    return b"".join((pack_int(MULTI), *encoded_ops, _END_OF_MULTI))


def parse_stat(payload: bytes, offset: int) -> Any:
    """An aiozk ``Stat``, read in one step (its own parser takes eleven); BadReplyError if it is truncated."""
    stat = Stat.__new__(Stat)
    try:
        stat.__dict__.update(zip(_STAT_NAMES, _STAT.unpack_from(payload, offset), strict=True))
    except struct_error as error:
        raise BadReplyError(
            f"an answer has {len(payload)} bytes, expected a Stat of {STAT_BYTES} from byte {offset} on"
        ) from error
    return stat


def parse_multi_read(
    payload: bytes, count: int, datas: list[bytes | None], versions: list[int], codes: list[int], stats: list[int]
) -> int:
    """Append ``count`` results to the columns; ``stats`` gets each Stat's offset in ``payload``, or -1.

    Returns the offset after the multi's end.
    """
    with reading(f"the answer to a multiRead of {count}", payload):
        return _parse_multi_read(payload, count, datas, versions, codes, stats)


def _parse_multi_read(
    payload: bytes, count: int, datas: list[bytes | None], versions: list[int], codes: list[int], stats: list[int]
) -> int:
    head, unpack_version = _OP_AND_LENGTH.unpack_from, _INT.unpack_from
    add_data, add_version, add_stat = datas.append, versions.append, stats.append
    at, base = 0, len(codes)
    codes += [0] * count  # nearly all are found
    for i in range(base, base + count):
        kind, _, _, length = head(payload, at)
        at += 13
        if kind == GET_DATA:
            end = at + length if length > 0 else at
            add_data(payload[at:end] if length >= 0 else None)
            add_version(unpack_version(payload, end + 32)[0])
            add_stat(end)
            at = end + 68
        elif kind == -1:  # the code is in the place of a length
            add_data(None)
            add_version(-1)
            codes[i] = length
            add_stat(-1)
        else:
            raise BadReplyError(
                f"a multiRead answered with an operation of type {kind}, expected getData (4) or an error (-1)"
            )
    return at + 9


def parse_set_results(payload: bytes, first: int, count: int) -> list[int] | None:
    """New versions of an all-SetData multi's operations ``first``..; None unless every one was applied.

    The fixed layout (9 bytes header, 68 bytes Stat) makes it one pass over known offsets.
    """
    at = first * 9
    size = 9 + STAT_BYTES
    if len(payload) < at + count * size or payload[3] != (CHECK if first else SET_DATA):
        return None
    unpack_version = _INT.unpack_from
    start = at + 9 + STAT_VERSION
    return [unpack_version(payload, offset)[0] for offset in range(start, start + count * size, size)]


def parse_multi(payload: bytes) -> list[OpResult]:
    """All results of a multi, of any kind."""
    with reading("the answer to a multi", payload):
        return list(_results(payload))


def _results(payload: bytes) -> Iterator[OpResult]:
    at = 0
    while True:
        kind, done, _ = _RESULT.unpack_from(payload, at)
        at += 9
        if done:
            return
        if kind == -1:
            yield OpResult(unpack_int(payload, at)[0])
            at += 4
        elif kind == SET_DATA:
            yield OpResult(0, parse_stat(payload, at))
            at += STAT_BYTES
        elif kind in (CREATE, CREATE2):
            length = max(unpack_int(payload, at)[0], 0)
            path = text(payload[at + 4 : at + 4 + length])
            at += 4 + length
            yield OpResult(0, parse_stat(payload, at) if kind == CREATE2 else None, path)
            at += STAT_BYTES if kind == CREATE2 else 0
        elif kind in (DELETE, CHECK):
            yield OpResult(0)
        else:
            raise BadReplyError(f"a multi answered with an operation of unknown type {kind}")


def parse_strings(payload: bytes, at: int = 0) -> tuple[list[str], int]:
    """A vector of strings, and the offset after it; BadReplyError if it is truncated."""
    found = []
    with reading("a vector of strings", payload):
        count = unpack_int(payload, at)[0]
        at += 4
        for _ in range(count):
            end = at + 4 + max(unpack_int(payload, at)[0], 0)
            found.append(text(payload[at + 4 : end]))
            at = end
    if at > len(payload):
        raise BadReplyError(f"a vector of strings has {len(payload)} bytes, expected {at}")
    return found, at


def set_watches(relative_zxid: int, lists: Sequence[Sequence[str]]) -> bytes:
    """The body of SetWatches; ``lists``: data, exist, child paths."""
    parts = [pack_int(SET_WATCHES), _LONG.pack(relative_zxid)]
    for paths in lists:
        parts.append(pack_int(len(paths)))
        parts += map(ustring, paths)
    return b"".join(parts)


def set_watches2(relative_zxid: int, recursive: Sequence[str]) -> bytes:
    """The body of SetWatches2 that arms persistent recursive watches and nothing else."""
    none = pack_int(0)
    paths = b"".join(map(ustring, recursive))
    return pack_int(SET_WATCHES2) + _LONG.pack(relative_zxid) + none * 4 + pack_int(len(recursive)) + paths


def add_watch(path: str) -> bytes:
    """The body of AddWatch for a persistent recursive watch."""
    return pack_int(ADD_WATCH) + ustring(path) + pack_int(PERSISTENT_RECURSIVE)


def remove_watches(path: str) -> bytes:
    """The body of RemoveWatches for this session's watches of every kind on the path."""
    return pack_int(REMOVE_WATCHES) + ustring(path) + pack_int(ANY_WATCH)


OK, NO_NODE = int(Code.OK), int(Code.NO_NODE)
BAD_VERSION, NODE_EXISTS = int(Code.BAD_VERSION), int(Code.NODE_EXISTS)
