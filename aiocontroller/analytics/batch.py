"""Everything at once: files in, gold out, whatever the folder held before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from aiocontroller.analytics import stream
from aiocontroller.analytics.manifest import Manifest
from aiocontroller.analytics.session import suit
from aiocontroller.analytics.sources import Found, SourceFile, find_files
from aiocontroller.analytics.store import Store

log = logging.getLogger(__name__)

Step = Callable[[str], None]


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
    """All of ``inputs`` (files, folders; of any Hadoop file system) to bronze, silver and gold below ``out``.

    Gold of an earlier run stays until the new one is whole.  ``BadInputError`` where there is nothing to read,
    or more than the share ``most_quarantined`` of it was not understood.
    """
    found = find_files(spark, inputs, in_progress=in_progress, manifest=manifest)
    suit(spark, sum(file.size for file in found.files))
    store = Store(spark, out)
    store.clear()
    note = {"files": sizes(found.files), "remarks": found.remarks()}
    stream.add(store, found.files, note, step, most_quarantined=most_quarantined)
    stream.publish(store, step)
    return found


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
    """Only what ``out`` does not hold yet; the same tables as ``run`` would give, for less.

    A journal that has grown, or comes again, is read again, and its records that are known are left out.  Lines of
    logs bear no numbers, and their clocks are judged together: a log that is new or has grown makes all begin anew.
    """
    found = find_files(spark, inputs, in_progress=in_progress, manifest=manifest)
    store = Store(spark, out)
    commit = store.last_commit()
    known = {} if commit is None else commit["files"]
    new = tuple(file for file in found.files if known.get(file.path) != file.size)
    if commit is None or any(file.source != "journal" for file in new):
        return run(
            spark, inputs, out, step,
            manifest=manifest, in_progress=in_progress, most_quarantined=most_quarantined,
        )  # fmt: skip
    suit(spark, sum(file.size for file in new))
    if new:
        note = {"files": known | sizes(new), "remarks": found.remarks()}
        stream.add(store, new, note, step, most_quarantined=most_quarantined)
    else:
        step("nothing new")
    stream.publish(store, step)
    return found


def sizes(files: Sequence[SourceFile]) -> dict[str, int]:
    return {file.path: file.size for file in files}
