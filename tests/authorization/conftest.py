"""The stage, started once, and the table, played once, for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aiocontroller.java import JavaMissingError, find_java
from aiocontroller.lab.cluster.real_kafka import kafka_missing
from tests.authorization.principals import SHORT_WAYS, WAYS
from tests.authorization.report import Verdict
from tests.authorization.requests import ASKS
from tests.authorization.secured_cluster import SecuredCluster
from tests.authorization.table import Table

VERDICT: pytest.StashKey[Verdict] = pytest.StashKey()


def is_short(config: pytest.Config) -> bool:
    return "authorization" not in config.getoption("-m")


def only_apis(items: list[pytest.Item]) -> frozenset[int] | None:
    """Those of the selected tests; None when one of them is about the whole table."""
    here = [item for item in items if "verdict" in getattr(item, "fixturenames", ())]
    apis = [getattr(item, "callspec", None) and item.callspec.params.get("api") for item in here]  # type: ignore[attr-defined]
    return None if None in apis else frozenset(apis)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecuredCluster]:
    """Before the takeover."""
    missing = kafka_missing() or (None if shutil.which("openssl") else "no openssl to make certificates with")
    if missing:
        pytest.skip(missing)
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    folder: Path = tmp_path_factory.mktemp("authorization")
    stage = SecuredCluster(folder)
    try:
        await stage.start()
        yield stage
    finally:
        await stage.stop()


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def verdict(stage: SecuredCluster, request: pytest.FixtureRequest) -> Verdict:
    """The whole table, played and judged; the stage is ours afterwards."""
    short = is_short(request.config)
    table = Table(stage, ASKS, SHORT_WAYS if short else WAYS, short, only_apis(request.session.items))
    await table.play()
    found = request.config.stash[VERDICT] = Verdict(table, short)
    report = request.config.getoption("--authorization-report")
    if report:
        Path(report).write_text(found.dump())
    return found


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def taken(stage: SecuredCluster, request: pytest.FixtureRequest) -> SecuredCluster:
    """After the takeover, and after the table where that is played too."""
    if any("verdict" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("verdict")
    else:
        await stage.take_over()
    return stage


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(VERDICT, None)
    if found is not None:
        terminalreporter.section("A real broker and aiocontroller")
        terminalreporter.write_line(found.summary())
