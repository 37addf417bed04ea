"""Standard output and error of a long-running command, written without waiting for their reader.

A pipe that is not read, and a terminal that was stopped (Ctrl-S), block their writers.  So a thread writes texts from a
queue; when the queue is full, lines are dropped, and their number is printed when the reader is back.  The interpreter
does not join the thread.
"""

from __future__ import annotations

import io
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

MAX_WAITING_BYTES = 4 << 20
FLUSH_WITHIN_S = 0.25
POLL_S = 0.01


class BackgroundWriter:
    """Queues texts for its thread; ``in_words`` formats the number of dropped ones."""

    def __init__(self, descriptor: int, in_words: Callable[[int], str], *, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self.dropped = 0
        """Number of dropped texts, in total."""
        self.broken = False
        """The reader is gone, or the file cannot be written; further texts are dropped."""
        self.descriptor = descriptor
        self._in_words = in_words
        self._max_bytes = max_bytes
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._reported = 0
        self._put_bytes = self._done_bytes = 0
        """Each counter has one writer: the first is changed under the lock, the second by the thread."""
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name=f"output {descriptor}", daemon=True).start()

    def write(self, text: str) -> bool:
        """Queue a text, in a few microseconds; False when it was dropped."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if self.broken or self._put_bytes - self._done_bytes + len(data) > self._max_bytes:
                self.dropped += 1
                return False
            self._put_bytes += len(data)
        self._queue.put(data)
        return True

    def flush(self, within_s: float = FLUSH_WITHIN_S) -> bool:
        """Wait until all texts are written; False when that takes too long."""
        deadline_s = time.monotonic() + within_s
        while self._done_bytes < self._put_bytes and not self.broken:
            if time.monotonic() > deadline_s:
                return False
            select.select([], [], [], POLL_S)  # not time.sleep, which fails where the clock is faked
        return True

    def _work(self) -> None:
        try:
            while True:
                data = self._queue.get()
                self._write(data)
                self._done_bytes += len(data)
                if self.dropped != self._reported:
                    dropped = self.dropped
                    self._write(self._in_words(dropped - self._reported).encode())
                    self._reported = dropped
        except OSError:
            self.broken = True

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.descriptor, view) :]
            except BlockingIOError:  # another process that shares the pipe has made it non-blocking
                select.select([], [self.descriptor], [])


class BackgroundLog(logging.Handler):
    """Log handler that writes records through a writer."""

    def __init__(self, writer: BackgroundWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line; never blocks and never raises."""
        try:
            self.writer.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


class BackgroundFile(io.TextIOBase):
    """The terminal, for a library that draws on a file."""

    encoding = "utf-8"

    def __init__(self, writer: BackgroundWriter) -> None:
        super().__init__()
        self._writer = writer

    def write(self, text: str) -> int:
        """Queue the text, and return its length, as if all of it had been written."""
        self._writer.write(text)
        return len(text)

    def isatty(self) -> bool:
        """True, so that rich draws; only made for terminals."""
        return True

    def fileno(self) -> int:
        """The terminal's descriptor, from which rich reads its size."""
        return self._writer.descriptor
