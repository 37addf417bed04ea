"""After any random events, once the cluster is healed, ZooKeeper, the controller and every broker agree."""

from __future__ import annotations

import pytest

from tests.integration.controller.random_story import play

SEEDS = range(1, 26)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_agree_after_the_story_of_seed(seed: int) -> None:
    """Replay: ``python -m tests.integration.controller.random_story SEED``."""
    assert play(seed) == []
