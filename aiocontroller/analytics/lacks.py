"""What the files themselves show to be missing: damage, files that cannot be read, holes in rotated sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from aiocontroller.analytics.cluster_ids import folders
from aiocontroller.analytics.damage import CUT_OFF
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.reading import unpacked_name
from aiocontroller.analytics.schema import CONTROLLER_LOG, JOURNAL_SOURCE, SERVER_LOG, STATE_CHANGE_LOG
from aiocontroller.analytics.source_files import Lack, Looked, SourceFile

JOURNAL_NAME = re.compile(r"_?journal-(\d+)-(\d+)-(\d+)-(\d{6})\.jsonl(\.gz|\.bz2|\.zst)?")
_BY_NAME = (("state-change", STATE_CHANGE_LOG), ("controller", CONTROLLER_LOG), ("server", SERVER_LOG))
_OF_CONTROLLER = re.compile(r"(?:state-change|controller)\.log.*")
_ROTATED = re.compile(
    r"(?P<base>.*\.log(?P<date>\.\d{4}-\d\d-\d\d(?:-\d\d)?)?)\.(?P<n>\d{1,3})"
    r"|(?P<dated>.*[.-]\d{4}-\d\d-\d\d(?:-\d\d)?)\.(?P<nth>\d{1,3})\.log",
    re.DOTALL,
)
"""log4j's RollingFileAppender numbers files from 1, the newest; log4j2's ``%i`` counts within a day or an hour.

Files named only by day or hour prove nothing: if no line was written, there is no file.
"""


def source_by_name(name: str) -> str | None:
    """Return which of ``schema.SOURCES`` the file name of a path or URL indicates; None if it indicates none."""
    base = name.rpartition("/")[2]
    if JOURNAL_NAME.fullmatch(base):
        return JOURNAL_SOURCE
    return next((source for part, source in _BY_NAME if part in base), None)


def lacks_of(
    listed: Sequence[SourceFile],
    files: Sequence[SourceFile],
    looked: Sequence[Looked],
    unreadable: Iterable[tuple[str, str]],
    unknown: Iterable[str],
    in_progress: Iterable[str],
    manifest: Manifest,
) -> tuple[Lack, ...]:
    """Return what is missing, as far as the files show it.

    ``listed`` are all files, ``files`` those to be read, with their clusters; ``looked`` were scanned; the others are
    names.
    """
    by_name = {file.name: file for file in listed}
    clusters = {file.path: file.cluster for file in files}

    def lack(file: SourceFile, words: str, process: str = "") -> Lack:
        about = manifest.about(file.name, file.path)
        near = _neighbours(file, files)
        source = about.get("source") or file.source or source_by_name(file.name) or ""
        cluster = about.get("cluster") or _only({each.cluster for each in near})
        node = about.get("broker", file.node) if source != JOURNAL_SOURCE else None
        if node is None and source != JOURNAL_SOURCE:
            node = _only({each.node for each in near if each.source != JOURNAL_SOURCE})
        return Lack(file.name, words, source, cluster, node, process)

    found = [lack(by_name[name], f"{name} cannot be read: {why}") for name, why in unreadable]
    found += [
        Lack(each.file.name, f"{each.file.name} is {each.lost}", each.file.source,
             clusters[each.file.path], each.file.node)
        for each in looked if each.lost and each.file.path in clusters
    ]  # fmt: skip
    found += [
        Lack(each.file.name, f"{each.file.name} is cut off: {CUT_OFF}", each.file.source,
             clusters[each.file.path], each.file.node, at_end=True)
        for each in looked if each.cut_off and each.file.path in clusters
    ]  # fmt: skip
    found += [
        lack(by_name[name], f"{name} is not read: it is neither a journal nor a Kafka log")
        for name in unknown
        if _OF_CONTROLLER.fullmatch(name.rpartition("/")[2]) or JOURNAL_NAME.fullmatch(name.rpartition("/")[2])
    ]
    read = {file.name for file in files}
    for name in in_progress:
        if name in read or not by_name[name].size:
            continue
        named = JOURNAL_NAME.fullmatch(name.rpartition("/")[2])
        process = f"{named.group(1)}-{named.group(3)}" if named else ""
        words = f"{name} is still being written, or its process was killed: --in-progress reads it"
        found.append(lack(by_name[name], words, process))
    found += [lack(file, words) for file, words in _holes(listed)]
    return tuple(sorted(found, key=lambda each: (each.file, each.words)))


def _neighbours(file: SourceFile, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files in the same folder, or in the nearest folder above that has any."""
    for folder in folders(file.path):
        near = [other for other in files if other.path.startswith(f"{folder}/")]
        if near:
            return near
    return list(files)


def _only(values: Iterable[Any]) -> Any:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _holes(listed: Sequence[SourceFile]) -> list[tuple[SourceFile, str]]:
    """Return a file beside each hole in a sequence of numbered files, and what is missing."""
    sequences: dict[tuple[str, bool], dict[int, SourceFile]] = {}
    paths = {unpacked_name(file.path) for file in listed}
    for file in listed:
        found = _ROTATED.fullmatch(unpacked_name(file.path))
        if found and source_by_name(file.name) is not None:
            base, number = found["base"] or found["dated"], int(found["n"] or found["nth"])
            dated = bool(found["date"] or found["dated"])
            sequences.setdefault((base, dated), {})[number] = file
    holes = []
    for (base, dated), numbered in sorted(sequences.items()):
        first = min(numbered) if dated or base not in paths else min(1, *numbered)
        missing = sorted(set(range(first, max(numbered))) - set(numbered))
        if missing:
            beside = numbered[next(n for n in sorted(numbered) if n > missing[-1])]
            names = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
            words = (
                f"of the rotated files of {base.rpartition('/')[2]}, number {names} is missing (beside {beside.name})"
            )
            holes.append((beside, words))
    return holes
