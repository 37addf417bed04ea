"""One run, from files to tables: what the command line and ``spark-submit`` (``__main__``) have in common."""

from __future__ import annotations

import glob
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiocontroller.analytics.session import QUICK_COMPILER_BELOW_BYTES, spark_session, suited_to_little

FEW = 5
"""File names in a sentence."""
_UNPACKED = 15
"""How much larger a log is than its .gz, about."""


@dataclass(frozen=True)
class Job:
    """``paths`` are files, folders or globs, local or of any Hadoop file system; ``out`` is a folder."""

    paths: tuple[str, ...]
    out: str
    manifest: str | None = None
    master: str | None = None
    incremental: bool = False
    follow: bool = False
    in_progress: bool = False
    most_quarantined: float = 0.01
    report: str | None = None
    """Where the page goes: a file on this machine."""


def perform(job: Job, tell: Callable[[str], None]) -> dict[str, Any]:
    """Do it, and give the summary (``summary.summarise``); ``tell`` hears the progress.

    With ``follow`` it goes on until it is interrupted.  ``BadInputError``, ``PipelineMissingError``,
    ``JavaMissingError`` say what is wrong.
    """
    anew = not (job.follow or job.incremental)
    spark = spark_session(job.master, for_little=anew and _local_bytes(job.paths) < QUICK_COMPILER_BELOW_BYTES)
    # These import pyspark, whose absence ``spark_session`` explains.
    from aiocontroller.analytics import batch, tail
    from aiocontroller.analytics.manifest import Manifest, read_manifest

    if job.follow:
        query = tail.follow(spark, job.paths, job.out, tell)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        return _tell(spark, job, tell)
    run = batch.run_incremental if job.incremental else batch.run
    found = run(
        spark,
        job.paths,
        job.out,
        tell,
        manifest=Manifest() if job.manifest is None else read_manifest(Path(job.manifest)),
        in_progress=job.in_progress,
        most_quarantined=job.most_quarantined if math.isfinite(job.most_quarantined) else 1.0,
    )
    for words, names in found.remarks().items():
        tell(f"{words}: {_some(names)}")
    return _tell(spark, job, tell)


def _local_bytes(paths: tuple[str, ...]) -> float:
    """How much there is to read; infinite when that takes more than a look at this machine's disk."""
    total = 0
    for path in paths:
        tops = [] if "://" in path else [Path(top) for top in glob.glob(path)]
        if not tops:
            return math.inf
        files = [file for top in tops for file in (top.rglob("*") if top.is_dir() else [top]) if file.is_file()]
        total += sum(file.stat().st_size * (_UNPACKED if file.suffix == ".gz" else 1) for file in files)
    return total


def _tell(spark: Any, job: Job, tell: Callable[[str], None]) -> dict[str, Any]:
    """The report, if one is wanted, and the summary."""
    from aiocontroller.analytics.summary import summarise

    if job.report is not None:
        from aiocontroller.analytics.report import write_report

        with suited_to_little(spark):  # as gold is, but for its windows
            write_report(spark, job.out, Path(job.report))
        tell(f"report: {job.report}")
    return summarise(spark, job.out)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
