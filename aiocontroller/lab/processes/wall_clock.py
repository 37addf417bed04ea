"""A process's wall clock that can be set from outside by libfaketime, if that is installed (Debian: ``faketime``).

Only the time of day jumps.  The monotonic clock, on which all decisions depend, is unaffected.
"""

from __future__ import annotations

import os
from pathlib import Path

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
)
SHARED_MEMORY = Path("/dev/shm")
NOTICED_AFTER_S = 1


def find_library() -> Path | None:
    """Return ``$LIBFAKETIME`` or the path where distributions install it; None if clocks cannot be set on this
    machine."""
    places = [os.environ["LIBFAKETIME"]] if "LIBFAKETIME" in os.environ else LIBRARIES
    return next((path for path in map(Path, places) if path.exists()), None)


class WallClock:
    """The wall clock of processes started with ``env``; without the library, it is the machine's clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._library = find_library()
        self.offset_s = 0

    @property
    def env(self) -> dict[str, str]:
        if self._library is None:
            return {}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._write()
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(NOTICED_AFTER_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, seconds: int) -> bool:
        """Move the clock by ``seconds``; processes notice within NOTICED_AFTER_S. Return False if clocks cannot be
        set."""
        if self._library is None:
            return False
        self.offset_s += seconds
        self._write()
        return True

    def forget(self, pid: int) -> None:
        """Remove the files that the library leaves behind for a killed process."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (SHARED_MEMORY / name).unlink(missing_ok=True)

    def _write(self) -> None:
        # Replaced atomically: a process would take a partly written file for another offset.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self.offset_s:+d}\n", "utf-8")
        fresh.replace(self._file)
