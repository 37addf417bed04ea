"""The command line: finds the cluster, asks it or starts it, prints for people or (``--json``) for programs.

Exit codes: 0 done; 1 it could not be done, one line on standard error says why; 2 the command was not understood.
Standard output holds results only.  Heavy imports happen inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The ``aiocontroller`` program."""
    open_standard_streams()
    from aiocontroller.cli.root import run

    run()


def open_standard_streams() -> None:
    """Those that a parent has closed (``>&-``) lead to nowhere.

    Without that the interpreter has none to print to, and the next socket would take the place of standard output.
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
