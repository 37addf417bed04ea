"""The library that makes a broker slow delays what it should, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiocontroller.lab.cluster import slowness
from aiocontroller.lab.cluster.slowness import NoCompilerError, Slowness, compiler_missing, slowness_library

DELAY_MS = 300
SCRIPT = """
import socket, sys, time
def seconds(write):
    began = time.monotonic()
    write(b"x")
    return time.monotonic() - began
here, there = socket.socketpair()
with open(sys.argv[1], "wb", 0) as log, open(sys.argv[2], "wb", 0) as index, here.makefile("wb", 0) as sent:
    print(seconds(log.write), seconds(index.write), seconds(lambda data: __import__("os").write(here.fileno(), data)))
"""

pytestmark = pytest.mark.skipif(compiler_missing() is not None, reason="no C compiler")


def test_only_the_named_writes_take_longer(tmp_path: Path) -> None:
    slow = Slowness(slowness_library(tmp_path), tmp_path / "broker")

    def slowed() -> list[bool]:
        """Writes to a log, to an index, to a socket."""
        names = [str(tmp_path / f"00000000000000000000.{end}") for end in ("log", "index")]
        command = [*slow.prefix(), sys.executable, "-c", SCRIPT, *names]
        run = subprocess.run(command, env=os.environ, capture_output=True, check=True, text=True)
        return [float(text) >= DELAY_MS / 1000 for text in run.stdout.split()]

    assert slowed() == [False, False, False]
    slow.slow_disk(DELAY_MS)
    assert slowed() == [True, False, False]
    slow.heal()
    slow.slow_network(DELAY_MS)
    assert slowed() == [False, False, True]
    slow.slow_disk(DELAY_MS)
    assert slowed() == [True, False, True]
    slow.heal()
    slow.heal()
    assert slowed() == [False, False, False]


def test_a_library_that_cannot_be_compiled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.c"
    wrong.write_text("this is not C")
    monkeypatch.setattr(slowness, "SOURCE", wrong)
    with pytest.raises(NoCompilerError, match=r"cc cannot compile wrong\.c"):
        slowness_library(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompilerError, match="found no 'cc' on PATH"):
        slowness_library(tmp_path)
