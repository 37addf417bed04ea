"""Recognises files that changed after they were read, by their content: a file edited in place may keep its size and
its time.

A fingerprint also covers what the lines mean: a manifest may have given another time zone since.  Files of Hadoop's
file systems are not read again for it: they are replaced and never edited, so their time stands for the content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from aiocontroller.analytics.reading import CHUNK_BYTES, is_local, local_name
from aiocontroller.analytics.source_files import SourceFile

CHANGED: Final = "not what an earlier run read (edited, replaced, or described otherwise): all tables are made anew"


def fingerprint(file: SourceFile, size: int | None = None) -> str:
    """Return the fingerprint of the first ``size`` bytes, by default of all that were listed.

    Returns an empty one for a file that is gone: ``refuse_replaced`` names it.  Raises OSError.
    """
    meaning = f"{file.source} {file.cluster} {file.node} {file.time_zone} {file.date}"
    if not is_local(file.path):
        return f"{file.modified_us} {meaning}"
    digest = hashlib.sha256(meaning.encode())
    left = file.size if size is None else size
    try:
        with open(local_name(file.path), "rb") as content:
            while left > 0 and (piece := content.read(min(left, CHUNK_BYTES))):
                digest.update(piece)
                left -= len(piece)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()


def has_changed(file: SourceFile, commit: dict[str, Any]) -> bool:
    """Return whether the file was read for a commit and is now another one; one that has only grown is the same."""
    known, size = commit.get("prints", {}).get(file.path), commit["files"].get(file.path)
    if known is None or size is None:
        return False
    if not is_local(file.path) and file.size > size:
        return False
    return bool(file.size < size or fingerprint(file, size) != known)


def fingerprints(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return the fingerprint of each file by its path.  Raises OSError."""
    return {file.path: fingerprint(file) for file in files}
