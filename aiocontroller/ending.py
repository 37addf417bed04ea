"""The end of a long-running process: on a signal, within a bound, whatever hangs.

 1. SIGTERM, SIGINT and SIGHUP (a terminal was closed) are blocked everywhere and handled by a thread of their own:
    neither a busy loop nor a main thread that hangs in the system can delay them.
 2. The first one asks for an orderly end, which has its own bounds.
 3. If that takes too long, the thread ends the process itself: it logs the work in progress, saves what it can, and
    exits with 1.
 4. A second signal ends the process at once, with 128 + its number, as a shell names it.  The same signal within
    ``TWICE_S`` counts once: ``timeout`` sends it to the process and to its group, and a shell may pass it on.
 5. Where no terminal can be closed, SIGHUP asks a service to read its certificates again, and ends nothing.

The end is ``os._exit``: the interpreter would join threads that hang in the system (a disk, a name server), and take a
large heap apart piece by piece.
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
"""For the rescue, and for what is still to be printed."""
TWICE_S = 0.2
"""No person presses Ctrl-C twice as fast."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ending:
    """Listens from ``listen`` on; before ``attach`` a signal ends the process at once."""

    def __init__(self, signals: Sequence[signal.Signals] = SIGNALS, *, rereads: bool = False) -> None:
        """``rereads``: SIGHUP asks for ``reread`` of ``attach`` and not for an end."""
        self.flush: Callable[[], object] = lambda: None
        """Flushes printed and logged text, for a short time at most."""
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
            signal.signal(number, forward)  # a signal that the parent process ignores could not be waited for
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
        """In the running loop: ``ask`` for an end there, and expect it within ``within_s`` of the signal.

        ``doing`` says what is going on, ``rescue`` saves what it can in so many seconds; both from another thread.
        ``reread`` is called in the loop.
        """
        self._reread = reread
        self._within_s, self._doing, self._rescue = within_s, doing, rescue
        self._orderly = (asyncio.get_running_loop(), ask)

    def at_exit(self, action: Callable[[], object]) -> None:
        """Run the action at an orderly end, the last one first."""
        self._at_exit.append(action)

    def finish(self, code: int) -> NoReturn:
        """The orderly end."""
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
        """The next signal that asks for an end; those before it that ask for certificates are passed on."""
        while (number := signal.sigwait(self._signals)) == signal.SIGHUP and self._rereads:
            if self._orderly is None or self._asked_s is not None:
                continue  # nothing has been read, or nobody will connect any more
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
        """The work in progress, and the main thread's current line."""
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
    """Whether a terminal controls this process, so that it gets SIGHUP when that is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def stop_on_signals(stopping: asyncio.Event) -> None:
    """SIGTERM, Ctrl-C and a closed terminal set ``stopping``, of a command that ends what it does in good order."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        if not _hung_up_by_design(number):
            loop.add_signal_handler(number, stopping.set)


def _hung_up_by_design(number: signal.Signals) -> bool:
    """``nohup`` has a process ignore SIGHUP so that it outlives its terminal."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
