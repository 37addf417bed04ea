"""Common start and end of commands that run until they are stopped.

They receive signals whatever hangs, do not wait for a reader of their output, and create files for their owner only.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from aiocontroller.cli.background import BackgroundWriter
from aiocontroller.cli.output import dropped_lines, in_background
from aiocontroller.core.text import plural
from aiocontroller.ending import SIGNALS, Ending

SWITCH_INTERVAL_S = 0.0001
"""How long a thread waits for the interpreter's lock before it asks for it.

The event loop drops the lock for some microseconds per turn, and each time a waiting thread starts to wait again.  A
loop with turns shorter than this interval starves it: with Python's 5 ms and turns of 2 ms, signals, the log and the
journal waited for up to 15 s on an idle machine.
"""


class LongRunning:
    """Must be created before other threads start and before anything is printed or written."""

    def __init__(self, as_json: bool, signals: Sequence[signal.Signals] = SIGNALS, rereads: bool = False) -> None:
        """``rereads`` is passed to ``Ending``."""
        self.ending = Ending(signals, rereads=rereads)
        self.ending.listen()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        os.umask(0o077)
        self.errors = BackgroundWriter(sys.stderr.fileno(), lambda dropped: f"{plural(dropped, 'log line')} dropped\n")
        self.output = BackgroundWriter(sys.stdout.fileno(), lambda dropped: dropped_lines(dropped, as_json))
        in_background(self.output)
        self.ending.flush = self._flush

    def finish(self, work: Callable[[], int]) -> NoReturn:
        """Do the work and end the process with its exit code.

        Errors are reported here, because the last messages must not wait for a reader either.
        """
        from aiocontroller.cli.root import exit_code, explain

        try:
            code = work()
        except BrokenPipeError:
            code = 0  # head, or a pager, has seen enough
        except BaseException as error:
            code = exit_code(error)
            lines = explain(error)
            if lines is None:
                logging.getLogger("aiocontroller").critical("Ended by a bug", exc_info=error)
                lines = [f"ended by a bug: {error!r}"]
            for line in lines:
                self.errors.write(f"Error: {line}\n")
        self.ending.finish(code)

    def _flush(self) -> None:
        self.errors.flush()
        self.output.flush()
