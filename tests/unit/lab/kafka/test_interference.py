"""How late a process is that wants to run."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from aiocontroller.lab.kafka.interference import Interference, measured_interference

STOPPED_S = 0.15


async def stopped_for(interference: Interference, seconds: float) -> None:
    process = interference._process
    process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{process.pid}/stat")
    while state.read_text().rsplit(")", 1)[1].split()[0] != "T":
        await asyncio.sleep(0)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        await asyncio.sleep(0)
    process.send_signal(signal.SIGCONT)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
async def test_a_process_that_could_not_run_says_so() -> None:
    async with measured_interference() as interference:
        await stopped_for(interference, STOPPED_S)
        await interference.end()
    assert interference.worst_ms >= (STOPPED_S - 0.02) * 1000


async def test_it_ends_with_its_context() -> None:
    with pytest.raises(ZeroDivisionError):
        async with measured_interference() as interference:
            raise ZeroDivisionError
    assert interference._process.returncode is not None
    assert interference.worst_ms == 0.0
