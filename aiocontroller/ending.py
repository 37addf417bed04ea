"""Ends a long-running process on a signal, within a time limit, whatever hangs.

 1. SIGTERM, SIGINT and SIGHUP (a terminal was closed) are blocked everywhere and handled by a thread of their own:
    neither a busy loop nor a main thread that hangs in the system can delay them.
 2. The first one asks for an orderly end, which has its own time limits.
 3. If that takes too long, the thread ends the process itself: it logs the work in progress, saves what it can, and
    exits with 1.
 4. A second signal ends the process at once, with 128 + its number, as shells do.  The same signal within ``TWICE_S``
    counts once: ``timeout`` sends it to the process and to its group, and a shell may pass it on.
 5. Without a terminal that could be closed, SIGHUP makes a service read its certificates again, and ends nothing.

The process ends by ``os._exit``: the interpreter would join threads that hang in the system (a disk, a name server),
and free a large heap object by object.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

log = logging.getLogger(__name__)

RESCUE_WITHIN_S = 0.25
LAST_STEPS_S = 0.75
"""For the rescue, and for printing the last lines."""
TWICE_S = 0.2
"""Signals within this time are one: a person presses Ctrl-C more slowly."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ending:
    """Waits for signals, from ``listen`` on; before ``attach`` a signal ends the process at once."""

    def __init__(self, signals: Sequence[signal.Signals] = SIGNALS, *, rereads: bool = False) -> None:
        """``rereads``: SIGHUP calls ``reread`` of ``attach`` and does not end the process."""
        self.flush: Callable[[], object] = lambda: None
        """Flushes printed and logged text, within a short time."""
        self._signals = tuple(number for number in signals if not _hung_up_by_design(number))
        self._asked_s: float | None = None
        self._orderly: tuple[asyncio.AbstractEventLoop, Callable[[], object]] | None = None
        self._within_s: Callable[[], float] = lambda: 0.0
        self._doing: Callable[[], str] = lambda: "starting"
        self._rescue: Callable[[float], object] = lambda within_s: None
        self._rereads = rereads
        self._reread: Callable[[], object] = lambda: None
        self._at_exit: list[Callable[[], object]] = []

    def listen(self) -> None:
        """Call from the main thread before starting others: they inherit its blocked signals."""
        listener = threading.Thread(target=self._listen, name="signals", daemon=True)

        def forward(number: int, _: object) -> None:
            """Forward a signal from a library's thread that does not block it."""
            signal.pthread_kill(listener.ident or 0, number)

        for number in self._signals:
            signal.signal(number, forward)  # sigwait does not see signals whose being ignored was inherited
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        listener.start()

    def attach(
        self,
        ask: Callable[[], object],
        *,
        within_s: Callable[[], float],
        doing: Callable[[], str],
        rescue: Callable[[float], object] = lambda within_s: None,
        reread: Callable[[], object] = lambda: None,
    ) -> None:
        """From now on call ``ask`` in the running loop on a signal, and expect the end within ``within_s`` of it.

        ``doing`` describes the work in progress, ``rescue`` saves what it can in its number of seconds; both are called
        from another thread.  ``reread`` is called in the loop.
        """
        self._reread = reread
        self._within_s, self._doing, self._rescue = within_s, doing, rescue
        self._orderly = (asyncio.get_running_loop(), ask)

    def at_exit(self, action: Callable[[], object]) -> None:
        """Register an action for an orderly end; the last one registered runs first."""
        self._at_exit.append(action)

    def finish(self, code: int) -> NoReturn:
        """End in an orderly way: run the actions, flush, exit."""
        while self._at_exit:
            try:
                self._at_exit.pop()()
            except OSError as error:
                log.warning("At the end: %s", error)
        self._exit(code)

    def _listen(self) -> None:
        number = self._next()
        if self._orderly is None:
            self._exit(128 + number)
        self._asked_s = time.monotonic()
        threading.Thread(target=self._watch, args=(number,), name="end", daemon=True).start()
        loop, ask = self._orderly
        try:
            loop.call_soon_threadsafe(ask)
        except RuntimeError:
            pass  # the loop has ended, and the process is about to
        log.info("%s: ending within %.0f s", signal.Signals(number).name, self._within_s())
        first = number
        while (number := self._next()) == first and time.monotonic() - self._asked_s < TWICE_S:
            pass
        log.warning("%s once more: ending at once, %s", signal.Signals(number).name, self._what())
        self._exit(128 + number)

    def _next(self) -> int:
        """Return the next signal that asks for an end; on those that ask for new certificates, call ``reread``."""
        while (number := signal.sigwait(self._signals)) == signal.SIGHUP and self._rereads:
            if self._orderly is None or self._asked_s is not None:
                continue  # no certificates have been read yet, or no more connections will be accepted
            try:
                self._orderly[0].call_soon_threadsafe(self._reread)
            except RuntimeError:
                pass  # the loop has ended
        return number

    def _watch(self, number: int) -> None:
        assert self._asked_s is not None
        while (left_s := self._asked_s + self._within_s() - LAST_STEPS_S - time.monotonic()) > 0:
            select.select([], [], [], min(left_s, 0.5))  # time.sleep fails where the clock is faked (libfaketime)
        took_s = time.monotonic() - self._asked_s
        log.error("Ending %.1f s after %s, %s", took_s, signal.Signals(number).name, self._what())
        self._rescue(RESCUE_WITHIN_S)
        self._exit(1)

    def _what(self) -> str:
        """Describe the work in progress, with the main thread's current line."""
        try:
            doing = self._doing()
        except Exception as error:  # may run in the middle of anything
            doing = repr(error)
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        at = f" (at {Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
        return f"while {doing}{at}"

    def _exit(self, code: int) -> NoReturn:
        try:
            self.flush()
        finally:
            os._exit(code)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, and so gets SIGHUP when that is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Set ``stopping`` on SIGTERM, Ctrl-C and a closed terminal, for a command that then ends in an orderly way."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if not _hung_up_by_design(number):
            loop.add_signal_handler(number, stopping.set)


def _hung_up_by_design(number: signal.Signals) -> bool:
    """Whether SIGHUP is ignored: ``nohup`` does that so that a process outlives its terminal."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
