"""A command that is asked to end by a signal ends in an orderly way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from aiocontroller.ending import SIGNALS, stop_on_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
async def test_each_signal_asks_to_stop(number: signal.Signals) -> None:
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    os.kill(os.getpid(), number)
    async with asyncio.timeout(20):
        await stopping.wait()


async def test_under_nohup_a_closed_terminal_asks_for_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_on_signals(asyncio.Event())
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
