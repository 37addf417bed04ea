"""Values with the times at which they came into force, to judge a process that may still act on an earlier one."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Timeline(Generic[T]):
    """The values of one thing, in the order in which they were put; ``first`` is in force from the beginning."""

    __slots__ = ("_changes",)

    def __init__(self, first: T) -> None:
        self._changes: list[tuple[float, T]] = [(float("-inf"), first)]

    def put(self, at_s: float, value: T) -> None:
        self._changes.append((at_s, value))

    def since(self, at_s: float) -> list[T]:
        """Return the values that were in force at any time from ``at_s`` on, the oldest first."""
        later = [value for changed_s, value in self._changes if changed_s >= at_s]
        return [value for changed_s, value in self._changes if changed_s < at_s][-1:] + later
