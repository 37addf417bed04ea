"""``pytest -m conformance``: Kafka's own scenarios by their names, one line each.

Which test of ours plays which of Kafka's is said in docs/kafka-map.md, and nowhere else: the mark is given by that
table, to tests wherever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.net.ports import World
from tests.conformance.kafka_map import scenarios_by_test
from tests.conformance.simulated_cluster import SimulatedCluster, stage

Setting = Callable[..., AbstractAsyncContextManager[SimulatedCluster]]

ROOT = Path(__file__).parents[2]


class Report:
    """Keeps the worst outcome of each scenario; several tests of ours may play one."""

    def __init__(self, names: dict[str, list[str]]) -> None:
        self._names = names
        """Node id -> scenarios."""
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name in self._names.get(report.nodeid, []):
            worst = {self._outcomes.get(name), report.outcome}
            if report.when == "call" or report.outcome != "passed":
                self._outcomes[name] = next(o for o in ("failed", "skipped", "passed") if o in worst)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if "conformance" not in str(config.getoption("markexpr")):
            return
        terminalreporter.section("Kafka's scenarios")
        for name in sorted(self._outcomes):
            terminalreporter.write_line(f"{self._outcomes[name]:<8} {name}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    played = scenarios_by_test()
    names: dict[str, list[str]] = {}
    for item in items:
        path = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
        found = played.get(f"{path}::{getattr(item, 'originalname', item.name)}", [])
        if found:
            item.add_marker("conformance")
            names[item.nodeid] = found
    # As a plugin of its own: hooks of this file would not hear of tests in other folders.
    config.pluginmanager.register(Report(names), "conformance-report")


@pytest.fixture
def on(world: World, zk_connect: str, tmp_path: Path) -> Setting:
    """``async with on(brokers, setting=…) as stage``."""
    return lambda brokers=0, **settings: stage(world, zk_connect, tmp_path, brokers, **settings)
