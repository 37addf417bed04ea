"""What the DuckDB engine reads of one file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from aiocontroller.analytics.small.bronze import _texts, _unpacked
from aiocontroller.analytics.source_files import SourceFile


def texts_of(file: SourceFile) -> list[str]:
    """Its lines, or records where it has a separator, as ``LogParser`` takes them."""
    with tempfile.TemporaryDirectory() as folder:
        separator = None if file.framing is None else file.framing.separator
        return list(_texts(_unpacked(file, Path(folder, "unpacked")).path, separator))
