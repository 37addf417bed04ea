from __future__ import annotations

import pytest

from tests.unit.journal.stage import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
