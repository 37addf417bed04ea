"""The Kafka releases and inter-broker protocols of a plan's brokers, and rolling upgrades of both.

Kafka's rule for operators applies: no broker is older than the protocol that any broker uses, so binaries are rolled
before the protocol.  Controllers have no protocol setting; they use the lowest protocol of the brokers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, Protocol, generation

T = TypeVar("T")
PROTOCOLS = ("2.2", "2.4", "2.6", "2.7", "2.8", "3.0", "3.3", "3.4", "3.9")
"""One protocol for each change of the requests; 2.3, for example, is the same as 2.2, and 3.6 the same as 3.4."""


class Version(NamedTuple):
    """Release and protocol of one process; the protocol is empty if it is not set."""

    release: str
    protocol: str


class Fleet:
    """The versions with which brokers start, parsed from a plan's text such as ``2.8,3.9`` and ``2.6``.

    Raises BadInputError for an unknown release or protocol, or for a protocol newer than its release.
    """

    def __init__(self, releases: str, protocol: str, brokers: int) -> None:
        named = releases.split(",") if releases else []
        if len(named) > brokers:
            raise BadInputError(f"releases: found {releases}, expected at most {brokers}, one for each broker")
        named += [NEWEST] * (brokers - len(named))
        self.brokers = {number: Version(release, protocol) for number, release in enumerate(named, 1)}
        for version in self.brokers.values():
            check(version)

    @property
    def mixed(self) -> bool:
        return len({version.release for version in self.brokers.values()}) > 1


def check(version: Version) -> None:
    """Raise BadInputError unless a broker of this release can start with this protocol."""
    if not knows(version.release, version.protocol):
        raise BadInputError(f"release {version.release} does not know the protocol {version.protocol}")


def knows(release: str, protocol: str) -> bool:
    """Whether a broker of this release starts with this protocol."""
    own = Protocol.of(generation(release).protocol)
    return not protocol or Protocol.of(protocol)[:2] <= own[:2]


class Roll(NamedTuple):
    """A broker's restart with another release or protocol: the kind of the step, and its arguments."""

    kind: str
    arguments: tuple[str, ...]


class Drawn(NamedTuple):
    releases: str = ""
    protocol: str = ""
    rolls: tuple[Roll, ...] = ()


def draw_fleet(seed: int, brokers: int) -> Drawn:
    """Draw releases, protocol and rolls; in two fifths of the seeds all brokers have the newest release."""
    chance = random.Random(f"releases {seed}")
    if chance.random() < 0.4:
        return Drawn()
    releases = list(GENERATIONS)
    first = [chance.choice(releases)] * brokers
    if chance.random() < 0.6:
        first = [chance.choice(releases) for _ in range(brokers)]
    protocol = chance.choice([p for p in PROTOCOLS if all(knows(release, p) for release in first)])
    rolls: list[Roll] = []
    if chance.random() < 0.6:
        rolls = _draw_rolls(chance, first, protocol)
    return Drawn(",".join(first), protocol, tuple(rolls))


def _draw_rolls(chance: random.Random, first: Sequence[str], protocol: str) -> list[Roll]:
    """Roll the binaries one broker at a time, then the protocol; half of the rolls stop part way."""
    releases = list(GENERATIONS)
    target = chance.choice([release for release in releases if knows(release, protocol)])
    brokers = list(range(1, len(first) + 1))
    binaries = [Roll("upgrade_broker", (str(broker), target, protocol)) for broker in _shuffled(chance, brokers)]
    newer = [p for p in PROTOCOLS if knows(target, p) and Protocol.of(p) > Protocol.of(protocol)]
    protocols: list[Roll] = []
    if newer:
        to = chance.choice(newer)
        protocols = [Roll("upgrade_broker", (str(broker), target, to)) for broker in brokers]
    rolls = binaries + _shuffled(chance, protocols)
    return rolls if chance.random() < 0.5 else rolls[: chance.randint(1, len(rolls))]


def _shuffled(chance: random.Random, items: Sequence[T]) -> list[T]:
    return chance.sample(items, len(items))
