"""The command line: finds a cluster, queries or starts it, and prints text or JSON (``--json``).

Exit codes: 0 success; 1 failure, with the reason in one line on standard error; 2 invalid command line.
Standard output holds results only.  Heavy imports happen inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """The ``aiocontroller`` program."""
    listen_to_sigterm()
    open_standard_streams()
    from aiocontroller.cli.root import run

    run()


def listen_to_sigterm() -> None:
    """Let SIGTERM end this process, also if its parent blocked it, or if it is the first one of a container.

    That one does not get a signal that it neither handles nor blocks; the image blocks SIGTERM until here.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


def open_standard_streams() -> None:
    """Open standard streams that the parent has closed (``>&-``) on the null device.

    Otherwise the interpreter has no stream to print to, and the next socket would take standard output's descriptor.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != descriptor:
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
        os.set_inheritable(descriptor, True)
        setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
