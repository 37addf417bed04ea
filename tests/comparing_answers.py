"""Finds where two answers differ: walks over their fields, and pairs the elements of arrays by their identities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """``field`` with the identities of array elements, ``kind`` without."""

    field: str
    kafka: str
    ours: str

    @property
    def kind(self) -> str:
        return kind_of(self.field)


def kind_of(field: str) -> str:
    return re.sub(r"\[[^\]]*\]", "[]", field)


class Comparison(NamedTuple):
    """How two answers are compared: arrays element by element, except those that ``single`` names."""

    identity: Callable[[Any], str]
    """Returns the identity of an element of an array."""
    single: frozenset[str] = frozenset()
    """Names of arrays that are compared as one value."""
    unordered: frozenset[str] | None = None
    """Names of arrays whose order means nothing; None: that of no array means anything."""
    text: Callable[[Any], str] = str

    def differences(self, kafka: Any, ours: Any, at: str = "") -> Iterator[Difference]:
        if isinstance(kafka, dict) and isinstance(ours, dict):
            for name in dict.fromkeys((*kafka, *ours)):
                theirs, own = (each.get(name, "(absent)") for each in (kafka, ours))
                yield from self.differences(theirs, own, f"{at}.{name}" if at else name)
        elif isinstance(kafka, list) and isinstance(ours, list) and at.rpartition(".")[2] not in self.single:
            yield from self._of_arrays(kafka, ours, at)
        elif kafka != ours:
            yield Difference(at, self.text(kafka), self.text(ours))

    def _of_arrays(self, kafka: list[Any], ours: list[Any], at: str) -> Iterator[Difference]:
        ordered = self.unordered is not None and at.rpartition(".")[2] not in self.unordered
        if self.unordered is not None and not ordered:
            kafka, ours = sorted(kafka, key=str), sorted(ours, key=str)
        theirs, own = self._by_identity(kafka), self._by_identity(ours)
        for identity in dict.fromkeys((*theirs, *own)):
            where = f"{at}[{identity}]"
            if identity not in own:
                yield Difference(where, self.text(theirs[identity]), "(missing)")
            elif identity not in theirs:
                yield Difference(where, "(missing)", self.text(own[identity]))
            else:
                yield from self.differences(theirs[identity], own[identity], where)
        if ordered and set(theirs) == set(own) and list(theirs) != list(own):
            yield Difference(f"{at} (order)", self.text(list(theirs)), self.text(list(own)))

    def _by_identity(self, values: list[Any]) -> dict[str, Any]:
        """Return the elements by identity; those with the same identity, or none, are distinguished by their order."""
        found: dict[str, Any] = {}
        for value in values:
            identity = self.identity(value)
            while identity in found:
                identity += "+"
            found[identity] = value
        return found
