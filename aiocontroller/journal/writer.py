"""The journal on disk: group commit from one thread.

The loop only appends to a list.  While the thread encodes, writes and syncs one batch, and for ``LINGER_S`` after that,
the next batch collects: records of a quiet controller are durable at once, and a busy one syncs twenty times a second,
without a setting.  (Each sync slows down other users of the disk, such as ZooKeeper.)

If the disk refuses writes (full, gone), the batch is kept and retried with a growing pause, the refusal is logged once
and counted, and the controller goes on; records are lost only when the memory bound is reached.

If the disk hangs (in a write, a sync, a rename), only the thread waits: records collect up to the memory bound, and
``close`` gives up after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NotDoneError
from pathlib import Path

import anyio

from aiocontroller.journal.disk_thread import DiskThread
from aiocontroller.journal.journal import CLOSE_WITHIN_S, Journal, JournalStatistics
from aiocontroller.journal.records import Record
from aiocontroller.journal.segments import SegmentWriter, expire
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Timer, World
from aiocontroller.net.tasks import LooseTasks, Tasks

log = logging.getLogger("aiocontroller.journal")

DRAIN_ABOVE = 50_000
"""``drain`` waits while more than this is pending: about 20 MB of memory and a quarter of a second of work."""
RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 30.0
LINGER_S = 0.05
HANGS_AFTER_S = 10.0
"""After a write of this length the disk counts as hanging, and no caller waits for durability any more."""

__all__ = ["FileJournal", "Journal"]


class FileJournal(Journal):
    """JSON lines in ``directory``; a segment is completed after ``rotate_bytes`` or ``rotate_s`` seconds.

    Every ``rotate_s`` seconds the oldest complete segments are deleted until the rest has at most ``retention_bytes``
    (None: all are kept).
    """

    def __init__(
        self,
        directory: Path,
        node: int,
        *,
        world: World,
        metrics: Metrics | None = None,
        rotate_bytes: int = 64 << 20,
        rotate_s: float = 300.0,
        retention_bytes: int | None = None,
        max_pending: int = 2_000_000,
        max_pending_when_failing: int = 100_000,
    ) -> None:
        super().__init__(node, world.clock)
        self.directory = directory
        self._clock = world.clock
        self._rotate_s = rotate_s
        self._retention_bytes = retention_bytes
        self._expired = 0
        self._max_pending, self._max_pending_when_failing = max_pending, max_pending_when_failing
        self._segments = SegmentWriter(directory, node, world.clock.wall_time_us(), rotate_bytes)
        self._pending: list[Record] = []
        self._in_flight: list[Record] = []
        self._accepted_seq = 0
        self._dropped = self._failures = self._deleted = 0
        self._failing = self._closing = self._rotation_due = False
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._thread: DiskThread | None = None
        self._writing: anyio.CancelScope | None = None
        """Cancels the writing task; None before the start."""
        self._ended = anyio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._rotate_timer: Timer | None = None
        if metrics is not None:
            self._register(metrics)

    def _register(self, metrics: Metrics) -> None:
        """Register the fields of ``statistics`` as gauges ``aiocontroller_journal_…``."""

        def read(field: str) -> Callable[[], float]:
            return lambda: float(getattr(self.statistics(), field))

        for field in JournalStatistics.__struct_fields__:
            metrics.gauge("aiocontroller", "Journal", field.title().replace("_", ""), read(field))

    def _put(self, record: Record) -> None:
        pending = self._pending
        if self._closing or len(pending) >= (self._max_pending_when_failing if self._failing else self._max_pending):
            self._dropped += 1
            return
        if not pending:
            self._wake.set()
        self._accepted_seq = record.seq
        pending.append(record)

    def _put_all(self, records: Sequence[Record]) -> None:
        limit = self._max_pending_when_failing if self._failing else self._max_pending
        if self._closing or len(self._pending) + len(records) > limit:
            super()._put_all(records)
        elif records:
            self._wake.set()
            self._accepted_seq = records[-1].seq
            self._pending += records

    @property
    def pending(self) -> int:
        """Number of records in memory: waiting, or being written by the thread."""
        return len(self._pending) + len(self._in_flight)

    def statistics(self) -> JournalStatistics:
        """The counts of this process; not those of earlier ones in the same directory."""
        return JournalStatistics(
            appended=self._seq,
            written=self._segments.written,
            dropped=self._dropped,
            pending=self.pending,
            written_bytes=self._segments.written_bytes,
            failures=self._failures,
            segments=self._segments.segments,
            deleted=self._segments.deleted,
            expired=self._expired,
        )

    async def start(self, tasks: Tasks | None = None) -> None:
        """Create the directory and complete crashed processes' files; raises OSError if that fails."""
        assert self._thread is None, "started twice"
        self._thread = DiskThread("journal")
        try:
            adopted = await self._thread.run(self._segments.prepare)
        except OSError:
            self._end_thread()
            raise
        await self._expire()
        if adopted:
            log.info("completed %d journal segments that crashed processes left open: %s …", len(adopted), adopted[0])
        self._writing = anyio.CancelScope()
        (tasks or LooseTasks()).start_soon(self._write_until_closed, self._writing, name="journal")

    async def drain(self) -> None:
        """If more than ``DRAIN_ABOVE`` records are pending, wait until about half as many are, or the disk fails."""
        if self.pending > DRAIN_ABOVE:
            await self._until_durable(self._accepted_seq - DRAIN_ABOVE // 2)

    async def flush(self) -> None:
        """Wait until all records accepted so far are on the disk, or the disk fails: then they may be lost."""
        await self._until_durable(self._accepted_seq)

    async def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Write what is pending within ``within_s`` seconds, drop the rest, and end the thread; raises nothing."""
        self._closing = True
        self._wake.set()
        self._hurry.set()
        if self._writing is not None:
            timer = self._clock.call_later(within_s, self._writing.cancel)
            await self._ended.wait()
            timer.cancel()
            if self._writing.cancelled_caught and self.pending:
                self._give_up(f"the disk did not answer within {within_s:.1f} s")
        self._end_thread()

    def rescue(self, within_s: float) -> None:
        """Write pending records from another thread after the loop has stopped, and nothing after that.

        Waits up to ``within_s`` for a write in progress.
        """
        self._closing = True
        if self._thread is None:
            return

        def write() -> None:
            pending, self._pending = self._in_flight + self._pending, []
            self._segments.write(pending)
            self._segments.complete()

        pending = self.pending
        try:
            self._thread.submit(write).result(within_s)
        except (OSError, NotDoneError) as error:
            log.error("journal in %s: ended with %d unwritten records: %r", self.directory, pending, error)

    async def _until_durable(self, seq: int) -> None:
        """Wait until ``seq`` is durable; returns while the disk refuses, so that a full disk blocks no caller."""
        if self._writing is None or self._ended.is_set() or self._failing or self._segments.durable_seq >= seq:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, done))
        self._hurry.set()
        await done

    async def _write_until_closed(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._write_loop()
        finally:
            self._closing = True
            self._ended.set()
            self._answer_waiters(self._accepted_seq)

    async def _write_loop(self) -> None:
        retry_s = RETRY_FIRST_S
        while not (self._closing and self.pending == 0):
            if self.pending == 0 and not self._rotation_due:
                self._wake.clear()
                await self._wake.wait()
            elif await self._write_once():
                retry_s = RETRY_FIRST_S
                self._answer_waiters(self._segments.durable_seq)
                if not self._waiters:
                    await self._pause(LINGER_S)
            elif self._closing:
                self._give_up("the disk refuses")
            else:
                self._answer_waiters(self._accepted_seq)
                await self._pause(retry_s)
                retry_s = min(2 * retry_s, RETRY_LONGEST_S)
        if self._rotate_timer is not None:
            self._rotate_timer.cancel()
        await self._complete_segment()

    async def _write_once(self) -> bool:
        """Complete a due segment; write pending records, starting with failed ones.  False if the disk refuses."""
        if self._rotation_due:
            self._rotation_due = False
            await self._complete_segment()
            await self._expire()
        self._in_flight += self._pending
        self._pending = []
        assert self._thread is not None
        hanging = self._clock.call_later(HANGS_AFTER_S, self._hangs)
        try:
            await self._thread.run(lambda: self._segments.write(self._in_flight))
        except OSError as error:
            self._failures += 1
            self._fails(f"{error}; writing is tried again")
            return False
        finally:
            hanging.cancel()
            self._say_what_is_deleted()
        if self._failing:
            self._failing = False
            log.warning("journal in %s is writable again; %d records were dropped", self.directory, self._dropped)
        if self._rotate_timer is None:
            self._rotate_timer = self._clock.call_later(self._rotate_s, self._rotate_soon)
        return True

    def _hangs(self) -> None:
        self._fails(f"no write succeeded within {HANGS_AFTER_S:.0f} s: the disk hangs")
        self._answer_waiters(self._accepted_seq)

    def _fails(self, how: str) -> None:
        """Log the failure once, until writing works again."""
        if not self._failing:
            self._failing = True
            most = self._max_pending_when_failing
            log.error("journal in %s: %s; up to %d records wait in memory", self.directory, how, most)

    def _rotate_soon(self) -> None:
        self._rotate_timer = None
        self._rotation_due = True
        self._wake.set()

    async def _pause(self, seconds: float) -> None:
        """Pause between writes; callers that wait for a write, and ``close``, cut it short."""
        self._hurry.clear()
        timer = self._clock.call_later(seconds, self._hurry.set)
        if not self._closing:
            await self._hurry.wait()
        timer.cancel()

    def _give_up(self, why: str) -> None:
        lost = self.pending
        self._dropped += lost
        self._in_flight, self._pending = [], []
        log.error("journal in %s: closed with %d records that could not be written: %s", self.directory, lost, why)

    def _answer_waiters(self, seq: int) -> None:
        waiting, self._waiters = self._waiters, []
        for wanted, done in waiting:
            if wanted > seq:
                self._waiters.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    async def _complete_segment(self) -> None:
        assert self._thread is not None
        try:
            await self._thread.run(self._segments.complete)
        except OSError as error:
            self._failures += 1
            log.error("journal in %s: a segment could not be completed: %s", self.directory, error)
        self._say_what_is_deleted()

    async def _expire(self) -> None:
        if self._retention_bytes is None:
            return
        assert self._thread is not None
        limit, own_start_us = self._retention_bytes, self._segments.start_us
        try:
            self._expired += await self._thread.run(lambda: expire(self.directory, limit, own_start_us))
        except OSError as error:
            self._failures += 1
            log.error("journal in %s: old segments could not be deleted: %s", self.directory, error)

    def _say_what_is_deleted(self) -> None:
        if self._segments.deleted > self._deleted:
            self._deleted = self._segments.deleted
            log.error(
                "journal in %s: the open file was deleted, with the records in it",
                self.directory,
            )

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.end()
            self._thread = None
