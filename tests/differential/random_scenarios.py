"""Scenarios by the dice: what an operator, brokers and disks might do, in any order.  A seed is a scenario.

It draws the brokers' releases and protocols too, and the controllers' protocol.  What Kafka asks of its operators
holds: no broker is older than a protocol that is spoken.

The generator keeps the little that it must know to ask for something that makes sense: live brokers and existing
topics.  Leaders and ISRs it need not know: steps find them when they are played.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, Protocol
from aiocontroller.lab.scenarios.fleet import PROTOCOLS, Version, knows
from tests.differential.observed_cluster import BROKERS, Scenario, Step
from tests.differential.steps import step
from tests.differential.subjects import OLDER_PROTOCOLS, protocol_of

STEPS = 8
TOPICS = "abc"
Way = Literal["znode", "api"]


class _Dice:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.releases = random.Random(f"releases {seed}")  # of its own, so that it changes no script
        self.protocol = protocol_of(variant_of(seed))
        self.versions = self.draw_versions()
        self.up = set(BROKERS)
        self.shutting_down: set[int] = set()
        self.topics: dict[str, list[list[int]]] = {}
        self.names = iter(TOPICS)
        self.lost: dict[str, set[int]] = {}
        """Brokers whose log directory of a partition has failed at some time."""
        self.moved: set[str] = set()

    # -- binaries and protocols ----------------------------------------------------------------------------------------

    def draw_versions(self) -> dict[int, Version]:
        """All of the newest release, all of another, or mixed; some mixed ones are in the middle of a roll of the
        protocol too."""
        chance = self.releases
        known = [release for release in GENERATIONS if knows(release, self.protocol)]
        kind = chance.choice(("newest", "same", "mixed", "mixed", "rolling"))
        releases = chance.choices(known, k=len(BROKERS)) if kind in ("mixed", "rolling") else [chance.choice(known)] * 5
        if kind == "newest":
            releases = [NEWEST] * len(BROKERS)
        spoken = [self.protocol]
        if kind == "rolling":
            spoken.append(chance.choice([p for p in PROTOCOLS if all(knows(release, p) for release in releases)]))
        return {n: Version(release, chance.choice(spoken)) for n, release in zip(BROKERS, releases, strict=True)}

    def rolled(self, broker: int) -> Version | None:
        """What it restarts as: now and then with newer binaries, or with a newer protocol that all brokers know."""
        before = self.versions[broker]
        releases = list(GENERATIONS)
        release = self.releases.choice(releases[releases.index(before.release) :])
        others = [v.release for n, v in self.versions.items() if n != broker]
        protocols = [
            p
            for p in PROTOCOLS
            if Protocol.of(p) >= Protocol.of(before.protocol) and all(knows(r, p) for r in (release, *others))
        ]
        after = Version(release, self.releases.choice(protocols))
        if after == before or self.releases.random() < 0.6:
            return None
        self.versions[broker] = after
        return after

    def replicas(self, factor: int) -> list[int]:
        return self.chance.sample(BROKERS, factor)

    def live_replicas(self, partition: str) -> list[int]:
        """Of those that may lead: docs/departures.md says what follows where no target can."""
        live = sorted(self.up - self.shutting_down - self.lost.get(partition, set()))
        return self.chance.sample(live, min(len(live), self.chance.choice((1, 2, 2, 3))))

    def partition(self) -> str | None:
        topic = self.topic()
        return None if topic is None else f"{topic}-{self.chance.randrange(len(self.topics[topic]))}"

    def topic(self) -> str | None:
        return self.chance.choice(sorted(self.topics)) if self.topics else None

    # -- steps; None where there is nothing to do it to ----------------------------------------------------------------

    def create(self, way: Way | None = None) -> Step | None:
        name = next(self.names, None)
        if name is None:
            return None
        factor = self.chance.choice((1, 2, 2, 3, 3))
        self.topics[name] = [self.replicas(factor) for _ in range(self.chance.choice((1, 1, 2, 3)))]
        lists = " ".join(map(_ids, self.topics[name]))
        if (way or self.way()) == "znode":
            return step(f"create-topic {name} {lists}")
        return step(f"request-topics {name} {lists} timeout-ms=5000")

    def expand(self) -> Step | None:
        topic = self.topic()
        if topic is None:
            return None
        added = [self.replicas(len(self.topics[topic][0]))]
        self.topics[topic] += added
        return step(f"add-partitions {topic} {_ids(added[0])}")

    def delete(self) -> Step | None:
        topic = self.topic()
        if topic is None:
            return None
        del self.topics[topic]
        return step(f"delete-topic {topic}")

    def die(self) -> Step | None:
        if len(self.up) < 3:
            return None
        broker = self.chance.choice(sorted(self.up))
        self.up.discard(broker)
        self.shutting_down.discard(broker)
        return step(f"kill-broker {broker}")

    def start(self) -> Step | None:
        down = sorted(set(BROKERS) - self.up)
        if not down:
            return None
        broker = self.chance.choice(down)
        self.up.add(broker)
        return step(f"start-broker {broker}{_as(self.rolled(broker))}")

    def bounce(self) -> Step | None:
        broker = self.chance.choice(sorted(self.up))
        self.shutting_down.discard(broker)
        return step(f"bounce-broker {broker}{_as(self.rolled(broker))}")

    def shut_down(self) -> Step | None:
        rest = sorted(self.up - self.shutting_down)
        if len(rest) < 3:
            return None
        broker = self.chance.choice(rest)
        self.shutting_down.add(broker)
        return step(f"controlled-shutdown {broker}")

    def fail_over(self) -> Step | None:
        return step("delete-controller-znode")

    def vacancy(self) -> list[Step]:
        """What a controller finds changed that was not active; one broker at most may have gone."""
        kinds = [lambda: self.create("znode"), self.expand, self.delete, self.notify, self.start, self.bounce]
        kinds.append(self.die)
        met = [kind() for kind in self.chance.sample(kinds, 2)]
        return [step("end-term"), *(each for each in met if each is not None), step("begin-term")]

    def notify(self) -> Step | None:
        partition = self.partition()
        return None if partition is None else step(f"write-isr {partition} isr=leader")

    def alter(self) -> Step | None:
        partition = self.partition()
        return None if partition is None else step(f"alter-partition leader {partition} isr=live")

    def shrink(self) -> Step | None:
        partition = self.partition()
        if partition is None:
            return None
        return step(f"alter-partition leader {partition} isr=leader")

    def reassign(self) -> Step | None:
        partition = self.partition()
        if partition is None:
            return None
        topic, number = partition.split("-")
        target = self.live_replicas(partition)
        if not target:
            return None
        self.moved.add(partition)
        self.topics[topic][int(number)] = target
        return step(f"reassign {partition} {_ids(target)}")

    def cancel(self) -> Step | None:
        partition = self.partition()
        return None if partition is None else step(f"cancel-reassignment {partition}")

    def prefer(self) -> Step | None:
        partition = self.partition()
        if partition is None:
            return None
        return step(f"elect-by-znode {partition}" if self.way() == "znode" else f"elect-preferred {partition}")

    def unclean(self) -> Step | None:
        partition = self.partition()
        return None if partition is None else step(f"elect-unclean {partition}")

    def log_dir(self) -> Step | None:
        partition = self.partition()
        if partition is None:
            return None
        topic, number = partition.split("-")
        target = self.topics[topic][int(number)] if partition in self.moved else []
        others = sorted(self.up.difference(target))
        if not others:
            return None
        broker = self.chance.choice(others)
        self.lost.setdefault(partition, set()).add(broker)
        return step(f"fail-log-dir {broker} {partition}")

    def modify(self) -> Step | None:
        broker = self.chance.choice(sorted(self.up))
        return step(f"modify-broker {broker} host={self.chance.choice(('here', 'there', 'elsewhere'))}")

    def producer_ids(self) -> Step | None:
        broker, epoch = self.chance.choice(sorted(self.up)), self.chance.choice(("", "", "", " broker-epoch=-1"))
        return step(f"allocate-producer-ids {broker}{epoch}")

    def hang(self) -> list[Step]:
        """A broker that hangs for some steps in which no broker comes or goes."""
        broker = self.chance.choice(sorted(self.up))
        kinds = [lambda: self.create("znode"), self.expand, self.alter, self.shrink, self.reassign, self.fail_over]
        met = [kind() for kind in self.chance.sample(kinds, 2)]
        return [
            step(f"hang-broker {broker}"),
            *(each for each in met if each is not None),
            step(f"wake-broker {broker}"),
        ]

    def way(self) -> Way:
        return self.chance.choice(("znode", "api"))


_KINDS: dict[Callable[[_Dice], Step | list[Step] | None], int] = {
    _Dice.create: 2,
    _Dice.expand: 1,
    _Dice.delete: 1,
    _Dice.die: 3,
    _Dice.start: 4,
    _Dice.bounce: 2,
    _Dice.shut_down: 2,
    _Dice.fail_over: 1,
    _Dice.vacancy: 1,
    _Dice.notify: 1,
    _Dice.alter: 6,
    _Dice.shrink: 2,
    _Dice.reassign: 3,
    _Dice.cancel: 1,
    _Dice.prefer: 2,
    _Dice.unclean: 1,
    _Dice.log_dir: 1,
    _Dice.modify: 1,
    _Dice.producer_ids: 1,
    _Dice.hang: 1,
}
"""How often each comes, relative to the others."""


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))


def _as(version: Version | None) -> str:
    return "" if version is None else f" release={version.release} protocol={version.protocol}"


def variant_of(seed: int) -> str:
    """Eight seeds: four of one older protocol, four of the newest.  So a few seeds need few variants, and the first
    of them one below 2.7 and one above."""
    number, of_eight = divmod(seed, 8)
    older = list(OLDER_PROTOCOLS)
    return older[number * 5 % len(older)] if of_eight < 4 else ""


def random_scenario(seed: int) -> Scenario:
    dice = _Dice(seed)
    versions = tuple(dice.versions[n] for n in BROKERS)
    steps = [each for each in (dice.create(), dice.create()) if each is not None]
    while len(steps) < STEPS:
        (kind,) = dice.chance.choices(list(_KINDS), list(_KINDS.values()))
        met = kind(dice)
        steps += met if isinstance(met, list) else [met] if met is not None else []
    return Scenario(f"seed {seed}", steps, variant_of(seed), versions)
