"""One small Spark for all tests of the pipeline."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from aiocontroller.analytics import batch
from aiocontroller.analytics.dataframes import DUCKDB, SPARK, computing_by
from aiocontroller.analytics.session import PipelineMissingError, spark_session
from aiocontroller.analytics.small.session import SmallSession
from aiocontroller.java import JavaMissingError
from tests.integration.analytics.gold.build import lines
from tests.integration.analytics.gold.histories import history

TIMEOUT_S = 600
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "768m",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Compiling a query takes longer than running it on a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark starts, and compiles its first plans, within a fixture: on a busy machine that takes minutes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            own = item.get_closest_marker("timeout")
            if own is None or own.args[0] < TIMEOUT_S:  # a module may ask for more
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


ON_SPARK = ("test_engines", "test_follow", "test_job", "test_journals")
"""About Spark itself: its readers and streams, its errors, and whether its tables are DuckDB's (``test_engines``).

What the other modules say holds for both engines, and DuckDB takes a tenth of the time.
"""
ON_BOTH = (
    "test_kafka_logs",
    "test_sources",
    "test_tables",
    "test_model",
    "test_incremental",
    "test_problems",
    "test_deletions_in_logs",
    "test_topics_created_again",
)
"""What an engine computes in its own way: each test runs on either."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "spark" in metafunc.fixturenames and name_of(metafunc.module) in ON_BOTH:
        metafunc.parametrize("spark", [DUCKDB, SPARK], indirect=True, scope="module")


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session of the engine that is the parameter, or that the module's tests need."""
    if getattr(request, "param", SPARK if name_of(request.module) in ON_SPARK else DUCKDB) == SPARK:
        session = request.getfixturevalue("spark_itself")
        yield session
        session.catalog.clearCache()
        return
    with computing_by(DUCKDB):
        yield SmallSession()


@pytest.fixture
def viewfs(spark_itself: Any, tmp_path: Path) -> str:
    """A file system of another scheme than ``file:``, without links and locks: Hadoop's own ViewFileSystem.

    Its folders ``in`` and ``out`` are those of ``tmp_path``.
    """
    mounted = spark_itself.sparkContext._jsc.hadoopConfiguration()
    for name in ("in", "out"):
        (tmp_path / name).mkdir(exist_ok=True)
        mounted.set(f"fs.viewfs.mounttable.{tmp_path.name}.link./{name}", f"file://{tmp_path}/{name}")
    return f"viewfs://{tmp_path.name}"


@pytest.fixture(scope="package")
def spark_itself() -> Iterator[Any]:
    """``local[1]``; each job costs a fifth of a second, so put many cases into one frame."""
    try:
        session = spark_session("local[1]", app_name="tests", options=SMALL, for_little=True)
    except (PipelineMissingError, JavaMissingError) as error:
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "journal-7-1-1-000001.jsonl").write_bytes(b"".join(lines(history([1, 2, 3], topics=2))))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``in`` of a journal, and ``out`` of the tables that DuckDB made of it; they stay as they are."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "in").mkdir()
    (folder / "in" / "journal-7-1-1-000001.jsonl").write_bytes(b"".join(lines(history([1, 2, 3], topics=2))))
    with computing_by(DUCKDB):
        batch.run(cast(Any, SmallSession()), [str(folder / "in")], str(folder / "out"))
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy of the tables of ``made``."""
    shutil.copytree(made / "out", tmp_path / "out", symlinks=True)
    return tmp_path / "out"


@pytest.fixture
def again(made: Path) -> list[str]:
    """The inputs of ``out``."""
    return [str(made / "in")]
