"""Makes a real broker's disk or network slow, at any time, with a small library that is preloaded into it (Linux).

Each write to a partition's log, or each send to a socket, takes longer while a control file exists.  The library is
compiled with the C compiler ``cc`` when it is first needed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from aiocontroller.core.errors import AioControllerError

SOURCE = Path(__file__).with_name("slowness.c")
ENV = shutil.which("env") or "/usr/bin/env"


class NoCompilerError(AioControllerError):
    """There is no ``cc`` on PATH, or it cannot compile the library."""


def compiler_missing() -> str | None:
    """Return why no broker can be made slow here; None if one can."""
    return None if shutil.which("cc") else "no C compiler: found no 'cc' on PATH"


def slowness_library(folder: Path) -> Path:
    """Compile the library into the folder, and return its path.  Raises NoCompilerError."""
    if missing := compiler_missing():
        raise NoCompilerError(missing)
    folder.mkdir(parents=True, exist_ok=True)
    library = (folder / "slowness.so").resolve()
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise NoCompilerError(f"cc cannot compile {SOURCE.name}: {run.stderr.strip()[-1000:]}")
    return library


class Slowness:
    """The slowness of one broker; ``folder`` has the control files, and must stay the same while the broker runs."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library = library
        self._disk = folder.resolve() / "slow-disk"
        self._network = folder.resolve() / "slow-network"

    def prefix(self) -> list[str]:
        """The beginning of the broker's command line."""
        return [ENV, f"LD_PRELOAD={self._library}", f"SLOW_DISK={self._disk}", f"SLOW_NETWORK={self._network}"]

    def slow_disk(self, delay_ms: int) -> None:
        """Delay each write to a partition's log by ``delay_ms`` from now on."""
        _set(self._disk, delay_ms)

    def slow_network(self, delay_ms: int) -> None:
        """Delay each send to a socket by ``delay_ms`` from now on."""
        _set(self._network, delay_ms)

    def heal(self) -> None:
        """End all delays, except those that have already begun."""
        self._disk.unlink(missing_ok=True)
        self._network.unlink(missing_ok=True)


def _set(control: Path, delay_ms: int) -> None:
    control.parent.mkdir(parents=True, exist_ok=True)
    waiting = control.with_suffix(".new")
    waiting.write_text(str(delay_ms))
    waiting.rename(control)
