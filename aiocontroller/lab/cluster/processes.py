"""Child processes that never outlive this process.

Rules.
 * A child runs in its own session, so that Ctrl-C reaches only this process, which ends the children in order.
 * A child dies when the thread that started it dies, even by SIGKILL (Linux, ``PR_SET_PDEATHSIG``).  A tiny launcher
   makes that request and then becomes the child by ``exec``; unlike a ``preexec_fn``, this is safe in a process with
   threads.  So start children from a thread that lives as long as they should (the main one).
 * A child has no signals blocked, even if its parent blocks some to handle them in a thread.
 * A child's output goes to a file; errors quote its tail.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from aiocontroller.core.errors import AioControllerError

POLL_S = 0.02
PR_SET_PDEATHSIG = 1

_LAUNCHER = """
import ctypes, os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, ())
try:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
except (AttributeError, OSError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def launched(argv: Sequence[str | Path]) -> list[str]:
    """Return the command that runs ``argv`` through the launcher."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *map(str, argv)]


def die_with_parent() -> None:
    """Make this process, which a library started, die with its parent.  Linux only; does nothing elsewhere."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):
        pass


class ChildFailedError(AioControllerError):
    """A child did not start, ended too early or was not ready in time; the message quotes the end of its log."""


class Child:
    """One child process and the file that its output goes to.

    ``argv[0]`` is a path.  ``name`` is used in messages.  Raises ``OSError`` when the log cannot be written.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as out:
            self._log_began_bytes = out.tell()
            self._process = subprocess.Popen(
                launched(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=None if env is None else {**os.environ, **env},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code: None while the child runs, negative if a signal ended it."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def send_signal(self, number: signal.Signals) -> None:
        """Send the child a signal; does nothing if it has ended."""
        if self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_s: float, ask: signal.Signals = signal.SIGTERM) -> int:
        """Send SIGTERM (or ``ask``), then SIGKILL after ``timeout_s``; returns the exit code."""
        self.ask_to_stop(ask)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    async def stop_async(self, timeout_s: float, ask: signal.Signals = signal.SIGTERM) -> int:
        self.ask_to_stop(ask)
        if not await self.ended(timeout_s):
            self.kill()
        return self._process.wait()

    async def ended(self, timeout_s: float) -> bool:
        """Wait until the child ends, for ``timeout_s`` at most; returns whether it has."""
        deadline = time.monotonic() + timeout_s
        while self.running:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until ``ready()`` is true; raises ``ChildFailedError`` if the child ends first or time is up."""
        deadline = time.monotonic() + timeout_s
        while not self._is_ready(ready, deadline, timeout_s):
            time.sleep(POLL_S)

    async def wait_until_async(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Like ``wait_until``; ``ready`` is called in a thread, since it may block for a moment."""
        deadline = time.monotonic() + timeout_s
        while not await asyncio.to_thread(self._is_ready, ready, deadline, timeout_s):  # noqa: ASYNC110 - no event
            await asyncio.sleep(POLL_S)

    def log_tail(self, lines: int = 12) -> str:
        """Return the last lines of this child's output, without those of an earlier child."""
        try:
            text = self.log.read_bytes()[self._log_began_bytes :][-16_384:].decode("utf-8", "replace")
        except OSError as error:
            return f"(no log: {error})"
        return "\n".join(text.splitlines()[-lines:]) or "(it printed nothing)"

    def _is_ready(self, ready: Callable[[], bool], deadline: float, timeout_s: float) -> bool:
        code = self.exit_code
        if code is not None:
            raise ChildFailedError(f"{self.name} ended with {code} before it was ready; {self.log}:\n{self.log_tail()}")
        if ready():
            return True
        if time.monotonic() >= deadline:
            raise ChildFailedError(f"{self.name} was not ready in {timeout_s:g} s; {self.log}:\n{self.log_tail()}")
        return False

    def ask_to_stop(self, ask: signal.Signals = signal.SIGTERM) -> None:
        """Send SIGTERM (or ``ask``), without waiting."""
        self.send_signal(ask)
        self.send_signal(signal.SIGCONT)  # a suspended child gets the other signal only when it resumes


async def stop_all(children: Iterable[Child], timeout_s: float, ask: signal.Signals) -> None:
    """Stop all at the same time, each as ``stop_async`` does."""
    await asyncio.gather(*(child.stop_async(timeout_s, ask) for child in children))
