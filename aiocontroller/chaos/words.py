"""The words of a step: who and what it is about.  ``1,2,3`` replicas, ``orders-0`` a partition, ``2`` a broker."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager

from aiocontroller.chaos.plan import Step
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition

NAMES = tuple(f"topic-{n}" for n in range(6))
"""Topics that are drawn: few, so that a name is used again after its topic was deleted."""


class WordsError(BadInputError):
    """A step's word is none that it understands."""


@contextmanager
def understood(step: Step) -> Iterator[None]:
    """What is wrong with a step's words is told with the step."""
    try:
        yield
    except (ValueError, IndexError) as error:
        if not step.words:
            raise
        raise WordsError(f"{step}: {error}") from None
    except WordsError as error:
        raise WordsError(f"{step}: {error}") from None


def amount(word: str, among: Container[int]) -> int:
    """The number of a broker or a controller that there is."""
    if not word.isdecimal() or int(word) not in among:
        known = ", ".join(map(str, among)) if isinstance(among, Iterable) else "others"
        raise WordsError(f"found {word!r}, expected one of {known}")
    return int(word)


def seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise WordsError(f"found {word!r}, expected a number of seconds")
    return value


def replicas(word: str) -> tuple[int, ...]:
    parts = word.split(",")
    if not all(part.isdecimal() for part in parts):
        raise WordsError(f"found {word!r}, expected broker ids such as 1,2,3")
    return tuple(map(int, parts))


def assignment(words: Sequence[str]) -> dict[int, Sequence[int]]:
    """A list of replicas for each partition."""
    return {number: list(replicas(word)) for number, word in enumerate(words)}


def partition(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    if not topic or not number.isdecimal():
        raise WordsError(f"found {word!r}, expected a partition such as orders-0")
    return TopicPartition(topic, int(number))
