"""The shape of a verb's words: what each is called and how it is read, stated once for all places that play the verb.

    words(broker=BROKER, partitions=each(PARTITION))              fail-log-dir 2 orders-0 orders-1
    words(moves=each(PARTITION, TARGET))                          reassign orders-0 1,2 orders-1 cancel
    words(broker=BROKER).options(broker_epoch=EPOCH)              allocate-producer-ids 2 broker-epoch=-1

A place takes values by their names.  Words may be left out from the end: the place then draws a value, has a default,
or refuses the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiocontroller.lab.scenarios.arguments import StepArgumentError, partition, replicas, seconds


class Kind(NamedTuple):
    """A kind of word."""

    shown: str
    """What the reference calls it."""
    read: Callable[[str], Any]
    """Returns the word's value; raises StepArgumentError, which states what was expected."""


class Word(NamedTuple):
    """One word, or, if it is repeated, any number of words or pairs."""

    kinds: tuple[Kind, ...]
    repeated: bool = False

    @property
    def shown(self) -> str:
        return ", ".join(kind.shown for kind in self.kinds) + (", …" if self.repeated else "")


class Given(dict[str, Any]):
    """The words and options that a line gives, name -> value; raises StepArgumentError for any other name."""

    def __missing__(self, name: str) -> Any:
        raise StepArgumentError(f"found no {name}, and it is not drawn here")

    def take(self, name: str, default: Any = None) -> Any:
        """Return the value, once; the default if the line does not give it."""
        return self.pop(name, default)

    def need(self, name: str) -> Any:
        """Return the value, once."""
        value = self[name]
        del self[name]
        return value

    def epoch(self, name: str, true: int) -> int:
        """Return the epoch of this name; ``true``, the present one, if the line does not give it."""
        given: Epoch | None = self.get(name)
        if given is None:
            return true
        return true + given.number if given.relative else given.number

    def refuse_rest(self) -> None:
        """Raise StepArgumentError if there are values left that nothing has taken."""
        if self:
            raise StepArgumentError(f"found {', '.join(self)}, which this verb does not take here")


class Shape(NamedTuple):
    words: Mapping[str, Word] = {}
    named: Mapping[str, Kind] = {}
    """Options, ``name=value``, by their names."""
    others: Kind | None = None
    """The kind of options with any other name, which are collected under ``options``."""

    def options(self, others: Kind | None = None, **named: Kind) -> Shape:
        return self._replace(named={name.replace("_", "-"): kind for name, kind in named.items()}, others=others)

    @property
    def shown(self) -> str:
        words = ", ".join(word.shown for word in self.words.values())
        options = [f"`{name}=`" for name in self.named] + ([f"`{self.others.shown}`"] if self.others else [])
        return "; ".join(part for part in (words, ", ".join(options)) if part)

    def read(self, found: Sequence[str]) -> Given:
        """Return the values of a line's words and options.  Raises StepArgumentError."""
        given, rest = Given(), list(found)
        if self.named or self.others:
            rest = [word for word in found if not self._read_option(word, given)]
        for name, word in self.words.items():
            if not rest:
                break
            if word.repeated:
                given[name], rest = _read_many(word, rest), []
            else:
                given[name] = word.kinds[0].read(rest.pop(0))
        if rest:
            raise StepArgumentError(f"found {' '.join(rest)!r}, expected nothing more")
        return given

    def _read_option(self, word: str, given: Given) -> bool:
        """Return whether the word is an option, after adding its value."""
        name, equals, value = word.partition("=")
        if not equals or not name.replace("-", "").replace(".", "").isalnum():
            return False
        if (kind := self.named.get(name)) is not None:
            given[name] = kind.read(value)
        elif self.others is not None:
            given.setdefault("options", {})[name] = self.others.read(value)
        else:
            raise StepArgumentError(f"found {word!r}, expected {' '.join(f'{known}=' for known in self.named)}")
        return True


def _read_many(word: Word, found: Sequence[str]) -> list[Any]:
    size = len(word.kinds)
    if len(found) % size:
        raise StepArgumentError(f"found {' '.join(found)!r}, expected {word.shown}")
    if size == 1:
        return [word.kinds[0].read(one) for one in found]
    groups = [found[at : at + size] for at in range(0, len(found), size)]
    return [tuple(kind.read(one) for kind, one in zip(word.kinds, group, strict=True)) for group in groups]


NO_WORDS = Shape()


def words(**named: Kind | Word) -> Shape:
    """Return the shape of these words, in this order; only the last may be repeated."""
    found = {name: word if isinstance(word, Word) else Word((word,)) for name, word in named.items()}
    if any(word.repeated for word in list(found.values())[:-1]):
        raise ValueError(f"found a repeated word before others in {list(found)}")
    return Shape(found)


def each(*kinds: Kind) -> Word:
    return Word(kinds, repeated=True)


def choice(*values: str) -> Kind:
    def read(word: str) -> str:
        if word not in values:
            raise StepArgumentError(f"found {word!r}, expected one of {', '.join(values)}")
        return word

    return Kind(" or ".join(f"`{value}`" for value in values), read)


def or_else(kind: Kind, *values: str) -> Kind:
    """Return a kind that also accepts these words, which stand for themselves."""
    shown = " or ".join((kind.shown, *(f"`{value}`" for value in values)))
    return Kind(shown, lambda word: word if word in values else kind.read(word))


class Epoch(NamedTuple):
    """``7``, or ``+1`` and ``-1`` relative to the present one."""

    number: int
    relative: bool


def _epoch(word: str) -> Epoch:
    if not word.removeprefix("-").removeprefix("+").isdecimal():
        raise StepArgumentError(f"found {word!r}, expected an epoch such as 7, +1 or -1")
    return Epoch(int(word), word[0] in "+-")


def _number(word: str) -> int:
    if not word.removeprefix("-").isdecimal():
        raise StepArgumentError(f"found {word!r}, expected a number")
    return int(word)


def _member(word: str) -> int:
    if not word.isdecimal():
        raise StepArgumentError(f"found {word!r}, expected a number")
    return int(word)


def _setting(word: str) -> tuple[str, str]:
    name, _, value = word.partition(":")
    return name, value


def _target(word: str) -> tuple[int, ...] | None:
    """Return the replicas to which a partition should move; None for ``cancel``."""
    return None if word == "cancel" else replicas(word)


TOPIC = Kind("topic", str)
PARTITION = Kind("partition", partition)
REPLICAS = Kind("replicas", replicas)
TARGET = Kind("replicas or `cancel`", _target)
BROKER = Kind("broker", _member)
CONTROLLER = or_else(Kind("controller", _member), "active", "standby")
HOST = or_else(BROKER, "active", "standby", "zookeeper")
ISR = or_else(REPLICAS, "live", "leader")
SECONDS = Kind("seconds", seconds)
NUMBER = Kind("number", _number)
EPOCH = Kind("epoch", _epoch)
SETTING = Kind("`name:value`", _setting)
TEXT = Kind("text", str)


def text(name: str) -> Kind:
    """Return the kind of a word that stands for itself."""
    return Kind(name, str)
