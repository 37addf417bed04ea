"""FindCoordinator, as one more broker answers it."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import AllowAll, ResourceType
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.find_coordinator import java_hash, partition_for
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.allowing import Allowing
from tests.unit.server.front import Front
from tests.unit.server.one_more_broker import (
    DESCRIBE,
    NOT_FOUND,
    OTHER_ID,
    ask,
    front,
)


def test_keys_are_hashed_as_java_does() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99_162_322
    assert java_hash("\U0001f600") == 1_772_899
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_for("polygenelubricants", 50) == 0


def of(answer: Any, version: int) -> list[tuple[int, int, str]]:
    found = answer.coordinators if version >= 4 else [answer]
    return [(int(each.error_code), each.node_id, each.host) for each in found]


async def find(it: Front, version: int, key: str, kind: int = 0) -> list[tuple[int, int, str]]:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version:
        fields["key_type"] = kind
    return of(await ask(it, ApiKey.FIND_COORDINATOR, version, **fields), version)


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinator_leads_the_partition_of_its_key(version: int) -> None:
    async with front() as it:
        it.topic("__consumer_offsets", 1, 2, 3, topic_id=OTHER_ID)
        it.topic("__transaction_state", 2, topic_id=b"\x08" * 16)
        for key in ("a", "b", "c"):
            leader = (1, 2, None)[partition_for(key, 3)]
            expected = (0, leader, f"b{leader}") if leader else (NOT_FOUND, -1, "")
            assert await find(it, version, key) == [expected]
            if version:
                assert await find(it, version, key, 1) == [(0, 2, "b2")]
        assert not it.queue


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinators_topic_is_created_when_first_asked_for(version: int) -> None:
    async with front() as it:
        assert await find(it, version, "a") == [(NOT_FOUND, -1, "")]
        event = await it.event()
        assert [topic.name for topic in event.topics] == ["__consumer_offsets"]
        event.reply.answer({})
        if version:
            assert await find(it, version, "a", 1) == [(NOT_FOUND, -1, "")]
            assert [topic.name for topic in (await it.event()).topics] == ["__transaction_state"]


@pytest.mark.parametrize("version", range(7))
@virtual_time
async def test_coordinator_needs_the_right_to_describe(version: int) -> None:
    async with front() as it:
        it.shell.authorizer = Allowing()
        assert await find(it, version, "a") == [(30, -1, "")]
        if version:
            assert await find(it, version, "a", 1) == [(53, -1, "")]
            assert await find(it, version, "a", 9) == [(42, -1, "")]
            assert await find(it, version, "a", 2) == [(31 if version == 6 else 42, -1, "")]
        assert not it.queue
        it.shell.authorizer = AllowAll()
        if version:
            assert await find(it, version, "a", 2) == [(15 if version == 6 else 42, -1, "")]


@virtual_time
async def test_many_coordinators_at_once() -> None:
    async with front() as it:
        it.topic("__consumer_offsets", 1, topic_id=OTHER_ID)
        it.shell.authorizer = Allowing((DESCRIBE, ResourceType.GROUP, "a"))
        answer = await ask(it, ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a", "b"], key_type=0)
        assert [each.key for each in answer.coordinators] == ["a", "b"]
        assert of(answer, 4) == [(0, 1, "b1"), (30, -1, "")]
