"""Controller mutation quotas (KIP-599): what is throttled, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.player import Fields, Player
from tests.admin_answers.registry import scenario
from tests.admin_answers.topics import assigned, create, delete, grow, more, new
from tests.admin_answers.two_clusters import SINCE_2_7, throttled

MANY = 12
"""Partitions: ten seconds' worth more than the quota has at once, so the second request comes in time."""


def _twice(api: ApiKey, first: Callable[[Player], Fields], second: Callable[[Player], Fields]) -> None:
    """Both have ``MANY`` partitions; the second comes by another connection, since the first is muted."""

    @scenario(api, "throttled", topics={"a": [[1]] * MANY, "b": [[1]] * MANY}, releases=SINCE_2_7)
    async def _(p: Player) -> None:
        way = throttled(api, p.version)
        for fields, what in ((first, ""), (second, "beyond the quota")):
            visit = p.cluster.visit()
            try:
                await p.ask(way=way, what=what, side=visit, **fields(p))
            finally:
                await visit.close()


def _new(p: Player, name: str) -> Fields:
    return create(new(p.topic(name), **assigned(*[[1]] * MANY)))


_twice(ApiKey.CREATE_TOPICS, lambda p: _new(p, "c"), lambda p: _new(p, "d"))
_twice(ApiKey.DELETE_TOPICS, lambda p: delete(p.topic("a")), lambda p: delete(p.topic("b")))
_twice(
    ApiKey.CREATE_PARTITIONS,
    lambda p: grow(more(p, "a", 2 * MANY, *[[1]] * MANY)),
    lambda p: grow(more(p, "b", 2 * MANY, *[[1]] * MANY)),
)
