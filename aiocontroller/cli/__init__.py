"""The command line: finds the cluster, asks it or starts it, prints for people or (``--json``) for programs.

Exit codes: 0 done; 1 it could not be done, one line on standard error says why; 2 the command was not understood.
Standard output holds results only.  Heavy imports happen inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations


def main() -> None:
    """The ``aiocontroller`` program."""
    from aiocontroller.cli.root import run

    run()
