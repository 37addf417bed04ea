"""Asks everything of both sides and keeps what differs.

The order matters, since both live in one cluster: what only controllers answer is asked of the broker while it is the
controller; then ours takes over; what changes nothing is asked of both at once; then what changes something of its
own; and last ours is asked what only controllers answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from aiocontroller.wire.apis import SUPPORTED, ApiKey
from tests.authorization.asking import Ask, Cell, When, layouts
from tests.authorization.between_brokers import UNKNOWN_APIS
from tests.authorization.client import ANSWER_TIMEOUT_S, IMPATIENT_S, Outcome, Side
from tests.authorization.compare import differences
from tests.authorization.principals import FRESH, Way
from tests.authorization.secured_cluster import ORACLE, OUR_ID, SecuredCluster, until
from tests.comparing_answers import Difference


class Place(NamedTuple):
    """A cell of the table: what is asked, in which version, by whom and how."""

    number: int
    ask: Ask
    version: int
    way: Way

    def __str__(self) -> str:
        return f"{self.ask} v{self.version} by {self.way}"


class Found(NamedTuple):
    place: Place
    difference: Difference


class Table:
    """``places`` is what was asked, ``found`` what differs."""

    def __init__(
        self,
        stage: SecuredCluster,
        asks: Iterable[Ask],
        ways: Sequence[Way],
        short: bool,
        only: frozenset[int] | None = None,
    ) -> None:
        self.stage = stage
        self.places: list[Place] = []
        self.found: list[Found] = []
        self.whole = only is None
        self.unanswered: list[Place] = []
        """To which the broker had no answer."""
        self._kafka: dict[Place, Outcome] = {}
        numbers = iter(range(1_000_000))
        asks = tuple(asks)
        for ask in (*asks, *_with_more_bytes(asks), *_unsupported_requests()):
            if only is not None and ask.api not in only:
                continue
            of_form = ask.more or ask.name == _UNOFFERED
            for version in versions_of(ask, short):
                self.places += [
                    Place(next(numbers), ask, version, way) for way in (one_each(ways) if of_form else ways)
                ]

    def __str__(self) -> str:
        listeners = {place.way.listener for place in self.places}
        return (
            f"{len(self.places)} cells: {len({place.ask.api for place in self.places})} APIs, "
            f"{len({(place.ask.api, place.ask.name) for place in self.places})} requests, "
            f"{len({(place.ask.api, place.version) for place in self.places})} versions of them, "
            f"{len({place.way.who for place in self.places})} principals, {len(listeners)} listeners"
        )

    async def play(self) -> None:
        stage = self.stage
        await self._prepare(When.CONTROLLER, [stage.oracle])
        for place in self._of(When.CONTROLLER):
            self._kafka[place] = await self._ask(place, stage.oracle)
        await self._tidy()
        await stage.take_over()
        await until(self._all_is_settled, "the topics of the stage, and no others", lambda: "")
        for place in self._of(When.READS):
            self._keep(place, *await asyncio.gather(self._ask(place, stage.oracle), self._ask(place, stage.ours)))
        await self._prepare(When.WRITES, [stage.oracle, stage.ours])
        for place in self._of(When.WRITES):
            self._keep(place, await self._ask(place, stage.oracle), await self._ask(place, stage.ours))
        await self._prepare(When.CONTROLLER, [stage.ours])
        for place in self._of(When.CONTROLLER):
            self._keep(place, self._kafka[place], await self._ask(place, stage.ours))

    def _of(self, when: When) -> Iterator[Place]:
        return (place for place in self.places if place.ask.when is when)

    async def _prepare(self, when: When, sides: Sequence[Side]) -> None:
        """The topics that requests destroy or change, all at once; the last of the sides is the controller."""
        wanted: dict[str, int] = {}
        for place in self._of(when):
            if place.ask.needs_topics:
                for side in sides:
                    wanted |= dict.fromkeys(self._cell(place, side.node_id).fresh_topics, 1)
        await self.stage.create_topics(wanted, controller=sides[-1])

    async def _tidy(self) -> None:
        """What was made, and what no request might delete: answers about all topics would be very long."""
        seen = await self.stage.metadata(self.stage.oracle)
        made = [topic.name for topic in seen.topics if _is_fresh(topic.name)]
        if made:
            topics = [{"name": name, "topic_id": None} for name in made]
            await self.stage.request(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=30_000)

    async def _all_is_settled(self) -> bool:
        for side in (self.stage.oracle, self.stage.ours):
            seen = await self.stage.metadata(side)
            if seen is None or any(_is_fresh(topic.name) for topic in seen.topics):
                return False
            if any(partition.leader_id < 0 for topic in seen.topics for partition in topic.partitions):
                return False
        return True

    def _cell(self, place: Place, node: int) -> Cell:
        stage = self.stage
        return Cell(
            number=place.number,
            side="o" if node == OUR_ID else "k",
            node_id=node,
            version=place.version,
            way=place.way,
            topic_ids=stage.topic_ids,
            broker_epochs=stage.broker_epochs,
            token_hmac=stage.token_hmac,
        )

    async def _ask(self, place: Place, side: Side) -> Outcome:
        api = place.ask.api
        offered = SUPPORTED.get(api)  # type: ignore[call-overload]
        strange = offered is None or not offered.min <= place.version <= offered.max
        body = b"\0" * 16 if strange else place.ask.body(self._cell(place, side.node_id))
        timeout_s = IMPATIENT_S if place.ask.unanswered_by_kafka else ANSWER_TIMEOUT_S
        return await side.ask(place.way, api, place.version, body, timeout_s)

    def _keep(self, place: Place, kafka: Outcome, ours: Outcome) -> None:
        if kafka.what != "answered":
            self.unanswered.append(place)
        cells = self._cell(place, ORACLE), self._cell(place, OUR_ID)
        found = differences(place.ask.api, cells[0], kafka, cells[1], ours)
        self.found += [Found(place, each) for each in found]


def _is_fresh(topic: str) -> bool:
    return topic.startswith(FRESH) and "-zz" in topic


def one_each(ways: Sequence[Way]) -> list[Way]:
    """One by each listener, for what concerns a request's form and not its principal: the super user where it comes."""
    chosen: dict[tuple[str, str], Way] = {}
    for way in ways:
        if way.who == "super" or (way.listener, way.proof) not in chosen:
            chosen[way.listener, way.proof] = way
    return list(chosen.values())


def versions_of(ask: Ask, short: bool) -> list[int]:
    """All layouts; the ends only of what costs much; the highest in the short form."""
    if ask.name == _UNOFFERED:
        return [ask.since]
    known = [version for version in layouts(ask.api) if ask.since <= version <= ask.until]
    lowest = max(ask.since, 0)
    highest = min(ask.until, SUPPORTED[ApiKey(ask.api)].max)
    if short:
        return [highest]
    return sorted({lowest, highest} if ask.ends_only or ask.more else {lowest, highest, *known})


_UNOFFERED = "not offered"


MORE_BYTES = "more bytes"


def _with_more_bytes(asks: Iterable[Ask]) -> list[Ask]:
    """One request of each API that changes nothing, with bytes behind its end, as librdkafka sends some."""
    first = {ask.api: ask for ask in reversed(tuple(asks)) if ask.when is When.READS and not ask.unanswered_by_kafka}
    return [ask._replace(name=MORE_BYTES, more=b"\0\0\0") for ask in first.values()]


def _unsupported_requests() -> list[Ask]:
    """A version too new of each API, and APIs that no broker has in ZooKeeper mode."""
    newer = [Ask(api, _UNOFFERED, lambda cell: {}, since=versions.max + 1) for api, versions in SUPPORTED.items()]
    return newer + [Ask(api, _UNOFFERED, lambda cell: {}) for api in UNKNOWN_APIS]
