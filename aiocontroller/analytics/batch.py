"""Everything at once: files in, gold out, whatever the folder held before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from aiocontroller.analytics import bronze, stream
from aiocontroller.analytics.sources import Found, SourceFile, find_files
from aiocontroller.analytics.store import Store

log = logging.getLogger(__name__)

Step = Callable[[str], None]


def run(spark: SparkSession, inputs: Sequence[str], out: str, step: Step = log.info) -> Found:
    """All of ``inputs`` (files, folders; of any Hadoop file system) to bronze, silver and gold below ``out``.

    Gold of an earlier run stays until the new one is whole.  ``BadInputError`` where there is nothing to read.
    """
    found = find_files(spark, inputs)
    store = Store(spark, out)
    store.clear()
    stream.add(store, _read(spark, found.files), {"files": sizes(found.files)}, step)
    stream.publish(store, step)
    return found


def run_incremental(spark: SparkSession, inputs: Sequence[str], out: str, step: Step = log.info) -> Found:
    """Only what ``out`` does not hold yet; the same tables as ``run`` would give, for less.

    A journal that has grown, or comes again, is read again, and its records that are known are left out.  Lines of
    logs bear no numbers, and their clocks are judged together: a log that is new or has grown makes all begin anew.
    """
    found = find_files(spark, inputs)
    store = Store(spark, out)
    commit = store.last_commit()
    known = {} if commit is None else commit["files"]
    new = tuple(file for file in found.files if known.get(file.path) != file.size)
    if commit is None or any(file.source != "journal" for file in new):
        return run(spark, inputs, out, step)
    if new:
        stream.add(store, _read(spark, new), {"files": known | sizes(new)}, step)
    else:
        step("nothing new")
    stream.publish(store, step)
    return found


def sizes(files: Sequence[SourceFile]) -> dict[str, int]:
    return {file.path: file.size for file in files}


def _read(spark: SparkSession, files: Sequence[SourceFile]) -> DataFrame:
    return bronze.read_journal(spark, files)
