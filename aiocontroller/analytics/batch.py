"""Runs over files: a whole run rebuilds all tables, whatever the folder held; an incremental run adds what is new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocontroller.analytics import compaction, stream
from aiocontroller.analytics.dataframes import SparkSession
from aiocontroller.analytics.fingerprints import CHANGED, fingerprints, has_changed
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.session import suit
from aiocontroller.analytics.source_files import Found, SourceFile
from aiocontroller.analytics.sources import find_files, refuse_replaced
from aiocontroller.analytics.store import Store, batches_of
from aiocontroller.core.text import plural

log = logging.getLogger(__name__)

Step = Callable[[str], None]
GONE: Final = (
    "in the earlier tables, but not given to this run, which made them anew: its records are no longer in them"
)


def run(
    spark: SparkSession,
    inputs: Sequence[str],
    out: str,
    step: Step = log.info,
    *,
    manifest: Manifest | None = None,
    in_progress: bool = False,
    most_quarantined: float = 1.0,
) -> Found:
    """Process all ``inputs`` (files or folders on any Hadoop file system) to bronze, silver and gold below ``out``.

    The gold tables of an earlier run stay until the new ones are complete.  Raises ``BadInputError`` if there is
    nothing to read, or if the share of lines that were not understood exceeds ``most_quarantined``.
    """
    store = Store(spark, out)
    found = find_files(spark, inputs, in_progress=in_progress, manifest=manifest)
    with store.writing():
        _begin(store, found, step, most_quarantined)
        _report_what_is_in_the_way(store, step)
    return found


def _begin(store: Store, found: Found, step: Step, most_quarantined: float, gone: Sequence[str] = ()) -> None:
    suit(store.spark, sum(file.size for file in found.files))
    store.begin()
    remarks = found.remarks() | ({GONE: list(gone)} if gone else {})
    note = {"given": _given(found), "remarks": remarks, "lacks": found.lacks_as_rows()} | _read(found.files)
    stream.add(
        store, found.files, note, step, most_quarantined=most_quarantined, when_read=lambda: refuse_replaced(found)
    )
    stream.publish(store, step)


def run_incremental(
    spark: SparkSession,
    inputs: Sequence[str],
    out: str,
    step: Step = log.info,
    *,
    manifest: Manifest | None = None,
    in_progress: bool = False,
    most_quarantined: float = 1.0,
) -> Found:
    """Process only what ``out`` does not hold yet: the same tables as from ``run``, at less cost.

    A journal that has grown or reappears is read again, without the records already known.  Log lines have no numbers,
    and all clocks are computed together, so a new or grown log forces a whole run; so does a file that was changed
    (``fingerprints``).  What an earlier run read and is not given again then is no longer in the tables; a remark names
    it.
    """
    store = Store(spark, out)
    found = find_files(spark, inputs, in_progress=in_progress, manifest=manifest)
    with store.writing():
        store.refuse_lost()
        commit = store.last_commit()
        known = {} if commit is None else commit["files"]
        new = tuple(file for file in found.files if known.get(file.path) != file.size)
        changed = [file.name for file in found.files if commit is not None and has_changed(file, commit)]
        if changed:
            step(f"{CHANGED}: {plural(len(changed), 'file')}, {changed[0]} for example")
        if commit is None or changed or any(file.source != "journal" for file in new):
            gone = sorted({*({} if commit is None else commit).get("given", ())} - {*_given(found)})
            if gone:
                step(f"{GONE}: {plural(len(gone), 'file')}, {gone[0]} for example")
            _begin(store, found, step, most_quarantined, gone)
            _report_what_is_in_the_way(store, step)
            return found
        store.refuse_damaged(batches_of(commit))
        suit(spark, sum(file.size for file in new))
        lacks = _lacks(commit, found)
        if new or lacks != commit.get("lacks", []):
            given = sorted({*commit.get("given", ()), *_given(found)})
            read = _read(new)
            note = {
                "files": known | read["files"], "prints": commit.get("prints", {}) | read["prints"], "given": given,
                "remarks": found.remarks(), "lacks": lacks,
            }  # fmt: skip
            stream.add(
                store, new, note, step, most_quarantined=most_quarantined, when_read=lambda: refuse_replaced(found)
            )
        else:
            step("nothing new")
        stream.publish(store, step)
        compaction.compact(store, step)
        _report_what_is_in_the_way(store, step)
    return found


def _report_what_is_in_the_way(store: Store, step: Step) -> None:
    words = store.gold_in_the_way()
    if words is not None:
        step(words)


def _lacks(commit: dict[str, Any], found: Found) -> list[dict[str, Any]]:
    """Return what the files lack: those found now, and those of earlier runs that were not given again."""
    given = {name.replace("_journal-", "journal-") for name in found.names()}
    earlier = [lack for lack in commit.get("lacks", []) if lack["file"].replace("_journal-", "journal-") not in given]
    return sorted([*earlier, *found.lacks_as_rows()], key=lambda lack: (lack["file"], lack["words"]))


def _given(found: Found) -> list[str]:
    """Return the names of the files that were read, whether a journal was complete yet or not."""
    return sorted({file.name.replace("_journal-", "journal-") for file in found.files})


def _read(files: Sequence[SourceFile]) -> dict[str, Any]:
    """Return what a commit says of the files that it includes: their sizes and fingerprints, by path."""
    return {"files": {file.path: file.size for file in files}, "prints": fingerprints(files)}
