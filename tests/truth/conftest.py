"""Real clusters for half an hour: only when asked for, ``pytest -m truth``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.truth.comparing import COLUMNS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "truth" in config.getoption("-m", default=""):
        return
    left_out = [item for item in items if item.get_closest_marker("truth")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table, whatever was printed or failed: a line for each release and controller."""
    reports = [report for each in ("passed", "failed") for report in terminalreporter.stats.get(each, ())]
    rows = sorted({tuple(value) for report in reports for name, value in report.user_properties if name == "truth"})
    if not rows:
        return
    widths = [max(len(row[n]) for row in (COLUMNS, *rows)) for n in range(len(COLUMNS))]
    terminalreporter.section("what analyze tells of real clusters")
    for row in (COLUMNS, *rows):
        terminalreporter.write_line("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
