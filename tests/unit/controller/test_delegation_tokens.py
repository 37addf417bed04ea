"""Which delegation tokens the controller deletes, and when it looks again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aiocontroller.controller.delegation_tokens import EXPIRY_CHECK
from aiocontroller.core.events import ExpireDelegationTokens
from aiocontroller.zookeeper.cluster_znodes import DelegationToken
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster

NOW_MS = 1_000_000
LATER, EARLIER = NOW_MS + 1, NOW_MS - 1


def token(name: str, *, expiry: int, at_most: int) -> DelegationToken:
    return DelegationToken(name, "User:a", "User:a", (), 0, at_most, expiry)


def over(
    monkeypatch: pytest.MonkeyPatch, tokens: Sequence[DelegationToken], bad: Sequence[BadZNode] = ()
) -> tuple[list[list[str]], PureCluster]:
    """The ids in each request to delete, at NOW_MS."""
    it = cluster(1)
    deleted: list[list[str]] = []

    async def get() -> tuple[Sequence[DelegationToken], Sequence[BadZNode]]:
        return tokens, bad

    async def delete(ids: Sequence[str], *, fence: int) -> None:
        it.znodes.fence(fence)
        deleted.append(list(ids))

    monkeypatch.setattr(it.znodes, "get_delegation_tokens", get, raising=False)
    monkeypatch.setattr(it.znodes, "delete_delegation_tokens", delete, raising=False)
    monkeypatch.setattr(it.shell.world.clock, "wall_time_us", lambda: NOW_MS * 1000 + 999)
    it.queue.cancel(EXPIRY_CHECK)
    it.queue.append(ExpireDelegationTokens())
    it.step()
    return deleted, it


def test_a_token_is_over_at_the_earlier_of_its_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [
        token("expired", expiry=EARLIER, at_most=LATER),
        token("now", expiry=NOW_MS, at_most=NOW_MS),  # Kafka's comparison: strictly before
        token("valid", expiry=LATER, at_most=LATER),
        token("too old", expiry=LATER, at_most=EARLIER),
    ]
    deleted, _ = over(monkeypatch, tokens)
    assert deleted == [["expired", "too old"]]


def test_nothing_is_written_where_no_token_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted, it = over(monkeypatch, [token("valid", expiry=LATER, at_most=LATER)])
    assert deleted == []
    assert it.queue.scheduled(EXPIRY_CHECK)


def test_a_damaged_token_is_reported_and_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = BadZNode("/delegation_token/tokens/x", "{", "JSON")
    deleted, it = over(monkeypatch, [token("expired", expiry=EARLIER, at_most=LATER)], [bad])
    assert deleted == [["expired"]]
    assert list(it.shell.bad_paths()) == [bad.path]


def test_the_next_look_comes_even_if_this_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster(1)

    async def fail() -> None:
        raise ConnectionError

    monkeypatch.setattr(it.znodes, "get_delegation_tokens", fail, raising=False)
    scheduled: list[tuple[float, object]] = []
    monkeypatch.setattr(it.queue, "schedule", lambda tag, delay_s, event: scheduled.append((delay_s, event)))
    it.queue.append(ExpireDelegationTokens())
    with pytest.raises(ConnectionError):
        it.step()
    assert scheduled == [(3600.0, ExpireDelegationTokens())]
