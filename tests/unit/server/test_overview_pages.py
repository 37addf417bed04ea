"""The overview is made once for all that look, streams send what has changed, and nobody holds others up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.core.errors import BadInputError
from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.server import overview_pages
from aiocontroller.server.http import HttpServer, Limits, serve
from aiocontroller.server.overview_pages import Overview
from aiocontroller.server.partition_pages import NotInChargeError
from tests.builders import ctx


class Sections:
    """What the overview shows, and how often it was made."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"a": 1, "b": [2]}
        self.made = 0

    def makers(self) -> dict[str, Callable[[], Any]]:
        def make(name: str) -> Any:
            self.made += name == "a"
            return self.values[name]

        return {name: lambda name=name: make(name) for name in self.values}  # type: ignore[misc]


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> Sections:
    made = Sections()
    monkeypatch.setattr(overview_pages, "EVERY_S", 0.02)
    return made


@pytest.fixture
async def overview(sections: Sections) -> Overview:
    return Overview(sections.makers(), cast(KafkaController, None), real_world().clock, 8)


@pytest.fixture
async def server(overview: Overview) -> AsyncIterator[HttpServer]:
    made = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=Metrics(),
        ready=lambda: (True, ""),
        status=dict,
        questions={"overview": overview.page, "search": overview.search},
        streams={"events": overview.stream},
        limits=Limits(max_connections=8, timeout_s=0.5),
    )
    yield made
    await made.close()


async def messages(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


async def test_a_stream_sends_what_has_changed(server: HttpServer, sections: Sections) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        async with http.get("/events") as answer:
            assert answer.content_type == "text/event-stream"
            news = messages(answer)
            first = await anext(news)
            assert (first.pop("now_us") > 0, first) == (True, {"a": 1, "b": [2]})
            sections.values["b"] = ["\n\ndata: {}\n\n"]
            second = await anext(news)
            assert second["b"] == ["\n\ndata: {}\n\n"]
            assert "a" not in second


async def test_other_pages_go_on_beside_streams(server: HttpServer, sections: Sections, overview: Overview) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        async with http.get("/events") as one, http.get("/events") as other:
            await anext(messages(one))
            await anext(messages(other))
            assert overview.streams == 2
            async with http.get("/overview") as answer:
                found = await answer.json()
                assert (found["a"], found["b"]) == (1, [2])
    deadline = asyncio.get_running_loop().time() + 10
    while overview.streams:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


async def test_a_quiet_cluster_gives_a_sign_of_life(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_pages, "SIGN_OF_LIFE_S", 0.05)
    async with aiohttp.ClientSession(server.url) as http:
        async with http.get("/events") as answer:
            news = messages(answer)
            await anext(news)
            assert list(await anext(news)) == ["now_us"]


async def test_there_are_only_so_many_streams(server: HttpServer) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        streams = [await http.get("/events") for _ in range(4)]
        async with http.get("/events") as answer:
            assert answer.status == 503
        async with http.get("/overview") as answer:
            assert answer.status == 200
        for each in streams:
            each.close()


async def test_a_reader_that_goes_frees_its_place_while_nothing_changes(
    server: HttpServer, overview: Overview, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_pages, "SIGN_OF_LIFE_S", 1000.0)
    async with aiohttp.ClientSession(server.url) as http:
        answer = await http.get("/events")
        await anext(messages(answer))
        other = await http.get("/events")
        await anext(messages(other))
        assert overview.streams == 2
        answer.close()
        async with asyncio.timeout(20):
            while overview.streams == 2:
                await asyncio.sleep(0.01)
        assert overview.streams == 1
        other.close()


async def test_a_stream_has_no_head(server: HttpServer, overview: Overview) -> None:
    async with aiohttp.ClientSession(server.url) as http, http.head("/events") as answer:
        assert answer.status == 405
    assert overview.streams == 0


async def test_one_who_does_not_read_is_dropped(server: HttpServer, sections: Sections, overview: Overview) -> None:
    sections.values["a"] = "x" * 3_000_000
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20
    while not overview.streams:
        assert loop.time() < deadline
        await asyncio.sleep(0.01)
    async with aiohttp.ClientSession(server.url) as http:
        while overview.streams:
            assert loop.time() < deadline
            sections.values["a"] = sections.values["a"][1:]
            async with http.get("/healthz") as answer:
                assert answer.status == 200
            await asyncio.sleep(0.05)
    writer.close()
    del reader


async def test_one_who_had_to_make_room_is_no_error_of_ours(
    server: HttpServer, overview: Overview, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def feed(request: object, response: object) -> None:
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr(overview, "_feed", feed)
    async with aiohttp.ClientSession(server.url) as http, http.get("/events") as answer:
        await answer.read()
    assert overview.streams == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_many_looks_cost_one(overview: Overview, sections: Sections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_pages, "EVERY_S", 1000.0)
    overview = Overview(sections.makers(), cast(KafkaController, None), real_world().clock, 8)
    await asyncio.gather(*(overview.look() for _ in range(20)))
    assert sections.made == 1


# -- search ------------------------------------------------------------------------------------------------------------


def searching(topics: dict[str, list[list[int]]], *, active: bool = True) -> Overview:
    context = ctx(3, topics)
    context.loaded = True
    shell = SimpleNamespace(id=1000, context=context, channels=object() if active else None)
    controller = SimpleNamespace(shell=shell)
    return Overview({}, cast(KafkaController, controller), real_world().clock, 8)


async def test_search(sections: Sections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_pages, "LOOKED_AT", 2)
    found = await searching({"a-orders": [[1]], "orders-7": [[1]], "orders": [[1]] * 9, "x": [[2]]}).search(
        {"q": " orders "}
    )
    assert [each["topic"] for each in found["topics"]] == ["orders", "orders-7", "a-orders"]
    found = await searching({"orders-7": [[1]], "orders": [[1]] * 9}).search({"q": "orders-7"})
    assert found["topics"] == [{"topic": "orders-7", "partitions": 1}]
    assert found["partitions"] == [{"topic": "orders", "partition": 7}]
    assert [b["id"] for b in (await searching({}).search({"q": "2"}))["brokers"]] == [2]
    assert [b["id"] for b in (await searching({}).search({"q": "B3"}))["brokers"]] == [3]


async def test_search_is_bounded(sections: Sections) -> None:
    overview = searching({f"t{n}": [] for n in range(200)} | {"zt": [[1]]})
    assert len((await overview.search({"q": "t"}))["topics"]) == overview_pages.FOUND
    for query in ({}, {"q": ""}, {"q": " "}, {"q": "x" * 301}, {"q": "t", "r": "u"}):
        with pytest.raises(BadInputError):
            await overview.search(query)
    for text in ("t-99999999999999999999", "-", "t-\u0663", "\x00", "%"):
        assert (await overview.search({"q": text}))["partitions"] == []
    with pytest.raises(NotInChargeError):
        await searching({}, active=False).search({"q": "t"})
