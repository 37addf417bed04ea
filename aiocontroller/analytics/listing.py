"""Lists the files below a folder of this machine."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from aiocontroller.analytics.store import MARKER, OURS, OWNER


def files_below(top: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """Return the files below a folder, and (path, reason) of what cannot be listed: unreadable folders and dangling
    links.

    Links are followed.  Each folder is entered once, so a link to a folder above it adds nothing, and a folder that
    links also reach keeps its own name.  Tables of an earlier run are left out.
    """
    found: list[Path] = []
    failed: list[tuple[Path, str]] = []
    entered: set[tuple[int, int]] = set()
    folders, links = deque([top]), deque[Path]()
    while folders or links:
        folder = (folders or links).popleft()
        try:
            about = folder.stat()
            if (about.st_dev, about.st_ino) in entered:
                continue
            entered.add((about.st_dev, about.st_ino))
            entries = _without_tables(folder, sorted(folder.iterdir()))
        except OSError as error:
            failed.append((folder, error.strerror or str(error)))
            continue
        for entry in entries:
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                failed.append((entry, error.strerror or str(error)))
                continue
            if stat.S_ISDIR(mode):
                (links if entry.is_symlink() else folders).append(entry)
            elif stat.S_ISREG(mode):
                found.append(entry)
    return sorted(found), sorted(failed)


def _without_tables(folder: Path, entries: Sequence[Path]) -> Sequence[Path]:
    """Leave out what the store has written in a folder that is (also) an output folder."""
    marker = folder / MARKER
    if marker not in entries or OWNER not in marker.read_text(errors="replace"):
        return entries
    return [entry for entry in entries if entry.name not in (MARKER, *OURS)]
