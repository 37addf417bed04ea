"""How long a process that wants to run has to wait on this machine: what else goes on, beside a measurement.

A process of its own wakes up a hundred times a second, and says in the end how late it was when it was latest.
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
    """``worst_ms`` is known when ``end`` was awaited."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.worst_ms = 0.0

    async def end(self) -> None:
        output, _ = await asyncio.wait_for(self._process.communicate(b""), _END_WITHIN_S)
        self.worst_ms = float(output)


@asynccontextmanager
async def measured_interference() -> AsyncIterator[Interference]:
    """Measure from now on until ``end`` is awaited, or the context is left."""
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
