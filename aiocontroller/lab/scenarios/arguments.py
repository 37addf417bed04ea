"""Parsers for the words of a step: ``1,2,3`` are replicas, ``orders-0`` is a partition."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.scenarios.plan import ScenarioStep

NAMES = tuple(f"topic-{n}" for n in range(6))
"""Names for drawn topics; few, so that names of deleted topics are used again."""


class StepArgumentError(BadInputError):
    """An argument of a step is invalid."""


@contextmanager
def naming(step: ScenarioStep) -> Iterator[None]:
    """Add the step to errors about its arguments."""
    try:
        yield
    except (ValueError, IndexError) as error:
        if not step.arguments:
            raise
        raise StepArgumentError(f"{step}: {error}") from None
    except StepArgumentError as error:
        raise StepArgumentError(f"{step}: {error}") from None


def known_number(number: int, among: Container[int]) -> int:
    """Return the number if it is one of these brokers or controllers; raises StepArgumentError otherwise."""
    if number not in among:
        known = ", ".join(map(str, among)) if isinstance(among, Iterable) else "others"
        raise StepArgumentError(f"found {number}, expected one of {known}")
    return number


def seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise StepArgumentError(f"found {word!r}, expected a number of seconds")
    return value


def replicas(word: str) -> tuple[int, ...]:
    """Return broker ids; ``-`` is an empty list.  Negative ids are for requests that must be refused."""
    if word == "-":
        return ()
    parts = word.split(",")
    if not all(part.removeprefix("-").isdecimal() for part in parts):
        raise StepArgumentError(f"found {word!r}, expected broker ids such as 1,2,3")
    return tuple(map(int, parts))


def partition(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    if not topic or not number.isdecimal():
        raise StepArgumentError(f"found {word!r}, expected a partition such as orders-0")
    return TopicPartition(topic, int(number))
