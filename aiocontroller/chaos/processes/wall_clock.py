"""A process's wall clock that can be set from outside, by libfaketime where that is installed (Debian: ``faketime``).

Only what tells the time of day jumps; the monotonic clock, by which everything is decided, goes on.
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
    """``$LIBFAKETIME``, or where distributions put it; None: clocks cannot be set on this machine."""
    places = [os.environ["LIBFAKETIME"]] if "LIBFAKETIME" in os.environ else LIBRARIES
    return next((path for path in map(Path, places) if path.exists()), None)


class WallClock:
    """Of processes that are started with ``env``; without the library it is the machine's own."""

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
        """Forwards, or back; processes notice within NOTICED_AFTER_S.  False where clocks cannot be set."""
        if self._library is None:
            return False
        self.offset_s += seconds
        self._write()
        return True

    def forget(self, pid: int) -> None:
        """The library leaves files behind for a process that was killed."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (SHARED_MEMORY / name).unlink(missing_ok=True)

    def _write(self) -> None:
        # Replaced, not rewritten: whoever reads it between two bytes would take what is there for an offset.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self.offset_s:+d}\n", "utf-8")
        fresh.replace(self._file)
