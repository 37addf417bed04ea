"""Tests of whole simulations get more than a minute: each takes seconds of a core, and a busy machine gives little."""

from __future__ import annotations

from pathlib import Path

import pytest

LONGEST_S = 900
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_S))
