"""Finds files whose content is contained in another file: copies, and earlier states of a file that grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiocontroller.analytics.reading import HEAD_BYTES, begins_with, is_packed
from aiocontroller.analytics.source_files import SourceFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGINNING_BYTES = 60
"""Only files that agree in these bytes are compared; they include the time of the first line."""
UNPACKED = 20
"""The assumed compression ratio, so that files are compared with longer ones."""


def without_copies(
    spark: SparkSession, files: Sequence[SourceFile], heads: Mapping[str, bytes]
) -> tuple[list[SourceFile], list[tuple[str, str]]]:
    """Return the files without copies, and the copies as (copy, original).

    A copy is a file that is the beginning of another one.  The comparison covers the whole file and not just its head,
    since rotated logs may have long beginnings in common.
    """
    kept: list[SourceFile] = []
    copies: list[tuple[str, str]] = []
    by_beginning: dict[bytes, list[SourceFile]] = {}
    for file in sorted(files, key=lambda f: (-likely_size(f), f.start_us is None, f.name)):
        alike = by_beginning.setdefault(heads.get(file.path, b"")[:BEGINNING_BYTES], [])
        whole = next((f for f in alike if _is_in(spark, file, f, heads)), None)
        if whole is not None:
            copies.append((file.name, whole.name))
            continue
        for shorter in [f for f in alike if is_packed(f.path) and _is_in(spark, f, file, heads)]:
            alike.remove(shorter)
            kept.remove(shorter)
            copies.append((shorter.name, file.name))
        kept.append(file)
        alike.append(file)
    return sorted(kept, key=lambda f: f.name), sorted(copies)


def likely_size(file: SourceFile) -> int:
    """Return about how many bytes the file has when it is unpacked."""
    return file.size * (UNPACKED if is_packed(file.path) else 1)


def _is_in(spark: SparkSession, part: SourceFile, whole: SourceFile, heads: Mapping[str, bytes]) -> bool:
    head = heads.get(part.path, b"")
    if not head or not heads.get(whole.path, b"").startswith(head) or not described_alike(whole, part):
        return False
    return len(head) < HEAD_BYTES or begins_with(spark, whole.path, part.path)


def described_alike(a: SourceFile, b: SourceFile) -> bool:
    """Return whether the same line would mean the same in both files."""
    return (a.source, a.cluster, a.node, a.time_zone, a.date) == (b.source, b.cluster, b.node, b.time_zone, b.date)
