"""What collects a checker's complaints, and makes a case of a story that it heard."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.unit.lab.checkers.history_story import Case


class Ear:
    """Collects complaints."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.now_s = 100.0

    def complain(self, invariant: str, subject: Any, detail: str) -> None:
        assert subject
        assert detail
        self.heard.append(invariant)

    def later(self, seconds: float) -> None:
        self.now_s += seconds


def case(
    cases: list[Case], story: Callable[[ModuleType], Any], violated: str = ""
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def add(scenario: Callable[[Any], None]) -> Callable[[Any], None]:
        def play(module: ModuleType) -> list[str]:
            ear = story(module)
            scenario(ear)
            return list(ear.heard)

        cases.append(Case(scenario.__name__, play, violated.split()))
        return scenario

    return add
