"""A scenario played on one side: what is asked, and what was answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.two_clusters import ADMIN, Cluster
from tests.authorization.client import Outcome, Side
from tests.authorization.principals import Way
from tests.authorization.secured_cluster import Failed

Fields = dict[str, Any]
Assignments = Mapping[str, Sequence[Sequence[int]]]
"""topic -> the replicas of each partition."""
WITHIN_S = 30.0
ANSWERED_WITHIN_S = 60.0


class Scenario(NamedTuple):
    """``play`` asks; ``topics`` are there before, of names that are the scenario's own.

    ``since`` and ``until`` are the versions of ``api`` in which it makes sense.
    """

    api: ApiKey
    name: str
    play: Callable[[Player], Awaitable[Any]]
    topics: Assignments
    since: int
    until: int
    releases: tuple[str, ...] | None
    """None for all."""

    def __str__(self) -> str:
        return f"{self.api.name} ({self.name})" if self.name else self.api.name


class Answer(NamedTuple):
    """One request, with what became of it."""

    place: str
    """``CREATE_TOPICS (twice) v7: METADATA``"""
    api: ApiKey
    version: int
    outcome: Outcome


class Player:
    def __init__(self, cluster: Cluster, scenario: Scenario, number: int, version: int) -> None:
        self.cluster = cluster
        self.scenario = scenario
        self.version = version
        self.number = number
        self.answers: list[Answer] = []
        self._prefix = f"s{number}v{version}-"

    def topic(self, name: str) -> str:
        """A name that no other scenario uses; the same on both sides."""
        return self._prefix + name

    @property
    def topics(self) -> dict[str, Sequence[Sequence[int]]]:
        return {self.topic(name): replicas for name, replicas in self.scenario.topics.items()}

    def topic_id(self, name: str) -> bytes:
        """Of a topic that was there before."""
        wanted = self.topic(name)
        return next(each for each, known in self.cluster.topic_ids.items() if known == wanted)

    async def ask(
        self,
        api: ApiKey | None = None,
        version: int | None = None,
        *,
        way: Way = ADMIN,
        what: str = "",
        within_s: float = ANSWERED_WITHIN_S,
        forwarded: bool = False,
        side: Side | None = None,
        **fields: Any,
    ) -> Any:
        """One request of the table; the answer as kio's entity, None without one.  ``api`` is the scenario's own.

        ``within_s`` is short where a broker's handler fails and never answers.  ``forwarded``: ours gets it from a
        broker, in an envelope; Kafka's controller, which takes none here, from the client itself.  ``side`` has
        connections of its own.
        """
        if api is None:
            api, version = self.scenario.api, self.version
        elif version is None:
            version = self.version if api == self.scenario.api else self.cluster.highest(api)
        body = cold.encode_request(api, version, cold.request(api, version, **fields))
        side = side or self.cluster.side
        side.silences = 0  # some are expected: they must not make it impatient
        ask = self.cluster.forward if forwarded else side.ask
        outcome = await ask(way, api, version, body, timeout_s=within_s)
        followed = f": {api.name}" if api != self.scenario.api else ""
        place = f"{self.scenario} v{self.version}{followed}{f', {what}' if what else ''}"
        while any(answer.place == place for answer in self.answers):
            place += "'"
        self.answers.append(Answer(place, api, version, outcome))
        return cold.decode_response(api, version, outcome.body) if outcome.what == "answered" else None

    async def request(self, api: ApiKey, version: int | None = None, *, way: Way = ADMIN, **fields: Any) -> Any:
        """A request that only sets the stage."""
        return await self.cluster.ask(api, self.cluster.highest(api) if version is None else version, way, **fields)

    async def until(self, probe: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not await probe():
            if time.monotonic() > deadline:
                raise Failed(f"{self.cluster.name}: {self.scenario}: waited {WITHIN_S:g} s for {what}")
            await asyncio.sleep(0.05)
