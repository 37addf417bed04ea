"""Requests to the controller: what is too much, and answers that cannot be made."""

from __future__ import annotations

import logging

import pytest

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import elect_leaders, reassignments
from aiocontroller.wire.apis import ApiKey
from tests.unit.server.front import front, settle


@virtual_time
async def test_request_that_names_too_much_costs_its_connection() -> None:
    """Before a handler works on it; so many names fit into the bytes that a request may have."""
    body = elect_leaders.encode_elect_leaders_request(0, [TopicPartition("t", n) for n in range(50_001)])
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ELECT_LEADERS, 0, body)
        await settle()
        assert client.closed
        assert len(it.queue) == 0
        other = await it.connect()
        other.request(ApiKey.ELECT_LEADERS, 0, elect_leaders.encode_elect_leaders_request(0, [TopicPartition("t", 0)]))
        await settle()
        assert len(it.queue) == 1


@virtual_time
async def test_answer_that_cannot_be_made_fails_no_handler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would cost a reload of the cluster, and no client would be answered."""
    async with front() as it:
        client = await it.connect()
        client.request(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, reassignments.encode_list_partition_reassignments_request(0, None)
        )
        await settle()
        event = (await it.queue.get()).event
        with caplog.at_level(logging.ERROR):
            event.reply.answer({"no partition": 7})  # type: ignore[attr-defined]
            await settle()
        assert client.closed
        assert any("could not be answered" in r.getMessage() for r in caplog.records)
