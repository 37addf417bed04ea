"""The journal on disk: group commit from one thread.

All that the loop does is append to a list.  While one batch is encoded, written and synced in the thread, the next one
collects, and for another ``LINGER_S`` after that: so what a quiet controller records is safe at once, and a busy one
syncs twenty times a second, with no setting.  (Each sync costs whoever shares the disk, ZooKeeper for one, theirs.)

A disk that refuses (full, gone) costs records only when memory's bound is reached: the batch is kept and tried again
with a growing pause, the refusal is logged once and counted, and the controller goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aiocontroller.journal.journal import Journal, JournalStatistics
from aiocontroller.journal.records import Record
from aiocontroller.journal.segments import SegmentWriter
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Timer, World

log = logging.getLogger("aiocontroller.journal")

DRAIN_ABOVE = 50_000
"""``drain`` waits while more than this is pending: about 20 MB of memory and a quarter of a second of work."""
RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 30.0
LINGER_S = 0.05

__all__ = ["FileJournal", "Journal"]

T = TypeVar("T")


class FileJournal(Journal):
    """JSON lines in ``directory``; a segment is completed after ``rotate_bytes`` or ``rotate_s`` seconds."""

    def __init__(
        self,
        directory: Path,
        node: int,
        *,
        world: World,
        metrics: Metrics | None = None,
        rotate_bytes: int = 64 << 20,
        rotate_s: float = 300.0,
        max_pending: int = 2_000_000,
        max_pending_when_failing: int = 100_000,
    ) -> None:
        super().__init__(node, world.clock)
        self.directory = directory
        self._clock = world.clock
        self._rotate_s = rotate_s
        self._max_pending, self._max_pending_when_failing = max_pending, max_pending_when_failing
        self._segments = SegmentWriter(directory, node, world.clock.wall_time_us(), rotate_bytes)
        self._pending: list[Record] = []
        self._in_flight: list[Record] = []
        self._accepted_seq = 0
        self._dropped = self._failures = 0
        self._failing = self._closing = self._rotation_due = False
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._executor: ThreadPoolExecutor | None = None
        self._writing: asyncio.Task[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._rotate_timer: Timer | None = None
        if metrics is not None:
            self._register(metrics)

    def _register(self, metrics: Metrics) -> None:
        """Everything that ``statistics`` has, as gauges ``aiocontroller_journal_…``."""

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
        return len(self._pending) + len(self._in_flight)

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            appended=self._seq,
            written=self._segments.written,
            dropped=self._dropped,
            pending=self.pending,
            written_bytes=self._segments.written_bytes,
            failures=self._failures,
            segments=self._segments.segments,
        )

    async def start(self) -> None:
        """Make the directory and complete what crashed processes left; OSError when that cannot be done."""
        assert self._executor is None, "started twice"
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="journal")
        try:
            adopted = await self._in_thread(self._segments.prepare)
        except OSError:
            self._end_thread()
            raise
        if adopted:
            log.info("completed %d journal segments that crashed processes left open: %s …", len(adopted), adopted[0])
        self._writing = asyncio.get_running_loop().create_task(self._write_loop(), name="journal")

    async def drain(self) -> None:
        if self.pending > DRAIN_ABOVE:
            await self._until_durable(self._accepted_seq - DRAIN_ABOVE // 2)

    async def flush(self) -> None:
        await self._until_durable(self._accepted_seq)

    async def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._hurry.set()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        self._end_thread()

    async def _until_durable(self, seq: int) -> None:
        """Wait for it; not while the disk refuses, since nobody should hang on a full disk."""
        if self._writing is None or self._writing.done() or self._failing or self._segments.durable_seq >= seq:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, done))
        self._hurry.set()
        await done

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
                self._give_up()
            else:
                self._answer_waiters(self._accepted_seq)
                await self._pause(retry_s)
                retry_s = min(2 * retry_s, RETRY_LONGEST_S)
        if self._rotate_timer is not None:
            self._rotate_timer.cancel()
        await self._complete_segment()
        self._answer_waiters(self._accepted_seq)

    async def _write_once(self) -> bool:
        """Complete the segment that is due; write what is pending, what failed before first.  False when refused."""
        if self._rotation_due:
            self._rotation_due = False
            await self._complete_segment()
        self._in_flight += self._pending
        self._pending = []
        try:
            await self._in_thread(lambda: self._segments.write(self._in_flight))
        except OSError as error:
            self._failures += 1
            if not self._failing:
                self._failing = True
                wait = f"up to {self._max_pending_when_failing} records wait in memory, writing is tried again"
                log.error("journal in %s: %s; %s", self.directory, error, wait)
            return False
        if self._failing:
            self._failing = False
            log.warning("journal in %s can be written again; %d records were dropped", self.directory, self._dropped)
        if self._rotate_timer is None:
            self._rotate_timer = self._clock.call_later(self._rotate_s, self._rotate_soon)
        return True

    def _rotate_soon(self) -> None:
        self._rotate_timer = None
        self._rotation_due = True
        self._wake.set()

    async def _pause(self, seconds: float) -> None:
        """A pause between writes; whoever waits for one, and ``close``, cut it short."""
        self._hurry.clear()
        timer = self._clock.call_later(seconds, self._hurry.set)
        if not self._closing:
            await self._hurry.wait()
        timer.cancel()

    def _give_up(self) -> None:
        lost = self.pending
        self._dropped += lost
        self._in_flight, self._pending = [], []
        log.error("journal in %s: closed with %d records that could not be written", self.directory, lost)

    def _answer_waiters(self, seq: int) -> None:
        waiting, self._waiters = self._waiters, []
        for wanted, done in waiting:
            if wanted > seq:
                self._waiters.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    async def _complete_segment(self) -> None:
        try:
            await self._in_thread(self._segments.complete)
        except OSError as error:
            self._failures += 1
            log.error("journal in %s: a segment could not be completed: %s", self.directory, error)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        assert self._executor is not None
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def _end_thread(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
