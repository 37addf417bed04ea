"""An operator's command: no shell, a limited time, the end of what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from aiocontroller.net.commands import KEPT_BYTES, CommandResult, run_command

LONG_S = 60.0


async def test_both_outputs_and_the_code_are_kept() -> None:
    program = "import sys; print('out'); sys.stdout.flush(); sys.stderr.write('err'); sys.exit(3)"
    result = await run_command([sys.executable, "-c", program], {}, timeout_s=LONG_S)
    assert result == CommandResult(3, "out\nerr")


async def test_arguments_are_no_shells_words_and_variables_are_added() -> None:
    program = "import os, sys; print(sys.argv[1], os.environ['MARK'], 'PATH' in os.environ)"
    result = await run_command([sys.executable, "-c", program, "$HOME; exit 1"], {"MARK": "x"}, timeout_s=LONG_S)
    assert result == CommandResult(0, "$HOME; exit 1 x True\n")


async def test_only_the_end_of_much_output_is_kept() -> None:
    program = "print('a' * 1_000_000); print('end')"
    code, output = await run_command([sys.executable, "-c", program], {}, timeout_s=LONG_S)
    assert code == 0
    assert len(output) == KEPT_BYTES
    assert output.endswith("a\nend\n")


async def test_what_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "child"
    program = (
        "import subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep({LONG_S})']); "
        f"open({str(mark)!r}, 'w').write(str(child.pid)); print('waits', flush=True); time.sleep({LONG_S})"
    )
    running = asyncio.create_task(run_command([sys.executable, "-c", program], {}, timeout_s=3.0))
    assert await running == CommandResult(None, "waits\n")
    await until_gone(int(mark.read_text()))


async def test_a_process_that_is_left_behind_delays_nothing() -> None:
    """It has a session of its own, so it stays; only the output is let go."""
    child = f"import time; time.sleep({LONG_S})"
    program = (
        "import subprocess, sys; "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); print(child.pid)"
    )
    code, output = await run_command([sys.executable, "-c", program], {}, timeout_s=LONG_S)
    assert code == 0
    os.kill(int(output), signal.SIGKILL)


@pytest.mark.parametrize("leave", [True, False])
async def test_what_a_command_leaves_running_stays_only_if_so_wished(leave: bool) -> None:
    """``kafka-server-start.sh -daemon`` leaves the broker in its own process group."""
    child = f"import time; time.sleep({LONG_S})"
    program = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {child!r}]); print(child.pid)"
    code, output = await run_command([sys.executable, "-c", program], {}, timeout_s=LONG_S, leave=leave)
    assert code == 0
    if leave:
        os.kill(int(output), signal.SIGKILL)
    await until_gone(int(output))


async def test_what_is_cancelled_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep({LONG_S})"
    running = asyncio.create_task(run_command([sys.executable, "-c", program], {}, timeout_s=LONG_S))
    while not mark.exists() or not mark.read_text():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(int(mark.read_text()))


def may_not_kill(group: int, number: int) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


async def test_a_process_of_another_user_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """``sudo`` runs as root, so it cannot be killed: the caller must not wait for it."""
    started: list[Any] = []
    real_open = anyio.open_process

    async def open_process(*given: Any, **named: Any) -> anyio.abc.Process:
        started.append(await real_open(*given, **named))
        return started[0]

    monkeypatch.setattr(os, "killpg", may_not_kill)
    monkeypatch.setattr(anyio, "open_process", open_process)
    program = f"import time; print('waits', flush=True); time.sleep({LONG_S})"
    running = asyncio.create_task(run_command([sys.executable, "-c", program], {}, timeout_s=3.0))
    done, _ = await asyncio.wait([running], timeout=LONG_S / 2)
    assert done
    code, output = running.result()
    assert code is None
    assert output.splitlines()[-1] == "(cannot be killed: Operation not permitted)"
    [process] = started
    process.kill()
    await process.aclose()


async def test_a_command_that_has_ended_has_ended_although_its_group_cannot_be_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "killpg", may_not_kill)
    assert await run_command([sys.executable, "-c", "print(1)"], {}, timeout_s=LONG_S) == CommandResult(0, "1\n")


async def until_gone(process: int) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("program", ["/nowhere/no-such-program", str(Path(__file__).parent)])
async def test_what_cannot_be_started_is_an_error(program: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Permission denied"):
        await run_command([program], {}, timeout_s=LONG_S)


@pytest.mark.parametrize("error", [OSError("input/output error"), anyio.BrokenResourceError()])
async def test_output_that_cannot_be_read_leaves_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    open_process = anyio.open_process

    async def then_breaks() -> AsyncIterator[bytes]:
        yield b"first"
        raise error

    async def opened(*given: Any, **more: Any) -> Any:
        process = await open_process(*given, **more)
        monkeypatch.setattr(process, "_stdout", Unreadable(then_breaks(), process.stdout))
        return process

    monkeypatch.setattr(anyio, "open_process", opened)
    assert await run_command([sys.executable, "-c", "exit(4)"], {}, timeout_s=LONG_S) == CommandResult(4, "first")


class Unreadable:
    def __init__(self, output: AsyncIterator[bytes], real: Any) -> None:
        self._output, self._real = output, real

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._output

    async def aclose(self) -> None:
        await self._real.aclose()
