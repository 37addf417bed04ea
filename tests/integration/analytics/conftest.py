"""One small Spark for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.analytics.session import PipelineMissingError, spark_session
from aiocontroller.cluster.java import JavaMissingError

TIMEOUT_S = 600
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "1g",
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
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """``local[1]``; each job costs a fifth of a second, so put many cases into one frame."""
    try:
        session = spark_session("local[1]", app_name="tests", options=SMALL, for_little=True)
    except (PipelineMissingError, JavaMissingError) as error:
        pytest.skip(str(error))
    yield session
    session.stop()
