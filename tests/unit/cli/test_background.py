"""What is written to a pipe without a reader is dropped and counted; no writer waits."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from aiocontroller.cli.background import BackgroundLog, BackgroundWriter


class Pipe:
    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()
        self.size = fcntl.fcntl(self.writes, fcntl.F_SETPIPE_SZ, 4096)

    def read_all(self) -> bytes:
        """What is in it, until its other end is closed."""
        found = b""
        while chunk := os.read(self.reads, 65536):
            found += chunk
        return found


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reads)


def message(count: int) -> str:
    return f"{count} log lines dropped\n"


def test_lines_come_in_order(pipe: Pipe) -> None:
    writer = BackgroundWriter(pipe.writes, message)
    assert all(writer.write(f"line {number}\n") for number in range(100))
    assert writer.flush(10)
    os.close(pipe.writes)
    assert pipe.read_all() == b"".join(b"line %d\n" % number for number in range(100))


def test_blocked_pipe_drops_and_counts_and_the_count_is_printed(pipe: Pipe) -> None:
    """Finding 5: a pipe that is not read froze the controller."""
    writer = BackgroundWriter(pipe.writes, message, max_bytes=10_000)
    line = "x" * 99 + "\n"
    began_s = time.monotonic()
    accepted = sum(writer.write(line) for _ in range(1000))
    assert time.monotonic() - began_s < 5
    assert not writer.flush(0.05)
    assert 100 <= accepted <= 100 + pipe.size // len(line) + 1
    assert writer.dropped == 1000 - accepted
    reading = threading.Thread(target=lambda: found.append(pipe.read_all()))
    found: list[bytes] = []
    reading.start()
    assert writer.flush(10)
    writer.write("after\n")
    assert writer.flush(10)
    os.close(pipe.writes)
    reading.join(10)
    lines = found[0].decode().splitlines()
    assert lines.count("x" * 99) == accepted
    assert f"{1000 - accepted} log lines dropped" in lines
    assert lines[-1] == "after"


def test_a_pipe_without_a_reader_drops_everything(pipe: Pipe) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    writer = BackgroundWriter(writes, message)
    writer.write("not read\n")
    assert writer.flush(10)
    assert writer.broken
    assert not writer.write("nor this\n")
    os.close(writes)
    os.close(pipe.writes)


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.writes, False)
    writer = BackgroundWriter(pipe.writes, message)
    text = "y" * 20_000 + "\n"
    writer.write(text)
    assert not writer.flush(0.05)
    found = b""
    while len(found) < len(text):
        found += os.read(pipe.reads, 65536)
    assert found.decode() == text
    assert writer.flush(10)
    os.close(pipe.writes)


def test_log_records_are_lines(pipe: Pipe) -> None:
    writer = BackgroundWriter(pipe.writes, message)
    handler = BackgroundLog(writer)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.handle(logging.LogRecord("n", logging.INFO, "p", 1, "a %s \udc80", ("word",), None))
    assert writer.flush(10)
    os.close(pipe.writes)
    assert pipe.read_all() == b"INFO a word \\udc80\n"
