"""Bulk reads: columns of results, hundreds of znodes per request.

getData is sent as multiRead (ZooKeeper 3.6 and later; a server that answers Unimplemented gets pipelined getData from
then on), unless a few znodes are also to be watched; exists and getChildren2 are pipelined, since multiRead does not
support them.  Everything is repeated after a lost connection.

SetWatches arms the watches after a multiRead, relative to the highest mzxid in the batch.  A server runs a multiRead
with no write in between, so a znode that changes later has a higher mzxid and fires at once: no change is missed, and
no watch fires without one.  Only data of the same batch may be used for that: two batches can have a change between
them.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.connection import Hook
from aiocontroller.zookeeper.errors import BadReplyError, Code, response_error
from aiocontroller.zookeeper.overlap import in_window
from aiocontroller.zookeeper.session import ZooKeeperSession
from aiocontroller.zookeeper.watches import set_watches_bodies

MAX_READS = 1000
FIRST_READS = 250
"""Number of znodes in the first requests of a call, before their size is known."""
WANTED_REPLY_BYTES = 2 << 20
MAX_REQUEST_BYTES = 400_000
FEW_WATCHED = 16
"""Up to this many znodes are read and watched by getData, in one round trip; multiRead and SetWatches take two."""
PIPELINED = 250
WINDOW = 4
"""Requests of one bulk call that may be in flight together."""


class Reads:
    """Results of getData, as columns in the order of the paths.

    ``data``: bytes, or None without data or znode; ``version``: -1 without a znode; ``code``: 0 or ZooKeeper's code
    (-101 NoNode, -102 NoAuth, …).
    """

    __slots__ = ("_at", "_payloads", "_starts", "code", "data", "version")

    def __init__(self) -> None:
        self.data: list[bytes | None] = []
        self.version: list[int] = []
        self.code: list[int] = []
        self._at: list[int] = []
        self._starts: list[int] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self.code)

    def stat(self, i: int) -> Any:
        """The i-th znode's Stat (aiozk's class), or None; parsed on demand."""
        at = self._at[i]
        return codec.parse_stat(self._payload(i), at) if at >= 0 else None

    def mzxid(self, i: int) -> int:
        """zxid of the last change of the i-th znode; 0 if it is missing."""
        return self._long(i, codec.STAT_MZXID)

    def czxid(self, i: int) -> int:
        """zxid of the i-th znode's creation; 0 if it is missing."""
        return self._long(i, 0)

    def ephemeral_owner(self, i: int) -> int:
        """Session id of the owner of the i-th znode; 0 if it is persistent or missing."""
        return self._long(i, codec.STAT_OWNER)

    def num_children(self, i: int) -> int:
        """Number of children of the i-th znode; 0 if it is missing."""
        at = self._at[i]
        return int(codec.unpack_int(self._payload(i), at + codec.STAT_CHILDREN)[0]) if at >= 0 else 0

    def _long(self, i: int, offset: int) -> int:
        at = self._at[i]
        return int(codec.unpack_long(self._payload(i), at + offset)[0]) if at >= 0 else 0

    def _payload(self, i: int) -> bytes:
        return self._payloads[bisect_right(self._starts, i) - 1]

    def parse(self, payload: bytes, count: int) -> None:
        """Append the ``count`` results of one multiRead; BadReplyError for other numbers."""
        self._starts.append(len(self.code))
        self._payloads.append(payload)
        end = codec.parse_multi_read(payload, count, self.data, self.version, self.code, self._at)
        if end != len(payload):
            raise BadReplyError(f"the answer to a multiRead of {count} has {len(payload)} bytes and ends elsewhere")

    def add(self, code: int, payload: bytes) -> None:
        """Append the reply of one getData."""
        self._starts.append(len(self.code))
        self._payloads.append(payload)
        self.code.append(code)
        if code != codec.OK:
            self.data.append(None)
            self.version.append(-1)
            self._at.append(-1)
            return
        length = codec.unpack_int(payload, 0)[0]
        at = 4 + max(length, 0)
        self.data.append(payload[4:at] if length >= 0 else None)
        self.version.append(codec.unpack_int(payload, at + codec.STAT_VERSION)[0])
        self._at.append(at)

    def extend(self, other: Reads) -> None:
        """Append the results of other reads."""
        start = len(self.code)
        self._starts += [start + s for s in other._starts]
        self._payloads += other._payloads
        self.data += other.data
        self.version += other.version
        self.code += other.code
        self._at += other._at

    def max_mzxid(self) -> int:
        """The highest mzxid found; 0 if none."""
        highest = 0
        bounds = [*self._starts[1:], len(self.code)]
        for payload, start, end in zip(self._payloads, self._starts, bounds, strict=True):
            for at in self._at[start:end]:
                if at >= 0 and (mzxid := codec.unpack_long(payload, at + 8)[0]) > highest:
                    highest = mzxid
        return highest


class Children:
    """Results of getChildren: ``names`` (sorted; None if ``code`` is not 0) and ``stat(i)``."""

    __slots__ = ("_stats", "code", "names")

    def __init__(self) -> None:
        self.names: list[list[str] | None] = []
        self.code: list[int] = []
        self._stats: list[bytes] = []

    def stat(self, i: int) -> Any:
        """The i-th znode's Stat, or None."""
        return codec.parse_stat(self._stats[i], 0) if self._stats[i] else None

    def add(self, code: int, payload: bytes) -> None:
        """Append the reply of one getChildren2."""
        self.code.append(code)
        if code != codec.OK:
            self.names.append(None)
            self._stats.append(b"")
            return
        names, at = codec.parse_strings(payload)
        # the server returns them in a hash set's order
        self.names.append(sorted(names))
        self._stats.append(payload[at:])


class Exists:
    """Results of exists: ``code`` (0, -101, …) and ``stat(i)``, None without a znode."""

    __slots__ = ("_stats", "code")

    def __init__(self) -> None:
        self.code: list[int] = []
        self._stats: list[bytes] = []

    def stat(self, i: int) -> Any:
        """The i-th znode's Stat, or None."""
        return codec.parse_stat(self._stats[i], 0) if self._stats[i] else None

    def add(self, code: int, payload: bytes) -> None:
        """Append the reply of one exists."""
        self.code.append(code)
        self._stats.append(payload if code == codec.OK else b"")


class BulkReader:
    """Bulk reads over one session; paths here are full paths."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self.multi_read_supported = True
        self.znodes_read = 0

    async def get_many(self, prefix: str, paths: Sequence[str], *, watch: bool) -> Reads:
        """Data of each ``prefix`` + path."""
        found: dict[int, Reads] = {}
        generation = self._session.generation
        position, wanted = 0, FIRST_READS

        async def work() -> None:
            nonlocal position, wanted
            while position < len(paths):
                start = position
                full = paths[start : start + wanted]
                if prefix:  # "/" is the chroot itself, without a trailing slash
                    full = [prefix + path if path != "/" else prefix for path in full]
                raw = list(map(str.encode, full))
                count = _fitting(raw)
                position += count
                found[start], size = await self._read_batch(raw[:count], full[:count], watch, generation)
                wanted = min(MAX_READS, max(1, WANTED_REPLY_BYTES * count // max(size, 1)))

        await in_window(min(WINDOW, -(-len(paths) // FIRST_READS)), work)
        self.znodes_read += len(paths)
        return _merge(found)

    async def _read_batch(
        self, raw: Sequence[bytes], paths: Sequence[str], watch: bool, generation: int
    ) -> tuple[Reads, int]:
        """One batch and its size in bytes."""
        while self.multi_read_supported and not (watch and len(paths) <= FEW_WATCHED):
            [(code, payload)] = await self._session.exchange([codec.multi_read(raw)], retry=True, generation=generation)
            if code == Code.UNIMPLEMENTED:
                self.multi_read_supported = False
                break
            if code != codec.OK:
                raise response_error(code)
            reads = Reads()
            reads.parse(payload, len(raw))
            if watch:
                await self._arm(reads, paths, generation)
            return reads, len(payload)
        while True:
            reads = Reads()
            await self._pipelined(codec.GET_DATA, paths, watch, reads.add, generation)
            absent = [path for path, code in zip(paths, reads.code, strict=True) if code == codec.NO_NODE]
            found = Exists()
            if watch:  # getData watches only what exists
                await self._pipelined(codec.EXISTS, absent, watch, found.add, generation)
            if codec.OK not in found.code:  # else it was created meanwhile
                return reads, sum(len(data or b"") + 100 for data in reads.data)

    async def _arm(self, reads: Reads, paths: Sequence[str], generation: int) -> None:
        """Watch the znodes just read: data of existing ones, creation of missing ones.

        Repeating it over a lost connection is safe: it stays relative to the data of this batch.
        """
        present = [path for path, code in zip(paths, reads.code, strict=True) if code == codec.OK]
        absent = [path for path, code in zip(paths, reads.code, strict=True) if code == codec.NO_NODE]
        registry = self._session.registry
        registry.begin(present, absent)
        try:
            bodies = list(set_watches_bodies(reads.max_mzxid(), present, absent))
            for code, _ in await self._session.exchange(bodies, retry=True, generation=generation):
                if code != codec.OK:
                    raise response_error(code)
        finally:
            registry.end(paths)

    async def read_raw(self, raw: Sequence[bytes], generation: int) -> Reads:
        """One batch of encoded paths, without watches."""
        reads, _ = await self._read_batch(raw, [path.decode() for path in raw], False, generation)
        return reads

    async def exists_many(self, paths: Sequence[str], *, watch: bool) -> Exists:
        """The Stat of each path; ``watch`` as for ``get_many``."""
        found = Exists()
        await self._pipelined(codec.EXISTS, paths, watch, found.add, self._session.generation)
        self.znodes_read += len(paths)
        return found

    async def children_many(self, paths: Sequence[str], *, watch: bool) -> Children:
        """The children's names of each path; ``watch`` arms child watches."""
        found = Children()
        await self._pipelined(codec.GET_CHILDREN2, paths, watch, found.add, self._session.generation)
        self.znodes_read += len(paths)
        return found

    async def _pipelined(
        self, opcode: int, paths: Sequence[str], watch: bool, add: Callable[[int, bytes], None], generation: int
    ) -> None:
        """One request per path, many in flight; ``add`` gets the replies in order."""
        found: dict[int, list[tuple[int, bytes]]] = {}
        position = 0

        async def work() -> None:
            nonlocal position
            while position < len(paths):
                start = position
                batch = paths[start : start + PIPELINED]
                position = start + len(batch)
                hooks: list[Hook | None] | None = None
                if watch:
                    hooks = [functools.partial(self._session.registry.armed, opcode, path) for path in batch]
                bodies = [codec.path_and_watch(opcode, path, watch) for path in batch]
                found[start] = await self._session.exchange(bodies, retry=True, hooks=hooks, generation=generation)

        await in_window(min(2, -(-len(paths) // PIPELINED)), work)
        for start in sorted(found):
            for code, payload in found[start]:
                with codec.reading(f"the answer to an operation {opcode}", payload):
                    add(code, payload)


def _fitting(raw: Sequence[bytes]) -> int:
    """The number of these paths that fit one request."""
    # one sum for the usual case of short paths; one by one only if that is too large
    if sum(map(len, raw)) + 14 * len(raw) <= MAX_REQUEST_BYTES:
        return len(raw)
    size = 0
    for i, path in enumerate(raw):
        size += len(path) + 14
        if size > MAX_REQUEST_BYTES:
            return max(i, 1)
    return len(raw)


def _merge(found: dict[int, Reads]) -> Reads:
    if len(found) == 1:
        return next(iter(found.values()))
    merged = Reads()
    for start in sorted(found):
        merged.extend(found[start])
    return merged
