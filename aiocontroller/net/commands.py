"""Runs an operator's command: without a shell, for a limited time, keeping the end of what it prints."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from subprocess import DEVNULL, PIPE, STDOUT
from typing import NamedTuple

import anyio

KEPT_BYTES = 2_000
"""The end of a command's output that is kept; the rest is read and dropped."""
LAST_OUTPUT_S = 0.5
"""How long to wait for the end of the output, which a process that the command left behind may keep open."""


class CommandResult(NamedTuple):
    """How a command ended."""

    code: int | None
    """Exit code, negative for a signal; None if it took too long and was killed."""
    output: str
    """The last ``KEPT_BYTES`` of standard output and standard error together."""


async def run_command(
    command: Sequence[str], environment: Mapping[str, str], *, timeout_s: float, leave: bool = False
) -> CommandResult:
    """Run a program, with ``environment`` added to our own, until it ends or ``timeout_s`` has passed.

    Then the rest of its process group is killed, unless the program has ended and ``leave`` is set; a process that
    cannot be killed is left behind.  Raises OSError if the program cannot be started, and ValueError for an argument
    that contains a NUL.
    """
    kept = bytearray()
    code: int | None = None
    process = await anyio.open_process(
        command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with anyio.move_on_after(timeout_s):
            async with anyio.create_task_group() as tasks:
                ended = anyio.Event()
                tasks.start_soon(_keep_the_end, process.stdout, kept, ended)
                code = await process.wait()
                with anyio.move_on_after(LAST_OUTPUT_S):
                    await ended.wait()
                tasks.cancel_scope.cancel()
    finally:  # also if this task is cancelled
        try:
            if code is None or not leave:
                os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError as error:  # it runs as another user now: ``sudo``
            kept += f"\n(cannot be killed: {error.strerror})".encode() if code is None else b""
        with anyio.move_on_after(LAST_OUTPUT_S, shield=True):
            await process.wait()
        if process.returncode is not None:
            await process.aclose()
    return CommandResult(code, kept.decode(errors="replace"))


async def _keep_the_end(output: AsyncIterable[bytes], kept: bytearray, ended: anyio.Event) -> None:
    """Keep the end of ``output`` in ``kept``.  A read error ends only this: the command's exit code is what counts."""
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for piece in output:
            kept += piece
            del kept[:-KEPT_BYTES]
    ended.set()


RunCommand = Callable[..., Awaitable[CommandResult]]
"""The type of ``run_command``."""
