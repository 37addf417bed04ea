"""A process's wall clock is set under it; the clock that decides goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiocontroller.lab.processes.wall_clock import SHARED_MEMORY, WallClock, find_library

CLOCKS = (
    "import sys, time\nfor _ in sys.stdin: print(time.time_ns() // 10**9, time.monotonic_ns() // 10**9, flush=True)"
)


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    if find_library() is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    return WallClock(tmp_path / "folder" / "wall-clock")


def test_only_the_time_of_day_jumps(clock: WallClock) -> None:
    command = [sys.executable, "-c", CLOCKS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | clock.env, **pipes) as child:  # type: ignore[call-overload]

        def look() -> tuple[int, int]:
            child.stdin.write("\n")
            child.stdin.flush()
            wall, monotonic = child.stdout.readline().split()
            return int(wall), int(monotonic)

        first = look()
        assert clock.jump(86_400)
        after = look()
        while after[0] - first[0] < 86_000:
            assert after[1] - first[1] < 20, "not noticed"
            after = look()
        # Whole seconds of two clocks that do not tick together.
        assert -1 <= (after[0] - first[0]) - (after[1] - first[1]) - 86_400 < 5
        assert clock.jump(-172_800)
        while look()[0] > first[0]:
            assert look()[1] - first[1] < 40, "not noticed"
        child.kill()
    clock.forget(child.pid)
    assert not [path for path in SHARED_MEMORY.iterdir() if path.name.endswith(f"_{child.pid}")]


def test_without_the_library_nothing_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBFAKETIME", str(tmp_path / "nowhere"))
    clock = WallClock(tmp_path / "wall-clock")
    assert (clock.env, clock.jump(5), clock.offset_s) == ({}, False, 0)
