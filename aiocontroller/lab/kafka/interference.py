"""Measures how long a process that is ready to run has to wait on this machine, because of other load.

A separate process wakes up a hundred times a second, and in the end prints its longest delay.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PROGRAM = """
import select, time
worst, pause, last = 0.0, 0.01, time.monotonic()
print("begun", flush=True)
ended = False
while not ended:
    ended = bool(select.select([0], [], [], pause)[0])
    now = time.monotonic()
    worst, last = max(worst, now - last - pause), now
print(worst * 1000, flush=True)
"""
_END_WITHIN_S = 30.0


class Interference:
    """A measurement; ``worst_ms`` is known once ``end`` has been awaited."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.worst_ms = 0.0

    async def end(self) -> None:
        output, _ = await asyncio.wait_for(self._process.communicate(b""), _END_WITHIN_S)
        self.worst_ms = float(output)


@asynccontextmanager
async def measured_interference() -> AsyncIterator[Interference]:
    """Measure until ``end`` is awaited or the context is left."""
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM]
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield Interference(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
