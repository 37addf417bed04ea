"""Bulk writes: hundreds of fenced, independent writes per multi, each applied exactly once.

A batch is one multi: first the fence (a check of ``/controller_epoch``), then up to 500 operations or 400 KB.  A multi
is all or nothing, so it has one of these outcomes:

  applied        every operation has its result.
  fenced         the check failed: ControllerMovedError; nothing of this batch was applied.
  conflict       the reply names the first operation that failed, and nothing was applied.  Retrying after each one
                 would cost a multi per conflict.  Instead, one read of the later operations' znodes finds all that
                 cannot succeed, and the rest is sent again: one read and one multi more for any number of conflicts.
  no answer      the connection was lost.  The batch may have been applied, so it is not simply sent again:
                   1. ``sync``: the new server may lag behind the writes that the last one accepted;
                   2. read every path;
                   3. SetData: version = expected + 1 and equal data: ours.  Version still as expected: send again.
                      Otherwise a conflict.  (Create and Delete alike, by czxid: see ``_verdict_on_lost``.)
                 Since step 3 reads after the sync, and the server drops the old connection's requests before it
                 resumes the session, a batch that is not visible then never will be.

Limits: NotSent batches are sent again at once; a batch whose answer is lost ``MAX_LOST`` times in a row gives up with
MaybeAppliedError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiocontroller.core.errors import BadInputError, ControllerMovedError
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.codec import (
    BAD_VERSION,
    MAX_DATA_BYTES,
    NO_NODE,
    NODE_EXISTS,
    OK,
    Create,
    Delete,
    OpResult,
    SetData,
)
from aiocontroller.zookeeper.errors import (
    BadReplyError,
    Code,
    MaybeAppliedError,
    NotSentError,
    RequestTooLargeError,
    response_error,
)
from aiocontroller.zookeeper.from_aiozk import SyncRequest
from aiocontroller.zookeeper.overlap import in_window
from aiocontroller.zookeeper.reads import BulkReader, Reads
from aiocontroller.zookeeper.session import ZooKeeperSession

MAX_OPS = 500
MAX_BYTES = 400_000
WINDOW = 8
MAX_LOST = 20
WriteOp = Create | SetData | Delete


class Writes:
    """The outcome of each write, as columns in the order of the operations.

    ``code``: 0 applied; -101 NoNode, -103 BadVersion, -110 NodeExists, -111 NotEmpty, … refused.
    ``version``: the new version after SetData, 0 after Create; -1 if not applied and after Delete.
    """

    __slots__ = ("code", "largest", "version")

    def __init__(self, count: int) -> None:
        self.code: list[int] = [Code.CONNECTION_LOSS.value] * count
        self.version: list[int] = [-1] * count
        self.largest = 0
        """Size of the largest request in bytes."""

    def __len__(self) -> int:
        return len(self.code)

    @property
    def ok(self) -> bool:
        """Whether every operation succeeded."""
        return not any(self.code)

    def part(self, start: int, end: int) -> Writes:
        """The outcome of a range of operations."""
        if start == 0 and end == len(self.code):
            return self
        part = Writes(0)
        part.code, part.version, part.largest = self.code[start:end], self.version[start:end], self.largest
        return part


class _Batch:
    """The operations of one multi; ``open`` are the indices of those without an outcome yet."""

    __slots__ = ("lost", "open", "ops", "out", "raw", "since_zxid", "start")

    def __init__(self, start: int, ops: Sequence[WriteOp], raw: Sequence[bytes], out: Writes, since_zxid: int) -> None:
        self.start = start
        self.ops = ops
        self.raw = raw
        self.out = out
        self.open = list(range(len(ops)))
        self.lost = 0
        self.since_zxid = since_zxid
        """Znodes created after this zxid did not exist when the batch was last sent."""

    def settle(self, i: int, code: int, version: int = -1) -> None:
        self.out.code[self.start + i] = code
        self.out.version[self.start + i] = version


class _Sets:
    """The SetData operations of one multi, as columns."""

    __slots__ = ("datas", "raw", "versions")

    def __init__(self, raw: list[bytes], datas: Sequence[bytes], versions: Sequence[int]) -> None:
        self.raw = raw
        self.datas = datas
        self.versions = versions

    def encode(self, check: bytes | None) -> bytes:
        return codec.multi_set(check, self.raw, self.datas, self.versions)

    def ops(self) -> list[SetData]:
        columns = zip(self.raw, self.datas, self.versions, strict=True)
        return [SetData(raw.decode(), data, version) for raw, data, version in columns]


class BulkWriter:
    """Bulk writes over one session; paths here are full paths."""

    def __init__(self, session: ZooKeeperSession, reader: BulkReader, acl_of: Callable[[bytes], bytes]) -> None:
        self._session = session
        self._reader = reader
        self._acl_of = acl_of
        self.znodes_written = 0
        self.conflicts = 0
        self.lost_answers = 0

    # -- the hot path: SetData only ------------------------------------------------------------------------------------

    async def set_many(
        self,
        prefix: str,
        paths: Sequence[str],
        datas: Sequence[bytes],
        versions: Sequence[int],
        fence: tuple[str, int] | None,
    ) -> Writes:
        """Conditional SetData of each ``prefix`` + path, from columns.  Raises BadInputError for unequal lengths."""
        if not len(paths) == len(datas) == len(versions):
            raise BadInputError(
                f"set_many: {len(paths)} paths, {len(datas)} data, {len(versions)} versions; expected equal"
            )
        if datas and max(map(len, datas)) > MAX_DATA_BYTES:
            at = next(i for i, data in enumerate(datas) if len(data) > MAX_DATA_BYTES)
            raise _too_large(prefix + paths[at], datas[at])
        out = Writes(len(paths))
        check = codec.check_op(*fence) if fence is not None else None
        generation = self._session.generation
        position = 0

        async def work() -> None:
            nonlocal position
            while position < len(paths):
                start = position
                raw = [(prefix + path).encode() for path in paths[start : start + MAX_OPS]]
                count = _fitting(raw, datas[start : start + len(raw)])
                end = position = start + count
                sets = _Sets(raw[:count], datas[start:end], versions[start:end])
                await self._set_batch(start, sets, check, fence, out, generation)

        await in_window(min(WINDOW, -(-len(paths) // MAX_OPS)), work)
        self.znodes_written += len(paths)
        return out

    async def _set_batch(
        self,
        start: int,
        sets: _Sets,
        check: bytes | None,
        fence: tuple[str, int] | None,
        out: Writes,
        generation: int,
    ) -> None:
        """Send one multi of a check and SetData; if it does not fully succeed, it is handled like any other batch."""
        since = self._session.progress.replied_zxid
        code, payload, lost = OK, b"", False
        try:
            body = [sets.encode(check)]
            out.largest = max(out.largest, len(body[0]))
            [(code, payload)] = await self._session.exchange(body, retry=False, generation=generation)
        except MaybeAppliedError:
            lost = True
        except NotSentError:
            if self._session.closed:
                raise
        if code == OK and payload:
            new = codec.parse_set_results(payload, 0 if check is None else 1, len(sets.raw))
            if new is not None:
                out.code[start : start + len(new)] = [OK] * len(new)
                out.version[start : start + len(new)] = new
                return
        batch = _Batch(start, sets.ops(), sets.raw, out, since)
        if lost:
            await self._resolve_lost(batch, generation)
        elif payload or code != OK:
            await self._resolve_conflict(batch, code, codec.parse_multi(payload) if payload else [], fence, generation)
        await self._write_batch(batch, fence, generation)

    # -- any operation -------------------------------------------------------------------------------------------------

    async def write_many(self, ops: Sequence[WriteOp], raw: Sequence[bytes], fence: tuple[str, int] | None) -> Writes:
        """Independent writes; ``raw`` are their full paths."""
        for op in ops:
            if not isinstance(op, Delete) and op.data is not None and len(op.data) > MAX_DATA_BYTES:
                raise _too_large(op.path, op.data)
        out = Writes(len(ops))
        generation = self._session.generation
        position = 0

        async def work() -> None:
            nonlocal position
            while position < len(ops):
                start = position
                end = position = _end_of_ops(ops, raw, start)
                batch = _Batch(start, ops[start:end], raw[start:end], out, self._session.progress.replied_zxid)
                await self._write_batch(batch, fence, generation)

        await in_window(min(WINDOW, -(-len(ops) // MAX_OPS)), work)
        self.znodes_written += len(ops)
        return out

    # -- atomic groups -------------------------------------------------------------------------------------------------

    async def write_together(
        self, groups: Sequence[Sequence[WriteOp]], raw: Sequence[Sequence[bytes]], fence: tuple[str, int]
    ) -> list[int]:
        """Send one multi for each group; returns 0 if it was applied, else the code of the refused operation.

        BAD_VERSION also means that the answer was lost and another client has written since: read again to find out.
        """
        codes = [int(Code.CONNECTION_LOSS)] * len(groups)
        generation = self._session.generation
        position = 0

        async def work() -> None:
            nonlocal position
            while position < len(groups):
                at, position = position, position + 1
                codes[at] = await self._write_group(groups[at], raw[at], fence, generation)

        await in_window(min(WINDOW, len(groups)), work)
        self.znodes_written += sum(map(len, groups))
        return codes

    async def _write_group(
        self, ops: Sequence[WriteOp], raw: Sequence[bytes], fence: tuple[str, int], generation: int
    ) -> int:
        for op in ops:
            if not isinstance(op, Delete) and op.data is not None and len(op.data) > MAX_DATA_BYTES:
                raise _too_large(op.path, op.data)
        while True:
            batch = _Batch(0, ops, raw, Writes(len(ops)), self._session.progress.replied_zxid)
            try:
                [(code, payload)] = await self._session.exchange(
                    [self._encode(batch, fence)], retry=False, generation=generation
                )
            except MaybeAppliedError:
                await self._resolve_lost(batch, generation)
                if len(batch.open) == len(ops):
                    continue  # not applied: send it again
                return OK if not batch.open and batch.out.ok else BAD_VERSION
            except NotSentError:
                if self._session.closed:
                    raise
                continue
            if code != OK and not payload:
                raise response_error(code)
            results = [result.code for result in codec.parse_multi(payload)]
            if results[0] not in (OK, Code.RUNTIME_INCONSISTENCY):
                raise ControllerMovedError(
                    f"{fence[0]} is no longer at version {fence[1]} (code {results[0]}): another controller took over"
                )
            return next((code for code in results if code not in (OK, Code.RUNTIME_INCONSISTENCY)), OK)

    async def _write_batch(self, batch: _Batch, fence: tuple[str, int] | None, generation: int) -> None:
        """Send open operations until none are left."""
        while batch.open:
            body = self._encode(batch, fence)
            batch.since_zxid = self._session.progress.replied_zxid
            try:
                [(code, payload)] = await self._session.exchange([body], retry=False, generation=generation)
            except MaybeAppliedError:
                await self._resolve_lost(batch, generation)
                continue
            except NotSentError:
                if self._session.closed:
                    raise
                continue
            await self._resolve_conflict(batch, code, codec.parse_multi(payload) if payload else [], fence, generation)

    def _encode(self, batch: _Batch, fence: tuple[str, int] | None) -> bytes:
        encoded = [codec.check_op(*fence)] if fence is not None else []
        encoded += [codec.encode_op(batch.ops[i], batch.raw[i], self._acl_of, with_stat=False) for i in batch.open]
        request = codec.multi(encoded)
        batch.out.largest = max(batch.out.largest, len(request))
        return request

    async def _resolve_conflict(
        self, batch: _Batch, code: int, results: list[OpResult], fence: tuple[str, int] | None, generation: int
    ) -> None:
        """Settle the operations that a reply decides: all, or the failed one and those that would fail too."""
        if code != OK and not results:
            raise response_error(code)
        first = 0 if fence is None else 1
        if len(results) != first + len(batch.open):
            raise BadReplyError(f"a multi of {first + len(batch.open)} operations has {len(results)} results")
        failed = next(
            (at for at, result in enumerate(results) if result.code not in (OK, Code.RUNTIME_INCONSISTENCY)), None
        )
        if failed is None:
            for at, i in enumerate(batch.open):
                batch.settle(i, OK, _new_version(batch.ops[i], results[first + at]))
            batch.open = []
            return
        if fence is not None and failed == 0:
            raise ControllerMovedError(
                f"{fence[0]} is no longer at version {fence[1]} (code {results[0].code}): another controller took over"
            )
        self.conflicts += 1
        await self._settle_refused(batch, failed - first, results[failed].code, generation)

    async def _settle_refused(self, batch: _Batch, at: int, code: int, generation: int) -> None:
        """Settle the refused operation ``at`` and, by one read, later ones that would be refused too."""
        failed, rest = batch.open[at], batch.open[at + 1 :]
        batch.settle(failed, code)
        reads = await self._read(batch, rest, generation) if rest else Reads()
        missing: set[bytes] = set()
        if code == NO_NODE and isinstance(batch.ops[failed], Create):
            missing = {batch.raw[failed], _parent(batch.raw[failed])}
        still_open = batch.open[:at]
        for position, i in enumerate(rest):
            verdict = _verdict(batch.ops[i], reads, position)
            if verdict == OK and isinstance(batch.ops[i], Create) and _parent(batch.raw[i]) in missing:
                verdict = NO_NODE
                missing.add(batch.raw[i])
            if isinstance(batch.ops[i], Create) and verdict in (OK, NODE_EXISTS):
                missing.discard(batch.raw[i])
            if verdict == OK:
                still_open.append(i)
            else:
                batch.settle(i, verdict)
        batch.open = still_open

    async def _resolve_lost(self, batch: _Batch, generation: int) -> None:
        """After a lost answer, find out which open operations were applied; settle these, and those that cannot be."""
        self.lost_answers += 1
        batch.lost += 1
        if batch.lost > MAX_LOST:
            raise MaybeAppliedError(
                f"the answer to a batch of {len(batch.open)} writes was lost {batch.lost} times in a row"
            )
        await self._session.exchange([SyncRequest(path="/").serialize()], retry=True, generation=generation)
        reads = await self._read(batch, batch.open, generation)
        still_open = []
        for position, i in enumerate(batch.open):
            verdict = _verdict_on_lost(batch.ops[i], reads, position, batch.since_zxid, self._session.session_id)
            if verdict is None:
                still_open.append(i)
            else:
                batch.settle(i, *verdict)
        batch.open = still_open

    async def _read(self, batch: _Batch, which: Sequence[int], generation: int) -> Reads:
        return await self._reader.read_raw([batch.raw[i] for i in which], generation)


def _too_large(path: str, data: bytes) -> RequestTooLargeError:
    return RequestTooLargeError(f"{path}: the data has {len(data)} bytes, expected at most {MAX_DATA_BYTES}")


def _parent(raw: bytes) -> bytes:
    return raw[: raw.rindex(b"/")] or b"/"


def _new_version(op: WriteOp, result: OpResult) -> int:
    if isinstance(op, SetData):
        return result.version
    return 0 if isinstance(op, Create) else -1


def _verdict(op: WriteOp, reads: Reads, i: int) -> int:
    """The code with which the server would refuse ``op`` now, according to a read of its znode; 0 otherwise."""
    code = reads.code[i]
    if isinstance(op, Create):
        return NODE_EXISTS if code == OK else OK
    if code == NO_NODE:
        return NO_NODE
    if code == OK and op.version not in (-1, reads.version[i]):
        return BAD_VERSION
    return OK


def _verdict_on_lost(op: WriteOp, reads: Reads, i: int, since_zxid: int, session_id: int) -> tuple[int, int] | None:
    """(code, version) of an operation whose answer was lost; None: it was not applied, and is to be sent again.

    A SetData of any version (-1) counts as applied when the data is equal, and is harmless to repeat otherwise.  A
    Delete counts as applied when the znode is gone or was created again since.
    """
    code = reads.code[i]
    if isinstance(op, SetData):
        if code != OK:
            return (code, -1)
        version, equal = reads.version[i], reads.data[i] == op.data
        if equal and (version == op.version + 1 or op.version == -1):
            return (OK, version)
        return None if op.version in (-1, version) else (BAD_VERSION, -1)
    if isinstance(op, Create):
        if code == NO_NODE:
            return None
        if code != OK:
            return (code, -1)
        owner = session_id if op.ephemeral else 0
        ours = (
            reads.czxid(i) > since_zxid
            and (reads.data[i] or b"") == (op.data or b"")
            and reads.ephemeral_owner(i) == owner
        )
        return (OK, 0) if ours else (NODE_EXISTS, -1)
    if code == NO_NODE or (code == OK and reads.czxid(i) > since_zxid):
        return (OK, -1)
    if code != OK:
        return (code, -1)
    return None if op.version in (-1, reads.version[i]) else (BAD_VERSION, -1)


def _fitting(raw: Sequence[bytes], datas: Sequence[bytes]) -> int:
    """How many of these SetData fit one multi, at least 1."""
    # Usually all fit, which one sum shows; otherwise they are added one by one.
    if sum(map(len, raw)) + sum(map(len, datas)) + 21 * len(raw) <= MAX_BYTES:
        return len(raw)
    size = 0
    for i, path in enumerate(raw):
        size += len(path) + len(datas[i]) + 21
        if size > MAX_BYTES:
            return max(i, 1)
    return len(raw)


def _end_of_ops(ops: Sequence[WriteOp], raw: Sequence[bytes], start: int) -> int:
    end = min(start + MAX_OPS, len(ops))
    size = 0
    for i in range(start, end):
        op = ops[i]
        size += len(raw[i]) + 80 + (0 if isinstance(op, Delete) else len(op.data or b""))
        if size > MAX_BYTES:
            return max(i, start + 1)
    return end
