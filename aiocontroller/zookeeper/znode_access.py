"""Basic operations on single znodes and their parents, by path, for the typed clients.

In all of them, an error names its path, a missing parent is created or watched for, and a lost reply never applies
anything twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError, is_refusal, response_error
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.writes import WriteOp
from aiocontroller.zookeeper.znode_json import BadZNode

MAX_ATTEMPTS = 20
"""Attempts of a read-and-write before it gives up to concurrent writers."""


SHOWN = "a znode that we may read"
"""What was expected of a bad znode that the server refuses to show; it need not be damaged."""


def answered(path: str, code: int) -> str:
    """What ZooKeeper answered about the path, for a log line: the code's name and number."""
    name = Code(code).name if code in Code.__members__.values() else "an unknown code"
    return f"{path}: ZooKeeper answered {name} ({code})"


def error_at(path: str, code: int) -> Exception:
    """aiozk's exception for the server's code; as it prints only its own name, a note on it has the path."""
    error = response_error(code)
    error.add_note(answered(path, code))
    return error


def refused(path: str, code: int) -> BadZNode | None:
    """A bad znode for one that the server refused to show (usually NoAuth); None for code 0."""
    return BadZNode(path, answered(path, code), SHOWN) if code else None


def parent_of(path: str) -> str:
    """The path of the parent; empty for a znode below the root."""
    return path.rpartition("/")[0]


class ZNodeAccess:
    """Small reads and writes that several typed clients share."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    # -- reading ---------------------------------------------------------------------------------------------------

    async def read(self, path: str, *, watch: bool = False) -> Reads | None:
        """Read one znode; None if it is missing, whose creation ``watch`` then watches for."""
        reads = await self._client.get_many([path], watch=watch)
        code = reads.code[0]
        if code not in (0, Code.NO_NODE):
            raise error_at(path, code)
        return reads if code == 0 else None

    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Sorted names; none if the parent is missing, whose creation ``watch`` then watches for."""
        while True:
            children = await self._client.children_many([path], watch=watch)
            names = children.names[0]
            if names is not None:
                return names
            if children.code[0] != Code.NO_NODE:
                raise error_at(path, children.code[0])
            if not watch or not await self.exists(path, watch=True):
                return []

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        """Whether it exists; ``watch`` also reports its next creation, deletion or change.  Raises ``exc.ZKError``."""
        code = (await self._client.exists_many([path], watch=watch)).code[0]
        if code not in (0, Code.NO_NODE):
            raise error_at(path, code)
        return code == 0

    async def present(self, paths: Sequence[str]) -> list[bool]:
        """Whether there is a znode at each path."""
        codes = (await self._client.exists_many(paths)).code
        for path, code in zip(paths, codes, strict=True):
            if code not in (0, Code.NO_NODE):
                raise error_at(path, code)
        return [code == 0 for code in codes]

    async def read_present(self, paths: Sequence[str], bad: list[BadZNode]) -> list[tuple[str, bytes | None]]:
        """(path, data) of existing znodes; those that the server refuses to show go to ``bad``."""
        reads = await self._client.get_many(paths)
        found: list[tuple[str, bytes | None]] = []
        for path, data, code in zip(paths, reads.data, reads.code, strict=True):
            if code == 0:
                found.append((path, data))
            elif code != Code.NO_NODE and (why := refused(path, code)) is not None:
                bad.append(why)
        return found

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write(self, op: WriteOp, fence: int | None) -> bool:
        """Apply ``op``; returns False if the znode's version or its existence is not as expected."""
        code = (await self._client.write_many([op], fence=fence)).code[0]
        if is_refusal(code):
            raise error_at(op.path, code)
        return code == 0

    async def create(self, path: str, data: bytes | None, fence: int | None) -> bool:
        """Create the znode and its missing parents; returns False if it exists."""
        for _ in range(MAX_ATTEMPTS):
            code = (await self._client.write_many([Create(path, data)], fence=fence)).code[0]
            if code in (0, Code.NODE_EXISTS):
                return code == 0
            if code != Code.NO_NODE:
                raise error_at(path, code)
            await self.create_paths([parent_of(path)])
        raise error_at(path, Code.NO_NODE)

    async def create_many(self, znodes: Sequence[tuple[str, bytes | None]], fence: int | None) -> list[int]:
        """The server's code for each (path, data), including NODE_EXISTS; missing parents are created."""
        ops = [Create(path, data) for path, data in znodes]
        codes = (await self._client.write_many(ops, fence=fence)).code
        orphans = [at for at, code in enumerate(codes) if code == Code.NO_NODE]
        if orphans:
            await self.create_paths([parent_of(ops[at].path) for at in orphans])
            again = (await self._client.write_many([ops[at] for at in orphans], fence=fence)).code
            for at, code in zip(orphans, again, strict=True):
                codes[at] = code
        return codes

    async def create_paths(self, wanted: Sequence[str]) -> None:
        """Create persistent znodes without data, and their parents, if missing."""
        needed: dict[str, None] = {}
        for path in wanted:
            parts = path.split("/")
            needed.update(dict.fromkeys("/".join(parts[:i]) for i in range(2, len(parts) + 1)))
        every = list(needed)
        found = await self._client.exists_many(every)
        missing = [path for path, code in zip(every, found.code, strict=True) if code]
        writes = await self._client.write_many([Create(path, None) for path in missing], fence=None)
        for path, code in zip(missing, writes.code, strict=True):
            if code not in (0, Code.NODE_EXISTS):
                raise error_at(path, code)

    async def create_sequential(self, prefix: str, data: bytes) -> None:
        """Create a notification; retries after a lost reply, because a duplicate is harmless and a lost one is not."""
        for _ in range(MAX_ATTEMPTS):
            try:
                [result] = await self._client.multi([Create(prefix, data, sequential=True)])
            except (NotSentError, MaybeAppliedError):
                await self._client.sync("/")  # waits for the connection
                continue
            if result.code == 0:
                return
            if result.code != Code.NO_NODE:
                raise error_at(prefix, result.code)
            await self.create_paths([parent_of(prefix)])
        raise error_at(prefix, Code.CONNECTION_LOSS)

    async def set_or_create(self, path: str, data: bytes, fence: int) -> None:
        """Replace the data or create the znode."""
        for _ in range(MAX_ATTEMPTS):
            reads = await self.read(path)
            if await self.write(Create(path, data) if reads is None else SetData(path, data, reads.version[0]), fence):
                return
        raise error_at(path, Code.BAD_VERSION)

    async def delete(self, paths: Sequence[str], fence: int | None) -> None:
        """Delete the znodes; those already gone are fine."""
        writes = await self._client.write_many([Delete(path) for path in paths], fence=fence)
        for path, code in zip(paths, writes.code, strict=True):
            if code not in (0, Code.NO_NODE):
                raise error_at(path, code)
