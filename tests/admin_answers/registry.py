"""How scenarios are written: a decorated function, or one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiocontroller.wire.apis import ApiKey
from tests.admin_answers.player import ANSWERED_WITHIN_S, Assignments, Fields, Player, Scenario
from tests.admin_answers.two_clusters import ADMIN
from tests.authorization.principals import Way

SCENARIOS: list[Scenario] = []
SOON_S = 3.0
Play = Callable[[Player], Awaitable[Any]]


def scenario(
    api: ApiKey,
    name: str = "",
    *,
    topics: Assignments | None = None,
    since: int = 0,
    until: int = 99,
    releases: tuple[str, ...] | None = None,
) -> Callable[[Play], Play]:
    """Register what is decorated."""

    def register(play: Play) -> Play:
        SCENARIOS.append(Scenario(api, name, play, topics or {}, since, until, releases))
        return play

    return register


def one(
    api: ApiKey,
    name: str,
    fields: Callable[[Player], Fields],
    *,
    way: Way = ADMIN,
    unanswered: bool = False,
    forwarded: bool = False,
    **more: Any,
) -> None:
    """A scenario of one request.

    ``unanswered`` where a broker's handler fails and never answers; ``forwarded`` as in ``Player``.
    """

    async def play(p: Player) -> None:
        within_s = SOON_S if unanswered else ANSWERED_WITHIN_S
        await p.ask(way=way, within_s=within_s, forwarded=forwarded, **fields(p))

    scenario(api, name, **more)(play)
