"""Who is in charge while a story is told, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.lab.kafka.controllers import ClusterController, KRaftController
from aiocontroller.lab.storms.kafka import KAFKAS, OURS, in_turns

KRAFT = KRaftController.name


class Recorded(ClusterController):
    def __init__(self, name: str, done: list[str]) -> None:
        self.name = name
        self.done = done

    async def take(self) -> None:
        self.done.append(f"{self.name} takes")

    async def give(self) -> None:
        self.done.append(f"{self.name} gives")


@pytest.mark.parametrize(
    "names, expected",
    [
        ((OURS, KAFKAS), [f"{OURS} takes", f"{OURS} tells", f"{OURS} gives", f"{KAFKAS} takes", f"{KAFKAS} tells"]),
        ((KRAFT,), [f"{KRAFT} takes", f"{KRAFT} tells"]),
    ],
)
def test_each_story_is_told_under_each_controller(names: Sequence[str], expected: list[str]) -> None:
    done: list[str] = []
    cluster: Any = SimpleNamespace(controllers={name: Recorded(name, done) for name in (OURS, KAFKAS, KRAFT)})

    async def play_story(story: str, controller: ClusterController) -> str:
        assert controller is cluster.controller
        done.append(f"{controller.name} tells")
        return story.upper()

    async def play() -> list[tuple[str, str, str]]:
        return [each async for each in in_turns(cast(Any, cluster), ["a", "b"], play_story, names)]

    assert asyncio.run(play()) == [(name, story, story.upper()) for story in ("a", "b") for name in names]
    assert done == expected * 2
