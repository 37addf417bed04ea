"""What ``GET /partitions`` answers, and that no question holds others up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.states import PartitionState
from aiocontroller.server import partition_pages
from aiocontroller.server.partition_pages import NotInChargeError, UnknownTopicError, parse, partitions
from tests.builders import ctx, lead


def shell(context: ControllerContext, *, active: bool = True) -> ControllerShell:
    context.loaded = True
    return cast(ControllerShell, SimpleNamespace(id=1000, context=context, channels=object() if active else None))


def cluster() -> ControllerContext:
    context = ctx(3, {"t": [[1, 2, 3]] * 5, "u": [[2, 3]]}, dead=[3])
    context.table.broken.now_us = 7
    for name in ("t-3", "t-1", "u-0"):
        lead(context, name, 2, (2,))
    context.table.set_state([4], PartitionState.OfflinePartition)
    return context


async def ask(context: ControllerContext, **query: str) -> dict[str, Any]:
    """The answer as a client reads it."""
    found = msgspec.json.decode(msgspec.json.encode(await partitions(shell(context), query)))
    assert isinstance(found, dict)
    return found


def names(answer: dict[str, Any]) -> list[str]:
    return [f"{each['topic']}-{each['partition']}" for each in answer["partitions"]]


async def test_of_a_kind() -> None:
    answer = await ask(cluster(), state="under-replicated")
    assert names(answer) == ["t-3", "t-1", "u-0"]
    assert (answer["count"], answer["complete"], answer["state"]) == (3, False, "under-replicated")
    assert answer["partitions"][2] == {
        "topic": "u",
        "partition": 0,
        "since_us": 7,
        "at_least": False,
        "reason": [{"text": "broker 3 not registered", "since_us": None}],
        "leader": 2,
        "replicas": [2, 3],
        "isr": [2],
        "adding": [],
        "removing": [],
    }


async def test_slices_of_it() -> None:
    answer = await ask(cluster(), state="under-replicated", start="1", limit="1")
    assert (names(answer), answer["count"]) == (["t-1"], 3)
    assert names(await ask(cluster(), state="offline", start="9")) == []


async def test_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_pages, "SLICE", 2)
    answer = await ask(cluster(), state="under-replicated", topic="t")
    assert (names(answer), answer["count"]) == (["t-1", "t-3"], 2)
    answer = await ask(cluster(), state="under-replicated", topic="t", start="1", limit="5")
    assert (names(answer), answer["count"]) == (["t-3"], 2)
    answer = await ask(cluster(), topic="t", start="1", limit="3")
    assert (names(answer), answer["count"]) == (["t-1", "t-2", "t-3"], 5)
    assert [list(each["broken"]) for each in answer["partitions"]] == [
        ["under-replicated"],
        [],
        ["under-replicated"],
    ]
    assert (answer["partitions"][0]["leader"], answer["partitions"][0]["isr"]) == (2, [2])


async def test_a_topic_that_goes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_pages, "SLICE", 2)
    context = cluster()
    asking = asyncio.create_task(ask(context, topic="t"))
    await asyncio.sleep(0)
    context.remove_topic(context.table.topic_by_name["t"])
    assert names(await asking) == ["t-0", "t-1"]


@pytest.mark.parametrize(
    "query, found",
    [
        ({}, "neither state nor topic"),
        ({"state": "Offline"}, "'Offline'"),
        ({"state": ""}, "state: found ''"),
        ({"state": "offline", "limit": "0"}, "limit: found '0'"),
        ({"state": "offline", "limit": "251"}, "limit: found '251'"),
        ({"state": "offline", "limit": "\u0663"}, "limit"),
        ({"state": "offline", "start": "-1"}, "start: found '-1'"),
        ({"state": "offline", "start": "9" * 5000}, "start"),
        ({"state": "offline", "offset": "1"}, "'offset'"),
    ],
)
def test_nonsense(query: dict[str, str], found: str) -> None:
    with pytest.raises(BadInputError, match=found):
        parse(query)


async def test_nobody_else_knows() -> None:
    with pytest.raises(NotInChargeError, match="1000 is not in charge"):
        await partitions(shell(cluster(), active=False), {"state": "offline"})
    unread = shell(cluster())
    unread.context.loaded = False
    with pytest.raises(NotInChargeError):
        await partitions(unread, {"topic": "t"})


async def test_an_unknown_topic() -> None:
    with pytest.raises(UnknownTopicError, match="'v'"):
        await ask(cluster(), topic="v")
