"""One run from files to tables, for the command line and for ``spark-submit`` (``__main__``)."""

from __future__ import annotations

import glob
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

from aiocontroller.analytics.dataframes import DUCKDB, NAMES, SPARK, computing_by
from aiocontroller.analytics.listing import files_below
from aiocontroller.analytics.reading import PACKED, is_local, is_utf8, readable
from aiocontroller.analytics.session import (
    QUICK_COMPILER_BELOW_BYTES,
    PipelineMissingError,
    master_is_configured,
    spark_session,
    suited_to_little,
)
from aiocontroller.core.errors import BadInputError

AUTO: Final = "auto"
SPARK_FROM_BYTES: Final = 2 << 30
"""Input size, about 10 million journal records, from which Spark is the default; smaller inputs are computed in this
process."""

FEW = 5
"""The number of file names in a message."""
_UNPACKED = 15
"""The approximate compression ratio of logs."""


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
    """The file on this machine for the report."""
    engine: str = AUTO
    """``AUTO``, ``dataframes.SPARK`` or ``dataframes.DUCKDB``."""


def perform(job: Job, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Perform the job, report progress to ``on_progress``, and return the summary (``summary.summarise``).

    With ``follow`` it runs until it is interrupted.  Raises ``BadInputError``, ``PipelineMissingError`` and
    ``JavaMissingError``.
    """
    _check(job)
    chosen = _engine_for(job)
    if not is_utf8(job.out):
        raise BadInputError(f"--out {readable(job.out)}: found a path that is not UTF-8, which Parquet's writers need")
    with computing_by(chosen):
        summary = _perform(job, chosen, on_progress)
    where = "in this process" if chosen == DUCKDB else f"on {job.master or 'the configured Spark'}"
    on_progress(f"computed by {NAMES[chosen]} {where}: {summary['records']:,} records")
    return summary


def _check(job: Job) -> None:
    """Raise BadInputError for paths that would fail only after the computation, or lead elsewhere."""
    for what, path in (*(("PATH", path) for path in job.paths), ("--out", job.out), ("--report", job.report)):
        if path is not None and not path.strip():
            raise BadInputError(f"{what}: found an empty path, expected a file or folder")
    if job.report is not None:
        report = Path(job.report)
        if report.is_dir():
            raise BadInputError(f"--report {job.report}: found a folder, expected a file to write")
        there = next(folder for folder in report.absolute().parents if folder.exists())  # the others are made
        if not there.is_dir():
            raise BadInputError(f"--report {job.report}: found a file, {there}, expected a folder")


def _engine_for(job: Job) -> str:
    """Return the engine for a job: Spark if it is requested, if only Spark supports the job, or for large inputs.

    Raises BadInputError for contradictory options.
    """
    why_spark = _why_spark(job)
    if job.engine == DUCKDB and why_spark is not None:
        raise BadInputError(f"--engine duckdb computes in this process: {why_spark}")
    if job.engine != AUTO:
        return job.engine
    if why_spark is not None or _spark_is_running() or master_is_configured():
        return SPARK
    before = _engine_of(job.out) if job.incremental else None
    return before or (DUCKDB if _local_bytes(job.paths) < SPARK_FROM_BYTES else SPARK)


def _why_spark(job: Job) -> str | None:
    if job.master is not None:
        return f"--master {job.master} needs Spark"
    if job.follow:
        return "--follow needs Spark"
    remote = [path for path in (*job.paths, job.out) if not is_local(path)]
    return f"{remote[0]} is not on this machine" if remote else None


def _spark_is_running() -> bool:
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None


def _engine_of(out: str) -> str | None:
    """Return the engine of the existing run to which new batches can be added."""
    from aiocontroller.analytics.store import Store

    commit = Store(cast(Any, None), out).last_commit()
    return None if commit is None else str(commit.get("engine", SPARK))


def _session(job: Job, chosen: str) -> Any:
    if chosen == DUCKDB:
        with _pipeline_needed():
            from aiocontroller.analytics.small.session import SmallSession
        return SmallSession()
    from_scratch = not (job.follow or job.incremental)
    return spark_session(job.master, for_little=from_scratch and _local_bytes(job.paths) < QUICK_COMPILER_BELOW_BYTES)


@contextmanager
def _pipeline_needed() -> Iterator[None]:
    """Raise PipelineMissingError if an import fails."""
    try:
        yield
    except ImportError as error:
        raise PipelineMissingError(f"{error}: pip install 'aiocontroller[pipeline]'") from error


def _perform(job: Job, chosen: str, on_progress: Callable[[str], None]) -> dict[str, Any]:
    if job.report is not None:
        with _pipeline_needed():  # fail before the computation and not after it
            import_module("aiocontroller.analytics.report")
    spark = _session(job, chosen)
    # These import optional dependencies; the sessions explain if one is missing.
    from aiocontroller.analytics import batch
    from aiocontroller.analytics.manifest import Manifest, read_manifest

    if job.follow:
        from aiocontroller.analytics import tail

        with suppress(KeyboardInterrupt):
            tail.follow(spark, job.paths, job.out, on_progress).wait()
        return _summary(spark, job, on_progress)
    run = batch.run_incremental if job.incremental else batch.run
    found = run(
        spark,
        job.paths,
        job.out,
        on_progress,
        manifest=Manifest() if job.manifest is None else read_manifest(Path(job.manifest)),
        in_progress=job.in_progress,
        most_quarantined=job.most_quarantined if math.isfinite(job.most_quarantined) else 1.0,
    )
    for words, names in found.remarks().items():
        on_progress(f"{words}: {_some(names)}")
    return _summary(spark, job, on_progress)


def _local_bytes(paths: tuple[str, ...]) -> float:
    """Return the size of the inputs in bytes; infinite if some are not on this machine."""
    total = 0
    for path in paths:
        tops = [] if "://" in path else [Path(top) for top in glob.glob(path)]
        if not tops:
            return math.inf
        files = [file for top in tops for file in (files_below(top)[0] if top.is_dir() else [top]) if file.is_file()]
        total += sum(file.stat().st_size * (_UNPACKED if file.suffix in PACKED else 1) for file in files)
    return total


def _summary(spark: Any, job: Job, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Write the report if one is wanted, and return the summary."""
    from aiocontroller.analytics.summary import summarise

    if job.report is not None:
        from aiocontroller.analytics.report import write_report

        with suited_to_little(spark):  # like gold except for its windows
            write_report(spark, job.out, Path(job.report))
        on_progress(f"report: {job.report}")
    return summarise(spark, job.out)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more
