"""``GET /overview`` (JSON), ``/events`` (the same as server-sent events) and ``/search``.

The overview is made at most twice a second, for all readers together, and kept as the bytes of its sections.  A stream
sends a section when its bytes have changed, so that of a quiet cluster only a sign of life is sent.  Each stream waits
for its own reader only: for a slow one it skips overviews, and ``http_connections`` closes one that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.core.errors import BadInputError
from aiocontroller.net.ports import Clock
from aiocontroller.server.cluster_view import in_charge
from aiocontroller.server.http_connections import HttpConnection
from aiocontroller.server.partition_pages import NotInChargeError

EVERY_S = 0.5
SIGN_OF_LIFE_S = 5.0
MAX_STREAMS = 24
"""And at most half of ``aiocontroller.http.max.connections``."""
FOUND = 20
LOOKED_AT = 5_000
"""Topics that a search looks at before other tasks may run: about a millisecond."""
MAX_QUERY = 300

_encoder = msgspec.json.Encoder(enc_hook=repr)


class Overview:
    """The sections' bytes, made on demand once the kept ones are ``EVERY_S`` old."""

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Any]],
        controller: KafkaController,
        clock: Clock,
        max_connections: int,
    ) -> None:
        """``makers``: the function that makes each section, by its name."""
        self._controller = controller
        self._clock = clock
        self._makers = makers
        self._turn = asyncio.Lock()
        self._made: dict[str, bytes] = {}
        self._made_s = -EVERY_S
        self._max_streams = max(1, min(MAX_STREAMS, max_connections // 2))
        self.streams = 0
        """Number of open streams."""

    async def look(self) -> Mapping[str, bytes]:
        """The sections, at most ``EVERY_S`` old; other tasks may run between two of them."""
        async with self._turn:
            if self._clock.monotonic() - self._made_s >= EVERY_S:
                self._made_s = self._clock.monotonic()
                for name, make in self._makers.items():
                    self._made[name] = _encoder.encode(make())
                    await asyncio.sleep(0)
        return self._made

    async def page(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The answer to ``GET /overview``."""
        return self._with_time(await self.look())

    def _with_time(self, made: Mapping[str, bytes]) -> dict[str, Any]:
        return {"now_us": self._clock.wall_time_us(), **{name: msgspec.Raw(data) for name, data in made.items()}}

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """The answer to ``GET /events``; HTTPServiceUnavailable if there are too many streams."""
        if self.streams >= self._max_streams:
            raise web.HTTPServiceUnavailable(text=f"there are {self.streams} streams, expected fewer\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self.streams += 1
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # the client is gone, or had to make room for another
                await self._feed(request, response)
        finally:
            self.streams -= 1
        return response

    async def _feed(self, request: web.Request, response: web.StreamResponse) -> None:
        sent: dict[str, bytes] = {}
        sent_s = -SIGN_OF_LIFE_S
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        while request.transport is not None and not connection.outdated:  # one that has gone frees its place at once
            made = await self.look()
            news = {name: data for name, data in made.items() if sent.get(name) != data}
            now_s = self._clock.monotonic()
            if news or now_s - sent_s >= SIGN_OF_LIFE_S:
                await response.write(b"data: " + _encoder.encode(self._with_time(news)) + b"\n\n")
                sent |= news
                sent_s = now_s
            await self._clock.sleep(EVERY_S)

    async def search(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The answer to ``GET /search?q=…``: topics, partitions and brokers whose names contain the text.

        BadInputError for another query, NotInChargeError if this is not the active controller.
        """
        text = query.get("q", "").strip()
        if not text or len(text) > MAX_QUERY or set(query) != {"q"}:
            raise BadInputError(f"q: found {text[:50]!r}, expected a part of a topic's, partition's or broker's name")
        shell = self._controller.shell
        if not in_charge(shell):
            raise NotInChargeError(f"controller {shell.id} is not in charge of the cluster now: ask the one that is")
        context = shell.context
        brokers = [
            {"id": broker.id, "address": ", ".join(f"{e.host}:{e.port}" for e in broker.endpoints)}
            for broker in context.brokers.values()
            if text == str(broker.id) or any(text.lower() in e.host.lower() for e in broker.endpoints)
        ]
        topic, _, number = text.rpartition("-")
        known = context.table.topic_by_name.get(topic)
        at = known.rows if known is not None and number.isascii() and number.isdigit() and len(number) < 8 else ()
        partitions = [{"topic": topic, "partition": int(number)}] if at and int(number) < len(at) else []
        return {"topics": await self._topics(text), "partitions": partitions, "brokers": brokers[:FOUND]}

    async def _topics(self, text: str) -> list[dict[str, Any]]:
        """The topic of this name, then those that begin with it, then those that contain it."""
        table = self._controller.shell.context.table
        names = list(table.topic_by_name)
        first = [text] if text in table.topic_by_name else []
        others: list[str] = []
        for start in range(0, len(names), LOOKED_AT):
            for name in names[start : start + LOOKED_AT]:
                if name.startswith(text):
                    if name != text:
                        first.append(name)
                elif text in name:
                    others.append(name)
            if len(first) >= FOUND:
                break
            await asyncio.sleep(0)
        found = sorted(first, key=lambda name: (name != text, name))[:FOUND]
        found += sorted(others)[: FOUND - len(found)]
        known = ((name, table.topic_by_name.get(name)) for name in found)
        return [{"topic": name, "partitions": len(topic.rows)} for name, topic in known if topic is not None]
