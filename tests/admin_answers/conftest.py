"""The tables of all releases, played once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from aiocontroller.java import JavaMissingError, find_java
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, kafka_missing
from tests.admin_answers.player import Scenario
from tests.admin_answers.report import Verdict
from tests.admin_answers.requests import DELETION_DISABLED, SCENARIOS
from tests.admin_answers.table import Table
from tests.admin_answers.two_clusters import RELEASES, TwoClusters

VERDICT: pytest.StashKey[Verdict] = pytest.StashKey()


def is_short(config: pytest.Config) -> bool:
    return "admin_answers" not in config.getoption("-m")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The short form is the table alone."""
    if is_short(config):
        left_out = [item for item in items if item.path.name == "test_all_of_admin.py"]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def chosen(config: pytest.Config) -> tuple[str, ...]:
    """By ``--admin-answers-releases``, else all."""
    asked = config.getoption("--admin-answers-releases")
    return tuple(asked.split(",")) if asked else RELEASES


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def verdict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """All releases, one after the other, or the newest alone in the short form; played and judged."""
    short = is_short(request.config)
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    tables = []
    for release in (DEFAULT_VERSION,) if short else chosen(request.config):
        missing = kafka_missing(release)
        if missing:
            pytest.skip(missing)
        folder: Path = tmp_path_factory.mktemp(f"admin-answers-{release}")
        only_highest = release != DEFAULT_VERSION or short
        tables.append(await played(TwoClusters(folder, release), SCENARIOS, only_highest))
        if release == DEFAULT_VERSION and not short:
            stage = TwoClusters(folder / "no-deletion", release, more={"delete.topic.enable": "false"})
            tables.append(await played(stage, DELETION_DISABLED, only_highest))
    found = request.config.stash[VERDICT] = Verdict(tables, short)
    report = request.config.getoption("--admin-answers-report")
    if report:
        Path(report).write_text(found.as_json() if report.endswith(".json") else found.as_text())
    return found


async def played(stage: TwoClusters, scenarios: Iterable[Scenario], only_highest: bool) -> Table:
    try:
        await stage.start()
        table = Table(stage, scenarios, only_highest)
        await table.play()
        assert stage.ours.running, stage.ours.end_of_log
        return table
    finally:
        await stage.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(VERDICT, None)
    if found is not None:
        terminalreporter.section("Kafka's own controller and ours, asked by administrators")
        terminalreporter.write_line(found.summary())
